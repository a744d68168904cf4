"""Corners where nginx's other features and the guard meet."""

import os
import ssl
import subprocess

import pytest
import rawhttp
from nginx import free_port
from problem import assert_problem, kind_of
from waiting import wait_until


def test_mirror_copies_an_execution_once_and_no_replay(make_scene, make_upstream, key):
    copy = make_upstream()
    scene = make_scene(location="mirror /copy;",
                       extra=f"location = /copy {{ internal; proxy_http_version 1.1;"
                             f"proxy_pass http://127.0.0.1:{copy.port}/; }}")
    first, again = scene.post(key), scene.post(key)
    assert again.replayed and again.body == first.body
    copy.wait_count(1)
    assert scene.upstream.count() == 1 and copy.count() == 1


def test_body_that_does_not_come_in_time_is_408_and_claims_nothing(make_scene, key):
    scene = make_scene(server="client_body_timeout 100ms;")
    client = scene.client()
    client.send(rawhttp.build_request("POST", "/pay", [("Idempotency-Key", key)], b"x" * 100)[:-1])
    left = client.ended_by_peer()
    assert left == b"" or b" 408 " in left
    assert scene.post(key, body=b"x" * 100).status == 201
    assert scene.upstream.count() == 1


@pytest.mark.parametrize("lines,size", [(300, 10), (10, 9000)])
def test_head_too_large_for_a_record_leaves_a_tombstone(make_scene, key, lines, size):
    scene = make_scene(location="proxy_buffer_size 256k; proxy_buffers 8 256k;"
                                "proxy_busy_buffers_size 512k;")
    scene.upstream.answer(headers=[(f"X-H-{n}", "h" * size) for n in range(lines)], body=b"whole")
    first = scene.post(key)
    assert first.status == 201 and first.body == b"whole"
    assert len([1 for name, _ in first.headers if name.startswith("X-H-")]) == lines
    assert_problem(scene.post(key), "answer-not-kept")
    assert scene.upstream.count() == 1


def test_scope_too_long_is_refused_and_not_executed(make_scene, key):
    scene = make_scene(scope="$http_x_tenant")
    response = scene.post(key, headers=[("X-Tenant", "t" * 1025)])
    assert response.status in (400, 500) and scene.upstream.count() == 0
    assert scene.post(key, headers=[("X-Tenant", "t" * 1024)]).status == 201


def test_unknown_is_forgotten_after_its_ttl(make_scene, key):
    scene = make_scene(guard="idempotency_lease 200ms; idempotency_unknown_ttl 800ms;")
    scene.upstream.answer(fault="close")
    scene.post(key)
    assert_problem(scene.post(key), "outcome-unknown")
    scene.upstream.answer(status=201)
    fresh = scene.post_until(key, lambda r: kind_of(r) != "outcome-unknown", "the end of its ttl")
    assert fresh.status == 201 and not fresh.replayed and scene.upstream.count(key) == 2


def test_forced_end_of_an_old_worker_leaves_an_unknown_at_once(make_scene, key):
    """worker_shutdown_timeout cuts the request off: the verdict is given, not left to the lease."""
    scene = make_scene(guard="idempotency_lease 1h;", main="worker_shutdown_timeout 200ms;")
    waiting, gate = scene.held_post(key)
    old = scene.nginx.reload()
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in old), "old workers to go")
    assert_problem(scene.post(key), "outcome-unknown")
    gate.release()
    with pytest.raises((rawhttp.ProtocolError, OSError)):
        waiting.result()
    assert scene.upstream.count(key) == 1


def test_a_second_gateway_takes_over_while_the_first_drains(make_scene, key):
    """A rolling restart side by side on one store."""
    first = make_scene()
    second = make_scene(upstream=first.upstream, store=first.store_url)
    answered = first.post(key)
    waiting, gate = first.held_post("in-flight")
    first.nginx.signal_quit()
    assert second.post(key).body == answered.body
    assert_problem(second.post("in-flight"), "in-progress")
    gate.release()
    answer = waiting.result()
    assert first.nginx.wait_ended() == 0
    again = second.post("in-flight")
    assert again.replayed and again.body == answer.body
    assert first.upstream.counts() == {key: 1, "in-flight": 1}


def test_guard_inside_an_if_block(make_scene, key):
    scene = make_scene(extra="location /maybe { set $on 1; if ($on) { idempotency main; "
                             "idempotency_scope tenant; idempotency_replay_status 200;"
                             "proxy_pass http://127.0.0.1:{upstream}; }"
                             "{proxy} }", start=False)
    scene.configure(extra=scene.shape["extra"].replace("{upstream}", str(scene.upstream.port)))
    scene.nginx.start()
    first, again = scene.post(key, target="/maybe"), scene.post(key, target="/maybe")
    assert (first.status, again.status, again.replayed) == (201, 200, True)
    assert scene.upstream.count() == 1


def test_limit_rate_and_sub_filter_work_on_first_and_replay(make_scene, key):
    """Filters of nginx work on what is sent, not on what is recorded."""
    scene = make_scene(location="sub_filter_types *; sub_filter paid PAID; sub_filter_once off;")
    scene.upstream.answer(status=200, body=b"paid " * 100)
    first, again = scene.post(key), scene.post(key)
    assert first.body == again.body == b"PAID " * 100 and again.replayed


def test_stub_status_counts_no_request_left(make_scene):
    """Nothing hangs on after refusals, replays, hang-ups: only the asking connection is active."""
    scene = make_scene(guard="idempotency_key $http_idempotency_key required;",
                       extra="location = /status { stub_status; }")
    for value in ("a", "a", '"bad', "b"):
        scene.post(value)
    client = scene.client()
    client.send(rawhttp.build_request("POST", "/pay", [("Idempotency-Key", "c")], b"b"))
    client.hang_up()
    wait_until(lambda: scene.post("c", body=b"b").replayed, "the answer")

    def alone():
        status = scene.send("GET", "/status", body=None).body.decode().split()
        return status[2] == "1"

    wait_until(alone, "all other connections to be gone")


# ---- TLS

@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    """A server's and two clients' self-signed certificates: paths of (certificate, key)."""
    directory = tmp_path_factory.mktemp("tls")
    made = {}
    for name in ("server", "one", "two"):
        pem, private = directory / f"{name}.pem", directory / f"{name}.key"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30",
                        "-subj", f"/CN={name}", "-keyout", str(private), "-out", str(pem)],
                       check=True, capture_output=True)
        made[name] = (str(pem), str(private))
    return made


def tls_post(port, key, certificate=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if certificate:
        context.load_cert_chain(*certificate)
    with rawhttp.Client(port) as client:
        client.sock = context.wrap_socket(client.sock)
        client.reader = rawhttp.Reader(client.sock)
        return client.request("POST", "/pay", [("Idempotency-Key", key)], b"b")


def test_another_client_certificate_is_another_caller(make_scene, certificates, key):
    port = free_port()
    pem, private = certificates["server"]
    scene = make_scene(server=f"listen 127.0.0.1:{port} ssl; ssl_certificate {pem};"
                              f"ssl_certificate_key {private}; ssl_verify_client optional_no_ca;")
    first = tls_post(port, key, certificates["one"])
    assert first.status == 201
    assert_problem(tls_post(port, key, certificates["two"]), "other-caller")
    assert_problem(tls_post(port, key), "other-caller")
    again = tls_post(port, key, certificates["one"])
    assert again.replayed and again.body == first.body
    assert scene.upstream.count() == 1
