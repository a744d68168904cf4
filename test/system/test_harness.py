"""The harness itself, against plain nginx: a harness that cannot fail proves nothing."""

import os
import signal
import socket
import threading

import pytest
import rawhttp
from nginx import Nginx
from rawhttp import Client, ProtocolError
from scene import PROXY, Background
from upstream import Answer
from waiting import hold_true_for, wait_until


def proxied(make_nginx, upstream, **options):
    server = "location / {" + PROXY.format(port=upstream.port) + "}"
    return make_nginx(module=False, server=server, **options).start()


def answer_with(data):
    """A server for one connection that answers with these bytes and closes. Returns its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        sock, _ = listener.accept()
        sock.recv(65536)
        sock.sendall(data)
        sock.close()
        listener.close()

    threading.Thread(target=serve, daemon=True).start()
    return listener.getsockname()[1]


def test_request_and_answer_pass_plain_nginx(make_nginx, upstream):
    nginx = proxied(make_nginx, upstream)
    upstream.answer(status=201, headers=[("X-A", "1"), ("X-A", "2")], body=b"made")
    response = rawhttp.send(nginx.port, "POST", "/pay?x=1", key="k", body=b"abc")
    assert (response.status, response.body, response.framing) == (201, b"made", "length")
    assert response.all("X-A") == ["1", "2"]
    seen = upstream.last("k")
    assert (seen.method, seen.target, seen.body) == ("POST", "/pay?x=1", b"abc")
    assert upstream.counts() == {"k": 1}


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
@pytest.mark.parametrize("pieces", [1, 3])
def test_every_framing_of_the_upstream_arrives(make_nginx, upstream, framing, pieces):
    nginx = proxied(make_nginx, upstream)
    body = bytes(range(256)) * 40
    upstream.answer(body=body, framing=framing, pieces=pieces)
    assert rawhttp.send(nginx.port).body == body


def test_chunked_request_body_arrives(make_nginx, upstream):
    nginx = proxied(make_nginx, upstream)
    rawhttp.send(nginx.port, body=b"q" * 5000, chunked=True)
    assert upstream.last().body == b"q" * 5000


def test_answers_in_turn_and_by_function(make_nginx, upstream):
    nginx = proxied(make_nginx, upstream)
    upstream.answer(Answer(status=503), Answer(status=201))
    assert [rawhttp.send(nginx.port).status for _ in range(3)] == [503, 201, 201]
    upstream.script(lambda request: Answer(body=request.target.encode()))
    assert rawhttp.send(nginx.port, target="/where").body == b"/where"


def test_hold_until_released(make_nginx, upstream):
    nginx = proxied(make_nginx, upstream)
    gate = upstream.gate()
    upstream.answer(hold=gate)
    waiting = Background(rawhttp.send, nginx.port)
    gate.wait_reached()
    hold_true_for(lambda: not waiting.done, 0.05, "the request waits")
    gate.release()
    assert waiting.result().status == 201


@pytest.mark.parametrize("fault", ["close", "reset"])
def test_faults_of_the_upstream_are_502(make_nginx, upstream, fault):
    nginx = proxied(make_nginx, upstream)
    upstream.answer(fault=fault)
    assert rawhttp.send(nginx.port).status == 502
    assert upstream.count() == 1


def test_refused_connection_and_listening_again(make_nginx, make_upstream):
    upstream = make_upstream(listening=False)
    nginx = proxied(make_nginx, upstream)
    assert rawhttp.send(nginx.port).status == 502
    upstream.listen()
    assert rawhttp.send(nginx.port).status == 201
    upstream.refuse()
    assert rawhttp.send(nginx.port).status == 502
    upstream.listen()
    assert rawhttp.send(nginx.port).status == 201
    assert upstream.count() == 2


def test_silent_upstream_is_504(make_nginx, upstream):
    server = "location / { proxy_read_timeout 100ms;" + PROXY.format(port=upstream.port) + "}"
    nginx = make_nginx(module=False, server=server).start()
    upstream.answer(fault="silent")
    assert rawhttp.send(nginx.port).status == 504


def test_cut_answer_is_seen_by_the_strict_client(make_nginx, upstream):
    nginx = proxied(make_nginx, upstream)
    upstream.answer(body=b"0123456789", cut_after=4)
    with pytest.raises(ProtocolError, match="too early"):
        rawhttp.send(nginx.port)


@pytest.mark.parametrize("data", [
    b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
    b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"1\r\nx\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n\r\nx",
    b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nx",
    b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxLEFT",
    b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nBad Name: 1\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n",
])
def test_strict_client_refuses_bad_framing(data):
    with pytest.raises(ProtocolError):
        rawhttp.send(answer_with(data))


def test_keep_alive_and_pipelining(make_nginx, upstream):
    nginx = proxied(make_nginx, upstream)
    upstream.script(lambda request: Answer(body=request.target.encode()))
    with Client(nginx.port) as client:
        client.send(b"".join(rawhttp.build_request("POST", f"/{n}", body=b"b") for n in range(3)))
        assert [client.read_response().body for _ in range(3)] == [b"/0", b"/1", b"/2"]
        client.finish()


def test_reload_replaces_the_workers(make_nginx, upstream):
    nginx = proxied(make_nginx, upstream, workers=2)
    old = nginx.reload()
    assert rawhttp.send(nginx.port).status == 201
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in old), "old workers to go")


def test_killed_worker_is_replaced_and_expected_in_the_log(make_nginx, upstream):
    nginx = proxied(make_nginx, upstream)
    nginx.kill_worker(nginx.worker_pids()[0])
    assert rawhttp.send(nginx.port).status == 201
    assert "exited on signal 9" in nginx.log()


def test_killed_gateway_starts_again_on_the_same_port(make_nginx, upstream):
    nginx = proxied(make_nginx, upstream, workers=2)
    nginx.kill_all()
    nginx.start()
    assert rawhttp.send(nginx.port).status == 201


def test_frozen_worker_leaves_the_connections_to_the_other(make_nginx, upstream):
    nginx = proxied(make_nginx, upstream, workers=2)
    frozen = nginx.worker_pids()[0]
    nginx.freeze(frozen)
    for _ in range(10):
        rawhttp.send(nginx.port)
    assert {request.get("X-Worker") for request in upstream.requests} == {
        str(pid) for pid in nginx.worker_pids() if pid != frozen}
    nginx.thaw(frozen)


def test_quit_drains_the_request_in_flight(make_nginx, upstream):
    nginx = proxied(make_nginx, upstream)
    gate = upstream.gate()
    upstream.answer(hold=gate)
    waiting = Background(rawhttp.send, nginx.port)
    gate.wait_reached()
    nginx.signal_quit()
    gate.release()
    assert waiting.result().status == 201
    assert nginx.wait_ended() == 0


def test_tear_down_finds_an_unexpected_death():
    nginx = Nginx(module=False).start()
    victim = nginx.worker_pids()[0]
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: "exited on signal 9" in nginx.log(), "the master to notice")
    with pytest.raises(AssertionError, match="exited on signal 9"):
        nginx.tear_down()


@pytest.mark.parametrize("line", [
    "[alert] 1#1: *3 open socket #11 left in connection 5", "[crit] 1#1: no space",
    "ERROR: AddressSanitizer: heap-use-after-free", "x.c:3:4: runtime error: shift"])
def test_tear_down_finds_bad_log_lines(line):
    nginx = Nginx(module=False).start()
    with open(nginx.path("logs", "error.log"), "a", encoding="utf-8") as log:
        log.write(line + "\n")
    with pytest.raises(AssertionError, match="bad lines"):
        nginx.tear_down()


def test_tear_down_finds_a_sanitizer_report():
    nginx = Nginx(module=False).start()
    with open(nginx.path("logs", "sanitizer.77"), "w", encoding="utf-8") as log:
        log.write("heap-buffer-overflow\n")
    with pytest.raises(AssertionError, match="heap-buffer-overflow"):
        nginx.tear_down()


def test_configuration_errors_are_returned(make_nginx):
    nginx = make_nginx(module=False, server="no_such_directive 1;")
    code, output = nginx.test()
    assert code != 0 and "no_such_directive" in output


def test_waiting_in_vain_fails():
    with pytest.raises(AssertionError, match="in vain for: never"):
        wait_until(lambda: False, "never", timeout=0.02)
    with pytest.raises(AssertionError, match="did not stay true"):
        hold_true_for(lambda: False, 0.02, "false")


def test_port_taken_meanwhile_is_replaced(make_nginx, upstream):
    nginx = make_nginx(module=False, server="location / {" + PROXY.format(port=upstream.port) + "}")
    taken = socket.create_server(("127.0.0.1", nginx.port))
    nginx.start()
    assert nginx.port != taken.getsockname()[1]
    assert rawhttp.send(nginx.port).status == 201
    taken.close()
