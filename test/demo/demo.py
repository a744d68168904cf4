"""Runs ./run as a user does, and speaks to what it starts."""

import http.client
import json
import os
import re
import signal
import subprocess

from nginx import children, free_port, process_state
from waiting import wait_until

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAYMENTS = "/api/v1/payments"
SECONDS_MAX = 60


def hear_interrupts():
    """Whoever runs tests in the background of a shell has them ignore SIGINT, and children inherit
    that; a shell script cannot take it back."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def demo_environment(port, **more):
    return {**os.environ, "IDEM_PORT": str(port), **more}


class Demo:
    def __init__(self, state, port=None, folder=REPOSITORY, **environment):
        self.port = port or free_port()
        self.state = state
        self.process = subprocess.Popen(
            ["./run"], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, start_new_session=True,
            preexec_fn=hear_interrupts,
            env=demo_environment(self.port, IDEM_STATE=str(state), **environment))
        self.told = ""
        while f"Ready on http://127.0.0.1:{self.port}" not in self.told:
            line = self.process.stdout.readline()
            assert line, self.told + self.process.stderr.read()
            self.told += line
        self.programs = wait_until(self._two_programs, "the service and the gateway alone")

    def _two_programs(self):
        """Their pids, once the script has no other child: it printed through one."""
        found = children(self.process.pid)
        return found if len(found) == 2 else None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def ask(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS_MAX)
        try:
            connection.request(method, path, body,
                               {name.replace("_", "-"): text for name, text in headers.items()})
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()

    def pay(self, key, **members):
        body = json.dumps({"order_id": "ORD001", "amount": 100, "currency": "CNY", **members})
        headers = {"Content_Type": "application/json"}
        if key:
            headers["Idempotency_Key"] = key
        return self.ask("POST", PAYMENTS, body, **headers)

    def stop(self, number=signal.SIGINT):
        if self.process.poll() is None:
            self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=SECONDS_MAX)
        for pid in self.programs:
            wait_until(lambda pid=pid: process_state(pid) in (None, "Z"), f"the end of {pid}")
        return self.process.returncode, errors


def code_block(text, language, after):
    """The first fenced block of a language after a line of a document."""
    rest = text[text.index(after):]
    match = re.search(rf"^```{language}\n(.*?)^```$", rest, re.MULTILINE | re.DOTALL)
    assert match, f"no {language} block after {after!r}"
    return match.group(1)
