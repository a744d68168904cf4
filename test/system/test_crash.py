"""Sudden death and long pauses: kill -9 of a worker, of the whole gateway, SIGSTOP past the lease.

Leases are short here, so that the wait for their end is short too.
"""

import os
import time

import pytest
import rawhttp
from problem import assert_problem, kind_of
from scene import Background, new_key
from upstream import Answer
from waiting import hold_true_for, wait_until

LEASE_S = 1.0
LEASE = "idempotency_lease 1s;"
GRACE_S = 3.0  # what the machine may be late by


def settled(scene, key, **how):
    """Retries until the key is no longer in progress; returns the answer and the seconds taken."""
    began = time.monotonic()
    answer = scene.post_until(key, lambda r: kind_of(r) not in ("in-progress", "store-unavailable"),
                              "the lease to end", **how)
    return answer, time.monotonic() - began


def in_flight(scene, key, answer=None):
    """A request that the upstream holds, from a client that may be cut off. Returns the gate."""
    gate = scene.upstream.gate()
    scene.upstream.answer(Answer(hold=gate, **(answer or {})), Answer())
    client = scene.client()
    client.send(rawhttp.build_request("POST", "/pay", [("Idempotency-Key", key)], b'{"amount":1}'))
    return gate, client, scene.upstream.wait_count(1, key)


def kill_one_worker(scene, request):
    scene.nginx.kill_worker(scene.worker_of(request))


def kill_gateway_and_start_again(scene, _request):
    scene.nginx.kill_all()
    scene.nginx.start()


KILLS = {"worker": kill_one_worker, "gateway": kill_gateway_and_start_again}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("what", KILLS)
def test_d55_killed_while_the_upstream_works_is_outcome_unknown_within_one_lease(
        make_scene, key, what, workers):
    scene = make_scene(guard=LEASE, workers=workers)
    gate, _, request = in_flight(scene, key)
    KILLS[what](scene, request)
    answer, took = settled(scene, key)
    assert_problem(answer, "outcome-unknown")
    assert took < LEASE_S + GRACE_S
    gate.release()
    hold_true_for(lambda: kind_of(scene.post(key)) == "outcome-unknown", 0.2, "held")
    assert scene.upstream.count(key) == 1


@pytest.mark.parametrize("what", KILLS)
def test_killed_under_retry_is_executed_as_attempt_2(make_scene, key, what):
    scene = make_scene(guard=LEASE + "idempotency_unknown retry;")
    gate, _, request = in_flight(scene, key)
    KILLS[what](scene, request)
    answer, took = settled(scene, key)
    assert answer.status == 201 and not answer.replayed and took < LEASE_S + GRACE_S
    gate.release()
    first, second = scene.upstream.requests
    assert (first.get("Idempotency-Attempt"), second.get("Idempotency-Attempt")) == ("1", "2")
    assert int(second.get("Idempotency-Fence")) > int(first.get("Idempotency-Fence"))
    assert first.key == second.key == key
    assert scene.post(key).body == answer.body and scene.upstream.count(key) == 2


@pytest.mark.parametrize("what", KILLS)
def test_recorded_answers_survive_a_kill(make_scene, what):
    scene = make_scene(workers=2)
    keys = [new_key() for _ in range(20)]
    first = {key: scene.post(key).body for key in keys}
    KILLS[what](scene, scene.upstream.last())
    for key in keys:
        again = scene.post(key)
        assert again.replayed and again.body == first[key]
    assert set(scene.upstream.counts().values()) == {1}


def test_other_workers_go_on_when_one_is_killed(make_scene, key):
    """A lock that died with its holder blocks nobody."""
    scene = make_scene(guard=LEASE, workers=2)
    _, _, request = in_flight(scene, key)
    kill_one_worker(scene, request)
    for _ in range(10):
        fresh = new_key()
        assert scene.post(fresh).status == 201 and scene.post(fresh).replayed


@pytest.mark.parametrize("what", KILLS)
def test_kills_under_load_never_execute_twice_under_hold(make_scene, what):
    scene = make_scene(guard=LEASE, workers=2)
    keys = [new_key() for _ in range(60)]
    done = {}

    def client(share):
        for key in share:
            done[key] = wait_until(lambda k=key: try_once(scene, k), "a definite answer")

    flying = [Background(client, keys[n::4]) for n in range(4)]
    for round_number in range(3):
        mark = (round_number + 1) * 10
        wait_until(lambda m=mark: scene.upstream.count() >= m, f"{mark} executions")
        if what == "worker":
            scene.nginx.kill_worker(scene.nginx.worker_pids()[0])
        else:
            kill_gateway_and_start_again(scene, None)
    for one in flying:
        one.result(60)
    assert set(done) == set(keys)
    assert set(scene.upstream.counts().values()) == {1}, "executed twice"
    for key, answer in done.items():
        again = scene.post(key)
        assert (kind_of(again), again.body) == (kind_of(answer), answer.body)


def try_once(scene, key):
    """One attempt of a client; None when it has to try again."""
    try:
        response = scene.post(key)
    except (OSError, rawhttp.ProtocolError):
        return None  # refused or reset by the kill
    if kind_of(response) in ("in-progress", "store-unavailable"):
        return None
    return response


# ---- pauses

def freeze_holder(scene, key, answer):
    gate, client, request = in_flight(scene, key, answer)
    pid = scene.worker_of(request)
    scene.nginx.freeze(pid)
    return gate, client, pid


def test_stopped_worker_past_its_lease_records_its_answer_if_nobody_took_over(make_scene, key):
    scene = make_scene(guard=LEASE, workers=2)
    gate, client, pid = freeze_holder(scene, key, {"body": b"late but true"})
    answer, _ = settled(scene, key)
    assert_problem(answer, "outcome-unknown")
    gate.release()
    scene.nginx.thaw(pid)
    late = client.read_response()
    assert (late.status, late.body) == (201, b"late but true")
    assert not late.all("Idempotency-Recorded")
    again = scene.post(key)
    assert again.replayed and again.body == b"late but true"
    assert scene.upstream.count(key) == 1


def test_d56_stopped_worker_cannot_overwrite_what_another_recorded(make_scene, key):
    """It answers from the record, not with its own answer."""
    scene = make_scene(guard=LEASE + "idempotency_unknown retry;", workers=2)
    gate, client, pid = freeze_holder(scene, key, {"body": b"of the stalled holder"})
    taken_over, _ = settled(scene, key)
    assert taken_over.status == 201 and scene.upstream.count(key) == 2
    gate.release()
    scene.nginx.thaw(pid)
    late = client.read_response()
    assert (late.status, late.body) == (taken_over.status, taken_over.body)
    for _ in range(3):
        again = scene.post(key)
        assert again.replayed and again.body == taken_over.body
    assert scene.upstream.count(key) == 2


def test_stopped_worker_cannot_overwrite_while_another_executes(make_scene, key):
    scene = make_scene(guard=LEASE + "idempotency_unknown retry;", workers=2)
    first_gate, client, pid = freeze_holder(scene, key, {"body": b"of the stalled holder"})
    second_gate = scene.upstream.gate()
    scene.upstream.answer(hold=second_gate, body=b"of the second")
    second = Background(settled, scene, key)
    scene.upstream.wait_count(2, key)
    first_gate.release()
    scene.nginx.thaw(pid)
    late = client.read_response()
    assert_problem(late, "in-progress")
    second_gate.release()
    answer, _ = second.result()
    assert answer.body == b"of the second"
    assert scene.post(key).body == b"of the second"


def test_stopped_worker_that_failed_frees_nothing_it_no_longer_owns(make_scene, key):
    """The late `fail` of a fenced-off holder must not release the record."""
    scene = make_scene(guard=LEASE + "idempotency_unknown retry;", workers=2)
    gate, client, pid = freeze_holder(scene, key, {"status": 503})
    answer, _ = settled(scene, key)
    gate.release()
    scene.nginx.thaw(pid)
    assert client.read_response().body == answer.body
    assert scene.post(key).replayed and scene.upstream.count(key) == 2


def test_master_killed_alone_leaves_no_double_execution(make_scene, key):
    """The workers of a killed master live on; a second gateway on the same store is one store."""
    scene = make_scene(workers=1)
    first = scene.post(key)
    orphans = scene.nginx.worker_pids()
    os.kill(scene.nginx.pid, 9)
    scene.nginx.process.wait()
    for pid in orphans:
        os.kill(pid, 9)
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in orphans), "workers to go")
    scene.nginx.start()
    assert scene.post(key).body == first.body and scene.upstream.count(key) == 1


def test_d52_two_gateways_on_one_store_run_a_key_once(make_scene, key):
    first = make_scene()
    second = make_scene(upstream=first.upstream, store=first.store_url)
    waiting, gate = first.held_post(key)
    assert_problem(second.post(key), "in-progress")
    gate.release()
    answer = waiting.result()
    again = second.post(key)
    assert again.replayed and again.body == answer.body
    assert first.upstream.count(key) == 1
