"""PostgreSQL, and pgbouncer in front of it."""

import glob
import os
import signal
import socket
import struct

from .process import Failed, Server, stands_still, unprivileged, wait_until

USER = DATABASE = "idem"

# A zone that nobody computes with by mistake: UTC+12:45, +13:45 in summer.
ZONE = "Pacific/Chatham"


def program(name):
    """Debian keeps PostgreSQL's programs out of the way, one folder a version."""
    found = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"))
    if not found:
        raise Failed(f"{name} is not there: install the package postgresql")
    return found[-1]


def is_ready(port, timeout=5.0):
    """Logs in on this host, by the protocol itself: a ReadyForQuery message is what counts."""
    words = b"user\0" + USER.encode() + b"\0database\0" + DATABASE.encode() + b"\0\0"
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as connection:
        connection.sendall(struct.pack("!ii", 8 + len(words), 196608) + words)
        with connection.makefile("rb") as file:
            while True:
                head = file.read(5)
                if len(head) < 5 or head[:1] == b"E":
                    return False
                if head[:1] == b"Z":
                    connection.sendall(b"X\0\0\0\4")
                    return True
                file.read(struct.unpack("!i", head[1:])[0] - 4)


class Postgres(Server):
    """One server with the usual durability. `config` is added to its configuration."""

    polite = signal.SIGINT  # fast shutdown
    fatal = signal.SIGQUIT  # immediate: as a crash, but shared memory is given back

    def __init__(self, folder, name="postgres", config="", clock=None):
        super().__init__(name, folder, clock)
        self.user = unprivileged("postgres")
        self.config = config
        self.data = os.path.join(self.folder, "data")

    def prepare(self):
        self.run_tool([program("initdb"), "--no-sync", "--username", USER, "--auth", "trust",
                       "--encoding", "UTF8", "--locale", "C.UTF-8", "--no-instructions", "--pgdata",
                       self.data])
        # The database itself is made by the server in its single-user mode, before it serves.
        create = self.write("create.sql", f"CREATE DATABASE {DATABASE};\n")
        self.run_tool(["sh", "-c", f"exec {program('postgres')} --single -F -D '{self.data}' "
                                   f"postgres <'{create}'"])

    def configure(self):
        self.write("data/postgresql.auto.conf", "\n".join([
            "listen_addresses = '127.0.0.1'", f"port = {self.port}",
            f"unix_socket_directories = '{self.folder}'", "max_connections = 200",
            "shared_buffers = 32MB", "dynamic_shared_memory_type = mmap", "fsync = on",
            "synchronous_commit = on", "full_page_writes = on", f"timezone = '{ZONE}'",
            f"log_timezone = '{ZONE}'", self.config, ""]))

    def command(self):
        return [program("postgres"), "-D", self.data]

    def is_serving(self):
        return is_ready(self.port)

    def kill(self):
        """As a crash: nothing is saved."""
        self.finish(signal.SIGQUIT, 60.0)

    def stop(self):
        """Its processes lead sessions of their own."""
        for pid in self.each(signal.SIGSTOP):
            wait_until(lambda pid=pid: stands_still(pid), f"{self.name} to stand still")

    def cont(self):
        self.each(signal.SIGCONT)

    def each(self, number):
        """The parent first: it starts no more children then. Returns whom it told."""
        os.kill(self.pid, number)
        with open(f"/proc/{self.pid}/task/{self.pid}/children", encoding="ascii") as file:
            children = file.read().split()
        for pid in children:
            try:
                os.kill(int(pid), number)
            except ProcessLookupError:
                pass
        return [self.pid, *map(int, children)]

    def psql(self, sql, user=USER, database=DATABASE):
        """Runs SQL; returns the rows, fields separated by '|'."""
        return self.run_tool(["psql", "-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1",
                              "-p", str(self.port), "-U", user, "-d", database, "-c", sql])

    def url(self):
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{DATABASE}"

    def urls(self):
        return {"POSTGRES": self.url()}


class PgBouncer(Server):
    """In transaction mode: every transaction may come to another connection of the server.

    These are short-lived: a connection that has seen hundreds of schemas come and go, each with
    functions of its own, grows ever slower.
    """

    polite = signal.SIGTERM

    def __init__(self, folder, postgres, name="pgbouncer", config=""):
        super().__init__(name, folder)
        self.user = unprivileged("postgres")
        self.postgres = postgres
        self.config = config

    def configure(self):
        users = self.write("users.txt", f'"{USER}" ""\n')
        self.write("pgbouncer.ini", "\n".join([
            "[databases]", f"* = host=127.0.0.1 port={self.postgres.port}", "[pgbouncer]",
            "listen_addr = 127.0.0.1", f"listen_port = {self.port}",
            f"unix_socket_dir = {self.folder}", "auth_type = trust", f"auth_file = {users}",
            "pool_mode = transaction", "default_pool_size = 40", "max_client_conn = 1000",
            "server_lifetime = 2", self.config, ""]))

    def command(self):
        return ["pgbouncer", os.path.join(self.folder, "pgbouncer.ini")]

    def is_serving(self):
        return is_ready(self.port)

    def url(self):
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{DATABASE}"

    def urls(self):
        return {"PGBOUNCER": self.url()}
