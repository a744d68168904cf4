"""Which answers are kept: by status, the route's rules, the upstream's own word (design 6)."""

import pytest
from problem import assert_problem
from upstream import Answer

FINAL = [200, 201, 202, 204, 302, 400, 402, 404, 409, 422]
FAILED = [401, 403, 407, 408, 425, 429, 500, 501, 503, 505, 507]
UNKNOWN = [502, 504]


def empty(status):
    return {"framing": "none"} if status in (204, 304) else {}


@pytest.mark.parametrize("status", FAILED)
def test_failed_statuses_are_not_stored_the_retry_executes(scene, key, status):
    scene.upstream.answer(Answer(status=status, body=b"not now"), Answer(status=201))
    first = scene.post(key)
    assert (first.status, first.body) == (status, b"not now")
    second = scene.post(key)
    assert second.status == 201 and not second.replayed
    assert [r.get("Idempotency-Attempt") for r in scene.upstream.requests] == ["1", "2"]
    assert scene.post(key).replayed and scene.upstream.count(key) == 2


def test_503_from_the_upstream_is_not_stored_however_often(scene, key):
    scene.upstream.answer(status=503, headers=[("Retry-After", "7")])
    for number in range(1, 5):
        response = scene.post(key)
        assert response.status == 503 and response.get("Retry-After") == "7"
        assert scene.upstream.count(key) == number


def test_401_is_retried_with_a_fresh_authorization(scene, key):
    scene.upstream.answer(Answer(status=401), Answer(status=201))
    stale, fresh = [("Authorization", "Bearer stale")], [("Authorization", "Bearer fresh")]
    assert scene.post(key, headers=stale).status == 401
    assert scene.post(key, headers=fresh).status == 201
    assert scene.post(key, headers=fresh).replayed
    assert_problem(scene.post(key, headers=stale), "other-caller")
    assert scene.upstream.count(key) == 2


def test_failed_then_another_payload_is_still_a_mismatch(scene, key):
    scene.upstream.answer(status=503)
    scene.post(key)
    assert_problem(scene.post(key, body=b"another"), "key-reused")
    assert scene.upstream.count(key) == 1


# ---- the upstream's own word

@pytest.mark.parametrize("status", [201, 404, 503, 504])
@pytest.mark.parametrize("word", ["final", "Final", " final "])
def test_idempotency_outcome_final_overrules_and_is_not_passed_on(scene, key, status, word):
    scene.upstream.answer(status=status, headers=[("Idempotency-Outcome", word)], body=b"so it is")
    first, again = scene.post(key), scene.post(key)
    assert first.status == again.status == status and again.replayed
    assert first.body == again.body == b"so it is"
    for response in (first, again):
        assert not response.all("Idempotency-Outcome")
    assert scene.upstream.count(key) == 1


@pytest.mark.parametrize("status", [201, 404, 504])
def test_idempotency_outcome_failed_overrules(scene, key, status):
    scene.upstream.answer(Answer(status=status, headers=[("Idempotency-Outcome", "failed")]),
                          Answer(status=200))
    first = scene.post(key)
    assert first.status == status and not first.all("Idempotency-Outcome")
    assert scene.post(key).status == 200 and scene.upstream.count(key) == 2


@pytest.mark.parametrize("status", [201, 404, 503])
def test_idempotency_outcome_unknown_overrules(scene, key, status):
    scene.upstream.answer(status=status, headers=[("Idempotency-Outcome", "unknown")])
    first = scene.post(key)
    assert first.status == status and not first.all("Idempotency-Outcome")
    assert_problem(scene.post(key), "outcome-unknown")
    assert scene.upstream.count(key) == 1


@pytest.mark.parametrize("word", ["", "nonsense", "finally"])
def test_another_word_is_as_good_as_none_and_not_passed_on(scene, key, word):
    scene.upstream.answer(status=201, headers=[("Idempotency-Outcome", word)])
    first, again = scene.post(key), scene.post(key)
    assert again.replayed and not first.all("Idempotency-Outcome")


def test_two_words_contradict_each_other(scene, key):
    scene.upstream.answer(status=201, headers=[("Idempotency-Outcome", "final"),
                                               ("Idempotency-Outcome", "failed")])
    scene.post(key)
    assert_problem(scene.post(key), "outcome-unknown")
    assert scene.upstream.count(key) == 1 and "more than once" in scene.nginx.log()


def test_the_word_is_hidden_from_unguarded_requests_of_a_guarded_route(scene):
    scene.upstream.answer(headers=[("Idempotency-Outcome", "final")])
    assert scene.post().get("Idempotency-Outcome") is None
    assert scene.send("GET", "/pay").get("Idempotency-Outcome") is None


def test_unguarded_route_passes_the_header_through(make_scene):
    scene = make_scene(extra="location /open { {proxy} }")
    scene.upstream.answer(headers=[("Idempotency-Outcome", "final")])
    assert scene.post(target="/open").get("Idempotency-Outcome") == "final"


# ---- the route's rules

@pytest.mark.parametrize("rule,status,expected", [
    ("503 final", 503, "final"), ("5xx final", 500, "final"), ("5XX final", 504, "final"),
    ("404 failed", 404, "failed"), ("4xx failed", 422, "failed"), ("2xx unknown", 201, "unknown"),
    ("500 501 505 unknown", 505, "unknown"), ("401 403 final", 403, "final"),
    ("504 failed", 504, "failed"),
])
def test_idempotency_outcome_of_the_route(make_scene, key, rule, status, expected):
    scene = make_scene(guard=f"idempotency_outcome {rule};")
    scene.upstream.answer(status=status)
    assert scene.post(key).status == status
    again = scene.post(key)
    if expected == "unknown":
        assert_problem(again, "outcome-unknown")
    else:
        assert again.replayed == (expected == "final")
    assert scene.upstream.count(key) == (2 if expected == "failed" else 1)


def test_the_upstreams_word_overrules_the_route(make_scene, key):
    scene = make_scene(guard="idempotency_outcome 5xx final;")
    scene.upstream.answer(Answer(status=500, headers=[("Idempotency-Outcome", "failed")]),
                          Answer(status=201))
    assert [scene.post(key).status for _ in range(2)] == [500, 201]


@pytest.mark.parametrize("status", FINAL)
def test_final_statuses_are_executed_once(scene, key, status):
    scene.upstream.answer(status=status, **empty(status))
    for _ in range(3):
        assert scene.post(key).status == status
    assert scene.upstream.count(key) == 1


@pytest.mark.parametrize("status", UNKNOWN)
def test_unknown_statuses_are_held(scene, key, status):
    scene.upstream.answer(status=status)
    assert scene.post(key).status == status
    assert_problem(scene.post(key), "outcome-unknown")
    assert scene.upstream.count(key) == 1
