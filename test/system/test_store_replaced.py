"""A server's data are thrown away under running gateways: they go on with the new store, as one.

What must never be: one gateway goes on with what it knows of the old store, so that retries through
another are refused as if their payload were a different one, or are executed again.
"""

import time

import pytest
import server_stores
from pair import Pair, place_of
from problem import assert_problem, kind_of
from scene import Background, new_key
from waiting import wait_until

RECOVERY_S = 10  # gateways look again with pauses of up to about a second


@pytest.fixture(name="place", params=server_stores.KINDS)
def _place(request):
    made = place_of(request.param)
    yield made
    made.steady()


def test_emptied_under_two_gateways(place, make_scene, key):
    pair = Pair(make_scene, place)
    assert pair.first.post(key).status == 201
    assert pair.second.post(key).replayed
    place.kind.empty(place.store)
    begun = time.monotonic()
    first = pair.first.post_until(key, lambda r: kind_of(r) is None, "the new store to be opened")
    assert first.status == 201 and not first.replayed  # it is not known there any more
    again = pair.second.post_until(key, lambda r: kind_of(r) is None, "the other to open it too")
    assert time.monotonic() - begun < RECOVERY_S
    assert again.replayed and again.body == first.body
    assert pair.upstream.count(key) == 2
    for scene in pair.scenes:
        assert_problem(scene.post(key, body=b"another payload"), "key-reused")


def test_emptied_while_a_request_is_in_flight(place, make_scene, key):
    """Its client gets the answer; nothing of the old store is written into the new one."""
    pair = Pair(make_scene, place)
    background, gate = pair.first.held_post(key)
    place.kind.empty(place.store)
    gate.release()
    answer = background.result()
    assert answer.status == 201 and not answer.replayed
    fresh = new_key()
    made = pair.second.post_until(fresh, lambda r: kind_of(r) is None, "the new store")
    assert made.status == 201
    assert pair.first.post_until(fresh, lambda r: kind_of(r) is None, "the same one").replayed
    assert pair.upstream.count(fresh) == 1


def test_emptied_under_load_no_retry_is_refused_as_another_payload(place, make_scene):
    """Many keys, each sent again until it is answered, by either gateway in turn."""
    pair = Pair(make_scene, place)
    kinds = set()

    def insist(key):
        answers = []

        def attempt():
            answers.append(pair.scenes[len(answers) % 2].post(key))
            kinds.add(kind_of(answers[-1]))
            return kind_of(answers[-1]) is None
        wait_until(attempt, "an answer")
        return answers[-1].status

    flying = [Background(insist, new_key()) for _ in range(50)]
    wait_until(lambda: sum(one.done for one in flying) > 5, "some to be answered")
    place.kind.empty(place.store)
    flying += [Background(insist, new_key()) for _ in range(50)]
    assert {one.result() for one in flying} == {201}
    assert "key-reused" not in kinds
