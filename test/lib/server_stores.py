"""The stores that are servers, as a gateway and `idem` name them; one server a kind and test run.

    store = server_stores.get("postgres").store()     # of its own, its tables made
    scene = make_scene(store=store.url(timeout="500ms"))
    store.server.stop()                               # it hangs

A store is a prefix, a schema or a database of the one server, so that starting a server is paid for
once. A test that stops, restarts or weakens the server leaves it as it was (`steady` sees to that).
"""

import contextlib
import itertools
import os
import re
import subprocess
import sys

from nginx import BUILD, REPOSITORY

sys.path.insert(0, os.path.join(REPOSITORY, "test"))

# pylint: disable=wrong-import-position
from servers.mariadb import PASSWORD, USER  # noqa: E402
from servers.rig import Rig  # noqa: E402

IDEM = os.path.join(BUILD, "cli", "idem")
KINDS = ("redis", "postgres", "mariadb")
WRONG = "not-the-password"

_numbers = itertools.count(1)
_rig, _kinds = None, {}


class ServerStore:
    """One store on a kind's server."""

    def __init__(self, kind, name):
        self.kind, self.name, self.server = kind, name, kind.server

    def url(self, **options):
        """Options as in url(timeout="500ms", sync="off")."""
        place, own = self.kind.place(self.name)
        words = [*own, *(f"{name}={value}" for name, value in options.items())]
        return place + ("?" + "&".join(words) if words else "")


class Kind:
    """What differs between the kinds."""

    def __init__(self, server):
        self.server = server

    def store(self, migrate=True):
        made = ServerStore(self, f"s{os.getpid()}_{next(_numbers)}")
        if migrate:
            subprocess.run([IDEM, "migrate", made.url()], check=True, stdout=subprocess.DEVNULL)
        return made

    def steady(self):
        """Whatever a test did to the server, it serves again."""
        if not self.server.is_alive:
            self.server.spawn()
        self.server.cont()
        self.server.await_serving()

    @property
    def address(self):
        """How log lines and facts name the server."""
        return f"127.0.0.1:{self.server.port}"


class RedisKind(Kind):
    def empty(self, store):
        self.server.ask("EVAL", "for _, k in ipairs(redis.call('KEYS', ARGV[1])) do "
                        "redis.call('DEL', k) end", "0", store.name + "*")

    def place(self, name):
        return self.server.url(), [f"prefix={name}"]

    def wrong_url(self):
        self.server.ask("ACL", "SETUSER", "guarded", "on", ">right", "~*", "&*", "+@all")
        return f"redis://guarded:{WRONG}@{self.address}"

    @contextlib.contextmanager
    def weakened(self):
        """An acknowledged write may not be on disk yet."""
        self.server.ask("CONFIG", "SET", "appendfsync", "everysec")
        yield re.compile("appendfsync")
        self.server.ask("CONFIG", "SET", "appendfsync", "always")

    @contextlib.contextmanager
    def full(self, store):
        """There is no room for new keys. The store is made before: that takes some, too."""
        subprocess.run([IDEM, "store", "check", store.url()], check=True,
                       stdout=subprocess.DEVNULL)
        self.server.ask("CONFIG", "SET", "maxmemory", "1")
        yield
        self.server.ask("CONFIG", "SET", "maxmemory", "0")


class PostgresKind(Kind):
    FOLDER = "SCHEMA"  # what a store is in

    def empty(self, store):
        self.run(f"DROP SCHEMA {store.name} CASCADE")
        subprocess.run([IDEM, "migrate", store.url()], check=True, stdout=subprocess.DEVNULL)

    def run(self, statement):
        return self.server.psql(statement)

    def poor_url(self, store):
        """The store for a role that may log in and nothing else."""
        self.run("DO $$ BEGIN CREATE ROLE poor LOGIN; "
                 "EXCEPTION WHEN duplicate_object THEN NULL; END $$")
        return re.sub("//[^@/]*@", "//poor@", store.url())

    def place(self, name):
        return self.server.url(), [f"schema={name}"]

    def wrong_url(self):
        self.server.psql("DO $$ BEGIN CREATE ROLE guarded LOGIN PASSWORD 'right'; "
                         "EXCEPTION WHEN duplicate_object THEN NULL; END $$")
        rules = os.path.join(self.server.data, "pg_hba.conf")
        with open(rules, encoding="utf-8") as file:
            before = file.read()
        if "guarded" not in before:
            with open(rules, "w", encoding="utf-8") as file:
                file.write("host all guarded 127.0.0.1/32 scram-sha-256\n" + before)
            self.server.psql("SELECT pg_reload_conf()")
        return f"postgresql://guarded:{WRONG}@{self.address}/idem"

    @contextlib.contextmanager
    def weakened(self):
        self.server.psql("ALTER SYSTEM SET fsync = off")
        self.server.psql("SELECT pg_reload_conf()")
        yield re.compile("fsync")
        self.server.psql("ALTER SYSTEM RESET fsync")
        self.server.restart()  # ALTER SYSTEM and the harness write the same file

    @contextlib.contextmanager
    def full(self, store):
        """What the server says when its disk is full, said by a trigger."""
        self.run(f"CREATE FUNCTION {store.name}.no_room() RETURNS trigger LANGUAGE plpgsql AS "
                 "$$ BEGIN RAISE EXCEPTION SQLSTATE '53100'; END $$")
        self.run(f"CREATE TRIGGER no_room BEFORE INSERT ON {store.name}.idempotency_keys "
                 f"FOR EACH ROW EXECUTE FUNCTION {store.name}.no_room()")
        yield
        self.run(f"DROP FUNCTION {store.name}.no_room() CASCADE")


class MariaDBKind(Kind):
    FOLDER = "DATABASE"

    def empty(self, store):
        self.run(f"DROP DATABASE {store.name}")
        subprocess.run([IDEM, "migrate", store.url()], check=True, stdout=subprocess.DEVNULL)

    def run(self, statement):
        return self.server.sql(statement)

    def poor_url(self, store):
        self.run(f"CREATE USER IF NOT EXISTS poor IDENTIFIED BY '{WRONG}'")
        return re.sub("//[^@/]*@", f"//poor:{WRONG}@", store.url())

    def place(self, name):
        return f"{self.server.url()}/{name}", []

    def wrong_url(self):
        return f"mariadb://{USER}:{WRONG}@{self.address}/nothing"

    @contextlib.contextmanager
    def weakened(self):
        self.server.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 2")
        yield re.compile("innodb_flush_log_at_trx_commit")
        self.server.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 1")

    @contextlib.contextmanager
    def full(self, store):
        """What the server says when its disk is full, said by a trigger."""
        self.run(f"CREATE TRIGGER {store.name}.no_room BEFORE INSERT ON "
                 f"{store.name}.idempotency_keys FOR EACH ROW SIGNAL SQLSTATE 'HY000' "
                 "SET MYSQL_ERRNO = 1114, MESSAGE_TEXT = 'The table is full'")
        yield
        self.run(f"DROP TRIGGER {store.name}.no_room")


class GroupKind(Kind):
    """Several servers that are one store; tests here let them be."""

    def place(self, name):
        url, = self.server.urls().values()
        return url, [f"prefix={name}"]

    def steady(self):
        pass


MAKES = {"redis": RedisKind, "postgres": PostgresKind, "mariadb": MariaDBKind,
         "sentinel": GroupKind, "cluster": GroupKind}


def get(kind):
    """The kind's server, started when it is first asked for; ended with this process."""
    global _rig  # pylint: disable=global-statement
    if kind not in _kinds:
        _rig = _rig or Rig(real_clock=True)
        _kinds[kind] = MAKES[kind](getattr(_rig, kind)())
    _kinds[kind].steady()
    return _kinds[kind]


def steady():
    """Every server that was started serves again."""
    for kind in _kinds.values():
        kind.steady()


SECRETS = (PASSWORD, WRONG)
