"""Servers that belong together: one folder, one clock, one way to end them all."""

import os
import shutil
import tempfile
import threading

from .clock import Clock
from .guardian import Guardian
from .mariadb import MariaDB
from .mysql import MySQL
from .postgres import PgBouncer, Postgres
from .process import Failed
from .redis import Cluster, Redis, Sentinel

ROOM_MIN = 2 << 30  # bytes that must be free where data are to be kept in memory

KINDS = ("redis", "sentinel", "cluster", "postgres", "pgbouncer", "mariadb")


def data_folder():
    """Where the temporary folder is made: in IDEM_SERVERS_FOLDER if it has room, else as usual.

    A folder in memory (/dev/shm) outlives a server's crash as a disk does, so that tests may have
    their data there and need not wait for the disk; what measures speed must not.
    """
    folder = os.environ.get("IDEM_SERVERS_FOLDER")
    if folder and os.path.isdir(folder) and shutil.disk_usage(folder).free >= ROOM_MIN:
        return folder
    return None


class Rig:
    """Holds servers; a context that ends them.

    Without real_clock the servers' time of day is what the file of `clock` says (0, the start: the
    real one), and no time-out of Sentinel or Cluster ever comes; with it both fail over in a second
    or two.
    """

    def __init__(self, real_clock=False):
        self.real_clock = real_clock
        self.folder = tempfile.mkdtemp(prefix="idem-servers-", dir=data_folder())
        Guardian.get().folder(self.folder)
        os.chmod(self.folder, 0o755)
        self.clock = None if real_clock else Clock(self.folder)
        self.servers = {}  # by name
        self.groups = {}   # by kind: what has urls()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    # One of each kind, started ------------------------------------------------------------------

    def redis(self, **options):
        return self.add("redis", Redis(self.folder, clock=self.clock, **options))

    def sentinel(self, **options):
        return self.add("sentinel", Sentinel(self.folder, clock=self.clock,
                                             real_clock=self.real_clock, **options))

    def cluster(self, **options):
        return self.add("cluster", Cluster(self.folder, clock=self.clock,
                                           real_clock=self.real_clock, **options))

    def postgres(self, **options):
        return self.add("postgres", Postgres(self.folder, clock=self.clock, **options))

    def pgbouncer(self, **options):
        """In front of this rig's PostgreSQL, which is started first if it is not there."""
        postgres = self.groups.get("postgres") or self.postgres()
        return self.add("pgbouncer", PgBouncer(self.folder, postgres, **options))

    def mariadb(self, **options):
        """Or the MySQL of IDEM_MYSQLD in its place."""
        server = MySQL if os.environ.get("IDEM_MYSQLD") else MariaDB
        return self.add("mariadb", server(self.folder, **options))

    def add(self, kind, group):
        """A group is one server, or has several as `servers`."""
        self.groups[kind] = group
        for server in getattr(group, "servers", [group]):
            self.servers[server.name] = server
        group.start()
        return group

    # All of them --------------------------------------------------------------------------------

    def start(self, kinds):
        """Starts one of each kind, side by side."""
        unknown = [kind for kind in kinds if kind not in KINDS]
        if unknown:
            raise Failed(f"there is no kind {', '.join(unknown)}: there are {', '.join(KINDS)}")
        errors = []

        def begin(kind):
            try:
                getattr(self, kind)()
            except Exception as error:  # pylint: disable=broad-exception-caught
                errors.append(error)

        wanted = [kind for kind in kinds if not (kind == "postgres" and "pgbouncer" in kinds)]
        threads = [threading.Thread(target=begin, args=(kind,)) for kind in wanted]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return self

    def environment(self):
        """What tests find their servers by."""
        variables = {"IDEM_TEST_FOLDER": self.folder}
        if self.clock:
            variables["IDEM_TEST_CLOCK"] = self.clock.path
        for group in self.groups.values():
            for name, value in group.urls().items():
                variables[f"IDEM_TEST_{name}"] = value
        for name, server in self.servers.items():
            prefix = f"IDEM_TEST_{name.upper().replace('-', '_')}"
            variables[f"{prefix}_PID"] = str(server.pid)
            variables[f"{prefix}_PORT"] = str(server.port)
            variables[f"{prefix}_FOLDER"] = server.folder
        return variables

    def end(self):
        """Data are thrown away, so nothing is shut down in order."""
        for server in self.servers.values():
            if server.is_alive:
                server.finish(server.fatal, 10.0)
        shutil.rmtree(self.folder, ignore_errors=True)
