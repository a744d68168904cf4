"""Redirects inside nginx: no location may execute a guarded request twice, or unguarded."""

import os
import re

import pytest
import rawhttp
from problem import assert_problem
from scene import PROXY
from waiting import wait_until

BOTH = "idempotency_methods POST PUT;"
GUARDED = f"idempotency main; idempotency_scope tenant; {BOTH}"
EAGER = "proxy_next_upstream error timeout non_idempotent;"
FAILOVER = [("PUT", ""), ("POST", EAGER)]


class Pair:
    """Two upstreams behind one named location that may go from the first to the second."""

    def __init__(self, make_upstream):
        self.peers = [make_upstream(), make_upstream()]
        servers = " ".join(f"server 127.0.0.1:{peer.port} max_fails=0;" for peer in self.peers)
        self.http = f"upstream pair {{ {servers} }}"

    def answer(self, **answer):
        for peer in self.peers:
            peer.answer(**answer)

    def count(self):
        return sum(peer.count() for peer in self.peers)

    @staticmethod
    def location(guard="", more=""):
        return (f"location @app {{ {guard} proxy_pass http://pair; proxy_http_version 1.1;"
                f'proxy_set_header Connection ""; {more} }}')


@pytest.fixture
def pair(make_upstream):
    return Pair(make_upstream)


@pytest.fixture(params=["try_files", "error_page"])
def way(request, make_upstream):
    """Two ways into @app before anything was sent: the lines of the guarded location."""
    if request.param == "try_files":
        return "try_files /nowhere @app;"
    dead = make_upstream(listening=False)
    return PROXY.format(port=dead.port) + "error_page 502 = @app;"


def scene_by(make_scene, way, pair, guard="", more="", http=""):
    return make_scene(guard=BOTH, proxy=way, http=pair.http + http,
                      extra=pair.location(guard, more))


# ---- the target is not guarded

@pytest.mark.parametrize("method, more", FAILOVER, ids=["PUT", "POST"])
def test_unguarded_target_executes_nothing_and_the_log_names_it(
        make_scene, pair, way, key, method, more):
    scene = scene_by(make_scene, way, pair, more=more)
    pair.answer(fault="close")
    for _ in range(2):
        assert_problem(scene.send(method, "/pay", key=key), "upstream-unreachable")
    assert pair.count() == 0
    assert 'through the location "@app", which is not guarded' in scene.nginx.log()
    assert re.search(r'say "idempotency.*" there', scene.nginx.log())


def test_once_the_target_is_guarded_as_the_log_says_the_same_key_executes(
        make_scene, pair, way, key):
    scene = scene_by(make_scene, way, pair)
    assert_problem(scene.post(key), "upstream-unreachable")
    scene.configure(extra=pair.location(GUARDED))
    scene.nginx.reload()
    first, again = scene.post(key), scene.post(key)
    assert first.status == 201 and again.replayed and again.body == first.body
    assert pair.count() == 1


def test_a_target_that_another_store_guards_executes_nothing(make_scene, pair, way, key):
    other = GUARDED.replace("main", "other")
    scene = scene_by(make_scene, way, pair, guard=other, http="idempotency_store other memory:;")
    assert_problem(scene.post(key), "upstream-unreachable")
    assert pair.count() == 0


def test_requests_without_a_key_pass_to_an_unguarded_target(make_scene, pair, way):
    scene = scene_by(make_scene, way, pair)
    assert scene.post().status == 201 and pair.count() == 1


# ---- the target is guarded by the same store

def test_guarded_target_executes_once_and_is_replayed(make_scene, pair, way, key):
    scene = scene_by(make_scene, way, pair, guard=GUARDED)
    first, again = scene.post(key), scene.post(key)
    assert first.status == 201 and again.replayed and again.body == first.body
    assert_problem(scene.post(key, body=b"other"), "key-reused")
    assert pair.count() == 1


@pytest.mark.parametrize("method, more", FAILOVER, ids=["PUT", "POST"])
def test_guarded_target_never_goes_to_its_second_upstream(
        make_scene, pair, way, key, method, more):
    scene = scene_by(make_scene, way, pair, guard=GUARDED, more=more)
    pair.answer(fault="close")
    assert_problem(scene.send(method, "/pay", key=key), "upstream-unanswered", 502)
    pair.answer(status=201)
    assert_problem(scene.send(method, "/pay", key=key), "outcome-unknown")
    assert pair.count() == 1


def test_guarded_target_ends_and_records_what_a_lost_client_began(make_scene, pair, way, key):
    scene = scene_by(make_scene, way, pair, guard=GUARDED)
    gate = pair.peers[0].gate()
    pair.answer(hold=gate, body=b"made")
    client = scene.client()
    client.send(rawhttp.build_request("POST", "/pay", [("Idempotency-Key", key)], b'{"amount":1}'))
    wait_until(lambda: pair.count() == 1, "the request at an upstream")
    client.reset()
    gate.release()
    again = scene.post_until(key, lambda response: response.status != 409, "the verdict")
    assert again.replayed and again.body == b"made"
    assert pair.count() == 1


# ---- a file handler as the target

def dav_scene(make_scene, upstream, guard="", **shape):
    scene = make_scene(
        guard=BOTH + "client_body_in_file_only clean;",  # as DAV needs it
        upstream=upstream,
        extra=f"location @dav {{ {guard} root {{dir}}/html; dav_methods PUT; }}", **shape)
    os.chmod(scene.nginx.path("html"), 0o777)
    return scene


def put(scene, name, key=None):
    return scene.send("PUT", f"/{name}", key=key, body=b"saved")


def is_saved(scene, name):
    return os.path.exists(scene.nginx.path("html", name))


@pytest.mark.parametrize("guard", ["", GUARDED], ids=["unguarded", "guarded"])
def test_put_that_was_sent_is_not_executed_by_dav(make_scene, upstream, key, guard):
    scene = dav_scene(make_scene, upstream, guard, location="error_page 502 = @dav;")
    upstream.answer(fault="close")
    assert put(scene, "control").status == 201, "DAV works for a request without a key"
    assert is_saved(scene, "control")
    assert_problem(put(scene, "kept", key), "upstream-unanswered", 502)
    assert_problem(put(scene, "kept", key), "outcome-unknown")
    assert not is_saved(scene, "kept")
    assert upstream.count(key) == 1


@pytest.mark.parametrize("guard", ["", GUARDED], ids=["unguarded", "guarded"])
def test_put_that_was_refused_is_not_executed_by_dav_either(
        make_scene, make_upstream, key, guard):
    """What the client is told, that nothing was executed, must be true."""
    scene = dav_scene(make_scene, make_upstream(listening=False), guard,
                      location="error_page 502 = @dav;")
    assert_problem(put(scene, "kept", key), "upstream-unreachable")
    assert not is_saved(scene, "kept")
    assert 'through the location "@dav"' in scene.nginx.log()
    scene.upstream.listen()
    assert put(scene, "kept", key).status == 201
    assert put(scene, "kept", key).replayed
    assert scene.upstream.count(key) == 1


@pytest.mark.parametrize("guard", ["", GUARDED], ids=["unguarded", "guarded"])
def test_put_that_goes_to_dav_at_once_is_executed_by_it_once(make_scene, key, guard):
    scene = dav_scene(make_scene, None, guard, proxy="try_files /nowhere @dav;")
    assert put(scene, "kept", key).status == 201 and is_saved(scene, "kept")
    os.unlink(scene.nginx.path("html", "kept"))
    again = put(scene, "kept", key)
    assert again.status == 201 and again.replayed and not is_saved(scene, "kept")
