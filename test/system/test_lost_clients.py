"""A client that resets while its answer is held leaves no connection behind, at either side."""

import os
import re
import subprocess

import pytest
import rawhttp
from nginx import free_port
from problem import assert_problem
from scene import new_key
from waiting import PATIENCE_S, wait_until

GUARD = "idempotency_body_max 64k; idempotency_lease 1h;"
CLIENTS = 4
LONG = "proxy_read_timeout 1h; send_timeout 1h;"  # no time-out may clear up behind the module
BUFFERING = {"unbuffered": "proxy_buffering off;", "buffered": "",
             "no temporary file": "proxy_max_temp_file_size 0;"}
LISTENING = "0A"


def inodes(table, listening=False):
    """Sockets of /proc/net/tcp or unix; of TCP those that listen."""
    with open(f"/proc/net/{table}", encoding="ascii", errors="replace") as file:
        lines = [line.split() for line in file.read().splitlines()[1:]]
    if table == "unix":
        return {fields[6] for fields in lines}
    return {fields[9] for fields in lines if (fields[3] == LISTENING) == listening}


def connections(pid):
    """How many connections a worker holds, also those that the kernel has dropped already."""
    own = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{name}"))
        except FileNotFoundError:
            continue  # closed meanwhile
        if found:
            own.add(found.group(1))
    return len(own - inodes("unix") - inodes("tcp", listening=True))


def wait_all_gone(scene):
    worker, = scene.nginx.worker_pids()
    wait_until(lambda: connections(worker) == 0, "the worker to hold no connection")
    wait_until(scene.upstream.idle, "the upstream to be let go")


def begin(scene, key):
    before = scene.upstream.count()
    client = scene.client()
    client.send(rawhttp.build_request("POST", "/pay", [("Idempotency-Key", key)], b'{"amount":1}'))
    scene.upstream.wait_count(before + 1)
    return client


def assert_executed_once_and_told(scene, keys):
    for key in keys:
        told = scene.post_until(key, lambda r: b"in-progress" not in r.body, "a verdict")
        assert_problem(told, "answer-not-kept")
        assert scene.upstream.count(key) == 1


@pytest.mark.parametrize("buffering", BUFFERING, ids=lambda name: name.replace(" ", "-"))
@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("when", ["before the answer", "in the answer", "while it reads"],
                         ids=lambda name: name.replace(" ", "-"))
def test_reset_leaves_no_connection(make_scene, when, framing, buffering):
    scene = make_scene(guard=GUARD, location=LONG + BUFFERING[buffering])
    keys = [new_key() for _ in range(CLIENTS)]
    for key in keys:
        gate = scene.upstream.gate()
        answer = {"status": 200, "body": b"w" * 3_000_000, "framing": framing}
        if when == "before the answer":
            answer["hold"] = gate
        elif when == "in the answer":
            # what comes before the gate is less than is kept: it is held by the module
            answer.update(hold_body=gate, body=b"w" * 100_000)
        scene.upstream.answer(**answer)
        client = begin(scene, key)
        if when == "while it reads":
            assert client.sock.recv(100)
        client.reset()
        gate.release()
    wait_all_gone(scene)
    assert_executed_once_and_told(scene, keys)
    wait_all_gone(scene)
    scene.nginx.quit()


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_http2_client_that_goes_leaves_no_connection(make_scene, framing):
    port = free_port()
    scene = make_scene(guard=GUARD, location=LONG + "proxy_buffering off;",
                       server=f"listen 127.0.0.1:{port} http2;")
    keys = [new_key() for _ in range(CLIENTS)]
    for key in keys:
        gate = scene.upstream.gate()
        scene.upstream.answer(status=200, body=b"w" * 3_000_000, framing=framing, hold=gate)
        with subprocess.Popen(
                ["curl", "-s", "--http2-prior-knowledge", "-o", "/dev/null", "-H",
                 f"Idempotency-Key: {key}", "-d", '{"amount":1}',
                 f"http://127.0.0.1:{port}/pay"]) as client:
            scene.upstream.wait_count(1, key)
            client.kill()
            client.wait(PATIENCE_S)
        gate.release()
    wait_all_gone(scene)
    assert all(scene.upstream.count(key) == 1 for key in keys)
    scene.nginx.quit()
