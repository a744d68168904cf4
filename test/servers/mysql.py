"""MySQL, in MariaDB's place: for who has one.

Debian has no MySQL for its stable releases, so nothing installs it: $IDEM_MYSQLD names the program,
and whatever asks for a MariaDB gets that MySQL. Clients are MariaDB's, as idem's own is.
"""

import os

from .mariadb import ZONE, MariaDB
from .process import Failed


class MySQL(MariaDB):
    """One server as MySQL is by default: binary log on, caching_sha2_password, its own TLS."""

    def __init__(self, folder, name="mariadb", options=()):
        super().__init__(folder, name, options)
        self.program = os.environ["IDEM_MYSQLD"]

    def prepare(self):
        if not os.access(self.program, os.X_OK):
            raise Failed(f"{self.program} cannot be run: IDEM_MYSQLD must name a mysqld")
        self.run_tool([self.program, "--no-defaults", "--initialize-insecure",
                       f"--datadir={self.data}"])

    def command(self):
        return [self.program, "--no-defaults", f"--datadir={self.data}",
                f"--socket={self.socket}", "--bind-address=127.0.0.1", f"--port={self.port}",
                f"--pid-file={self.folder}/pid", f"--init-file={self.folder}/init.sql",
                "--skip-name-resolve", "--max-connections=300", "--innodb-buffer-pool-size=64M",
                "--max-allowed-packet=256M", "--mysqlx=OFF", "--secure-file-priv=NULL",
                f"--default-time-zone={ZONE}"] + self.options
