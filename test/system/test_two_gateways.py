"""Two gateways, one store, one upstream: what holds for one gateway holds for both together.

Over every store that two gateways can share. Redis with Sentinel and as a cluster acknowledges a
write once a replica has it (replicas=1).
"""

import pytest
import trouble
from pair import PLACES, Pair, place_of
from problem import assert_problem, kind_of
from scene import Background, new_key
from waiting import wait_until

PARALLEL = 100
LEASE_S = 1
EXTRA = f"""location /retry {{
    idempotency main; idempotency_scope tenant; idempotency_lease {LEASE_S}s;
    idempotency_unknown retry; {{proxy}}
}}"""


@pytest.fixture(scope="session", name="lock_holder_program")
def _lock_holder_program(tmp_path_factory):
    return trouble.build_lock_holder(str(tmp_path_factory.mktemp("holder")))


@pytest.fixture(name="place", params=PLACES)
def _place(request):
    made = place_of(request.param)
    if request.param == "lmdb":
        program = request.getfixturevalue("lock_holder_program")
        made.hold_lock = lambda scene: trouble.LockHolder(program, scene.store_directory)
    yield made
    made.steady()


def test_100_parallel_identical_requests_over_both_run_once(place, make_scene, key):
    """The others are told "in progress", and get that very answer when they ask again."""
    pair = Pair(make_scene, place)
    gate = pair.upstream.gate()
    pair.upstream.answer(hold=gate)
    flying = [Background(pair.scenes[number % 2].post, key) for number in range(PARALLEL)]
    wait_until(lambda: sum(one.done for one in flying) == PARALLEL - 1, "all answers but one")
    for one in flying:
        if one.done:
            assert_problem(one.result(), "in-progress")
    gate.release()
    first, = [answer for answer in (one.result() for one in flying) if kind_of(answer) is None]
    assert first.status == 201 and not first.replayed
    retries = [one.result() for one in
               [Background(pair.settle, key, number) for number in range(PARALLEL)]]
    assert {answer.body for answer, _ in retries} == {first.body}
    assert all(answer.replayed for answer, _ in retries)
    assert pair.upstream.count(key) == 1


def test_a_gateway_killed_in_flight(place, make_scene, key):
    """The other one tells "unknown" under hold, and executes again under retry, after the lease."""
    pair = Pair(make_scene, place, guard=f"idempotency_lease {LEASE_S}s;", extra=EXTRA)
    retried = new_key()
    pair.first.held_post(key)
    pair.first.held_post(retried, target="/retry")
    assert_problem(pair.second.post(key), "in-progress")
    pair.upstream.answer(body=b"of the other")
    pair.first.nginx.kill_all()

    unknown = pair.second.post_until(key, lambda r: kind_of(r) != "in-progress", "the lease to end")
    assert_problem(unknown, "outcome-unknown")
    again = pair.second.post_until(retried, lambda r: kind_of(r) is None, "the take-over",
                                   target="/retry")
    assert (again.status, again.body, again.replayed) == (201, b"of the other", False)
    attempts = [request for request in pair.upstream.requests if request.key == retried]
    assert [request.get("Idempotency-Attempt") for request in attempts] == ["1", "2"]
    fences = [int(request.get("Idempotency-Fence")) for request in attempts]
    assert fences[0] < fences[1]

    pair.first.nginx.start()
    pair.upstream.release_all()
    assert_problem(pair.first.post(key), "outcome-unknown")
    replay = pair.first.post(retried, target="/retry")
    assert replay.replayed and replay.body == again.body
    assert pair.upstream.count(key) == 1 and pair.upstream.count(retried) == 2


def ways_to_lose():
    return [(name, way) for name in PLACES
            for way in (("hangs",) if name == "lmdb" else ("hangs", "gone"))]


@pytest.mark.parametrize("place, way", ways_to_lose(), indirect=["place"])
def test_store_lost_after_the_upstream_answered(place, way, make_scene, key):
    """The answer is delivered, and marked; recording goes on; a retry is never executed."""
    pair = Pair(make_scene, place, guard="idempotency_lease 60s;")
    waiting, gate = pair.first.held_post(key, {"body": b"paid"})
    with place.lost(way, pair.first):
        gate.release()
        first = waiting.result()
        assert (first.status, first.body) == (201, b"paid")
        assert first.get("Idempotency-Recorded") == "false"
        assert_problem(pair.second.post(key), "store-unavailable")
    again, _ = pair.settle(key, begin=1)
    assert again.replayed and again.body == b"paid" and not again.all("Idempotency-Recorded")
    pair.assert_replayed({key: first})
    assert pair.upstream.count(key) == 1


@pytest.mark.parametrize("place", PLACES[1:], indirect=True)
def test_store_restarted_under_load(place, make_scene):
    """kill -9, and started again on its data, twice: nothing is executed twice, no answer is lost,
    and nobody is left without one."""
    pair = Pair(make_scene, place, guard=f"idempotency_lease {LEASE_S}s;")
    load = pair.load()
    for _ in range(2):
        load.wait_more(20)
        with place.lost("gone", None):
            load.wait_disturbed()
    load.wait_more(20)
    load.stop()
    assert {answer.status for answer in load.got.values()} == {201}
    pair.assert_executed_once(load.got)
    pair.assert_replayed(load.some())


@pytest.mark.parametrize("place", ["lmdb", "postgres", "cluster"], indirect=True)
def test_gateways_killed_in_turn_under_load(place, make_scene):
    """What a killed gateway had sent is unknown; nothing is executed twice under hold."""
    pair = Pair(make_scene, place, guard=f"idempotency_lease {LEASE_S}s;")
    load = pair.load(ended=lambda r: r.status == 201 or kind_of(r) == "outcome-unknown")
    for scene in pair.scenes:
        load.wait_more(20)
        scene.nginx.kill_all()
        scene.nginx.start()
    load.wait_more(20)
    load.stop()
    assert load.before, "nobody was disturbed"
    assert max(pair.upstream.counts().values()) == 1
    pair.assert_replayed({key: r for key, r in load.some().items() if r.status == 201})
