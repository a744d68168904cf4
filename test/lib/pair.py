"""Two gateways on one store before one upstream, and what a store can be made to suffer.

    place = place_of("postgres")            # or lmdb, redis, sentinel, cluster, mariadb
    pair = Pair(make_scene, place)
    pair.first.post(key), pair.second.post(key)
    with place.lost("gone"): …              # kill -9; the server starts again on its data after it
"""

import contextlib
import threading

import rawhttp
import server_stores
from problem import kind_of
from scene import Background, new_key
from waiting import wait_until

PLACES = ("lmdb",) + server_stores.KINDS + ("sentinel", "cluster")

# What tells a client to send the same request again.
NOT_YET = ("in-progress", "store-unavailable", "outcome-unknown", "upstream-unanswered")


def is_answer(response):
    return kind_of(response) not in NOT_YET


class LmdbPlace:
    """A directory of this host, which the first gateway makes."""

    ways = ("hangs",)

    def __init__(self):
        self.program = None  # test/lib/trouble.py's lock holder
        self.hold_lock = None

    def url(self):
        return None

    @contextlib.contextmanager
    def lost(self, _way, scene):
        holder = self.hold_lock(scene)
        yield
        holder.release()

    def steady(self):
        pass


class ServerPlace:
    """A store on one server, or on several that belong together."""

    ways = ("hangs", "gone")

    def __init__(self, name):
        self.kind = server_stores.get(name)
        self.store = self.kind.store()

    def url(self):
        return self.store.url(timeout="1s")

    @property
    def servers(self):
        """Those that have the data."""
        return [self.kind.server]

    def lose(self, way):
        for server in self.servers:
            server.stop() if way == "hangs" else server.kill()

    def steady(self):
        """Every server runs and serves; where there are several, each copy is being kept."""
        for server in self.servers:
            server.cont() if server.is_alive else server.spawn()
        for server in self.servers:
            server.await_serving()
        wait_until(self.is_whole, "the servers to be whole again", timeout=60)

    def is_whole(self):
        return True

    @contextlib.contextmanager
    def lost(self, way, _scene):
        self.lose(way)
        yield
        self.steady()


class GroupPlace(ServerPlace):
    """Redis with copies: a write is acknowledged once one replica has it."""

    def url(self):
        return self.store.url(timeout="1s", replicas="1")


def times_told(server, words):
    """How often a server's log has these words."""
    with open(server.log, encoding="utf-8", errors="replace") as log:
        return log.read().count(words)


def has_replica(server):
    return int(server.info("replication").get("connected_slaves", "0")) > 0


class SentinelPlace(GroupPlace):
    def __init__(self, name):
        super().__init__(name)
        for sentinel in self.group.sentinels:  # how soon after a failover another may begin
            sentinel.ask("SENTINEL", "SET", self.group.name, "failover-timeout", "1000")

    @property
    def group(self):
        return self.kind.server

    @property
    def servers(self):
        return [self.group.master, self.group.replica]

    def master(self):
        """Whom the sentinels name now."""
        port = self.group.master_port()
        return next(server for server in self.servers if server.port == port)

    def is_whole(self):
        try:
            master = self.master()
            return master.info("replication")["role"] == "master" and has_replica(master)
        except (OSError, ValueError):
            return False

    def failed_over(self, before):
        return self.group.master_port() != before.port

    def failovers(self):
        """How many there were since the servers began."""
        return times_told(self.group.sentinels[0], "+switch-master")


class ClusterPlace(GroupPlace):
    @property
    def servers(self):
        return self.kind.server.servers

    def masters(self):
        return [server for server in self.servers if server.info("replication")["role"] == "master"]

    def master(self):
        return self.masters()[0]

    def is_whole(self):
        try:
            masters = self.masters()
            return len(masters) == self.kind.server.masters and all(map(has_replica, masters)) \
                and all(b"cluster_state:ok" in server.ask("CLUSTER", "INFO")
                        for server in self.servers)
        except (OSError, ValueError):
            return False

    def failed_over(self, before):
        """Another node serves the slots of the one that was a master."""
        others = [server for server in self.servers if server is not before and server.is_alive]
        nodes = others[0].ask("CLUSTER", "NODES").decode().splitlines()
        line = next(line for line in nodes if line.startswith(before.id))
        return "-" not in line.split()[-1] and b"cluster_state:ok" in others[0].ask("CLUSTER",
                                                                                    "INFO")

    def failovers(self):
        """How many there were since the servers began."""
        return sum(times_told(server, "Failover election won") for server in self.servers)

    def switch(self):
        """A failover that is asked for, at the replica that is to be the master."""
        before = self.master()
        replica = next(server for server in self.servers
                       if server.info("replication").get("master_port") == str(before.port))
        replica.ask("CLUSTER", "FAILOVER")
        wait_until(lambda: self.failed_over(before), "the failover", timeout=60)


def place_of(name):
    classes = {"lmdb": LmdbPlace, "sentinel": lambda: SentinelPlace("sentinel"),
               "cluster": lambda: ClusterPlace("cluster")}
    return classes.get(name, lambda: ServerPlace(name))()


class Load:
    """Clients that send one new key after the other, each until it has an answer."""

    def __init__(self, pair, clients, ended):
        self.pair = pair
        self.ended = ended
        self.stopping = threading.Event()
        self.got = {}     # key: the answer
        self.before = {}  # key: what came before it, where anything did
        self.refused = []  # all of that, as it comes
        self.clients = [Background(self._client, number) for number in range(clients)]

    def _client(self, number):
        while not self.stopping.is_set():
            key = new_key()
            answer, before = self.pair.settle(key, number, self.ended, self.refused)
            if before:
                self.before[key] = before
            self.got[key] = answer

    def wait_more(self, keys):
        goal = len(self.got) + keys
        wait_until(lambda: len(self.got) >= goal or any(one.done for one in self.clients),
                   f"{keys} more keys to be answered", timeout=60)

    def wait_disturbed(self):
        """Until somebody has to send a request again."""
        seen = len(self.refused)
        wait_until(lambda: len(self.refused) > seen, "a request that has to be repeated")

    def stop(self):
        """Returns once every client has its last answer."""
        self.stopping.set()
        for one in self.clients:
            one.result(100)

    def some(self, most=60):
        """All keys that were not answered at once, and the last ones of the others."""
        smooth = [key for key in self.got if key not in self.before]
        return {key: self.got[key] for key in smooth[-most:] + list(self.before)}


class Pair:
    """Two scenes with one upstream and one store, which both have opened."""

    def __init__(self, make_scene, place, **shape):
        self.place = place
        self.first = make_scene(store=place.url(), **shape)
        self.second = make_scene(store=place.url() or self.first.store_url,
                                 upstream=self.first.upstream, **shape)
        self.scenes = (self.first, self.second)
        self.upstream = self.first.upstream
        for scene in self.scenes:
            scene.post_until(new_key(), lambda r: r.status == 201, "the store to be open")

    def settle(self, key, begin=0, ended=is_answer, refused=None):
        """
        What a client does that gets no answer, or one that says so: the same again, at the other
        gateway. Returns the answer that ended it, and what came before, which `refused` gets too.
        """
        before = []

        def attempt():
            scene = self.scenes[(begin + len(before)) % 2]
            try:
                response = scene.post(key)
            except (OSError, rawhttp.ProtocolError) as error:
                response = error
            if not isinstance(response, Exception) and ended(response):
                return response
            before.append(response)
            if refused is not None:
                refused.append(response)
            return None

        try:
            return wait_until(attempt, f"a verdict on {key}", timeout=60), before
        except AssertionError as error:
            raise AssertionError(f"{error}; the last: {before[-3:]}") from None

    def load(self, clients=6, ended=is_answer):
        return Load(self, clients, ended)

    def assert_replayed(self, got):
        """Both gateways have the answer that was given, and nothing is executed for it."""
        executed = self.upstream.counts()
        for key, first in got.items():
            for scene in self.scenes:
                again = scene.post_until(key, is_answer, "the record")
                assert again.replayed and again.body == first.body, (key, first, again)
        assert self.upstream.counts() == executed

    def assert_executed_once(self, keys):
        counts = self.upstream.counts()
        wrong = {key: counts.get(key, 0) for key in keys if counts.get(key) != 1}
        assert keys and not wrong, f"executions: {wrong}"
