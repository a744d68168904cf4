"""Request bodies are hashed whole, wherever nginx keeps them, and reach the upstream unchanged."""

import os

import pytest
from problem import assert_problem
from waiting import wait_until

SIZES = [0, 1, 8 * 1024, 1024 * 1024]
BUFFERS = {"memory": "client_body_buffer_size 2m;",
           "temporary file": "client_body_buffer_size 4k;",
           "always in a file": "client_body_in_file_only clean;",
           "single buffer": "client_body_in_single_buffer on; client_body_buffer_size 2m;"}


def pattern(size):
    return (bytes(range(251)) * (size // 251 + 1))[:size]


def changed_last(body):
    return body[:-1] + bytes([body[-1] ^ 1]) if body else b"x"


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("place", BUFFERS, ids=lambda name: name.replace(" ", "-"))
@pytest.mark.parametrize("size", SIZES)
def test_bodies_are_hashed_whole_last_byte_counts(make_scene, key, size, place, chunked):
    scene = make_scene(server=BUFFERS[place] + "client_max_body_size 4m;")
    body = pattern(size)
    assert scene.post(key, body=body, chunked=chunked).status == 201
    assert scene.upstream.last().body == body
    assert scene.post(key, body=body, chunked=chunked).replayed
    for other in (changed_last(body), body + b"x", body[:-1] if body else b"y"):
        assert_problem(scene.post(key, body=other, chunked=chunked), "key-reused")
    assert scene.upstream.count() == 1


@pytest.mark.parametrize("change", ["first", "middle"])
def test_a_change_anywhere_in_a_file_buffered_body_is_a_mismatch(make_scene, key, change):
    scene = make_scene(server=BUFFERS["temporary file"])
    body = bytearray(pattern(500_000))
    scene.post(key, body=bytes(body))
    body[0 if change == "first" else 250_000] ^= 1
    assert_problem(scene.post(key, body=bytes(body)), "key-reused")


def test_body_arriving_byte_by_byte_is_the_same_request(scene, key):
    body = pattern(300)
    scene.post(key, body=body)
    with scene.client() as client:
        client.send(f"POST /pay HTTP/1.1\r\nHost: idem.test\r\nIdempotency-Key: {key}\r\n"
                    f"Content-Length: {len(body)}\r\n\r\n".encode())
        for byte in body:
            client.send(bytes([byte]))
        assert client.read_response().replayed
        client.finish()
    assert scene.upstream.count() == 1


def test_chunk_boundaries_and_extensions_do_not_matter(scene, key):
    scene.post(key, body=b"abcdefgh")
    with scene.client() as client:
        client.send(f"POST /pay HTTP/1.1\r\nHost: idem.test\r\nIdempotency-Key: {key}\r\n"
                    "Transfer-Encoding: chunked\r\n\r\n".encode()
                    + b"3;x=y\r\nabc\r\n0005\r\ndefgh\r\n0\r\nX-Trailer: 1\r\n\r\n")
        assert client.read_response().replayed
        client.finish()
    assert scene.upstream.count() == 1


def test_key_in_a_trailer_is_not_the_header(make_scene, key):
    scene = make_scene(guard="idempotency_key $http_idempotency_key required;")
    with scene.client() as client:
        client.send(b"POST /pay HTTP/1.1\r\nHost: idem.test\r\nTransfer-Encoding: chunked\r\n\r\n"
                    b"1\r\na\r\n0\r\nIdempotency-Key: " + key.encode() + b"\r\n\r\n")
        assert_problem(client.read_response(), "key-missing")
    assert scene.upstream.count() == 0


def test_temporary_files_are_removed(make_scene, key):
    scene = make_scene(server=BUFFERS["temporary file"])
    body = pattern(300_000)
    for _ in range(2):
        scene.post(key, body=body)
    assert_problem(scene.post(key, body=body + b"x"), "key-reused")

    def files():
        return [name for _, _, names in os.walk(scene.nginx.path("tmp")) for name in names]

    wait_until(lambda: not files(), "temporary files to go")


def test_unbuffered_request_setting_does_not_defeat_the_guard(make_scene, key):
    """proxy_request_buffering off would forward before the hash is known."""
    scene = make_scene(location="proxy_request_buffering off;")
    body = pattern(200_000)
    assert scene.post(key, body=body).status == 201
    assert scene.upstream.last().body == body
    assert scene.post(key, body=body).replayed
    assert_problem(scene.post(key, body=changed_last(body)), "key-reused")
    assert scene.upstream.count() == 1
