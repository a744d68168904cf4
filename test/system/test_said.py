"""What the log tells the person on call: an answer that was not kept, a key that was not taken."""

import re

from problem import assert_problem
from scene import new_key
from waiting import wait_until


def said(scene, words):
    return [line for line in scene.nginx.log().splitlines() if words in line]


def test_an_answer_over_the_maximum_is_told_with_its_id(make_scene, key):
    scene = make_scene(guard="idempotency_body_max 10;")
    scene.upstream.answer(body=b"x" * 11)
    assert scene.post(key).body == b"x" * 11
    lines = said(scene, "it is delivered and not kept")
    assert len(lines) == 1 and re.search(r"id [0-9a-f]{64}", lines[0])


def test_an_answer_of_too_many_header_lines_is_told_too(make_scene, key):
    scene = make_scene(location="proxy_buffer_size 64k; proxy_buffers 8 64k;")
    scene.upstream.answer(headers=[(f"X-Line-{number}", "y") for number in range(300)])
    assert len(scene.post(key).all("X-Line-299")) == 1
    assert_problem(scene.post(key), "answer-not-kept")
    assert len(said(scene, "it is delivered and not kept")) == 1
    assert scene.upstream.count(key) == 1


def test_a_failed_answer_over_the_maximum_is_nothing_to_tell(make_scene, key):
    scene = make_scene(guard="idempotency_body_max 10;")
    scene.upstream.answer(status=503, body=b"x" * 11)
    assert scene.post(key).status == 503
    assert not said(scene, "it is delivered and not kept")


def test_a_full_store_is_told_once_and_not_for_each_request(make_scene):
    scene = make_scene(store_options="size=2m")
    scene.upstream.answer(body=b"f" * 20_000)
    wait_until(lambda: scene.post(new_key()).status == 503, "the store to be full")
    refused = sum(scene.post(new_key()).status == 503 for _ in range(20))
    wait_until(lambda: said(scene, "store full"), "the full store to be told")
    scene.nginx.quit()  # a leaving worker says all that it still has to say
    assert 1 <= len(said(scene, "store full")) < 1 + refused


def test_an_answer_with_two_lengths_or_a_length_and_chunks_is_not_whole(scene):
    """Where it ends is a guess, and the next hop may guess otherwise (RFC 9112, 6.3)."""
    for raw in (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
                b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
                b"3\r\nabc\r\n0\r\n\r\n"):
        key = new_key()
        scene.upstream.answer(raw=raw)
        assert scene.post(key).status == 502
        assert_problem(scene.post(key), "outcome-unknown")
        assert scene.upstream.count(key) == 1


def test_a_new_store_is_told_as_a_warning_and_an_old_one_is_not(make_scene, key):
    """A wrong mount looks like a new store: no earlier key is protected."""
    scene = make_scene()
    assert scene.post(key).status == 201
    wait_until(lambda: said(scene, "made a new, empty store"), "the new store to be told")
    assert all("[warn]" in line for line in said(scene, "made a new, empty store"))
    times = len(said(scene, "made a new, empty store"))
    scene.nginx.quit()
    scene.nginx.start()
    assert scene.post(key).replayed
    scene.nginx.quit()  # a leaving worker says all that it still has to say
    assert len(said(scene, "made a new, empty store")) == times == 1
