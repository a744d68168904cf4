"""Redis: alone, with Sentinel, as a cluster."""

import os
import secrets
import shutil
import socket
import subprocess

from .process import PORT_TRIES, Failed, Server, free_port, wait_until

# With a clock that stands still or jumps by hours, no time-out may mean anything.
FOREVER_MS = 10 ** 12
FOREVER_S = 2 * 10 ** 9

SLOTS = 16384


def read_reply(file):
    """One reply of the protocol; an error reply is a ValueError."""
    line = file.readline()
    if not line.endswith(b"\r\n"):
        raise OSError("the connection ended")
    sort, rest = line[:1], line[1:-2]
    if sort == b"-":
        raise ValueError(rest.decode(errors="replace"))
    if sort == b":":
        return int(rest)
    if sort == b"$":
        return file.read(int(rest) + 2)[:-2] if int(rest) >= 0 else None
    if sort == b"*":
        return [read_reply(file) for _ in range(int(rest))]
    return rest


def ask(port, *words, timeout=5.0):
    """Sends one command to a server on this host and returns its reply."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as connection:
        parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        connection.sendall(b"*%d\r\n" % len(parts)
                           + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts))
        with connection.makefile("rb") as file:
            return read_reply(file)


class Redis(Server):
    """One server that keeps what it acknowledged. `config` is added to its configuration."""

    def __init__(self, folder, name="redis", config="", clock=None, tls=None):
        super().__init__(name, folder, clock)
        self.config = config
        self.tls = tls
        self.tls_port = free_port() if tls else None
        self.socket = os.path.join(self.folder, "socket")
        self.written = None

    def settings(self):
        lines = [
            "bind 127.0.0.1", f"port {self.port}", f"dir {self.folder}",
            f"unixsocket {self.socket}", "daemonize no", "logfile \"\"", "save \"\"",
            "appendonly yes", "appendfsync always", "maxmemory-policy noeviction",
            "enable-debug-command local", "shutdown-timeout 0", f"repl-timeout {FOREVER_S}",
            "repl-diskless-sync yes", "repl-diskless-sync-delay 0", "databases 16",
        ]
        if self.tls:
            lines += [f"tls-port {self.tls_port}", f"tls-cert-file {self.tls.certificate}",
                      f"tls-key-file {self.tls.key}", f"tls-ca-cert-file {self.tls.authority}",
                      "tls-auth-clients no"]
        return lines

    def configure(self):
        """Written again only when it differs: Sentinel rewrites it, and that is to last."""
        text = "\n".join(self.settings() + [self.config, ""])
        if text != self.written:
            self.write("redis.conf", text)
            self.written = text

    def command(self):
        return ["redis-server", os.path.join(self.folder, "redis.conf")]

    def ask(self, *words, timeout=5.0):
        return ask(self.port, *words, timeout=timeout)

    def info(self, section):
        lines = self.ask("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def is_serving(self):
        try:
            return self.ask("PING") == b"PONG"
        except ValueError as error:
            return str(error).startswith(("NOAUTH", "WRONGPASS", "NOPERM"))

    def url(self):
        return f"redis://127.0.0.1:{self.port}"

    def urls(self):
        return {"REDIS": self.url(), "REDIS_SOCKET": self.socket}


class Replica(Redis):
    """Follows a master."""

    def __init__(self, folder, name, master, **options):
        super().__init__(folder, name, **options)
        self.master = master

    def settings(self):
        return super().settings() + [f"replicaof 127.0.0.1 {self.master.port}"]

    def is_serving(self):
        """After a failover it may be the master."""
        if not super().is_serving():
            return False
        replication = self.info("replication")
        return replication["role"] == "master" or replication["master_link_status"] == "up"


class SentinelNode(Server):
    """One sentinel. It is never given the turned clock: it judges others by its own."""

    def __init__(self, folder, name, group):
        super().__init__(name, folder)
        self.group = group
        self.id = secrets.token_hex(20)

    def configure(self):
        """It rewrites its configuration, so only the first is ours."""
        path = os.path.join(self.folder, "sentinel.conf")
        if os.path.exists(path):
            return
        master, down_ms, failover_ms = self.group.name, self.group.down_ms, self.group.failover_ms
        lines = [
            "bind 127.0.0.1", f"port {self.port}", f"dir {self.folder}", "daemonize no",
            "logfile \"\"", f"sentinel myid {self.id}",
            f"sentinel monitor {master} 127.0.0.1 {self.group.master.port} 2",
            f"sentinel down-after-milliseconds {master} {down_ms}",
            f"sentinel failover-timeout {master} {failover_ms}",
            f"sentinel known-replica {master} 127.0.0.1 {self.group.replica.port}",
        ]
        lines += [f"sentinel known-sentinel {master} 127.0.0.1 {other.port} {other.id}"
                  for other in self.group.sentinels if other is not self]
        self.write("sentinel.conf", "\n".join(lines + [""]))

    def command(self):
        return ["redis-server", os.path.join(self.folder, "sentinel.conf"), "--sentinel"]

    def ask(self, *words):
        return ask(self.port, *words)

    def is_serving(self):
        return self.ask("PING") == b"PONG"

    def urls(self):
        return {}


class Sentinel:
    """A master, a replica, and three sentinels that watch them."""

    name = "main"

    def __init__(self, folder, clock=None, config="", real_clock=False):
        self.down_ms = 700 if real_clock else 10 ** 7
        self.failover_ms = 3000 if real_clock else 10 ** 7
        self.master = Redis(folder, "sentinel-master", config, clock)
        self.replica = Replica(folder, "sentinel-replica", self.master, config=config, clock=clock)
        self.sentinels = [SentinelNode(folder, f"sentinel-{number}", self) for number in (1, 2, 3)]
        self.servers = [self.master, self.replica] + self.sentinels

    def start(self):
        self.master.start()
        self.replica.start()
        for sentinel in self.sentinels:
            sentinel.start()
        for sentinel in self.sentinels:
            wait_until(lambda one=sentinel: self.is_ready(one), f"{sentinel.name} to see the rest")
        return self

    def is_ready(self, sentinel):
        """A quorum is there, and so is a replica that may be promoted."""
        try:
            if not sentinel.ask("SENTINEL", "CKQUORUM", self.name).startswith(b"OK 3"):
                return False
            replicas = sentinel.ask("SENTINEL", "REPLICAS", self.name)
        except (OSError, ValueError):
            return False
        fields = dict(zip(replicas[0][::2], replicas[0][1::2])) if replicas else {}
        return fields.get(b"flags") == b"slave" and fields.get(b"master-link-status") == b"ok"

    def master_port(self):
        """Whom the sentinels name now."""
        return int(self.sentinels[0].ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.name)[1])

    def url(self):
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{self.name}"

    def urls(self):
        return {"SENTINEL": self.url()}


class ClusterNode(Redis):
    """One node. Nodes know each other from the start: their table is written, not negotiated."""

    def __init__(self, folder, number, group, **options):
        super().__init__(folder, f"cluster-{number}", **options)
        self.number = number
        self.group = group
        self.bus_port = free_port()
        self.id = secrets.token_hex(20)

    def settings(self):
        return super().settings() + [
            "cluster-enabled yes", "cluster-config-file nodes.conf",
            f"cluster-port {self.bus_port}",
            f"cluster-node-timeout {self.group.timeout_ms}", "cluster-replica-validity-factor 0",
        ]

    def configure(self):
        super().configure()
        if not os.path.exists(os.path.join(self.folder, "nodes.conf")):
            self.write("nodes.conf", self.group.table(self))

    def forget(self):
        """As if it had never been started, and on other ports."""
        if self.process:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.port, self.bus_port, self.written = free_port(), free_port(), None


class Cluster:
    """Three masters with a replica each: nodes 4 to 6 follow nodes 1 to 3."""

    masters = 3

    def __init__(self, folder, clock=None, config="", real_clock=False):
        self.timeout_ms = 1000 if real_clock else FOREVER_MS
        self.servers = [ClusterNode(folder, number, self, config=config, clock=clock)
                        for number in range(1, 2 * self.masters + 1)]

    def table(self, myself):
        """nodes.conf as one of them would have written it."""
        lines = []
        for index, node in enumerate(self.servers):
            flags = "myself," if node is myself else ""
            number = index % self.masters
            if index < self.masters:
                first = number * SLOTS // self.masters
                last = (number + 1) * SLOTS // self.masters - 1
                role = f"{flags}master - 0 0 {number + 1} connected {first}-{last}"
            else:
                role = f"{flags}slave {self.servers[number].id} 0 0 {number + 1} connected"
            lines.append(f"{node.id} 127.0.0.1:{node.port}@{node.bus_port} {role}")
        lines.append(f"vars currentEpoch {self.masters} lastVoteEpoch 0")
        return "\n".join(lines) + "\n"

    def start(self):
        """All tables name all ports, so a port that somebody took means new tables for all."""
        for _ in range(PORT_TRIES):
            try:
                return self.spawn().await_whole()
            except Failed:
                if not any("in use" in node.log_tail() for node in self.servers):
                    raise
                for node in self.servers:
                    node.forget()
        raise Failed("the cluster found no free ports")

    def spawn(self):
        for node in self.servers:
            node.make_folder()
            node.spawn()
        for node in self.servers:
            node.await_serving()
        return self

    def await_whole(self):
        """Every node finds every slot served, every replica follows."""
        for node in self.servers:
            wait_until(lambda one=node: self.is_ready(one), f"{node.name} to see the cluster whole")
        return self

    def is_ready(self, node):
        try:
            if b"cluster_state:ok" not in node.ask("CLUSTER", "INFO"):
                return False
            replication = node.info("replication")
        except (OSError, ValueError):
            return False
        if node.number <= self.masters:
            return replication.get("connected_slaves") == "1"
        return replication.get("master_link_status") == "up"

    def url(self):
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.servers[:self.masters])
        return f"redis+cluster://{hosts}"

    def urls(self):
        return {"CLUSTER": self.url()}


class Certificates:
    """An authority, and a certificate for localhost that it signed."""

    def __init__(self, folder):
        self.authority = os.path.join(folder, "authority.pem")
        self.key = os.path.join(folder, "server.key")
        self.certificate = os.path.join(folder, "server.pem")
        authority_key = os.path.join(folder, "authority.key")
        request = os.path.join(folder, "server.csr")
        names = os.path.join(folder, "names")
        with open(names, "w", encoding="ascii") as file:
            file.write("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        self.openssl("req", "-x509", *curve, "-keyout", authority_key, "-out", self.authority,
                     "-days", "2", "-subj", "/CN=idem test authority")
        self.openssl("req", *curve, "-keyout", self.key, "-out", request, "-subj", "/CN=localhost")
        self.openssl("x509", "-req", "-in", request, "-CA", self.authority, "-CAkey",
                     authority_key, "-CAcreateserial", "-out", self.certificate, "-days", "2",
                     "-extfile", names)

    @staticmethod
    def openssl(*words):
        done = subprocess.run(["openssl", *words], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Failed(f"openssl {words[0]} failed:\n{done.stderr}")
