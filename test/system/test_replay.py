"""First run and replay: conformance items B. Same status, stored headers and bytes, framed once."""

import email.utils
import gzip
import os
import time

import pytest
import rawhttp
from problem import assert_problem
from scene import new_key
from waiting import wait_until

BODY_MAX = 100 * 1024
NOT_COMPARED = ("date", "connection", "content-length", "transfer-encoding", "idempotent-replayed",
                "server")


def pattern(size):
    return (bytes(range(251)) * (size // 251 + 1))[:size]


def kept_headers(response):
    return [(name.lower(), value) for name, value in response.headers
            if name.lower() not in NOT_COMPARED]


def run_twice(scene, key=None, **how):
    """First and replay; asserts what must hold for every pair."""
    key = key or new_key()
    before = scene.upstream.count()
    first, again = scene.post(key, **how), scene.post(key, **how)
    assert not first.all("Idempotent-Replayed"), first
    assert again.replayed, again
    assert (again.status, again.body) == (first.status, first.body)
    assert kept_headers(again) == kept_headers(first)
    assert scene.upstream.count() == before + 1
    return first, again


def test_b19_b20_b21_first_answer_unchanged_retry_is_replayed_and_marked(scene):
    scene.upstream.answer(status=201, headers=[("Content-Type", "application/json"),
                                               ("X-Trace", "abc")], body=b'{"id":"p-1"}')
    first, again = run_twice(scene)
    assert (first.status, first.body, first.get("X-Trace")) == (201, b'{"id":"p-1"}', "abc")
    assert again.get("Idempotent-Replayed") == "true"
    assert scene.outcomes(2) == ["executed", "replayed"]


@pytest.mark.parametrize("buffering", ["on", "off"])
@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("size", [0, 1, 30 * 1024, BODY_MAX - 1, BODY_MAX])
def test_answers_up_to_body_max_are_byte_equal_framed_once(make_scene, size, framing, buffering):
    scene = make_scene(guard=f"idempotency_body_max {BODY_MAX};",
                       location=f"proxy_buffering {buffering};")
    scene.upstream.answer(status=200, body=pattern(size), framing=framing, pieces=3)
    first, again = run_twice(scene)
    assert first.body == pattern(size)
    assert again.framing == "length"


@pytest.mark.parametrize("buffering", ["on", "off"])
@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("size", [BODY_MAX + 1, 5 * BODY_MAX])
def test_b32_oversized_answer_leaves_a_tombstone_and_is_not_executed_again(
        make_scene, key, size, framing, buffering):
    scene = make_scene(guard=f"idempotency_body_max {BODY_MAX};",
                       location=f"proxy_buffering {buffering};")
    scene.upstream.answer(status=200, body=pattern(size), framing=framing, pieces=4)
    first = scene.post(key)
    assert first.status == 200 and first.body == pattern(size)
    for _ in range(2):
        assert_problem(scene.post(key), "answer-not-kept")
    assert scene.upstream.count() == 1


def test_tombstone_is_recorded_before_the_first_byte_leaves(make_scene, key):
    """Durable before visible: while the client reads an oversized answer, the retry is told so."""
    scene = make_scene(guard="idempotency_body_max 16k;",
                       location="proxy_buffering off; proxy_buffer_size 8k;")
    gate = scene.upstream.gate()
    scene.upstream.answer(status=200, body=pattern(256 * 1024), hold_end=gate)
    client = scene.client()
    client.send(rawhttp.build_request("POST", "/pay", [("Idempotency-Key", key)], b"b"))
    client.reader.take_until(b"\r\n\r\n")
    assert_problem(scene.post(key, body=b"b"), "answer-not-kept")
    gate.release()
    wait_until(lambda: client.reader.fill() and len(client.reader.buffer) >= 256 * 1024,
               "the whole answer")
    assert bytes(client.reader.buffer) == pattern(256 * 1024)


def test_body_max_zero_keeps_only_empty_answers(make_scene):
    scene = make_scene(guard="idempotency_body_max 0;")
    scene.upstream.answer(status=201, body=b"")
    run_twice(scene)
    scene.upstream.answer(status=201, body=b"x")
    key = new_key()
    assert scene.post(key).body == b"x"
    assert_problem(scene.post(key), "answer-not-kept")
    assert scene.upstream.count(key) == 1


def test_gzip_encoded_by_the_upstream_is_replayed_byte_equal(scene):
    packed = gzip.compress(b"paid " * 1000)
    scene.upstream.answer(headers=[("Content-Encoding", "gzip"), ("Content-Type", "text/plain"),
                                   ("Vary", "Accept-Encoding")], body=packed)
    first, again = run_twice(scene, headers=[("Accept-Encoding", "gzip")])
    assert first.body == packed and again.get("Content-Encoding") == "gzip"


def test_gzip_by_nginx_follows_each_request(make_scene, key):
    scene = make_scene(location="gzip on; gzip_min_length 1; gzip_types text/plain;"
                                "gzip_proxied any;")
    scene.upstream.answer(status=200, headers=[("Content-Type", "text/plain")],
                          body=b"paid " * 1000)
    first = scene.post(key, headers=[("Accept-Encoding", "gzip")])
    again = scene.post(key)
    third = scene.post(key, headers=[("Accept-Encoding", "gzip")])
    assert first.get("Content-Encoding") == "gzip" and again.get("Content-Encoding") is None
    assert gzip.decompress(first.body) == again.body == b"paid " * 1000
    assert third.replayed and gzip.decompress(third.body) == again.body
    assert scene.upstream.count() == 1


def test_b30_close_delimited_is_replayed_when_the_route_trusts_it(make_scene):
    scene = make_scene(guard="idempotency_close_delimited on;")
    scene.upstream.answer(body=pattern(5000), framing="close")
    first, again = run_twice(scene)
    assert first.body == pattern(5000) and again.framing == "length"


@pytest.mark.parametrize("status", [200, 202, 301, 303, 400, 402, 404, 409, 410, 422, 451])
def test_b22_final_statuses_are_replayed(scene, status):
    scene.upstream.answer(status=status, body=b"final")
    first, _ = run_twice(scene)
    assert first.status == status


def test_b28_location_is_replayed(scene):
    scene.upstream.answer(status=201, headers=[("Location", "/payments/7"),
                                               ("ETag", '"v1"'), ("Retry-After", "3"),
                                               ("Cache-Control", "no-store"),
                                               ("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")])
    first, again = run_twice(scene)
    for name in ("Location", "ETag", "Retry-After", "Cache-Control", "Last-Modified"):
        assert again.get(name) == first.get(name) is not None


def test_absolute_and_rewritten_location(make_scene):
    scene = make_scene()
    location = f"http://127.0.0.1:{scene.upstream.port}/payments/7"
    scene.upstream.answer(status=201, headers=[("Location", location)])
    first, again = run_twice(scene)
    assert again.get("Location") == first.get("Location")
    scene.upstream.answer(status=303, headers=[("Location", "https://elsewhere.test/x")])
    _, again = run_twice(scene)
    assert again.get("Location") == "https://elsewhere.test/x"


def test_repeated_headers_stay_separate(scene):
    lines = [("X-Step", "1"), ("Warning", '199 a "x"'), ("X-Step", "2"), ("Link", "<a>; rel=a"),
             ("Link", "<b>; rel=b"), ("X-Step", "1")]
    scene.upstream.answer(headers=lines)
    first, again = run_twice(scene)
    for response in (first, again):
        assert response.all("X-Step") == ["1", "2", "1"]
        assert response.all("Link") == ["<a>; rel=a", "<b>; rel=b"]


@pytest.mark.parametrize("name,value", [
    ("Set-Cookie", "sid=1"), ("Connection", "X-Hop"), ("Keep-Alive", "timeout=5"),
    ("Proxy-Authenticate", "Basic"), ("Proxy-Authentication-Info", "x"), ("X-Hop", "listed"),
    ("Authentication-Info", "nextnonce=1"), ("Upgrade", "h2c"), ("TE", "trailers"),
    ("Trailer", "X-T"), ("Proxy-Connection", "close"), ("X-Accel-Expires", "60"),
    ("X-Accel-Buffering", "no"), ("X-Accel-Charset", "utf-8"), ("X-Accel-Limit-Rate", "0")])
def test_b34_b36_hop_by_hop_x_accel_and_set_cookie_are_not_replayed(scene, key, name, value):
    headers = [("Connection", "X-Hop"), (name, value)] if name == "X-Hop" else [(name, value)]
    scene.upstream.answer(headers=headers + [("X-Kept", "yes")])
    first, again = scene.post(key), scene.post(key)
    assert first.status == 201 and again.replayed and again.get("X-Kept") == "yes"
    assert value not in again.all(name), again
    if name == "Set-Cookie":
        assert first.all("Set-Cookie") == [value], "the first client gets its cookie"


def test_b35_several_cookies_reach_the_first_client_separately(scene, key):
    scene.upstream.answer(headers=[("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")])
    assert scene.post(key).all("Set-Cookie") == ["a=1", "b=2"]
    assert scene.post(key).all("Set-Cookie") == []


def test_hidden_headers_of_the_route_are_not_replayed(make_scene, key):
    scene = make_scene(guard="idempotency_hide_header X-Secret X-Token;")
    scene.upstream.answer(headers=[("X-Secret", "1"), ("x-token", "2"), ("X-Open", "3"),
                                   ("Set-Cookie", "c=1")])
    first, again = scene.post(key), scene.post(key)
    assert first.get("X-Secret") == "1" and again.replayed
    assert not again.all("X-Secret") and not again.all("X-Token") and not again.all("Set-Cookie")
    assert again.get("X-Open") == "3"


def test_b37_replay_has_one_current_date(scene, key):
    scene.upstream.answer(headers=[("Date", "Mon, 01 Jan 2001 00:00:00 GMT")])
    scene.post(key)
    again = scene.post(key)
    sent = email.utils.parsedate_to_datetime(again.get("Date")).timestamp()
    assert again.replayed and abs(time.time() - sent) < 30


def test_add_header_and_server_are_the_gateways_own_on_each_answer(make_scene, key):
    scene = make_scene(location="add_header X-Edge $request_id always;")
    first, again = scene.post(key), scene.post(key)
    assert again.replayed and len(again.all("X-Edge")) == 1 and len(again.all("Server")) <= 1
    assert first.get("X-Edge") != again.get("X-Edge"), "added to the replay, not stored in it"


@pytest.mark.parametrize("status,framing", [(204, "none"), (304, "none"), (200, "length"),
                                            (205, "length")])
def test_b29_answers_without_a_body(scene, status, framing):
    scene.upstream.answer(status=status, framing=framing, body=b"", headers=[("X-Kept", "y")])
    first, again = run_twice(scene)
    assert again.get("X-Kept") == "y" and again.body == b""
    if status == 204:
        assert not again.all("Content-Length") and not again.all("Transfer-Encoding")


def test_304_with_a_length_of_what_it_does_not_send(scene):
    scene.upstream.answer(status=304, framing="none", headers=[("ETag", '"v1"'),
                                                               ("Content-Length", "99")])
    first, again = run_twice(scene)
    assert first.get("ETag") == again.get("ETag") == '"v1"'


def test_conditional_and_range_headers_do_not_change_a_replay(scene, key):
    scene.upstream.answer(status=200, headers=[("ETag", '"v1"'), ("Accept-Ranges", "bytes")],
                          body=pattern(1000))
    first = scene.post(key)
    for lines in ([("If-None-Match", '"v1"')], [("If-Match", '"other"')],
                  [("Range", "bytes=0-9")],
                  [("If-Modified-Since", "Mon, 01 Jan 2035 00:00:00 GMT")]):
        again = scene.post(key, headers=lines)
        assert (again.status, again.body, again.replayed) == (200, first.body, True), lines


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"])
def test_f62_other_methods_pass_untouched_and_store_nothing(scene, key, method):
    for _ in range(2):
        response = scene.send(method, "/pay", key=key, body=None)
        assert response.status == 201 and not response.all("Idempotent-Replayed")
    assert scene.upstream.count() == 2
    assert scene.upstream.last().key == key, "the header itself is passed on"
    assert scene.upstream.last().get("Idempotency-Attempt") is None
    assert scene.post(key).status == 201 and scene.upstream.count() == 3
    assert scene.outcomes(3) == ["none", "none", "executed"]


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH"])
def test_other_methods_are_guarded_when_the_route_says_so(make_scene, key, method):
    scene = make_scene(guard="idempotency_methods POST PUT DELETE PATCH;")
    first, again = (scene.send(method, "/pay", key=key) for _ in range(2))
    assert again.replayed and again.body == first.body and scene.upstream.count() == 1


def test_replay_header_has_the_name_of_the_route(make_scene, key):
    scene = make_scene(guard="idempotency_replay_header X-Replay;")
    assert not scene.post(key).all("X-Replay")
    again = scene.post(key)
    assert again.get("X-Replay") == "true" and not again.all("Idempotent-Replayed")


def test_replay_status_of_the_route(make_scene, key):
    scene = make_scene(guard="idempotency_replay_status 200;")
    first, again, third = (scene.post(key) for _ in range(3))
    assert (first.status, again.status, third.status) == (201, 200, 200)
    assert again.replayed and again.body == first.body


def test_replay_mark_is_never_doubled_by_one_of_the_upstream(scene, key):
    scene.upstream.answer(headers=[("Idempotent-Replayed", "true")])
    scene.post(key)
    assert scene.post(key).all("Idempotent-Replayed") == ["true"]


@pytest.mark.parametrize("path", ["return 402 'no';", "error_page 402 /static; "])
def test_what_nginx_says_itself_is_not_run_twice(make_scene, key, path):
    """Local refusals come before the guard and burn no key (item 24)."""
    scene = make_scene(extra="location = /closed { idempotency main; idempotency_scope t; "
                             f"{path} deny all; }}")
    for _ in range(2):
        assert scene.post(key, target="/closed").status in (402, 403)
    assert scene.post(key, target="/pay").status == 201, "the key was not used"


def test_intercepted_error_page_is_recorded_as_the_client_saw_it(make_scene, key):
    scene = make_scene(location="proxy_intercept_errors on; error_page 404 /static/404.html;",
                       extra="location /static/ { internal; root {dir}/html; }")
    write_page(scene, "404.html", "nothing here")
    scene.upstream.answer(status=404, body=b"the upstream's words")
    first, again = scene.post(key), scene.post(key)
    assert first.status == 404 and first.body == b"nothing here"
    assert (again.status, again.body, again.replayed) == (404, b"nothing here", True)
    assert scene.upstream.count() == 1


def test_x_accel_redirect_is_recorded_as_the_client_saw_it(make_scene, key):
    scene = make_scene(extra="location /static/ { internal; root {dir}/html; }")
    write_page(scene, "receipt.txt", "receipt")
    scene.upstream.answer(status=200, headers=[("X-Accel-Redirect", "/static/receipt.txt")])
    first, again = scene.post(key), scene.post(key)
    assert first.body == again.body == b"receipt" and again.replayed
    assert not again.all("X-Accel-Redirect") and scene.upstream.count() == 1


def write_page(scene, name, text):
    directory = scene.nginx.path("html", "static")
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, name), "w", encoding="utf-8") as page:
        page.write(text)


def test_e59_after_the_ttl_the_request_runs_as_new(make_scene, key):
    scene = make_scene(guard="idempotency_ttl 1s;")
    first = scene.post(key)
    fresh = scene.post_until(key, lambda r: not r.all("Idempotent-Replayed"), "expiry")
    assert fresh.status == 201 and fresh.body != first.body
    assert scene.upstream.last().get("Idempotency-Attempt") == "1"
    fences = [int(request.get("Idempotency-Fence")) for request in scene.upstream.requests]
    assert fences[0] < fences[1], "the fence grows across the record's removal"


def test_ttl_never(make_scene, key):
    scene = make_scene(guard="idempotency_ttl never;")
    run_twice(scene, key)


def test_b40_upgrade_is_not_stored(make_scene, key):
    scene = make_scene(location="proxy_set_header Upgrade $http_upgrade;"
                                "proxy_set_header Connection $http_connection;", proxy=None)
    scene.upstream.answer(raw=b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n"
                              b"Connection: Upgrade\r\n\r\n", keep_alive=False)
    client = scene.client()
    response = client.request("POST", "/pay", [("Idempotency-Key", key), ("Upgrade", "x"),
                                               ("Connection", "Upgrade")], b"")
    assert response.status in (101, 502), response
    client.close()
    again = scene.post(key, body=b"")
    assert not again.all("Idempotent-Replayed") and again.status != 101
    assert scene.upstream.count() == 1
