"""What operators and upstreams see: variables, the three request headers, dropped forgeries."""

import re

import pytest
from problem import assert_problem
from rawhttp import build_request
from scene import new_key
from waiting import wait_until

LINE = re.compile(r"^(\S+) (\S+) (\d+) \[(.*?)\] \[(.*?)\] \[(.*?)\] \[(.*?)\]$")


def fields(scene, count=1):
    """(status, outcome, id, attempt, store time) of the last `count` access log lines."""
    wait_until(lambda: len(scene.nginx.access_log()) >= count, "the access log")
    lines = scene.nginx.access_log()[-count:]
    return [LINE.match(line).groups()[2:] for line in lines]


def test_variables_of_an_execution_and_a_replay(scene, key):
    scene.post(key)
    scene.post(key)
    (status, outcome, first_id, attempt, took), replay = fields(scene, 2)
    assert (status, outcome, attempt) == ("201", "executed", "1")
    assert re.fullmatch("[0-9a-f]{64}", first_id)
    assert re.fullmatch(r"[0-9]+\.[0-9]{3}", took)
    assert replay[1] == "replayed" and replay[2] == first_id


def test_id_is_by_scope_and_key_and_shows_neither(make_scene):
    scene = make_scene(scope="$http_x_tenant")
    for tenant, value in (("a", "one"), ("b", "one"), ("a", "two"), ("a", '"one"')):
        scene.post(value, headers=[("X-Tenant", tenant)])
    ids = [line[2] for line in fields(scene, 4)]
    assert len(set(ids)) == 3 and ids[0] == ids[3]
    assert "one" not in "".join(ids)


def test_outcome_variable_for_each_way(make_scene, key):
    scene = make_scene(guard="idempotency_key $http_idempotency_key required;"
                             "idempotency_body_max 1k;",
                       extra="location /open { {proxy} }")
    scene.post(target="/open")
    scene.send("GET", "/pay", body=None)
    scene.post()
    scene.post(key)
    scene.post(key)
    scene.post(key, body=b"other")
    scene.post(key, headers=[("Authorization", "x")])
    assert scene.outcomes(7) == ["none", "none", "refused", "executed", "replayed", "mismatch",
                                 "refused"]
    held = new_key()
    waiting, gate = scene.held_post(held)
    scene.post(held)
    assert scene.outcomes(8)[-1] == "in_progress"
    gate.release()
    waiting.result()
    lost = new_key()
    scene.upstream.answer(fault="close")
    scene.post(lost)
    scene.post(lost)
    assert scene.outcomes(11)[-1] == "unknown"


def test_variables_are_empty_where_nothing_is_guarded(make_scene):
    scene = make_scene(extra="location /open { {proxy} }")
    scene.post(target="/open", key=new_key())
    assert fields(scene)[0][1] == "none"
    assert fields(scene)[0][2] in ("", "-") and fields(scene)[0][3] in ("", "-")


def test_variables_can_be_sent_as_headers(make_scene, key):
    scene = make_scene(location="add_header X-Outcome $idempotency_outcome always;"
                                "add_header X-Attempt $idempotency_attempt always;")
    first, again = scene.post(key), scene.post(key)
    assert (first.get("X-Outcome"), again.get("X-Outcome")) == ("executed", "replayed")
    assert first.get("X-Attempt") == "1"
    assert scene.post(key, body=b"x").get("X-Outcome") == "mismatch"


@pytest.mark.parametrize("sent", ["plain-key", '"quoted key"', r'"esc\"aped"'])
def test_upstream_sees_the_key_as_sent_the_attempt_and_the_fence(scene, sent):
    scene.post(sent)
    seen = scene.upstream.last()
    assert seen.get("Idempotency-Key") == sent
    assert seen.get("Idempotency-Attempt") == "1"
    assert re.fullmatch("[1-9][0-9]*", seen.get("Idempotency-Fence"))


def test_fence_grows_with_each_claim(scene, key):
    scene.upstream.answer(status=503)
    for _ in range(5):
        scene.post(key)
    fences = [int(r.get("Idempotency-Fence")) for r in scene.upstream.requests]
    assert fences == sorted(set(fences))
    assert [r.get("Idempotency-Attempt") for r in scene.upstream.requests] == list("12345")


FORGED = [("Idempotency-Fence", "99999999999999999999"), ("idempotency-fence", "1"),
          ("Idempotency-Attempt", "7"), ("IDEMPOTENCY-ATTEMPT", "8")]


def test_client_sent_fence_and_attempt_are_dropped(scene, key):
    scene.post(key, headers=FORGED)
    seen = scene.upstream.last()
    assert seen.get("Idempotency-Attempt") == "1"
    assert seen.get("Idempotency-Fence") not in ("99999999999999999999", "1")


def test_client_sent_fence_and_attempt_are_dropped_without_a_key_too(scene):
    scene.post(headers=FORGED)
    seen = scene.upstream.last()
    assert seen.all("Idempotency-Attempt") == [] and seen.all("Idempotency-Fence") == []


def test_forged_headers_between_many_others_leave_those_alone(scene, key):
    """Removal splits nginx's header list in parts; every other line must survive, in order."""
    lines = []
    for number in range(60):
        lines.append((f"X-Line-{number}", str(number)))
        if number % 7 == 0:
            lines.append(FORGED[number // 7 % 4])
    scene.post(key, headers=lines)
    seen = scene.upstream.last()
    kept = [(n, v) for n, v in seen.headers if n.startswith("X-Line-")]
    assert kept == [line for line in lines if line[0].startswith("X-Line-")]
    assert seen.get("Idempotency-Attempt") == "1"


def test_log_has_no_secrets(scene):
    secret = "tok-very-secret-4711"
    with scene.client() as client:
        client.send(build_request("POST", "/pay", [("Idempotency-Key", '"bad'),
                                                   ("Authorization", secret)], b"card=4111"))
        assert_problem(client.read_response(), "key-malformed")
    scene.upstream.answer(fault="close")
    scene.post(new_key(), headers=[("Authorization", secret)], body=b"card=4111")
    assert secret not in scene.nginx.log() and "card=4111" not in scene.nginx.log()
