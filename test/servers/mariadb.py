"""MariaDB."""

import os
import signal
import socket

from .process import Server, unprivileged

USER = "idem"
PASSWORD = "open-sesame"

# Far from UTC, and with a fraction of an hour, so that arithmetic with zones shows.
ZONE = "+12:45"


class MariaDB(Server):
    """One server with the usual durability; `options` are added to its command line."""

    polite = signal.SIGTERM

    def __init__(self, folder, name="mariadb", options=()):
        super().__init__(name, folder)
        self.user = unprivileged("mysql")
        self.options = list(options)
        self.data = os.path.join(self.folder, "data")
        self.socket = os.path.join(self.folder, "socket")

    def environment(self):
        """At its start it removes what temporary tables it finds, those of others as well."""
        return {**super().environment(), "TMPDIR": self.folder}

    def prepare(self):
        self.run_tool(["mariadb-install-db", "--no-defaults", f"--datadir={self.data}",
                       "--auth-root-authentication-method=normal", "--skip-test-db",
                       "--skip-name-resolve", "--innodb-log-file-size=96M"])

    def configure(self):
        everybody = f"'{USER}'@'%'"
        self.write("init.sql",
                   f"CREATE USER IF NOT EXISTS {everybody} IDENTIFIED BY '{PASSWORD}';\n"
                   f"GRANT ALL ON *.* TO {everybody} WITH GRANT OPTION;\n")

    def command(self):
        return ["/usr/sbin/mariadbd", "--no-defaults", f"--datadir={self.data}",
                f"--socket={self.socket}", "--bind-address=127.0.0.1", f"--port={self.port}",
                f"--pid-file={self.folder}/pid", f"--init-file={self.folder}/init.sql",
                "--skip-name-resolve", "--max-connections=300", "--innodb-buffer-pool-size=64M",
                "--innodb-log-file-size=96M", "--innodb-flush-log-at-trx-commit=1",
                "--performance-schema=off", "--max-allowed-packet=256M",
                f"--default-time-zone={ZONE}"] + self.options

    def is_serving(self):
        """It greets with version 10 of its protocol once it serves."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5.0) as connection:
            greeting = connection.recv(5)
        return len(greeting) == 5 and greeting[4] == 10

    def sql(self, statement, user=USER, password=PASSWORD):
        """Runs SQL; returns the rows, fields separated by tabs."""
        return self.run_tool(["mariadb", "--no-defaults", "--batch", "--skip-column-names",
                              "--protocol=tcp", "--host=127.0.0.1", f"--port={self.port}",
                              f"--user={user}", f"--password={password}", "-e", statement])

    def url(self):
        """Of the server: the name of a database is to be added."""
        return f"mariadb://{USER}:{PASSWORD}@127.0.0.1:{self.port}"

    def urls(self):
        return {"MARIADB": self.url(), "MARIADB_SOCKET": self.socket}
