"""Starts the nginx processes of a bench in a directory of its own, and stops them by process id."""

import os
import pwd
import signal
import socket
import subprocess
import time

HERE = os.path.dirname(os.path.abspath(__file__))
NGINX = os.environ.get("IDEM_NGINX", "/usr/sbin/nginx")
PATIENCE_S = 20


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class BenchError(Exception):
    """Something that makes the figures worthless; the text says what."""


def template(name):
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        return file.read()


class Nginx:
    """One nginx: a master and its workers, from a template."""

    def __init__(self, directory, name, text, port, **values):
        self.directory = os.path.join(directory, name)
        self.port = port
        os.makedirs(self.directory)
        # As root, workers would run as another user; here they run as whoever starts the bench.
        user = f"user {pwd.getpwuid(0).pw_name};" if os.geteuid() == 0 else ""
        self.path = os.path.join(self.directory, "nginx.conf")
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(text.format(dir=self.directory, port=port, user=user, **values))
        self.process = None

    def start(self):
        self.process = subprocess.Popen(
            [NGINX, "-c", self.path, "-p", self.directory, "-e",
             os.path.join(self.directory, "error.log")], stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise BenchError("nginx does not start:\n" + self.log()) from None
                time.sleep(0.02)

    def log(self):
        try:
            with open(os.path.join(self.directory, "error.log"), encoding="utf-8") as file:
                return file.read()
        except OSError:
            return ""

    def workers(self):
        pid = self.process.pid
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(child) for child in file.read().split()]

    def memory_kib(self):
        """Anonymous memory of the workers, and all that is mapped by them alone, map of the store
        included."""
        anonymous = private = 0
        for worker in self.workers():
            with open(f"/proc/{worker}/smaps_rollup", encoding="ascii") as file:
                for line in file:
                    words = line.split()
                    if words[0] == "Anonymous:":
                        anonymous += int(words[1])
                    elif words[0] in ("Private_Clean:", "Private_Dirty:"):
                        private += int(words[1])
        return anonymous, private

    def processor_s(self):
        """Processor time that the workers have used, all their threads."""
        total = 0
        for worker in self.workers():
            for thread in os.listdir(f"/proc/{worker}/task"):
                with open(f"/proc/{worker}/task/{thread}/schedstat", encoding="ascii") as file:
                    total += int(file.read().split()[0])
        return total / 1e9

    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def stop(self):
        if self.process is None:
            return
        for how in (signal.SIGQUIT, signal.SIGTERM, signal.SIGKILL):
            if self.process.poll() is not None:
                break
            self.process.send_signal(how)
            try:
                self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                continue
        self.process = None


def service(port):
    return template("upstream/service.conf").format(port=port)


def upstream(directory):
    """The service in a process of its own."""
    port = free_port()
    return Nginx(directory, "upstream", template("upstream/nginx.conf"), port,
                 service=service(port))


def lmdb_stores(directory, name):
    return {sync: f"lmdb:{directory}/{name}-store-{sync}?size=16g&sync={sync}"
            for sync in ("always", "off")}


def gateway(directory, name, workers, upstream_port=None, module=None, urls=None):
    """Without a module: nginx as it comes. With it: stores by name, of LMDB unless URLs are given,
    and guarded locations on each.
    Without the port of an upstream the gateway is its own."""
    load = stores = guarded = own = ""
    if upstream_port is None:
        upstream_port = free_port()
        own = service(upstream_port)
    if module:
        load = f"load_module {module};"
        urls = urls or lmdb_stores(directory, name)
        stores = "\n    ".join(f"idempotency_store store_{store} {url};"
                               for store, url in urls.items())
        guarded = "\n        ".join(
            f"location /{store}/ {{ idempotency store_{store}; idempotency_scope bench; "
            f"proxy_pass http://service; }}"
            for store in urls)
    return Nginx(directory, name, template("gateway.conf"), free_port(), upstream=upstream_port,
                 workers=workers, load=load, stores=stores, guarded=guarded, service=own)
