"""What the tests of the command line share: running `idem`, making records, running a gateway."""

import atexit
import contextlib
import functools
import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile

from nginx import (BUILD, MODULE, SANITIZE, SANITIZER_MARKS, children, free_port, process_state,
                   sanitizer_environment)
from waiting import PATIENCE_S, wait_until

import rawhttp

IDEM = os.path.join(BUILD, "cli", "idem")
FILL = os.path.join(BUILD, "cli", "idem-fill")
COMMANDS = ["gateway", "list", "show", "resolve", "forget", "sweep", "store check", "store copy",
            "migrate", "key"]
OK, FAILURE, USAGE, ABSENT, REFUSED, CUT = range(6)


def environment(**changed):
    """A known environment: nothing of the tester's own settings may matter."""
    names = ("PATH", "HOME", "LANG", "TMPDIR")
    known = {name: os.environ[name] for name in names if name in os.environ}
    known.update(changed)
    return {name: str(value) for name, value in known.items() if value is not None}


def sanitized():
    """For a sanitized build: what nginx, which is not, needs to load the module."""
    made = sanitizer_environment("/") if SANITIZE else {}
    return {name: re.sub(":log_path=.*", "", value) for name, value in made.items()}


@contextlib.contextmanager
def own_directory():
    """A directory that nginx's workers can reach: pytest closes its own to other users."""
    with tempfile.TemporaryDirectory(prefix="idem-cli-", dir="/tmp") as path:
        os.chmod(path, 0o711)
        yield pathlib.Path(path)


@functools.cache
def idem_for_all():
    """A copy of `idem`, and of the module where it looks for it, that every user can read."""
    folder = tempfile.mkdtemp(prefix="idem-for-all-", dir="/tmp")
    atexit.register(shutil.rmtree, folder)
    os.chmod(folder, 0o755)
    for path in (IDEM, MODULE):
        beside = os.path.join(folder, os.path.relpath(path, BUILD))
        os.mkdir(os.path.dirname(beside))
        os.chmod(os.path.dirname(beside), 0o755)
        shutil.copy(path, beside)
        os.chmod(beside, 0o755)
    return os.path.join(folder, os.path.relpath(IDEM, BUILD))


class Ran:
    def __init__(self, done):
        self.status = done.returncode
        self.raw = done.stdout
        self.out = done.stdout.decode("utf-8", "replace")
        self.err = done.stderr.decode("utf-8")

    def json(self):
        return json.loads(self.out)


def idem(*words, stdin=b"", env=None, cwd=None, user=None):
    """Runs the command to its end."""
    program = idem_for_all() if user else IDEM
    done = subprocess.run([program, *map(str, words)], input=stdin, capture_output=True,
                          check=False,
                          env=environment(**(sanitized() if "gateway" in words else {}),
                                          **(env or {})), cwd=cwd, user=user,
                          group=pwd.getpwnam(user).pw_gid if user else None,
                          extra_groups=[] if user else None,
                          timeout=2 * PATIENCE_S)
    ran = Ran(done)
    assert done.returncode >= 0, f"killed by signal {-done.returncode}: {ran.err}"
    return ran


def good(*words, **how):
    """The same, and it must succeed without a word on standard error."""
    ran = idem(*words, **how)
    assert ran.status == OK and ran.err == "", (ran.status, ran.out, ran.err)
    return ran


def refused(status, *words, **how):
    """The same, and it must fail with this status and at least a sentence."""
    ran = idem(*words, **how)
    assert ran.status == status, (ran.status, ran.out, ran.err)
    assert re.match(r"idem[a-z ]*: .+", ran.err), ran.err
    return ran


def fill(url, *steps):
    """Applies steps to a store without a gateway; what each came to."""
    done = subprocess.run([FILL, url], input=json.dumps(steps).encode(), check=False,
                          capture_output=True, timeout=2 * PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode().split()


def everything(url, whole=12):
    """All records of a store, by id; so many of them, spread evenly, with the answer as well."""
    records = good("list", "--json", "--store", url, "--limit", "100000").json()["records"]
    found = {record["id"]: record for record in sorted(records, key=lambda record: record["id"])}
    assert len(found) == len(records), "none is listed twice"
    for ident in list(found)[::max(1, len(found) // whole)]:
        found[ident] = good("show", ident, "--json", "--store", url).json()
    return found


class Store:
    """A store of its own in a directory, filled without a gateway."""

    def __init__(self, directory):
        self.directory = str(directory)
        self.url = f"lmdb:{self.directory}?size=64m"
        self.env = {"IDEM_STORE": self.url}

    def apply(self, *steps):
        """Many steps need not be on disk one by one."""
        return fill(self.url + ("&sync=off" if len(steps) > 50 else ""), *steps)

    def claim(self, key, **how):
        assert self.apply({"op": "claim", "key": key, **how}) == ["acquired"]

    def complete(self, key, answer, **how):
        self.claim(key, **how)
        step = {"op": "complete", "key": key, **answer}
        if "scope" in how:
            step["scope"] = how["scope"]
        assert self.apply(step) == ["ok"]

    def unknown(self, key, **how):
        self.claim(key, **how)
        assert self.apply({"op": "abandon", "key": key, **how}) == ["ok"]

    def failed(self, key, **how):
        self.claim(key, **how)
        assert self.apply({"op": "fail", "key": key, **how}) == ["ok"]

    def idem(self, *words, **how):
        return idem(*words, env=self.env, **how)

    def good(self, *words, **how):
        return good(*words, env=self.env, **how)

    def refused(self, status, *words, **how):
        return refused(status, *words, env=self.env, **how)

    def show(self, key, *words):
        return self.good("show", "--key", key, "--json", *words).json()

    def keys(self, *words):
        return sorted(record["key"] for record in self.good("list", "--json", *words)
                      .json()["records"])


class Gateway:
    """`idem gateway` in a process of its own, as a service manager would run it."""

    def __init__(self, directory, upstream_url, *words, store="size=64m", env=None,
                 workers=1):
        self.directory = str(directory)
        os.makedirs(self.directory, exist_ok=True)
        self.state = os.path.join(self.directory, "state")
        self.store_url = f"lmdb:{self.state}/store" + (f"?{store}" if store else "")
        self.port = free_port()
        self.words = ["gateway", "--listen", f"127.0.0.1:{self.port}", "--upstream", upstream_url,
                      "--state", self.state, "--workers", str(workers), *words]
        if store:
            self.words += ["--store", self.store_url]
        self.env = dict(env or {})
        self.env.update(sanitized())
        self.process = None
        self.groups = []
        self.crashes = False  # a test makes its workers crash

    def _file(self, name, mode):
        return open(os.path.join(self.directory, name), mode)  # closed by the callers

    def start(self, ready=True):
        with self._file("out", "wb") as out, self._file("err", "wb") as err:
            # A session of its own, so that a signal to its group is what Ctrl-C would be.
            self.process = subprocess.Popen([IDEM, *self.words], stdout=out, stderr=err,
                                            stdin=subprocess.DEVNULL, start_new_session=True,
                                            env=environment(**self.env), cwd=self.directory)
        if ready:
            wait_until(self._ready_or_ended, "the gateway is ready")
            assert "ready on" in self.out(), (self.process.poll(), self.out(), self.err())
            self.groups.append(self.nginx())
        return self

    def _ready_or_ended(self):
        return "ready on" in self.out() or self.process.poll() is not None

    def out(self):
        with self._file("out", "r") as file:
            return file.read()

    def err(self):
        with self._file("err", "r") as file:
            return file.read()

    def nginx(self):
        """The pid of nginx's master."""
        with open(os.path.join(self.state, "nginx.pid"), encoding="ascii") as file:
            return int(file.read())

    def workers(self):
        return children(self.nginx())

    def post(self, key=None, target="/pay", **how):
        return rawhttp.send(self.port, "POST", target, key=key, **how)

    def listens(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def signal(self, number):
        os.kill(self.process.pid, number)

    def wait(self):
        return self.process.wait(2 * PATIENCE_S)

    def stop(self):
        self.signal(signal.SIGTERM)
        return self.wait()

    def stop_at_once(self):
        """Signals until it ends: one that comes soon after the first counts as the same."""
        def ended():
            if self.process.poll() is None:
                self.signal(signal.SIGTERM)
            return self.process.poll() is not None

        wait_until(ended, "the end of the gateway")
        return self.process.returncode

    def tear_down(self):
        """Whatever the test did, nothing of it is left."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.stop_at_once()
        self.process.wait(2 * PATIENCE_S)
        for group in self.groups:
            try:
                os.killpg(group, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it ended by itself, as it should
        for mark in SANITIZER_MARKS:
            assert mark not in self.err(), self.err()
        for line in self.err().splitlines():
            if "[alert]" in line or "[crit]" in line:
                # A test killed it, or cut requests off: nginx tells so in a worker that drained.
                cut = self.process.returncode == CUT and re.search("left in connection|aborting$",
                                                                line)
                crash = self.crashes and "worker process" in line
                assert cut or crash or "exited on signal 9" in line, line


def tear_down_all(gateways, before=lambda gateway: None, after=lambda gateway: None):
    """Each is ended, also when another one's log has what it should not have."""
    with contextlib.ExitStack() as ends:
        for gateway in reversed(gateways):  # they are ended in their order
            ends.callback(after, gateway)
            ends.callback(gateway.tear_down)
            ends.callback(before, gateway)


def group_alive(group):
    """True while any process of the group runs."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                alive = os.getpgid(int(entry)) == group
            except ProcessLookupError:
                continue
            if alive and process_state(int(entry)) not in (None, "Z"):
                return True
    return False
