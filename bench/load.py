"""Runs wrk and single requests, and refuses any answer that is not the expected one."""

import http.client
import itertools
import json
import os
import subprocess
import uuid

from servers import HERE, BenchError

WRK = os.environ.get("IDEM_WRK", "wrk")
EXPECTED = 201
BODY = '{"amount":"12.50","currency":"EUR","reference":"order-4711"}'
RUN = uuid.uuid4().hex[:12]
_numbers = itertools.count(1)


def run_name():
    """A name that no other run, nor run of the bench on the same store, has had."""
    return f"{RUN}-{next(_numbers):04d}"


def path_of(location):
    return f"/{location}/payments"


def key_of(run, serial):
    return f"{run}-0-{serial:012d}"


def post(server, location, key):
    """One request; returns whether it was replayed, and the body."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.request("POST", path_of(location), BODY, {
            "Host": "bench.test", "Content-Type": "application/json", "Idempotency-Key": key})
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    if answer.status != EXPECTED:
        raise BenchError(f"{path_of(location)} answered {answer.status}, not {EXPECTED}: "
                         f"{body.decode(errors='replace')}\n{server.log()}")
    return answer.getheader("Idempotent-Replayed") is not None, body


def run(server, location, connections, seconds, kind="fresh", name=None, pause_ms=None):
    """One run of wrk; returns what load.lua prints. Wrong or missing answers are an error."""
    name = name or run_name()
    done = subprocess.run(
        [WRK, "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "30s", "-s",
         os.path.join(HERE, "load.lua"), server.url(), "--", path_of(location), name, kind,
         *([] if pause_ms is None else [f"{pause_ms:.3f}"])],
        capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        raise BenchError(f"wrk failed: {done.stdout}{done.stderr}")
    result = json.loads(lines[-1])
    if result["wrong_status"] or result["broken"] or result["requests"] == 0:
        raise BenchError(f"{location} at {connections} connections, {result['requests']} answers: "
                         f"{result['wrong_status']} of a wrong status, {result['broken']} broken\n"
                         f"{server.log()}")
    result["rate"] = result["requests"] / result["seconds"]
    result["name"] = name
    return result


def fresh(server, location, connections, seconds, pause_ms=None):
    """First executions. Afterwards an early request's answer must be there, if it is guarded."""
    result = run(server, location, connections, seconds, pause_ms=pause_ms)
    if location != "plain":
        replayed, _ = post(server, location, key_of(result["name"], 10))
        if not replayed:
            raise BenchError(f"{location}: a request of the run was not recorded")
    return result


def replay(server, location, connections, seconds):
    """The same key again and again: every answer must be the recorded one."""
    name = run_name()
    key = key_of(name, 0)
    replayed, body = post(server, location, key)
    if replayed:
        raise BenchError(f"{location}: a new key was answered with a replay")
    result = run(server, location, connections, seconds, "fixed", name)
    replayed, again = post(server, location, key)
    if not replayed or again != body:
        raise BenchError(f"{location}: the recorded answer was not replayed")
    return result
