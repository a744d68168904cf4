"""What the transport tells decides the outcome (design 6): refused is free, silence is unknown."""

import pytest
from problem import assert_problem
from scene import new_key
from upstream import Answer, Upstream
from waiting import wait_until

TIMEOUTS = "proxy_read_timeout 300ms; proxy_connect_timeout 5s;"
MANY_REASONS = ("error timeout invalid_header http_500 http_502 http_503 http_504 http_403 "
                "http_404 http_429")


def assert_held(scene, key, count=1):
    """The outcome is unknown, told so again and again, and nothing is executed."""
    for _ in range(3):
        members = assert_problem(scene.post(key), "outcome-unknown")
        assert "execution" not in str(members)
    assert scene.upstream.count(key) == count


# ---- nothing was sent

def test_b25_refused_connection_is_502_key_free_retry_executes(make_scene, make_upstream, key):
    scene = make_scene(upstream=make_upstream(listening=False))
    assert_problem(scene.post(key), "upstream-unreachable")
    assert_problem(scene.post(key), "upstream-unreachable")
    scene.upstream.listen()
    assert scene.post(key).status == 201
    assert scene.post(key).replayed
    assert scene.upstream.count(key) == 1


def test_refused_connection_frees_the_key_for_the_same_payload_only(make_scene, make_upstream, key):
    """FAILED keeps the fingerprint (design 4)."""
    scene = make_scene(upstream=make_upstream(listening=False))
    assert_problem(scene.post(key), "upstream-unreachable")
    scene.upstream.listen()
    assert_problem(scene.post(key, body=b"other"), "key-reused")
    assert scene.post(key).status == 201


def test_unknown_host_is_upstream_unreachable_and_frees_the_key(make_scene, key):
    """DNS: no byte was sent."""
    scene = make_scene(http="resolver 127.0.0.1:9 ipv6=off; resolver_timeout 200ms;",
                       proxy="set $up no-such-host.invalid; proxy_pass http://$up;"
                             "proxy_http_version 1.1;")
    for _ in range(2):
        assert_problem(scene.post(key), "upstream-unreachable")
    assert scene.upstream.count() == 0


def test_all_peers_of_a_group_refusing_frees_the_key(make_scene, make_upstream, key):
    dead, other = make_upstream(listening=False), make_upstream(listening=False)
    scene = make_scene(
        upstream=dead,
        http=f"upstream group {{ server 127.0.0.1:{dead.port} fail_timeout=1s;"
             f"server 127.0.0.1:{other.port} fail_timeout=1s; zone z 64k; }}",
        proxy="proxy_pass http://group; proxy_http_version 1.1;")
    assert_problem(scene.post(key), "upstream-unreachable")
    dead.listen()
    other.listen()
    wait_until(lambda: scene.post(key).status == 201, "a peer to be tried again")
    assert dead.count(key) + other.count(key) == 1


# ---- sent, and no whole answer

FAULTS = {
    "reads the request and closes": {"fault": "close"},
    "resets": {"fault": "reset"},
    "times out": {"fault": "silent"},
    "answers 504": {"status": 504, "body": b"upstream's gateway"},
    "answers 502": {"status": 502, "body": b"upstream's gateway"},
    "cuts a length answer short": {"body": b"0123456789", "cut_after": 5},
    "cuts a length answer before its body": {"body": b"0123456789", "cut_after": 0},
    "cuts a chunked answer short": {"body": b"0123456789", "framing": "chunked", "cut_after": 5},
    "ends by closing only": {"body": b"0123456789", "framing": "close"},
    "answers garbage": {"raw": b"\x00\x01\x02garbage\r\n\r\n", "keep_alive": False},
    "closes in its head": {"raw": b"HTTP/1.1 201 Created\r\nContent-Le", "keep_alive": False},
    "answers with bad chunks": {"keep_alive": False, "raw":
                                b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n"
                                b"zz\r\nnonsense"},
    "sends a too large head": {"headers": [("X-Large", "x" * 60000)]},
}
BARE_CLOSE_ALLOWED = ("answers with bad chunks",)


@pytest.mark.parametrize("buffering", ["on", "off"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda name: name.replace(" ", "-"))
def test_b26_sent_but_no_whole_answer_is_unknown_never_executed_again(
        make_scene, key, fault, buffering):
    scene = make_scene(location=f"{TIMEOUTS} proxy_buffering {buffering};")
    scene.upstream.answer(**FAULTS[fault])
    try:
        first = scene.post(key)
    except AssertionError:
        assert fault in BARE_CLOSE_ALLOWED  # nginx ends such a connection without an answer
    else:
        assert first.status in (502, 504), first
        if "status" not in FAULTS[fault]:
            assert_problem(first, "upstream-unanswered", first.status)
    scene.upstream.answer(status=201)
    assert_held(scene, key)


def test_upstream_504_itself_reaches_the_first_client_unchanged(scene, key):
    scene.upstream.answer(status=504, headers=[("X-Hop", "b")], body=b"a hop behind lost sight")
    first = scene.post(key)
    assert (first.status, first.body, first.get("X-Hop")) == (504, b"a hop behind lost sight", "b")


def test_time_out_tells_the_first_client_504(make_scene, key):
    scene = make_scene(location=TIMEOUTS)
    scene.upstream.answer(fault="silent")
    assert_problem(scene.post(key), "upstream-unanswered", 504)


@pytest.mark.parametrize("fault", ["reads the request and closes", "answers 504",
                                   "cuts a length answer short"])
def test_retry_policy_executes_an_unknown_again_as_attempt_2(make_scene, key, fault):
    scene = make_scene(guard="idempotency_unknown retry;", location=TIMEOUTS)
    scene.upstream.answer(Answer(**FAULTS[fault]), Answer(status=201))
    assert scene.post(key).status in (502, 504)
    second = scene.post(key)
    assert second.status == 201 and not second.replayed
    seen = [(r.get("Idempotency-Attempt"), int(r.get("Idempotency-Fence")))
            for r in scene.upstream.requests]
    assert [attempt for attempt, _ in seen] == ["1", "2"] and seen[0][1] < seen[1][1]
    assert scene.post(key).replayed and scene.upstream.count(key) == 2


def test_unknown_still_compares_payload_and_caller(make_scene, key):
    scene = make_scene()
    scene.upstream.answer(fault="close")
    scene.post(key, headers=[("Authorization", "Bearer a")])
    assert_problem(scene.post(key, body=b"other", headers=[("Authorization", "Bearer a")]),
                   "key-reused")
    assert_problem(scene.post(key, headers=[("Authorization", "Bearer b")]), "other-caller")
    assert_problem(scene.post(key, headers=[("Authorization", "Bearer a")]), "outcome-unknown")


def test_early_hints_of_the_upstream_are_no_answer(scene, key):
    """nginx before 1.29 takes a 103 for the answer: the outcome is unknown."""
    scene.upstream.answer(interim=[(103, [("Link", "</a>")])], status=201, body=b"paid")
    first = scene.post(key)
    if first.status == 201:
        assert scene.post(key).replayed
    else:
        assert_problem(first, "upstream-unanswered", first.status)
        assert_held(scene, key)
        assert "outcome unknown (invalid)" in scene.nginx.log()
    assert scene.upstream.count(key) == 1


# ---- no second upstream

def group(first, second, directives):
    return {
        "http": f"upstream group {{ server 127.0.0.1:{first.port} max_fails=0;"
                f"server 127.0.0.1:{second.port} max_fails=0 backup; }}",
        "proxy": "proxy_pass http://group; proxy_http_version 1.1; proxy_read_timeout 300ms;"
                 f"{directives}",
    }


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize("fault", ["reads the request and closes", "resets", "times out",
                                   "answers 504", "answers garbage"])
def test_b27_proxy_next_upstream_never_sends_a_guarded_request_twice(
        make_scene, make_upstream, key, method, fault):
    first, second = make_upstream(), make_upstream()
    scene = make_scene(upstream=first, guard="idempotency_methods POST PUT DELETE PATCH;",
                       **group(first, second, f"proxy_next_upstream {MANY_REASONS};"))
    first.answer(**FAULTS[fault])
    assert scene.send(method, "/pay", key=key).status in (502, 504)
    assert_problem(scene.send(method, "/pay", key=key), "outcome-unknown")
    assert (first.count(), second.count()) == (1, 0)


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_next_upstream_after_a_503_does_not_send_twice(make_scene, make_upstream, key, method):
    first, second = make_upstream(), make_upstream()
    scene = make_scene(upstream=first, guard="idempotency_methods POST PUT;",
                       **group(first, second, f"proxy_next_upstream {MANY_REASONS};"))
    first.answer(status=503)
    assert scene.send(method, "/pay", key=key).status == 503
    assert (first.count(), second.count()) == (1, 0)


def test_a_refusing_peer_may_be_passed_over_and_the_request_runs_once(
        make_scene, make_upstream, key):
    first, second = make_upstream(listening=False), make_upstream()
    scene = make_scene(upstream=first, **group(first, second, ""))
    assert scene.post(key).status == 201
    assert scene.post(key).replayed
    assert second.count(key) == 1


@pytest.mark.parametrize("fault", ["reads the request and closes", "times out",
                                   "cuts a length answer before its body"])
@pytest.mark.parametrize("target", ["= @other", "/other"])
def test_error_page_to_a_second_upstream_never_sends_a_guarded_request_twice(
        make_scene, make_upstream, key, fault, target):
    second = make_upstream()
    place = "@other" if "@" in target else "= /other"
    scene = make_scene(
        location=f"{TIMEOUTS} error_page 500 502 503 504 {target};",
        extra=f"location {place} {{ proxy_pass http://127.0.0.1:{second.port};"
              "proxy_http_version 1.1; }")
    scene.upstream.answer(**FAULTS[fault])
    assert scene.post(key).status in (502, 504)
    assert_held(scene, key)
    assert second.count() == 0


@pytest.mark.parametrize("status", [404, 402, 503, 504, 500])
def test_intercepted_answer_is_never_sent_to_a_second_upstream(
        make_scene, make_upstream, key, status):
    second = make_upstream()
    scene = make_scene(
        location=f"proxy_intercept_errors on; error_page {status} = @other;",
        extra=f"location @other {{ proxy_pass http://127.0.0.1:{second.port};"
              "proxy_http_version 1.1; }")
    scene.upstream.answer(status=status)
    scene.post(key)
    assert (scene.upstream.count(), second.count()) == (1, 0)


def test_error_page_after_a_refused_connection_runs_the_request_once(
        make_scene, make_upstream, key):
    second = make_upstream()
    scene = make_scene(
        upstream=make_upstream(listening=False),
        location="error_page 502 = @other;",
        extra=f"location @other {{ proxy_pass http://127.0.0.1:{second.port};"
              "proxy_http_version 1.1; }")
    responses = [scene.post(key) for _ in range(3)]
    assert second.count() <= 1
    if second.count() == 1:
        assert responses[0].status == 201 and responses[1].body == responses[0].body
    else:
        assert_problem(responses[0], "upstream-unreachable")


def test_redirect_by_the_upstream_to_another_upstream_is_not_sent_twice(
        make_scene, make_upstream, key):
    """X-Accel-Redirect into a proxied location would be a second execution."""
    second = make_upstream()
    scene = make_scene(extra=f"location = /second {{ internal; proxy_http_version 1.1;"
                             f"proxy_pass http://127.0.0.1:{second.port}; }}")
    scene.upstream.answer(status=200, headers=[("X-Accel-Redirect", "/second")])
    scene.post(key)
    scene.post(key)
    assert scene.upstream.count() == 1
    assert second.count() == 0


def test_stale_keep_alive_connection_is_never_sent_again(make_scene, make_upstream, key):
    """The peer closes a kept connection as the next request arrives: died after reading."""
    upstream = Upstream()
    scene = make_scene(
        upstream=upstream,
        http=f"upstream kept {{ server 127.0.0.1:{upstream.port}; keepalive 4; }}",
        proxy='proxy_pass http://kept; proxy_http_version 1.1; proxy_set_header Connection "";')
    assert scene.post(new_key()).status == 201
    upstream.answer(fault="close")
    assert_problem(scene.post(key), "upstream-unanswered", 502)
    assert upstream.last().connection == upstream.requests[0].connection, "it was kept alive"
    upstream.answer(status=201)
    assert_held(scene, key)
