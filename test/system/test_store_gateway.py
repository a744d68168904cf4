"""The gateway on a store that is a server: it works; when the server fails, it says so in time."""

import re
import time

import pytest
import server_stores
from nginx import process_state
from problem import assert_problem
from scene import Background, new_key
from test_cli_support import everything
from waiting import hold_true_for, wait_until

EXTRA = "location /plain { {proxy} }\nlocation /health { return 204; }"
TIME_OUT_S = 0.5
SLOW_S = 3.0  # what a machine under load may add


@pytest.fixture(name="kind", params=server_stores.KINDS)
def _kind(request):
    made = server_stores.get(request.param)
    yield made
    made.steady()


@pytest.fixture(name="scene")
def _scene(kind, make_scene):
    store = kind.store()
    made = make_scene(store=store.url(timeout=f"{int(1000 * TIME_OUT_S)}ms"), extra=EXTRA)
    made.kind, made.kept = kind, store
    yield made
    kind.steady()
    for secret in server_stores.SECRETS:
        assert secret not in made.nginx.log() + made.nginx.log("stderr.log")


def works(scene, what):
    """A new key is executed and replayed, sooner or later: without a reload."""
    def attempt():
        key = new_key()
        return scene.post(key).status == 201 and scene.post(key)
    assert wait_until(attempt, what).replayed


def timed(scene, key=None):
    begun = time.monotonic()
    answer = scene.post(key or new_key())
    return answer, time.monotonic() - begun


def test_once_and_the_same_answer_again(scene, key):
    scene.upstream.answer(status=201, body=b"\x00made\xff")
    first = scene.post(key, body=b"a")
    again = scene.post(key, body=b"a")
    assert not first.replayed and again.replayed and again.body == first.body
    assert_problem(scene.post(key, body=b"b"), "key-reused")
    assert scene.upstream.count(key) == 1


def test_in_progress_and_unknown(scene, key):
    background, gate = scene.held_post(key)
    refused = scene.post(key)
    assert_problem(refused, "in-progress")
    assert int(refused.get("Retry-After")) >= 1
    gate.release()
    assert background.result().status == 201
    lost = new_key()
    scene.upstream.answer(fault="close")
    assert_problem(scene.post(lost), "upstream-unanswered")
    assert_problem(scene.post(lost), "outcome-unknown")
    assert scene.upstream.count(lost) == 1


def test_what_was_recorded_survives_the_server(scene, key):
    first = scene.post(key)
    scene.kind.server.restart()
    again = scene.post_until(key, lambda r: r.status != 503, "the server to be used again")
    assert again.replayed and again.body == first.body and scene.upstream.count(key) == 1
    works(scene, "new keys after a restart")


def test_a_server_that_hangs_is_503_in_time(scene):
    """Nobody else waits: the same worker serves what is not guarded, also while a request hangs."""
    works(scene, "a first key")
    before = scene.upstream.count()
    scene.kind.server.stop()
    held = Background(timed, scene)
    served = 0
    while not held.done:
        assert scene.send("GET", "/health").status == 204
        assert scene.send("POST", "/plain").status == 201
        served += 1
    answer, seconds = held.result()
    assert_problem(answer, "store-unavailable")
    assert int(answer.get("Retry-After")) >= 1
    assert seconds < TIME_OUT_S + SLOW_S and served >= 2
    # From now on the store is known to be away, and nobody has to wait for it any more.
    wait_until(lambda: timed(scene)[1] < TIME_OUT_S / 2, "requests to be refused at once")
    assert scene.upstream.count() == before + served
    wait_until(lambda: re.search(r"idempotency store \"main\" \(\w+://[^)]*"
                                 + re.escape(scene.kind.address) + r"[^)]*\): store unavailable",
                                 scene.nginx.log()), "the log to name the server")
    scene.kind.server.cont()
    works(scene, "the server to be used again, without a reload")
    wait_until(lambda: "store available again" in scene.nginx.log(), "the log to say so")


def test_a_full_server_is_told_without_a_contradiction(scene):
    works(scene, "a first key")
    with scene.kind.full(scene.kept):
        assert_problem(scene.post(new_key()), "store-full")
        wait_until(lambda: "; claims refused: " in scene.nginx.log(), "the log to say so")
        assert "claims taken" not in scene.nginx.log()
    works(scene, "a key once there is room")


def test_an_answer_larger_than_the_server_ever_takes(make_scene, key):
    """It is no want of room, and nobody is sent to look for some."""
    kind = server_stores.get("mariadb")
    url = kind.store().url()
    kind.run("SET GLOBAL max_allowed_packet = 1048576")
    try:
        scene = make_scene(store=url)
        scene.upstream.answer(body=b"x" * 700000)
        assert len(scene.post(key).body) == 700000
        assert_problem(scene.post(key), "answer-not-kept")
        wait_until(lambda: "does not take answers as large as the answer to" in scene.nginx.log(),
                   "the log to say so")
        assert "no room" not in scene.nginx.log()
        record, = everything(url).values()
        assert record["answer"]["not_kept"] == "too_large"
    finally:
        kind.run(f"SET GLOBAL max_allowed_packet = {256 << 20}")


def test_many_at_once_while_the_server_hangs(scene):
    """Each of them is told, none is executed, and none is stuck when the server goes on."""
    works(scene, "a first key")
    keys = [new_key() for _ in range(40)]
    scene.kind.server.stop()
    begun = time.monotonic()
    for pending in [Background(scene.post, key) for key in keys]:
        assert_problem(pending.result(), "store-unavailable")
    assert time.monotonic() - begun < 2 * TIME_OUT_S + SLOW_S
    assert not any(scene.upstream.count(key) for key in keys)
    scene.kind.server.cont()
    for key in keys:
        scene.post_until(key, lambda r: r.status == 201, "a retry to be executed")
        assert scene.post(key).replayed and scene.upstream.count(key) == 1


def test_a_server_that_is_gone_is_503_at_once(scene):
    works(scene, "a first key")
    scene.kind.server.end()
    answer, seconds = timed(scene)
    assert_problem(answer, "store-unavailable")
    assert seconds < TIME_OUT_S + SLOW_S
    assert scene.send("GET", "/health").status == 204
    scene.kind.steady()
    works(scene, "the server to be used again")


def test_an_answer_is_not_lost_with_the_store(scene, key):
    """The upstream has answered: the client gets it, recording goes on, and nothing is repeated."""
    background, gate = scene.held_post(key, {"status": 201, "body": b"paid"})
    scene.kind.server.stop()
    gate.release()
    first = background.result()
    assert (first.status, first.body) == (201, b"paid")
    assert first.get("Idempotency-Recorded") == "false"
    scene.kind.server.cont()
    again = scene.post_until(key, lambda r: r.status == 201, "the answer to be recorded")
    assert again.replayed and again.body == b"paid" and scene.upstream.count(key) == 1


def test_workers_leave_while_the_server_hangs(scene):
    """Reload and quit are bounded, though the thread hangs inside the store."""
    works(scene, "a first key")
    scene.kind.server.stop()
    wait_until(lambda: "store unavailable" in scene.nginx.log(), "a sweep or an opening to hang")
    old = scene.nginx.reload()
    wait_until(lambda: not any(process_state(pid) not in (None, "Z") for pid in old),
               "the old worker to leave", timeout=12)
    assert scene.send("GET", "/health").status == 204
    scene.kind.server.cont()
    works(scene, "the new worker to use the server")
    scene.nginx.quit()


# ---- configuration

def test_the_configuration_is_checked_without_a_server(make_scene):
    """nginx -t connects nowhere and makes nothing; two names may mean one store."""
    url = "redis://user:not-the-password@127.0.0.1:1/3?timeout=100ms"
    scene = make_scene(store=url, http=f"idempotency_store second {url};", start=False)
    status, said = scene.nginx.test()
    assert status == 0 and "not-the-password" not in said
    scene.nginx.start()
    assert_problem(scene.post(new_key()), "store-unavailable")
    hold_true_for(lambda: "not-the-password" not in scene.nginx.log(), 1.5, "no password logged")
    assert "redis://user:***@127.0.0.1:1/3" in scene.nginx.log()


@pytest.mark.parametrize("url, says", [
    ("redis://u:hush@127.0.0.1:x", "port"), ("postgresql://u:hush@", "host"),
    ("mariadb://u:hush@h/d?timeout=1", "timeout"), ("redis://u:hush@h?nosuch=1", "nosuch"),
    ("nosuch://u:hush@h", "nosuch"), ("redis://u:hu/sh@h", "%2F")])
def test_urls_that_cannot_be_right(make_scene, url, says):
    scene = make_scene(store=url, start=False)
    status, said = scene.nginx.test()
    assert status != 0 and says in said and "idempotency_store" in said
    assert "hush" not in said and "hu/sh" not in said


def test_two_names_for_one_server(kind, make_scene):
    store = kind.store()
    scene = make_scene(store=store.url(), http=f"idempotency_store second {store.url()};",
                       extra="location /second { idempotency second; {proxy} }")
    key = new_key()
    first = scene.post(key)
    assert first.status == 201 and scene.post(key).replayed
    assert scene.post(new_key(), target="/second").status == 201
