"""Same key, another request or another caller: conformance items C and E."""

import pytest
from problem import assert_problem
from scene import new_key
from upstream import Answer

OTHER_REQUESTS = {
    "body": {"body": b'{"amount":2}'},
    "last byte": {"body": b'{"amount":1]'},
    "empty body": {"body": b""},
    "path": {"target": "/refund"},
    "query": {"target": "/pay?dry=1"},
    "method": {"method": "PATCH"},
    "content type": {"headers": [("Content-Type", "text/plain")]},
    "host": {"host": "other.test"},
}


def send(scene, key, method="POST", target="/pay", **how):
    return scene.send(method, target, key=key, **how)


@pytest.mark.parametrize("what", OTHER_REQUESTS)
def test_c42_c43_other_request_with_the_same_key_is_422_afterwards(scene, key, what):
    first = send(scene, key)
    refused = send(scene, key, **OTHER_REQUESTS[what])
    assert_problem(refused, "key-reused")
    assert first.body not in refused.body
    again = send(scene, key)
    assert again.replayed and again.body == first.body
    assert scene.upstream.count() == 1


@pytest.mark.parametrize("what", OTHER_REQUESTS)
def test_d54_other_request_with_the_same_key_is_422_in_flight(scene, key, what):
    waiting, gate = scene.held_post(key)
    assert_problem(send(scene, key, **OTHER_REQUESTS[what]), "key-reused")
    assert_problem(send(scene, key), "in-progress")
    gate.release()
    assert waiting.result().status == 201
    assert scene.upstream.count() == 1


def test_c45_reordered_json_is_another_request_in_raw_mode(scene, key):
    scene.post(key, body=b'{"a":1,"b":2}')
    for body in (b'{"b":2,"a":1}', b'{"a":1, "b":2}'):
        assert_problem(scene.post(key, body=body), "key-reused")


def test_c50_other_trace_and_user_agent_are_the_same_request(scene, key):
    scene.post(key, headers=[("User-Agent", "a/1"), ("traceparent", "00-1")])
    again = scene.post(key, headers=[("User-Agent", "b/2"), ("traceparent", "00-2"),
                                     ("Accept", "application/json"), ("X-Forwarded-For", "::1")])
    assert again.replayed


def test_chunked_and_length_framed_bodies_are_the_same_request(scene, key):
    scene.post(key, body=b"x" * 5000)
    assert scene.post(key, body=b"x" * 5000, chunked=True).replayed
    assert scene.upstream.count() == 1


def test_mismatch_status_of_the_route(make_scene, key):
    scene = make_scene(guard="idempotency_mismatch_status 409;")
    scene.post(key)
    assert_problem(scene.post(key, body=b"other"), "key-reused", 409)


def test_fingerprint_of_chosen_values(make_scene, key):
    scene = make_scene(guard='idempotency_fingerprint raw "$request_method $uri";')
    scene.post(key, target="/pay?trace=1")
    assert scene.post(key, target="/pay?trace=2").replayed
    assert_problem(scene.post(key, target="/refund"), "key-reused")
    assert_problem(scene.post(key, body=b"other"), "key-reused")
    assert scene.upstream.count() == 1


# ---- who asks

CREDENTIALS = {"Authorization": ("Bearer a", "Bearer b"), "Cookie": ("sid=1", "sid=2"),
               "X-Api-Key": ("k1", "k2")}


@pytest.mark.parametrize("name", CREDENTIALS)
@pytest.mark.parametrize("how", ["other", "none"])
def test_other_credential_is_403_never_the_answer(scene, key, name, how):
    mine, theirs = CREDENTIALS[name]
    scene.upstream.answer(status=201, body=b"secret receipt")
    assert scene.post(key, headers=[(name, mine)]).status == 201
    refused = scene.post(key, headers=[(name, theirs)] if how == "other" else [])
    assert_problem(refused, "other-caller")
    assert b"secret" not in refused.body
    assert scene.post(key, headers=[(name, mine)]).replayed
    assert scene.upstream.count() == 1


@pytest.mark.parametrize("name", CREDENTIALS)
def test_credential_appearing_later_is_another_caller(scene, key, name):
    assert scene.post(key).status == 201
    assert_problem(scene.post(key, headers=[(name, CREDENTIALS[name][0])]), "other-caller")


@pytest.mark.parametrize("name", CREDENTIALS)
def test_other_credential_is_403_in_flight(scene, key, name):
    mine, theirs = CREDENTIALS[name]
    waiting, gate = scene.held_post(key, headers=[(name, mine)])
    assert_problem(scene.post(key, headers=[(name, theirs)]), "other-caller")
    gate.release()
    assert waiting.result().status == 201 and scene.upstream.count() == 1


def test_credentials_are_compared_each_in_its_place(scene, key):
    """A value that moves from one header to another is another caller."""
    scene.post(key, headers=[("Authorization", "x"), ("X-Api-Key", "y")])
    assert_problem(scene.post(key, headers=[("Authorization", "y"), ("X-Api-Key", "x")]),
                   "other-caller")
    assert_problem(scene.post(key, headers=[("Authorization", "xy")]), "other-caller")


def test_second_header_line_of_a_credential_counts(scene, key):
    scene.post(key, headers=[("Cookie", "sid=1")])
    refused = scene.post(key, headers=[("Cookie", "sid=1"), ("Cookie", "admin=1")])
    assert_problem(refused, "other-caller")


def test_mismatch_is_told_before_the_caller(scene, key):
    """Another caller with another payload learns only that the key is taken."""
    scene.post(key, headers=[("Authorization", "a")])
    refused = scene.post(key, headers=[("Authorization", "b")], body=b"other")
    assert refused.status in (403, 422)
    assert scene.upstream.count() == 1


def test_credential_off_trusts_the_scope(make_scene, key):
    scene = make_scene(scope="$http_x_user", guard="idempotency_credential off;")
    scene.post(key, headers=[("X-User", "u"), ("Authorization", "Bearer old")])
    again = scene.post(key, headers=[("X-User", "u"), ("Authorization", "Bearer refreshed")])
    assert again.replayed and scene.upstream.count() == 1


def test_credential_of_the_routes_choice(make_scene, key):
    scene = make_scene(guard="idempotency_credential $http_x_token;")
    scene.post(key, headers=[("X-Token", "1"), ("Authorization", "a")])
    assert scene.post(key, headers=[("X-Token", "1"), ("Authorization", "b")]).replayed
    assert_problem(scene.post(key, headers=[("X-Token", "2"), ("Authorization", "a")]),
                   "other-caller")


def test_e57_same_key_under_two_scopes_is_two_records(make_scene, key):
    scene = make_scene(scope="$http_x_tenant")
    first = {tenant: scene.post(key, headers=[("X-Tenant", tenant)]) for tenant in ("a", "b", "")}
    assert len({response.body for response in first.values()}) == 3
    for tenant, response in first.items():
        again = scene.post(key, headers=[("X-Tenant", tenant)])
        assert again.replayed and again.body == response.body
    assert scene.upstream.count() == 3


def test_scope_and_key_do_not_run_into_each_other(make_scene):
    scene = make_scene(scope="$http_x_tenant")
    for tenant, value in (("ab", "c"), ("a", "bc"), ("", "abc")):
        assert scene.post(value, headers=[("X-Tenant", tenant)]).status == 201
    assert scene.upstream.count() == 3


def test_e57_hosts_with_one_key_are_never_cross_read(scene, key):
    first = scene.post(key, host="one.test")
    other = scene.post(key, host="two.test")
    assert first.body not in other.body and not other.replayed


def test_two_routes_with_one_store_share_no_answers(make_scene, key):
    scene = make_scene(extra="location /refund { idempotency main; idempotency_scope tenant;"
                             "{proxy} }")
    first = scene.post(key)
    assert_problem(scene.post(key, target="/refund"), "key-reused")
    assert scene.post(key).body == first.body and scene.upstream.count() == 1


def test_two_stores_are_two_memories(make_scene, key):
    scene = make_scene()
    scene.configure(
        http=f"idempotency_store second lmdb:{scene.nginx.path('second')}?size=64m;",
        extra="location /b { idempotency second; idempotency_scope tenant; {proxy} }")
    scene.nginx.reload()
    assert scene.post(key).status == 201
    assert scene.post(key, target="/b").status == 201
    assert scene.post(key).replayed and scene.post(key, target="/b").replayed
    assert scene.upstream.count() == 2


def test_e58_revoked_caller_gets_the_same_401_for_known_and_unknown_keys(make_scene, key):
    """Authentication comes before the guard: no key is used up, nothing is replayed."""
    scene = make_scene(extra="location = /auth { internal; return 401; }"
                             "location /closed { auth_request /auth; idempotency main;"
                             "idempotency_scope tenant; {proxy} }")
    scene.post(key, target="/pay")
    known, unknown = (scene.post(k, target="/closed") for k in (key, new_key()))
    assert known.status == unknown.status == 401 and known.body == unknown.body
    assert scene.upstream.count() == 1


def test_b24_rate_limited_request_burns_no_key(make_scene, key):
    scene = make_scene(http="limit_req_zone $http_x_slow zone=z:64k rate=1r/m;",
                       location="limit_req zone=z; limit_req_status 429;")
    assert scene.post(new_key(), headers=[("X-Slow", "1")]).status == 201
    assert scene.post(key, headers=[("X-Slow", "1")]).status == 429
    assert scene.post(key).status == 201
    assert scene.upstream.count(key) == 1


def test_b24_too_large_request_burns_no_key(make_scene, key):
    scene = make_scene(server="client_max_body_size 1k;")
    for chunked in (False, True):
        assert scene.post(key, body=b"x" * 5000, chunked=chunked).status == 413
    assert scene.post(key, body=b"x").status == 201
    assert scene.upstream.count() == 1


def test_failed_answer_shows_nothing_of_another_caller(scene, key):
    """A failed record has nothing to show: any caller with the same payload may execute it."""
    scene.upstream.answer(Answer(status=503, body=b"of a"), Answer(status=201, body=b"of b"))
    assert scene.post(key, headers=[("Authorization", "a")]).body == b"of a"
    assert scene.post(key, headers=[("Authorization", "b")]).body == b"of b"
    assert_problem(scene.post(key, headers=[("Authorization", "a")]), "other-caller")
