"""At the same time: parallel retries, clients that go away, operations that outlive their lease."""

import collections
import re
import time

import pytest
from problem import assert_problem, kind_of
from rawhttp import build_request
from scene import Background, new_key
from waiting import hold_true_for, wait_until

PARALLEL = 100


def test_d51_100_parallel_identical_requests_run_once(make_scene, key):
    """2 workers: the upstream runs once; the others get 409 with Retry-After, later the replay."""
    scene = make_scene(workers=2)
    gate = scene.upstream.gate()
    scene.upstream.answer(hold=gate)
    flying = [Background(scene.post, key) for _ in range(PARALLEL)]
    wait_until(lambda: sum(one.done for one in flying) == PARALLEL - 1, "all answers but one")
    for one in flying:
        if one.done:
            assert_problem(one.result(), "in-progress")
    assert scene.upstream.count() == 1
    gate.release()
    answers = [one.result() for one in flying]
    winners = [answer for answer in answers if kind_of(answer) is None]
    assert len(winners) == 1 and winners[0].status == 201
    retries = [one.result() for one in [Background(scene.post, key) for _ in range(PARALLEL)]]
    assert {retry.body for retry in retries} == {winners[0].body}
    assert all(retry.replayed for retry in retries)
    assert scene.upstream.count() == 1


def test_many_keys_in_parallel_each_run_once(make_scene):
    scene = make_scene(workers=2)
    keys = [new_key() for _ in range(60)] * 3

    def until_answered(key):
        return scene.post_until(key, lambda r: kind_of(r) != "in-progress", "an answer").body

    bodies = collections.defaultdict(set)
    flying = [(key, Background(until_answered, key)) for key in keys]
    for key, one in flying:
        bodies[key].add(one.result())
    assert all(len(seen) == 1 for seen in bodies.values())
    assert set(scene.upstream.counts().values()) == {1}


def test_d53_409_has_retry_after_and_is_not_stored(scene, key):
    waiting, gate = scene.held_post(key)
    refused = scene.post(key)
    assert_problem(refused, "in-progress")
    assert re.fullmatch("[1-9][0-9]*", refused.get("Retry-After"))
    gate.release()
    first = waiting.result()
    again = scene.post(key)
    assert again.replayed and again.body == first.body


def test_refusals_reveal_nothing_of_the_other_request(scene, key):
    waiting, gate = scene.held_post(key, headers=[("Authorization", "hush-hush")],
                                    body=b"card=4111")
    refused = scene.post(key, headers=[("Authorization", "hush-hush")], body=b"card=4111")
    text = refused.body + repr(refused.headers).encode()
    assert b"4111" not in text and b"hush" not in text and key.encode() not in text
    gate.release()
    waiting.result()


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("buffering", ["on", "off"])
def test_b33_client_hangs_up_while_the_upstream_works(make_scene, key, how, buffering):
    """The upstream finishes, the retry gets the answer."""
    scene = make_scene(location=f"proxy_buffering {buffering};")
    gate = scene.upstream.gate()
    scene.upstream.answer(hold=gate, body=b"paid" * 1000)
    client = scene.client()
    client.send(build_request("POST", "/pay", [("Idempotency-Key", key)], b"b"))
    scene.upstream.wait_count(1, key)
    client.reset() if how == "reset" else client.hang_up()
    assert_problem(scene.post(key, body=b"b"), "in-progress")
    gate.release()
    again = scene.post_until(key, lambda r: kind_of(r) != "in-progress", "the answer", body=b"b")
    assert again.replayed and again.body == b"paid" * 1000
    assert scene.upstream.count() == 1 and not scene.upstream.broken


@pytest.mark.parametrize("where", ["hold_body", "hold_end"])
def test_client_hangs_up_in_the_middle_of_the_answer(scene, key, where):
    gate = scene.upstream.gate()
    scene.upstream.answer(body=b"0123456789" * 500, **{where: gate})
    client = scene.client()
    client.send(build_request("POST", "/pay", [("Idempotency-Key", key)], b"b"))
    gate.wait_reached()
    client.reset()
    gate.release()
    again = scene.post_until(key, lambda r: kind_of(r) != "in-progress", "the answer", body=b"b")
    assert again.replayed and again.body == b"0123456789" * 500


def test_client_that_hangs_up_in_its_request_claims_nothing(scene, key):
    """An incomplete request is no request: the key stays free."""
    with scene.client() as client:
        whole = build_request("POST", "/pay", [("Idempotency-Key", key)], b"x" * 1000)
        client.send(whole[:-10])
        client.reset()
    first = scene.post(key, body=b"x" * 1000)
    assert first.status == 201 and not first.replayed
    assert scene.upstream.count() == 1


def test_many_clients_hang_up_at_once(make_scene):
    scene = make_scene(workers=2)
    keys = [new_key() for _ in range(40)]
    gate = scene.upstream.gate()
    scene.upstream.answer(hold=gate)
    for key in keys:
        client = scene.client()
        client.send(build_request("POST", "/pay", [("Idempotency-Key", key)], b"b"))
    scene.upstream.wait_count(len(keys))
    for client in scene.clients:
        client.close()
    gate.release()
    for key in keys:
        again = scene.post_until(key, lambda r: kind_of(r) != "in-progress", "answer", body=b"b")
        assert again.replayed
    assert set(scene.upstream.counts().values()) == {1}


def test_operation_longer_than_lease_and_ttl_stays_in_progress_until_it_ends(make_scene, key):
    scene = make_scene(guard="idempotency_lease 600ms; idempotency_ttl 1s;")
    began = time.monotonic()
    waiting, gate = scene.held_post(key)
    hold_true_for(lambda: kind_of(scene.post(key)) == "in-progress", 2.5, "in progress")
    assert time.monotonic() - began > 1.6
    gate.release()
    first = waiting.result()
    assert first.status == 201 and scene.upstream.count() == 1
    again = scene.post(key)
    assert again.replayed and again.body == first.body


def test_slow_request_body_does_not_hold_a_claim(scene, key):
    """The claim comes after the whole request: another one with the key runs meanwhile."""
    slow = scene.client()
    whole = build_request("POST", "/pay", [("Idempotency-Key", key)], b'{"amount":1}')
    slow.send(whole[:-1])
    first = scene.post(key)
    assert first.status == 201
    slow.send(whole[-1:])
    again = slow.read_response()
    assert again.replayed and again.body == first.body
    assert scene.upstream.count() == 1


def test_slow_reader_gets_the_whole_answer(make_scene, key):
    scene = make_scene(guard="idempotency_body_max 8m;")
    body = bytes(range(256)) * 16384
    scene.upstream.answer(body=body)
    with scene.client() as client:
        client.send(build_request("POST", "/pay", [("Idempotency-Key", key)], b"b"))
        scene.upstream.wait_count(1)
        again = scene.post_until(key, lambda r: r.replayed, "the record", body=b"b")
        assert again.body == body
        assert client.read_response().body == body
        client.finish()
