"""One server process: started on a free port, waited for, stopped, killed, started again."""

import contextlib
import os
import pwd
import random
import signal
import socket
import subprocess
import threading
import time

from .guardian import Guardian

PATIENCE_S = 60.0  # a machine under load may be slow; nothing that works waits this long
INTERVAL_S = 0.01
PORT_TRIES = 5
LOG_LINES = 20


class Failed(Exception):
    """A server that did not do what was asked of it; says why."""


def wait_until(condition, what, timeout=PATIENCE_S):
    """Polls until condition() is truthy and returns its value; fails naming `what` otherwise."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise Failed(f"waited {timeout} s in vain for: {what}")
        time.sleep(INTERVAL_S)


def stands_still(pid):
    """True once each of its threads has stopped: a signal takes a while, on a busy machine too."""
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/stat", encoding="ascii") as file:
                if file.read().rpartition(")")[2].split()[0] not in "TtZX":
                    return False
    except (FileNotFoundError, ProcessLookupError):
        pass  # one that has ended
    return True


_ports_lock = threading.Lock()
_ports_given = set()


def free_port():
    """A port below the ephemeral range, so that no outgoing connection can take it meanwhile."""
    with _ports_lock:
        while True:
            port = random.randrange(10240, 32000)
            if port in _ports_given:
                continue
            with socket.socket() as probe:
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    continue
            _ports_given.add(port)
            return port


@contextlib.contextmanager
def told(command):
    """A program that is not there is told by its name: a missing server fails a test."""
    try:
        yield command
    except (FileNotFoundError, PermissionError) as error:
        raise Failed(f"{command[0]} cannot be run: ./check and `make contract` install it") \
            from error


def unprivileged(name):
    """The user a server is run as when root starts it: servers that refuse root need one."""
    if os.getuid() != 0:
        return None
    return pwd.getpwnam(name)


class Server:
    """What all servers have in common. A kind gives configure(), command() and is_serving()."""

    polite = signal.SIGTERM  # ends it with its data in order
    fatal = signal.SIGKILL   # ends it at once, and leaves nothing in the system

    def __init__(self, name, folder, clock=None):
        self.name = name
        self.folder = os.path.join(folder, name)
        self.clock = clock
        self.port = free_port()
        self.user = None
        self.process = None

    # What a kind gives ------------------------------------------------------------------------

    def configure(self):
        """Writes what the server reads at its start."""

    def command(self):
        raise NotImplementedError

    def is_serving(self):
        raise NotImplementedError

    # What tests do ----------------------------------------------------------------------------

    @property
    def pid(self):
        return self.process.pid

    @property
    def log(self):
        return os.path.join(self.folder, "log")

    @property
    def is_alive(self):
        return self.process is not None and self.process.poll() is None

    def start(self):
        """The first start; takes another port when somebody else was quicker."""
        self.make_folder()
        self.prepare()
        for _ in range(PORT_TRIES):
            try:
                return self.spawn().await_serving()
            except Failed:
                if self.is_alive or "in use" not in self.log_tail():
                    raise
                os.unlink(self.log)
                self.port = free_port()
        raise Failed(f"{self.name}: found no free port")

    def restart(self, force=False):
        """The same port and data again; with force it is killed before."""
        if force:
            self.kill()
        else:
            self.end()
        return self.spawn().await_serving()

    def end(self, timeout=PATIENCE_S):
        """A clean shutdown, waited for."""
        self.finish(self.polite, timeout)

    def kill(self):
        """As a crash: nothing is saved."""
        self.finish(signal.SIGKILL, PATIENCE_S)

    def stop(self):
        """Stands still (SIGSTOP), as a server that hangs."""
        os.killpg(self.pid, signal.SIGSTOP)
        wait_until(lambda: stands_still(self.pid), f"{self.name} to stand still")

    def cont(self):
        """Goes on after stop()."""
        os.killpg(self.pid, signal.SIGCONT)

    # The steps --------------------------------------------------------------------------------

    def make_folder(self):
        os.makedirs(self.folder, exist_ok=True)
        if self.user:
            os.chown(self.folder, self.user.pw_uid, self.user.pw_gid)

    def prepare(self):
        """Once, before the first start."""

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        if self.user:
            os.chown(path, self.user.pw_uid, self.user.pw_gid)
        return path

    def environment(self):
        """Locale and zone of whoever runs the test are nothing to a server."""
        kept = {name: value for name, value in os.environ.items()
                if name not in ("LD_PRELOAD", "TZ") and not name.startswith(("LC_", "PG"))}
        kept["LC_ALL"] = "C.UTF-8"
        return kept

    def as_user(self):
        """What Popen needs to start a program as the server's user."""
        if not self.user:
            return {}
        return {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []}

    def spawn(self):
        self.configure()
        environment = self.environment()
        if self.clock:
            environment.update(self.clock.environment())
        with open(self.log, "ab") as log, told(self.command()) as command:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
                env=environment, start_new_session=True, **self.as_user())
        Guardian.get().watch(self.pid, self.fatal)
        return self

    def await_serving(self, timeout=PATIENCE_S):
        def serving():
            if not self.is_alive:
                raise Failed(f"{self.name} ended at its start:\n{self.log_tail()}")
            try:
                return self.is_serving()
            except (OSError, ValueError):
                return False

        wait_until(serving, f"{self.name} to serve (its log: {self.log})", timeout)
        return self

    def log_tail(self):
        try:
            with open(self.log, encoding="utf-8", errors="replace") as file:
                return "".join(file.readlines()[-LOG_LINES:])
        except OSError:
            return ""

    def finish(self, number, timeout):
        if not self.is_alive:
            return
        os.kill(self.pid, number)
        try:
            os.killpg(self.pid, signal.SIGCONT)
            self.process.wait(timeout)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass
        if self.is_alive:
            os.killpg(self.pid, signal.SIGKILL)
            self.process.wait()

    def run_tool(self, command):
        """A program of the server's own that must succeed."""
        with told(command):
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True,
                                  text=True, errors="replace", env=self.environment(),
                                  cwd=self.folder, check=False, **self.as_user())
        if done.returncode != 0:
            raise Failed(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
        return done.stdout
