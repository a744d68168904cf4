"""idem gateway and workers that crash: once is nothing, again and again is the end of it."""

import contextlib
import os
import re
import resource
import shutil
import signal
import socket

import pytest

from nginx import MODULE, children
from test_cli_support import (FAILURE, OK, Gateway, group_alive, own_directory,
                              tear_down_all)
from waiting import wait_until

ALLOWED = 5  # crashes within ten seconds, besides one of each worker
SENTENCE = re.compile(r"idem gateway: nginx's workers crashed (\d+) times within 10 seconds, the "
                      r"last one by signal (\d+) \(.+\); stopping.*idem list --state unknown",
                      re.S)


@pytest.fixture(name="place")
def _place():
    with own_directory() as path:
        yield path


@pytest.fixture
def make_gateway(place, upstream):
    made = []

    def make(*words, **options):
        gateway = Gateway(place / f"gateway{len(made)}", f"http://127.0.0.1:{upstream.port}",
                          *words, **options)
        gateway.crashes = True
        if "ASAN_OPTIONS" in gateway.env:  # a crash is what the test wants, and no finding
            gateway.env["ASAN_OPTIONS"] += ":handle_segv=0"
        made.append(gateway)
        return gateway

    yield make
    tear_down_all(made)


def crash(gateway, number=signal.SIGSEGV):
    """A worker crashes, and another one takes its place, or the gateway ends."""
    master, = gateway.groups
    before = children(master)
    if before:
        with contextlib.suppress(ProcessLookupError):  # it crashed by itself in this moment
            os.kill(before[0], number)
    wait_until(lambda: gateway.process.poll() is not None or
               (children(master) and before[:1] != children(master)[:1]), "the crash is seen")


def crashes_told(gateway):
    return gateway.err().count(" exited on signal ")


def test_a_module_written_over_while_it_is_loaded(make_gateway, place, key):
    """The workers crash, and each that follows: that ends with a sentence, not with a full disk."""
    module = place / "module.so"
    shutil.copy(MODULE, module)
    gateway = make_gateway("--module", str(module)).start()
    assert gateway.post(key).status == 201
    master = gateway.nginx()
    size = module.stat().st_size
    with open(module, "r+b") as file:  # in place, as cp does
        file.write(b"\xcc" * size)
    crash(gateway)
    assert gateway.wait() == FAILURE
    told = SENTENCE.search(gateway.err())
    assert told and int(told[1]) == 1 + ALLOWED + 1 and str(module) in told[0], gateway.err()
    assert crashes_told(gateway) < 100, "its log is no flood"
    assert not group_alive(master)


def test_workers_that_crash_again_and_again(make_gateway):
    gateway, made = make_gateway().start(), 0
    while gateway.process.poll() is None and made < 200:
        crash(gateway)
        made += 1
    assert gateway.wait() == FAILURE and made > 1 + ALLOWED
    told = SENTENCE.search(gateway.err())
    assert told and int(told[2]) == signal.SIGSEGV, gateway.err()


def test_a_few_crashes_are_got_over(make_gateway, key):
    """As when the system has run out of memory and ended all workers at once, and one again."""
    gateway = make_gateway(workers=4).start()
    first = wait_until(lambda: len(gateway.workers()) == 4 and gateway.workers(), "four workers")
    for worker in first:
        os.kill(worker, signal.SIGKILL)
    wait_until(lambda: len(set(gateway.workers()) - set(first)) == 4, "four others")
    for _ in range(ALLOWED):
        crash(gateway, signal.SIGABRT)
    wait_until(lambda: crashes_told(gateway) == 4 + ALLOWED, "all are told")
    assert gateway.post(key).status == 201 and gateway.post(key).replayed
    assert gateway.stop() == OK and "stopping" not in gateway.err()


def test_only_nginxs_master_is_heard(make_gateway, key):
    """What strangers send, or get a worker to log, does not end a gateway."""
    gateway = make_gateway().start()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.connect(os.path.join(gateway.state, "alerts.sock"))
        for _ in range(30):
            other.send(b"<185>nginx: [alert] worker process 1 exited on signal 11")
    crash(gateway)
    wait_until(lambda: crashes_told(gateway) == 1, "the alert that came later")
    assert gateway.post(key).status == 201
    assert gateway.stop() == OK


@pytest.mark.skipif(os.geteuid() != 0, reason="the limit must not bind the master")
def test_workers_that_cannot_start(make_gateway):
    """nginx gives up on such a worker; without any, clients would be taken and never answered."""
    gateway = make_gateway().start()
    resource.prlimit(gateway.nginx(), resource.RLIMIT_NPROC, (1, 1))
    gateway.signal(signal.SIGHUP)
    assert gateway.wait() == FAILURE
    assert "could not start, and nginx tries no other" in gateway.err()
