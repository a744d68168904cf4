"""idem gateway on a store that is a server: what it says, what it does not, when it starts."""

import os
import signal
import stat
import time

import pytest
import server_stores
from problem import assert_problem
from scene import Background, new_key

import rawhttp
from test_cli_support import (CUT, FAILURE, OK, REFUSED, USAGE, Gateway, idem, own_directory,
                              tear_down_all)
from waiting import wait_until


AT_ONCE_S = 1.0   # what the end takes once nothing is waited for any longer, and …
LOADED_S = 1.5    # … what a machine under load may add to it


@pytest.fixture(name="place")
def _place():
    with own_directory() as path:
        yield path


@pytest.fixture(name="kind", params=server_stores.KINDS)
def _kind(request):
    made = server_stores.get(request.param)
    yield made
    made.steady()


@pytest.fixture
def make_gateway(place, upstream):
    made = []

    def make(*words, **options):
        gateway = Gateway(place / f"gateway{len(made)}", f"http://127.0.0.1:{upstream.port}",
                          *words, store=None, **options)
        gateway.upstream = upstream
        made.append(gateway)
        return gateway

    yield make

    def hushed(gateway):
        for secret in server_stores.SECRETS:
            assert secret not in gateway.out() + gateway.err()

    tear_down_all(made, before=lambda gateway: upstream.release_all(), after=hushed)


def test_the_store_is_named_without_its_password(kind, make_gateway, key):
    """In the one line when it is ready, and everywhere else."""
    url = kind.store().url()
    gateway = make_gateway("--store", url).start()
    line, = gateway.out().splitlines()
    assert line.startswith("idem gateway: ready on ") and "store " in line
    shown = line.rpartition("store ")[2]
    assert shown == url.replace("open-sesame", "***") and "127.0.0.1" in shown
    first = gateway.post(key)
    assert first.status == 201 and gateway.post(key).replayed
    conf = os.path.join(gateway.state, "nginx.conf")
    assert stat.S_IMODE(os.stat(conf).st_mode) == 0o600, "it holds the password"
    assert not os.path.exists(os.path.join(gateway.state, "store")), "nothing embedded was made"
    assert gateway.stop() == OK


def test_a_new_store_is_told_once(make_gateway, key):
    url = server_stores.get("redis").store().url()
    gateway = make_gateway("--store", url).start()
    assert gateway.err().count("made a new, empty store") == 1 and "prefix=" in gateway.err()
    assert gateway.post(key).status == 201 and gateway.stop() == OK
    gateway = make_gateway("--store", url).start()
    assert "empty store" not in gateway.err() and gateway.post(key).replayed


def test_the_url_from_a_file(make_gateway, place, key):
    """So that no list of processes shows it; a hint names the file."""
    kind = server_stores.get("mariadb")
    file = place / "url"
    file.write_text(kind.store().url() + "\n")
    for words, env in ((["--store", f"@{file}"], None), ([], {"IDEM_STORE": f"@{file}"})):
        gateway = make_gateway(*words, env=env).start()
        with open(f"/proc/{gateway.process.pid}/cmdline", "rb") as line:
            assert b"open-sesame" not in line.read()
        assert gateway.post(key).status == 201
        gate = gateway.upstream.gate()
        gateway.upstream.answer(hold=gate)
        cut = new_key()
        background = Background(gateway.post, cut)
        gateway.upstream.wait_count(1, cut)
        gateway.stop_at_once()
        assert f"--store @{file}" in gateway.err(), "the hint for what is unknown now"
        gateway.upstream.release_all()
        gateway.upstream.answer()
        with pytest.raises(rawhttp.ProtocolError):
            background.result()


def test_a_server_that_is_away_keeps_nothing_else_away(kind, make_gateway, key):
    """The gateway starts, says so, serves what is not guarded, and uses the server when it is back.
    """
    url = kind.store().url(timeout="1s")
    kind.server.end()
    gateway = make_gateway("--store", url).start()
    assert "cannot be used now" in gateway.err() and "store check" in gateway.err()
    assert ("like the workers: " in gateway.err()) == (os.geteuid() == 0)
    assert_problem(gateway.post(key), "store-unavailable")
    assert rawhttp.send(gateway.port, "GET", "/read").status == 201
    kind.steady()
    wait_until(lambda: gateway.post(key).status == 201, "the server to be used")
    assert gateway.post(key).replayed
    assert gateway.stop() == OK


def test_settings_that_are_too_weak_are_refused_at_once(kind, make_gateway):
    url = kind.store().url()
    with kind.weakened() as setting:
        wait_until(lambda: idem("store", "check", url).status == REFUSED,
                   "the setting to be in force")
        gateway = make_gateway("--store", url).start(ready=False)
        assert gateway.wait() == FAILURE and setting.search(gateway.err())


def test_the_configuration_is_printed_without_the_password(place):
    url = "mariadb://idem:open-sesame@127.0.0.1:1/d"
    ran = idem("gateway", "--listen", "127.0.0.1:1", "--upstream", "http://127.0.0.1:2",
               "--state", place, "--store", url, "--print-conf")
    assert ran.status == OK and "open-sesame" not in ran.out + ran.err
    assert 'idempotency_store main "mariadb://idem:***@127.0.0.1:1/d";' in ran.out
    assert "in place of ***" in ran.out


@pytest.mark.parametrize("url", ["redis://u:hush@h:x", "mariadb://u:hush@h/d?nosuch=1",
                                 "redis://u:hu$h@h"])
def test_a_url_that_cannot_be_right(place, url):
    ran = idem("gateway", "--listen", "127.0.0.1:1", "--upstream", "http://127.0.0.1:2",
               "--state", place, "--store", url)
    assert ran.status == USAGE and "hush" not in ran.out + ran.err and "hu$h" not in ran.err


# ---- the end, while the server hangs

def hung(gateway, kind):
    """A request whose answer the upstream gives while the server stands still."""
    gate = gateway.upstream.gate()
    gateway.upstream.answer(hold=gate)
    key = new_key()
    background = Background(gateway.post, key)
    gateway.upstream.wait_count(1, key)
    kind.server.stop()
    gate.release()
    return key, background


def test_the_drain_is_bounded_while_the_server_hangs(kind, make_gateway):
    """And the client gets the answer that is there, although nobody could record it."""
    gateway = make_gateway("--store", kind.store().url(timeout="10s"), "--drain", "1s").start()
    _, background = hung(gateway, kind)
    begun = time.monotonic()
    assert gateway.stop() == CUT
    assert time.monotonic() - begun < 1 + AT_ONCE_S + LOADED_S
    answer = background.result()
    assert answer.status == 201 and answer.get("Idempotency-Recorded") == "false"
    assert "are not answered, or their answers are not recorded" in gateway.err()


def test_a_second_signal_stops_at_once_while_the_server_hangs(kind, make_gateway):
    gateway = make_gateway("--store", kind.store().url(timeout="10s")).start()
    _, background = hung(gateway, kind)
    begun = time.monotonic()
    gateway.signal(signal.SIGTERM)
    assert gateway.stop_at_once() == CUT
    # The first second's signals are echoes of the first.
    assert time.monotonic() - begun < 1 + AT_ONCE_S + LOADED_S
    answer = background.result()
    assert answer.status == 201 and answer.get("Idempotency-Recorded") == "false"


def test_answers_are_recorded_when_the_server_is_back_within_the_drain(kind, make_gateway):
    gateway = make_gateway("--store", kind.store().url(timeout="10s")).start()
    key, background = hung(gateway, kind)
    gateway.signal(signal.SIGTERM)
    wait_until(lambda: not gateway.listens(), "it drains")
    kind.server.cont()
    answer = background.result()
    assert answer.status == 201 and answer.get("Idempotency-Recorded") is None
    assert gateway.wait() == OK
    shown = idem("show", "--key", key, "--json", "--store", gateway.words[-1])
    assert shown.json()["state"] == "completed"
