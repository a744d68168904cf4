"""HTTP behaviour: conformance items F. Expect, keep-alive, pipelining, HTTP/2, smuggling."""

import socket
import subprocess

import pytest
from nginx import free_port
from problem import assert_problem, kind_of
from rawhttp import build_request
from scene import new_key

REQUIRED = "idempotency_key $http_idempotency_key required;"
BODY = b'{"amount":1}'


def post(key, target="/pay", body=BODY, headers=(), **how):
    lines = list(headers) + ([("Idempotency-Key", key)] if key is not None else [])
    return build_request("POST", target, lines, body, **how)


# ---- Expect: 100-continue

def head_with_expect(key_lines, size):
    return ("POST /pay HTTP/1.1\r\nHost: idem.test\r\nExpect: 100-continue\r\n"
            f"Content-Length: {size}\r\n{key_lines}\r\n").encode()


@pytest.mark.parametrize("lines,kind", [
    ("", "key-missing"), ('Idempotency-Key: "bad\r\n', "key-malformed"),
    ("Idempotency-Key: a\r\nIdempotency-Key: b\r\n", "key-malformed"),
    (f"Idempotency-Key: {'x' * 256}\r\n", "key-malformed")])
def test_f63_expect_with_bad_key_gets_a_final_400_without_100(make_scene, lines, kind):
    scene = make_scene(guard=REQUIRED, server="lingering_timeout 100ms;")
    with scene.client() as client:
        client.send(head_with_expect(lines, 12))
        response = client.read_response()
        assert_problem(response, kind)
        assert response.interim == []
        left = client.ended_by_peer() if response.get("Connection") == "close" else b""
        assert left == b""
    assert scene.upstream.count() == 0


def test_f63_expect_with_good_key_gets_100_then_the_final_answer(make_scene, key):
    scene = make_scene(guard=REQUIRED)
    for replayed in (False, True):
        with scene.client() as client:
            client.send(head_with_expect(f"Idempotency-Key: {key}\r\n", len(BODY)))
            assert client.reader.take_until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue"
            client.send(BODY)
            response = client.read_response()
            assert response.status == 201 and response.replayed == replayed
            client.finish()
    assert scene.upstream.count() == 1


# ---- keep-alive

def refusals(scene, key):
    """Requests that are refused or replayed, each with the kind that it must get."""
    scene.post(key)
    held = new_key()
    waiting, gate = scene.held_post(held)
    oversized = new_key()
    scene.upstream.answer(body=b"z" * 5000)
    scene.post(oversized)
    unknown = new_key()
    scene.upstream.answer(fault="close")
    scene.post(unknown)
    secret = new_key()
    scene.upstream.answer(status=201)
    scene.post(secret, headers=[("Authorization", "a")])
    requests = [
        ("key-missing", post(None)), ("key-malformed", post('"x')),
        ("key-malformed", post("x" * 300)), ("key-reused", post(key, body=b"other")),
        ("other-caller", post(secret)), ("in-progress", post(held)),
        ("outcome-unknown", post(unknown)), ("answer-not-kept", post(oversized)),
        (None, post(key)), (None, post(new_key())), (None, post(key, chunked=True)),
        ("key-malformed", post('"x', body=b"y" * 20000)),
        ("key-malformed", post('"x', body=b"y" * 20000, chunked=True)),
        ("key-reused", post(key, body=b"y" * 20000, chunked=True)),
    ]
    return requests, waiting, gate


def test_connection_is_usable_after_each_refusal_and_after_each_replay(make_scene, key):
    scene = make_scene(guard=REQUIRED + "idempotency_body_max 4k;")
    requests, waiting, gate = refusals(scene, key)
    with scene.client() as client:
        for kind, data in requests * 2:
            client.send(data)
            response = client.read_response()
            assert kind_of(response) == kind, (kind, response)
            assert response.get("Connection") == "keep-alive", response
        client.finish()
    gate.release()
    assert waiting.result().status == 201


def test_f65_pipelined_requests_are_answered_in_order(make_scene, key):
    scene = make_scene(guard=REQUIRED + "idempotency_body_max 4k;")
    requests, waiting, gate = refusals(scene, key)
    with scene.client() as client:
        client.send(b"".join(data for _, data in requests))
        kinds = [kind_of(client.read_response()) for _ in requests]
        assert kinds == [kind for kind, _ in requests]
        client.finish()
    gate.release()
    waiting.result()


def test_pipelined_retries_of_one_key_run_once(scene, key):
    with scene.client() as client:
        client.send(post(key) * 5)
        answers = [client.read_response() for _ in range(5)]
        client.finish()
    assert [answer.replayed for answer in answers] == [False, True, True, True, True]
    assert len({answer.body for answer in answers}) == 1 and scene.upstream.count() == 1


def test_many_requests_on_one_connection(scene):
    """One missing decrement of the request's count would hang the second (style notes)."""
    with scene.client() as client:
        for _ in range(50):
            key = new_key()
            for replayed in (False, True):
                client.send(post(key))
                assert client.read_response().replayed == replayed
        client.finish()


def test_client_that_closes_its_sending_side_gets_the_answer(scene, key):
    with scene.client() as client:
        client.send(post(key))
        client.sock.shutdown(socket.SHUT_WR)
        assert client.read_response().status == 201
        assert client.ended_by_peer() == b""
    assert scene.post(key).replayed


# ---- other versions of HTTP

def test_http_1_0_gets_length_and_no_chunks(scene, key):
    scene.upstream.answer(body=b"x" * 3000, framing="chunked", pieces=2)
    for replayed in (False, True):
        with scene.client() as client:
            client.send(post(key, version="HTTP/1.0"))
            response = client.read_response(allow_close=True)
            assert response.body == b"x" * 3000 and response.replayed == replayed
            assert not response.all("Transfer-Encoding")
            assert client.ended_by_peer() == b""


def test_http_1_0_keep_alive_on_a_replay(scene, key):
    scene.post(key)
    with scene.client() as client:
        for _ in range(2):
            client.send(post(key, version="HTTP/1.0", headers=[("Connection", "keep-alive")]))
            response = client.read_response()
            assert response.replayed and response.framing == "length"
        client.finish()


def test_f68_first_by_http_1_1_retry_by_http_2(make_scene, key):
    scene = make_scene()
    h2_port = add_http2_port(scene)
    scene.upstream.answer(headers=[("X-Step", "1"), ("X-Step", "2"), ("Connection", "X-Hop"),
                                   ("X-Hop", "1"), ("Keep-Alive", "timeout=9")], body=b"paid")
    first = scene.post(key)
    head, body = http2_post(h2_port, key)
    assert head[0].startswith("HTTP/2 201") and body == first.body
    names = [line.partition(":")[0].lower() for line in head[1:]]
    assert "idempotent-replayed" in names
    assert not {"connection", "keep-alive", "transfer-encoding", "x-hop", "upgrade"} & set(names)
    assert names.count("x-step") == 2 and names.count("date") == 1
    assert scene.upstream.count() == 1


def test_f68_first_by_http_2_retry_by_both(make_scene, key):
    scene = make_scene()
    h2_port = add_http2_port(scene)
    scene.upstream.answer(body=b"x" * 100_000)
    for _ in range(2):
        head, body = http2_post(h2_port, key)
        assert head[0].startswith("HTTP/2 201") and body == b"x" * 100_000
    again = scene.post(key)
    assert again.replayed and again.body == body and scene.upstream.count() == 1
    head, body = http2_post(h2_port, key, data="other")
    assert head[0].startswith("HTTP/2 422") and b"key-reused" in body
    head, body = http2_post(h2_port, '"bad')
    assert head[0].startswith("HTTP/2 400") and b"key-malformed" in body


def add_http2_port(scene):
    port = free_port()
    scene.configure(server=f"listen 127.0.0.1:{port} http2;")
    scene.nginx.reload()
    return port


def http2_post(port, key, data=BODY.decode()):
    done = subprocess.run(
        ["curl", "-sS", "--http2-prior-knowledge", "-i", "-H", "Host: idem.test", "-H",
         f"Idempotency-Key: {key}", "-H", "Content-Type:", "--data-binary", data,
         f"http://127.0.0.1:{port}/pay"], check=False, capture_output=True, timeout=60)
    # 92: curl's complaint that nginx resets a stream, without error, whose body it does not read
    assert done.returncode in (0, 92), done.stderr
    head, _, body = done.stdout.partition(b"\r\n\r\n")
    return head.decode("latin-1").split("\r\n"), body


def test_http_2_client_that_cancels_is_as_one_that_hangs_up(make_scene, key):
    scene = make_scene()
    h2_port = add_http2_port(scene)
    gate = scene.upstream.gate()
    scene.upstream.answer(hold=gate, body=b"paid")
    curl = subprocess.Popen(
        ["curl", "-sS", "--http2-prior-knowledge", "-H", "Host: idem.test", "-H",
         f"Idempotency-Key: {key}", "-H", "Content-Type:", "--data-binary", BODY.decode(),
         f"http://127.0.0.1:{h2_port}/pay"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    scene.upstream.wait_count(1)
    curl.kill()
    curl.wait()
    gate.release()
    again = scene.post_until(key, lambda r: kind_of(r) != "in-progress", "the answer")
    assert again.replayed and again.body == b"paid" and scene.upstream.count() == 1


# ---- request smuggling

SMUGGLED = b"POST /smuggled HTTP/1.1\r\nHost: idem.test\r\nContent-Length: 0\r\n\r\n"
HEAD = b"POST /pay HTTP/1.1\r\nHost: idem.test\r\nIdempotency-Key: k\r\n"
BROKEN = {
    "length and chunked": HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
                          b"0\r\n\r\n",
    "coding not ending in chunked": HEAD + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "unknown coding": HEAD + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "coding on HTTP/1.0": HEAD.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n"
                          b"0\r\n\r\n",
    "two lengths": HEAD + b"Content-Length: 0\r\nContent-Length: 3\r\n\r\n",
    "signed length": HEAD + b"Content-Length: +3\r\n\r\nabc",
    "length with letters": HEAD + b"Content-Length: 3x\r\n\r\nabc",
    "huge length": HEAD + b"Content-Length: 99999999999999999999999\r\n\r\n",
    "space before the colon": HEAD + b"Content-Length : 3\r\n\r\nabc",
    "bad chunk size": HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    "overflowing chunk size": HEAD + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
}


@pytest.mark.parametrize("what", BROKEN, ids=lambda name: name.replace(" ", "-"))
def test_f64_broken_framing_is_refused_closed_and_nothing_smuggled_runs(scene, what):
    with scene.client() as client:
        client.send(BROKEN[what] + SMUGGLED)
        response = client.read_response(allow_close=True)
        if what != "space before the colon" or response.status >= 400:
            assert response.status in (400, 413, 501), response
        client.ended_by_peer()
    assert all(request.target != "/smuggled" or what == "never" for request in
               scene.upstream.requests) or what == "space before the colon"
    assert not [r for r in scene.upstream.requests if r.target == "/pay"], "it was executed"


def test_key_listed_in_connection_stays_a_key(scene, key):
    """A client cannot take the guard away by naming the header hop-by-hop."""
    lines = [("Connection", "keep-alive, Idempotency-Key"), ("Idempotency-Key", key)]
    with scene.client() as client:
        for replayed in (False, True):
            response = client.request("POST", "/pay", lines, BODY)
            assert response.status == 400 or response.replayed == replayed
    assert scene.upstream.count() <= 1


def test_f70_problem_is_sent_even_if_only_json_is_accepted(make_scene):
    scene = make_scene(guard=REQUIRED)
    assert_problem(scene.post(headers=[("Accept", "application/json")]), "key-missing")
    assert_problem(scene.post(headers=[("Accept", "text/html")]), "key-missing")


def test_refusals_are_not_cacheable_and_not_compressed_away(make_scene):
    scene = make_scene(guard=REQUIRED, location="gzip on; gzip_types *; gzip_min_length 1;")
    response = scene.post(headers=[("Accept-Encoding", "gzip")])
    assert response.status == 400 and response.get("ETag") is None


def test_error_page_does_not_send_a_refusal_upstream(make_scene, key):
    """A refusal is our own final answer; error_page must not turn it into a request."""
    scene = make_scene(guard=REQUIRED, extra="location @other { {proxy} }",
                       location="error_page 400 409 422 403 503 = @other;")
    assert_problem(scene.post(), "key-missing")
    scene.post(key)
    assert_problem(scene.post(key, body=b"other"), "key-reused")
    assert scene.upstream.count() == 1


def test_large_headers_of_the_request_do_not_confuse(scene, key):
    lines = [(f"X-Filler-{n}", "f" * 500) for n in range(12)]
    assert scene.post(key, headers=lines).status == 201
    assert scene.post(key).replayed
    assert scene.upstream.last().key == key


def test_internal_redirect_and_rewrite_before_the_guard(make_scene, key):
    scene = make_scene(extra="location /old { rewrite ^/old(.*)$ /pay$1 last; }")
    first = scene.post(key, target="/old")
    assert first.status == 201 and scene.post(key, target="/old").replayed
    assert scene.upstream.count() == 1


def test_try_files_into_the_guarded_location(make_scene, key):
    scene = make_scene(extra="location /front { root {dir}/html; try_files $uri /pay; }")
    assert scene.post(key, target="/front").status == 201
    assert scene.post(key, target="/front").replayed
    assert scene.upstream.count() == 1
