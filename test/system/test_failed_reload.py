"""A reload that fails late has touched the master already; workers that it respawns must guard."""

import os
import signal
import socket

import pytest
from problem import assert_problem
from scene import new_key
from waiting import wait_until

LOST = "left this nginx without its filters"


@pytest.fixture
def taken_port():
    """A port that nginx cannot bind."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen(1)
        yield other.getsockname()[1]


def refuse_reload(scene, sign):
    """Sends HUP for a configuration that nginx refuses, for a reason that the log tells."""
    scene.nginx.expect_log(r"\[emerg\]")
    workers = scene.nginx.worker_pids()
    os.kill(scene.nginx.pid, signal.SIGHUP)
    wait_until(lambda: sign in scene.nginx.log(), "the reload to be refused")
    assert scene.nginx.worker_pids() == workers, "the old workers stay"


def replace_worker(scene):
    """kill -9 of the only worker; the next one is a child of the master as it is now."""
    scene.nginx.kill_worker(scene.nginx.worker_pids()[0])


def damage(scene):
    """A second store whose file is none."""
    directory = scene.nginx.path("damaged")
    os.makedirs(directory)
    with open(os.path.join(directory, "data.mdb"), "wb") as file:
        file.write(b"\xa5" * 16384)
    scene.configure(http=f"idempotency_store second lmdb:{directory}?size=64m;")


def assert_guards(scene, old_key, old_answer):
    key = new_key()
    first, again = scene.post(key), scene.post(key)
    assert first.status == 201 and again.replayed and again.body == first.body
    assert_problem(scene.post(key, body=b"other"), "key-reused")
    before = scene.post(old_key)
    assert before.replayed and before.body == old_answer.body
    assert scene.upstream.count(key) == scene.upstream.count(old_key) == 1


def assert_refuses(scene):
    """Without its filters the module could record nothing: it executes nothing either."""
    assert LOST in scene.nginx.log()
    key = new_key()
    for _ in range(2):
        assert_problem(scene.post(key), "store-unavailable")
    assert scene.upstream.count(key) == 0


def assert_mended_by_a_reload(scene, old_key, old_answer, **shape):
    scene.configure(**shape)
    scene.nginx.write_configuration(module=True)
    scene.nginx.reload()
    assert_guards(scene, old_key, old_answer)


def test_damaged_second_store(make_scene, key):
    """It is found when nginx has not yet put the filters after ours in place."""
    scene = make_scene()
    first = scene.post(key)
    damage(scene)
    refuse_reload(scene, "second")
    assert_guards(scene, key, first)
    replace_worker(scene)
    assert_refuses(scene)
    assert_mended_by_a_reload(scene, key, first, http="")


def test_port_that_is_taken(make_scene, key, taken_port):
    scene = make_scene()
    first = scene.post(key)
    scene.configure(server=f"listen 127.0.0.1:{taken_port};")
    refuse_reload(scene, "still could not bind")
    assert_guards(scene, key, first)
    replace_worker(scene)
    assert_guards(scene, key, first)
    assert_mended_by_a_reload(scene, key, first, server="")


def test_port_that_is_taken_in_a_configuration_without_guards(make_scene, key, taken_port):
    scene = make_scene()
    first = scene.post(key)
    scene.nginx.write_configuration(
        http="", server=f"listen 127.0.0.1:{taken_port}; location / {{ return 204; }}")
    refuse_reload(scene, "still could not bind")
    assert_guards(scene, key, first)
    replace_worker(scene)
    assert_guards(scene, key, first)
    assert_mended_by_a_reload(scene, key, first)


def test_port_that_is_taken_in_a_configuration_without_the_module(make_scene, key, taken_port):
    scene = make_scene()
    first = scene.post(key)
    scene.nginx.write_configuration(
        http="", module=False,
        server=f"listen 127.0.0.1:{taken_port}; location / {{ return 204; }}")
    refuse_reload(scene, "still could not bind")
    assert_guards(scene, key, first)
    replace_worker(scene)
    assert_refuses(scene)
    assert_mended_by_a_reload(scene, key, first)
