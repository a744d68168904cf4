"""Reload (HUP) and drained stop (QUIT): nothing lost, nothing twice, no unknown left behind."""

import os
import time

import pytest
import rawhttp
from problem import kind_of
from scene import Background, new_key
from waiting import wait_until

CLIENTS = 4


class Load:
    """Clients that each work through keys, retrying what was refused or reset."""

    def __init__(self, scene, keys_each=40):
        self.scene = scene
        self.answers, self.odd = {}, []
        self.flying = [Background(self._client, keys_each) for _ in range(CLIENTS)]

    def _client(self, keys):
        for _ in range(keys):
            key = new_key()
            self.answers[key] = wait_until(lambda k=key: self._try(k), "an answer under load")

    def _try(self, key):
        try:
            response = self.scene.post(key)
        except (OSError, rawhttp.ConnectionEnded):
            return None  # refused, reset or closed before an answer: the allowed errors
        if response.status == 201:
            return response
        if kind_of(response) != "in-progress":
            self.odd.append(response)
            return response
        return None

    def wait_more(self, count):
        """Until that many more keys are answered, or the load is over."""
        goal = len(self.answers) + count
        wait_until(lambda: len(self.answers) >= goal or all(one.done for one in self.flying),
                   "the load to go on")

    def finish(self):
        for one in self.flying:
            one.result(100)
        assert not self.odd, f"errors other than refused connections: {self.odd[:3]}"
        counts = self.scene.upstream.counts()
        assert {key: counts.get(key) for key in self.answers} == dict.fromkeys(self.answers, 1)
        for key, answer in self.answers.items():
            again = self.scene.post(key)
            assert again.replayed and again.body == answer.body, again
        assert self.scene.upstream.counts() == counts


def test_reload_under_load_loses_nothing_and_runs_nothing_twice(make_scene):
    scene = make_scene(workers=2)
    load = Load(scene)
    for _ in range(4):
        load.wait_more(15)
        scene.nginx.reload()
    load.finish()


def test_drained_stop_and_start_under_load_loses_nothing_and_runs_nothing_twice(make_scene):
    scene = make_scene(workers=2)
    load = Load(scene)
    for _ in range(3):
        load.wait_more(15)
        scene.nginx.quit()
        scene.nginx.start()
    load.finish()


@pytest.mark.parametrize("client", ["waits", "hung up"])
@pytest.mark.parametrize("how", ["quit", "reload"])
def test_request_in_flight_ends_well_across_a_drained_stop_or_reload(make_scene, key, how, client):
    scene = make_scene()
    gate = scene.upstream.gate()
    scene.upstream.answer(hold=gate, body=b"drained")
    sender = scene.client()
    sender.send(rawhttp.build_request("POST", "/pay", [("Idempotency-Key", key)], b'{"amount":1}'))
    scene.upstream.wait_count(1)
    if client == "hung up":
        sender.reset()
    if how == "quit":
        scene.nginx.signal_quit()
        gate.release()
        read_and_close(sender, client)
        assert scene.nginx.wait_ended() == 0
        scene.nginx.start()
    else:
        old = scene.nginx.reload()
        assert kind_of(scene.post(key)) == "in-progress", "the new worker sees the claim of the old"
        gate.release()
        read_and_close(sender, client)
        wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in old), "old workers")
    again = scene.post(key)
    assert again.replayed and again.body == b"drained"
    assert scene.upstream.count() == 1


def read_and_close(sender, client):
    if client == "waits":
        assert sender.read_response().body == b"drained"
        sender.close()


def test_lease_is_renewed_by_an_old_worker_that_drains(make_scene, key):
    scene = make_scene(guard="idempotency_lease 600ms;")
    waiting, gate = scene.held_post(key)
    old = scene.nginx.reload()
    for _ in range(3):  # three leases by the store's clock
        wait_until(wait_for_one_lease(), "a lease to pass")
        assert kind_of(scene.post(key)) == "in-progress"
    gate.release()
    assert waiting.result().status == 201
    assert scene.post(key).replayed
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in old), "old workers to go")


def wait_for_one_lease():
    end = time.monotonic() + 0.6
    return lambda: time.monotonic() > end


def test_quick_stop_leaves_a_sent_request_unknown_and_an_unsent_key_free(make_scene, key):
    """TERM cuts off: told at once, not only when the lease lapses."""
    scene = make_scene(guard="idempotency_lease 1h;")
    waiting, gate = scene.held_post(key)
    scene.nginx.stop()
    gate.release()
    with pytest.raises((rawhttp.ProtocolError, OSError)):
        waiting.result()
    scene.nginx.start()
    scene.upstream.answer(status=201)
    assert kind_of(scene.post(key)) == "outcome-unknown"
    assert scene.upstream.count() == 1


def test_reload_with_an_idle_gateway_ends_the_old_workers(make_scene, key):
    """Threads and timers of the module do not keep a worker alive."""
    scene = make_scene(workers=2)
    scene.post(key)
    old = scene.nginx.reload()
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in old), "old workers to go")
    assert scene.post(key).replayed


def test_reload_to_a_broken_configuration_keeps_the_gateway(make_scene, key):
    scene = make_scene()
    scene.post(key)
    workers = scene.nginx.worker_pids()
    scene.nginx.expect_log(r"\[emerg\].*idempotency_lease")
    scene.configure(guard="idempotency_lease nonsense;")
    os.kill(scene.nginx.pid, 1)
    wait_until(lambda: "idempotency_lease" in scene.nginx.log(), "the reload to be refused")
    assert scene.nginx.worker_pids() == workers and scene.post(key).replayed


def test_reload_can_turn_the_guard_on_and_off(make_scene, key):
    scene = make_scene()
    scene.post(key)
    scene.nginx.write_configuration(server="location / {" + scene.proxy + "}")
    old = scene.nginx.reload()
    assert not scene.post(key).all("Idempotent-Replayed")
    scene.configure(guard="")
    scene.nginx.reload()
    assert scene.post(key).replayed
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in old), "old workers to go")


def test_records_survive_many_restarts(make_scene, key):
    scene = make_scene()
    first = scene.post(key)
    for _ in range(3):
        scene.nginx.quit()
        scene.nginx.start()
        again = scene.post(key)
        assert again.replayed and again.body == first.body
    assert scene.upstream.count() == 1
