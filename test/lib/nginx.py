"""Runs a real nginx with the module in a directory of its own, and checks its logs at the end.

The configuration is generated; a test gives the text of the http, server and location blocks. The
workers run as an unprivileged user when the test runs as root, as they do in production.
"""

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile

from waiting import PATIENCE_S, wait_until

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get("IDEM_BUILD", os.path.join(REPOSITORY, "build")))
MODULE = os.path.join(BUILD, "nginx", "ngx_http_idempotency_module.so")
NGINX = os.environ.get("IDEM_NGINX", "/usr/sbin/nginx")
SANITIZE = os.environ.get("IDEM_SANITIZE") == "1"
WORKER_USER = "nobody nogroup"

SANITIZER_MARKS = ("AddressSanitizer", "runtime error:", "LeakSanitizer", "UndefinedBehavior")
BAD_LEVELS = re.compile(r"\[(alert|crit|emerg)\]")
BAD_WORDS = re.compile(r"exited on signal|open socket .* left in connection|\.c:\d+: .*ssertion")

TEMPLATE = """\
{load}{user}
worker_processes {workers};
daemon off;
pid {dir}/nginx.pid;
error_log {dir}/logs/error.log {level};
{main}
events {{ worker_connections 2048; }}
http {{
    log_format idem '$request_method $request_uri $status {variables}';
    access_log {dir}/logs/access.log idem;
    client_body_temp_path {dir}/tmp/body;
    proxy_temp_path {dir}/tmp/proxy;
    fastcgi_temp_path {dir}/tmp/fastcgi;
    uwsgi_temp_path {dir}/tmp/uwsgi;
    scgi_temp_path {dir}/tmp/scgi;
    {http}
    server {{
        listen 127.0.0.1:{port}{listen};
        server_name idem.test;
        {server}
    }}
}}
"""
VARIABLES = ("[$idempotency_outcome] [$idempotency_id] [$idempotency_attempt] "
             "[$idempotency_store_time]")


def free_port():
    """A port below the ephemeral range, so that no outgoing connection can take it meanwhile."""
    while True:
        port = random.randrange(10240, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


def sanitizer_environment(directory):
    def runtime(name):
        found = subprocess.run(["gcc", f"-print-file-name={name}"], check=True,
                               capture_output=True, text=True).stdout.strip()
        return os.path.realpath(found)

    log = os.path.join(directory, "logs", "sanitizer")
    return {
        "LD_PRELOAD": f"{runtime('libasan.so')}:{runtime('libubsan.so')}",
        "ASAN_OPTIONS": f"detect_leaks=0:abort_on_error=1:log_path={log}",
        "UBSAN_OPTIONS": f"print_stacktrace=1:halt_on_error=1:log_path={log}",
    }


def process_state(pid):
    """The letter of /proc/PID/stat, or None when the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            return stat.read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


def command_line(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode("latin-1").strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def children(pid):
    """Pids of the living children of a process."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", encoding="ascii", errors="replace") as stat:
                fields = stat.read().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(entry))
    return sorted(found)


class Nginx:
    def __init__(self, *, server="", http="", main="", workers=1, module=True, user=None,
                 listen="", level="info", directory=None):
        self.directory = directory or tempfile.mkdtemp(prefix="idem-nginx-")
        self.port = free_port()
        self.workers = workers
        self.parts = {"server": server, "http": http, "main": main, "listen": listen,
                      "level": level, "module": module, "user": user}
        self.process = None
        self.expected = []     # patterns of log lines that the test has brought about
        self._all_pids = set()
        self._prepare()

    # ---- configuration

    def _prepare(self):
        os.chmod(self.directory, 0o755)
        for name in ("logs", "tmp", "html"):
            os.makedirs(os.path.join(self.directory, name), exist_ok=True)
        os.chmod(os.path.join(self.directory, "logs"), 0o777)  # sanitizer reports of the workers
        self.write_configuration()

    def path(self, *parts):
        return os.path.join(self.directory, *parts)

    def write_configuration(self, **changed):
        """Writes nginx.conf; named parts replace those given before."""
        self.parts.update(changed)
        parts = self.parts
        user = parts["user"] or (WORKER_USER if os.geteuid() == 0 else None)
        text = TEMPLATE.format(
            load=f"load_module {MODULE};\n" if parts["module"] else "",
            user=f"user {user};" if user and os.geteuid() == 0 else "",
            workers=self.workers, dir=self.directory, port=self.port, level=parts["level"],
            main=parts["main"], http=parts["http"], server=parts["server"],
            listen=parts["listen"], variables=VARIABLES if parts["module"] else "")
        with open(self.path("nginx.conf"), "w", encoding="utf-8") as file:
            file.write(text)

    def _command(self, error_log=None):
        return [NGINX, "-p", self.directory, "-c", self.path("nginx.conf"),
                "-e", error_log or self.path("logs", "error.log")]

    def _environment(self):
        environment = dict(os.environ)
        if SANITIZE and self.parts["module"]:
            environment.update(sanitizer_environment(self.directory))
        return environment

    def test(self):
        """nginx -t: its exit status and everything that it said."""
        done = subprocess.run(self._command("stderr") + ["-t"], capture_output=True, text=True,
                              env=self._environment(), timeout=60, check=False)
        return done.returncode, done.stdout + done.stderr

    # ---- life

    def start(self):
        """Starts and returns once all workers run and connections are accepted."""
        self._launch()
        while not self._all_pids and self._lost_its_port():
            self.port = free_port()
            self.write_configuration()
            self._launch()
        wait_until(self._is_up, "nginx to accept connections")
        return self

    def _lost_its_port(self):
        """At the first start: somebody else may have taken the port since it was chosen."""
        wait_until(lambda: self.process.poll() is not None or self.worker_pids(), "a worker")
        if self.process.poll() is None or "Address already in use" not in self.log():
            return False
        for name in ("error.log", "stderr.log"):
            os.unlink(self.path("logs", name))
        return True

    def _launch(self):
        with open(self.path("logs", "stderr.log"), "ab") as output:
            self.process = subprocess.Popen(  # pylint: disable=consider-using-with
                self._command(), stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                env=self._environment(), start_new_session=True)

    def _is_up(self):
        code = self.process.poll()
        assert code is None, f"nginx ended with {code}: {self.log()}"
        if len(self.worker_pids()) < self.workers:
            return False
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    @property
    def pid(self):
        return self.process.pid

    def worker_pids(self):
        """Workers that take new connections; those shutting down are not among them."""
        found = [pid for pid in children(self.process.pid)
                 if command_line(pid) == "nginx: worker process"]
        self._all_pids.update(found)
        return found

    def reload(self):
        """HUP: returns when new workers run and the old ones no longer accept."""
        old = set(self.worker_pids())
        os.kill(self.pid, signal.SIGHUP)

        def replaced():
            now = set(self.worker_pids())
            return len(now) == self.workers and not now & old

        wait_until(replaced, "the new workers after a reload")
        return old

    def signal_quit(self):
        os.kill(self.pid, signal.SIGQUIT)

    def wait_ended(self, timeout=PATIENCE_S):
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            left = {pid: command_line(pid) for pid in children(self.pid)}
            raise AssertionError(f"nginx did not end in {timeout} s; left: {left}") from None

    def quit(self, timeout=PATIENCE_S):
        """The drained stop."""
        self.signal_quit()
        code = self.wait_ended(timeout)
        assert code == 0, f"nginx ended with {code}"

    def stop(self):
        """The quick stop: sent requests are cut off."""
        os.kill(self.pid, signal.SIGTERM)
        self.wait_ended()

    def expect_log(self, pattern):
        """Declares that the test brings about alerts that match."""
        self.expected.append(re.compile(pattern))

    def kill_worker(self, pid):
        """kill -9 of one worker; returns once the master has replaced it."""
        self.expect_log(rf"worker process {pid} exited on signal 9")
        before = set(self.worker_pids())
        assert pid in before
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: set(self.worker_pids()) - before, "a worker in place of the killed one")

    def kill_all(self):
        """kill -9 of master and workers at once: the stopped master can replace none."""
        os.kill(self.pid, signal.SIGSTOP)
        workers = children(self.pid)
        for pid in [self.pid] + workers:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # an old worker that ended just now
        self.process.wait(PATIENCE_S)
        wait_until(lambda: not any(process_state(pid) for pid in workers), "killed workers to go")

    def freeze(self, pid):
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: process_state(pid) == "T", f"worker {pid} to stop")

    def thaw(self, pid):
        os.kill(pid, signal.SIGCONT)

    # ---- logs

    def log(self, name="error.log"):
        try:
            with open(self.path("logs", name), encoding="utf-8", errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def access_log(self):
        return self.log("access.log").splitlines()

    def bad_log_lines(self):
        lines = (self.log() + self.log("stderr.log")).splitlines()
        return [line for line in lines
                if (BAD_LEVELS.search(line) or BAD_WORDS.search(line)
                    or any(mark in line for mark in SANITIZER_MARKS))
                and not any(pattern.search(line) for pattern in self.expected)]

    def sanitizer_reports(self):
        names = [name for name in os.listdir(self.path("logs")) if name.startswith("sanitizer")]
        return "".join(self.log(name) for name in names)

    def assert_clean(self):
        assert not self.sanitizer_reports(), self.sanitizer_reports()
        bad = self.bad_log_lines()
        assert not bad, "bad lines in the nginx logs:\n" + "\n".join(bad)
        left = [pid for pid in self._all_pids
                if process_state(pid) not in (None, "Z") and "nginx" in command_line(pid)]
        assert not left, f"workers left after nginx ended: {left}"

    def tear_down(self):
        """Stops in order if still running, checks everything, and removes the directory."""
        try:
            if self.process and self.process.poll() is None:
                for pid in children(self.pid):
                    os.kill(pid, signal.SIGCONT)
                self.quit()
            self.assert_clean()
        finally:
            self._kill_left()
            shutil.rmtree(self.directory, ignore_errors=True)

    def _kill_left(self):
        if not self.process or self.process.poll() is not None:
            return
        own = children(self.pid)
        for pid in [self.pid] + own:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait(PATIENCE_S)
