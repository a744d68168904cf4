"""Everything at once, by a seed: faults of the upstream, clients that go, reloads, kills, restarts.

Checked are the guarantees of design 2 under `hold`: an execution follows only executions that are
known to have failed; every answer of a key is the same; every key reaches a definite verdict.
Set IDEM_SEED to the number that a failure prints to run the same choices again.
"""

import os
import random
import threading

import pytest
import rawhttp
from problem import kind_of
from scene import Background, new_key
from upstream import Answer
from waiting import wait_until

CLIENTS, KEYS_EACH = 6, 25
BODY_MAX = 16 * 1024
ENDS = {"final": 55, "failed": 20, "close": 7, "cut": 7, "504": 4, "declared": 7}
NOT_YET = ("in-progress", "store-unavailable", "upstream-unreachable")


class Chaos:
    def __init__(self, scene, seed):
        self.scene = scene
        self.seed = seed
        self.random = random.Random(seed)
        self.lock = threading.Lock()
        self.executions = {}  # key: list of how each execution ended, in order
        self.answers = {}     # key: set of (status, body) that are not refusals
        scene.upstream.script(self.answer)

    def choose(self, weights):
        return self.random.choices(list(weights), weights.values())[0]

    def answer(self, request):
        """The upstream's script: called under the upstream's lock."""
        end = self.choose(ENDS)
        self.executions.setdefault(request.key, []).append(end)
        body = b'{"execution":%d,"padding":"%s"}' % (
            request.number, b"p" * self.random.choice((0, 100, 20_000)))
        framing = self.random.choice(("length", "chunked"))
        if end == "close":
            return Answer(fault=self.random.choice(("close", "reset")))
        if end == "cut":
            return Answer(body=body, framing=framing, cut_after=len(body) // 2)
        if end == "declared":
            return Answer(status=503, headers=[("Idempotency-Outcome", "final")], body=body)
        status = {"final": 201, "failed": 503, "504": 504}[end]
        return Answer(status=status, body=body, framing=framing, pieces=2)

    def client(self, number):
        choices = random.Random(self.seed * 1000 + number)
        for _ in range(KEYS_EACH):
            key = new_key()
            if choices.random() < 0.2:
                self.hang_up(key, choices)
            wait_until(lambda k=key: self.attempt(k), f"a verdict on {key}, seed {self.seed}", 60)

    def hang_up(self, key, choices):
        try:
            client = rawhttp.Client(self.scene.port)
            client.send(rawhttp.build_request("POST", "/pay", [("Idempotency-Key", key)], b"b"))
            choices.choice((client.reset, client.hang_up))()
        except OSError:
            pass  # it was refused

    def attempt(self, key):
        """One request; true when no retry is due."""
        try:
            response = self.scene.post(key, body=b"b")
        except (OSError, rawhttp.ProtocolError):
            return False
        kind = kind_of(response)
        if kind is not None:
            return kind not in NOT_YET and kind != "upstream-unanswered"
        with self.lock:
            if response.status == 201 or b'"execution"' in response.body and response.replayed:
                self.answers.setdefault(key, set()).add((response.status, response.body))
        return response.status == 201 or response.replayed

    def check(self):
        for key, ends in self.executions.items():
            assert set(ends[:-1]) <= {"failed"}, f"seed {self.seed}: {key} was executed {ends}"
        for key, seen in self.answers.items():
            assert len(seen) == 1, f"seed {self.seed}: {key} got {len(seen)} different answers"
            again = self.scene.post(key, body=b"b")
            if len(next(iter(seen))[1]) > BODY_MAX:
                assert kind_of(again) == "answer-not-kept", (self.seed, key, again)
            else:
                assert again.replayed and (again.status, again.body) in seen, (self.seed, key)


def disturb(scene, how):
    if how == "reload":
        scene.nginx.reload()
    elif how == "kill":
        scene.nginx.kill_worker(scene.nginx.worker_pids()[0])
    elif how == "drained restart":
        scene.nginx.quit()
        scene.nginx.start()
    else:
        scene.nginx.kill_all()
        scene.nginx.start()


@pytest.mark.parametrize("harm", ["none", "gentle", "violent"])
def test_guarantees_hold_in_chaos(make_scene, harm):
    seed = int(os.environ.get("IDEM_SEED", random.randrange(1 << 30)))
    scene = make_scene(guard=f"idempotency_lease 1s; idempotency_body_max {BODY_MAX};", workers=2)
    chaos = Chaos(scene, seed)
    flying = [Background(chaos.client, number) for number in range(CLIENTS)]
    plan = {"none": [], "gentle": ["reload", "drained restart", "reload"],
            "violent": ["kill", "reload", "kill all", "kill"]}[harm]
    for number, how in enumerate(plan):
        goal = (number + 1) * 25
        wait_until(lambda g=goal: scene.upstream.count() >= g
                   or all(one.done for one in flying), f"execution {goal}, seed {seed}")
        disturb(scene, how)
    for one in flying:
        one.result(100)
    assert len(chaos.executions) > CLIENTS * KEYS_EACH // 2
    chaos.check()
