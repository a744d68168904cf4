"""A request body that another module has read before ours is hashed all the same."""

import early_body
import pytest
from problem import assert_problem
from test_request_body import changed_last, pattern

BUFFERS = {"in memory": "client_body_buffer_size 256k;",
           "in a file": "client_body_buffer_size 4k;"}


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    return early_body.build(tmp_path_factory.mktemp("early_body"))


@pytest.fixture
def make_early(make_scene, module):
    def make(place, location=""):
        return make_scene(main=f"load_module {module};",
                          location=f"early_body on; {BUFFERS[place]} {location}")
    return make


def assert_told_apart(scene, key, body, **how):
    """The same body is replayed; a change in its last byte and another length are refused."""
    assert scene.post(key, body=body, **how).status == 201
    assert scene.upstream.last().body == body
    assert scene.post(key, body=body, **how).replayed
    for other in (changed_last(body), body + b"x", body[:-1] if body else b"y"):
        assert_problem(scene.post(key, body=other, **how), "key-reused")
    assert scene.upstream.count() == 1


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("place", BUFFERS, ids=lambda name: name.replace(" ", "-"))
@pytest.mark.parametrize("size", [1, 4095, 4097, 200_000])
def test_body_read_before_is_hashed_whole_last_byte_counts(make_early, key, size, place, chunked):
    scene = make_early(place)
    assert_told_apart(scene, key, pattern(size), chunked=chunked)
    if size == 200_000:
        assert f"early body: read, {place}" in scene.nginx.log()


def test_empty_body_read_before_is_not_any_other(make_early, key):
    assert_told_apart(make_early("in memory"), key, b"")


@pytest.mark.parametrize("change", [0, 4095, 4096, 100_000], ids=lambda at: f"byte-{at}")
def test_a_change_anywhere_in_a_file_is_a_mismatch(make_early, key, change):
    scene = make_early("in a file")
    body = bytearray(pattern(200_000))
    assert scene.post(key, body=bytes(body)).status == 201
    body[change] ^= 1
    assert_problem(scene.post(key, body=bytes(body)), "key-reused")


def test_body_that_arrives_late_is_hashed_once(make_early, key):
    scene = make_early("in memory")
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


@pytest.mark.parametrize("place", BUFFERS, ids=lambda name: name.replace(" ", "-"))
def test_read_before_or_not_is_the_same_request(make_early, key, place):
    """The fingerprint does not depend on who has read the body."""
    scene = make_early(place)
    body = pattern(50_000)
    first = scene.post(key, body=body)
    scene.configure(location=BUFFERS[place])
    scene.nginx.reload()
    again = scene.post(key, body=body)
    assert again.replayed and again.body == first.body


def test_read_before_and_sent_on_unbuffered(make_early, key):
    assert_told_apart(make_early("in memory", "proxy_request_buffering off;"), key, pattern(5000))
