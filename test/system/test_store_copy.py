"""Moving a gateway from one store to the next, all the way round: nothing may be lost or leak."""

import grp
import os
import pwd
import signal
import subprocess

import pytest
import server_stores
from nginx import WORKER_USER
from problem import assert_problem
from scene import new_key

from test_cli_support import IDEM, OK, REFUSED, everything, fill, good, idem, refused
from waiting import wait_until

ODD = bytes(range(256)) * 40
WAY = ("redis", "postgres", "mariadb")


@pytest.fixture(autouse=True)
def _steady():
    yield
    server_stores.steady()


def copy(source, target, *words):
    ran = idem("store", "copy", source, target, "--json", *words)
    assert ran.status == OK, (ran.out, ran.err)
    for secret in server_stores.SECRETS:
        assert secret not in ran.out + ran.err
    return ran.json()


class Journey:
    """A gateway that moves: what was answered before must be answered again, wherever it is."""

    def __init__(self, scene):
        self.scene = scene
        self.answered, self.refused, self.lost = {}, new_key(), new_key()

    def begin(self):
        scene = self.scene
        for status, body in ((200, ODD), (201, b""), (302, b"x" * 30_000), (404, b"no")):
            scene.upstream.answer(status=status, body=body,
                                  headers=[("X-One", "a"), ("X-One", "b"), ("ETag", '"t"')])
            key = new_key()
            self.answered[key] = scene.post(key, body=b"pay", headers=[("Authorization", "ann")])
        scene.upstream.answer(status=503)
        assert scene.post(self.refused, body=b"pay").status == 503
        scene.upstream.answer(fault="close")
        assert_problem(scene.post(self.lost, body=b"pay"), "upstream-unanswered")

    def move(self, url):
        """The gateway goes on with another store."""
        self.scene.nginx.quit()
        self.scene.store_url = url
        self.scene.configure()
        self.scene.nginx.start()

    def check(self):
        scene = self.scene
        executed = scene.upstream.count()
        for key, first in self.answered.items():
            again = scene.post(key, body=b"pay", headers=[("Authorization", "ann")])
            assert again.replayed and (again.status, again.body) == (first.status, first.body)
            assert again.all("X-One") == ["a", "b"] and again.get("ETag") == '"t"'
            other = scene.post(key, body=b"another", headers=[("Authorization", "ann")])
            assert_problem(other, "key-reused")
            other = scene.post(key, body=b"pay", headers=[("Authorization", "bob")])
            assert_problem(other, "other-caller")
        assert_problem(scene.post(self.lost, body=b"pay"), "outcome-unknown")
        assert scene.upstream.count() == executed, "nothing was executed"


def test_all_the_way_round(make_scene):
    """lmdb → redis → postgres → mariadb → lmdb, and the gateway works in each."""
    scene = make_scene()
    journey = Journey(scene)
    journey.begin()
    here, first = scene.store_url, None
    for kind in WAY:
        there = server_stores.get(kind).store().url()
        counts = copy(here, there)
        first = first or everything(here)
        assert counts["copied"] == counts["found"] == len(first)
        assert everything(there) == first, f"the records in {kind}"
        again = copy(here, there)
        assert (again["copied"], again["already_there"]) == (0, len(first))
        journey.move(there)
        journey.check()
        here = there
    back = scene.nginx.path("back")
    copy(here, f"lmdb:{back}?size=64m")
    if os.geteuid() == 0:
        for name in ("", "data.mdb", "lock.mdb"):
            os.chown(os.path.join(back, name), *worker_ids())
    assert everything(f"lmdb:{back}?size=64m") == first
    journey.move(f"lmdb:{back}?size=64m")
    journey.check()
    key = journey.refused
    scene.upstream.answer(status=200)
    assert scene.post(key, body=b"pay").status == 200, "what had failed may be executed"
    assert scene.upstream.count(key) == 2


def worker_ids():
    """The user of nginx's workers in these tests."""
    user, group = WORKER_USER.split()
    return pwd.getpwnam(user).pw_uid, grp.getgrnam(group).gr_gid


@pytest.fixture(name="source")
def _source(tmp_path):
    url = f"lmdb:{tmp_path}/source?size=64m"
    good("store", "check", url, "--create")
    return url


@pytest.mark.parametrize("kind", server_stores.KINDS)
def test_another_salt_is_refused(kind, source):
    fill(source, {"op": "claim", "key": "k"})
    target = server_stores.get(kind).store().url()
    fill(target, {"op": "claim", "key": "own"}, {"op": "complete", "key": "own", "body": "x"})
    before = everything(target)
    for words in ([], ["--dry-run"]):
        ran = refused(REFUSED, "store", "copy", source, target, *words)
        assert "salt" in ran.err and "Name a target that is empty" in ran.err
        for secret in server_stores.SECRETS:
            assert secret not in ran.err
    assert everything(target) == before
    good("forget", "--key", "own", "--why", "w", "--store", target)
    assert copy(source, target)["copied"] == 1


@pytest.mark.parametrize("kind", server_stores.KINDS)
def test_what_the_source_did_since_is_moved(kind, source):
    """Above all what failed, was copied, and was then executed: it must not execute once more."""
    target = server_stores.get(kind).store().url()
    for key in ("failed", "lost", "running"):
        fill(source, {"op": "claim", "key": key})
    fill(source, {"op": "fail", "key": "failed"}, {"op": "abandon", "key": "lost"})
    assert copy(source, target)["processing"] == 1
    fill(source, {"op": "claim", "key": "failed", "owner": 2},
         {"op": "complete", "key": "failed", "owner": 2, "status": 202},
         {"op": "complete", "key": "running", "status": 203})
    good("resolve", "--key", "lost", "--completed", "--why", "seen", "--store", source)
    counts = copy(source, target)
    assert (counts["copied"], counts["changed"]) == (3, 0)
    assert everything(target) == everything(source)
    assert fill(target, {"op": "claim", "key": "failed", "owner": 3}) == ["completed"]
    assert fill(target, {"op": "claim", "key": "new", "owner": 3},
                {"op": "complete", "key": "new", "owner": 3, "status": 299}) == ["acquired", "ok"]
    assert copy(source, target)["already_there"] == 3


@pytest.mark.parametrize("kind", server_stores.KINDS)
def test_killed_in_the_middle_and_repeated(kind, source):
    steps = []
    for number in range(200):
        steps += [{"op": "claim", "key": f"k-{number}"},
                  {"op": "complete", "key": f"k-{number}", "body": "y" * 5_000}]
    fill(source, *steps)
    target = server_stores.get(kind).store().url()
    running = subprocess.Popen([IDEM, "store", "copy", source, target],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def some():
        listed = idem("list", "--json", "--store", target, "--limit", "1")
        # Refused at the moment in which the target takes over the salt.
        return running.poll() is not None or listed.status == OK and listed.json()["records"]

    wait_until(some, "something to be copied")
    running.send_signal(signal.SIGKILL)
    running.wait()
    counts = copy(source, target)
    assert counts["found"] == 200 and counts["changed"] == 0
    again = copy(source, target)
    assert (again["copied"], again["already_there"]) == (0, 200)


def odd_records():
    """Whatever a store may have to keep."""
    bytes_hex = bytes(range(256)).hex()
    answers = [{"key_hex": bytes_hex, "scope_hex": "00ff00", "status": 200, "body_hex": bytes_hex},
               {"key": "", "scope": "empty key", "status": 204},
               {"key_hex": "20" * 1024, "scope_hex": "c3" * 1024, "status": 999, "body": " "},
               {"key": "for ever", "ttl_ms": -1, "status": 100, "headers": [["A", ""], ["A", "b"]]},
               {"key": "tombstone", "tombstone": 6, "status": 201},
               {"key": "big", "status": 200, "body": "z" * 1_500_000}]
    steps = [{"op": "fail", "key": "never seen"}]  # what a claim that was lost leaves behind
    for answer in answers:
        named = {name: answer[name] for name in answer if name[:3] in ("key", "sco")}
        steps += [{"op": "claim", "path_hex": "2f00ff", "principal": True, **named},
                  {"op": "complete", **answer}]
    return steps


@pytest.mark.parametrize("kind", server_stores.KINDS)
def test_odd_records_come_back_as_they_were(kind, source):
    fill(source, *odd_records())
    there = server_stores.get(kind).store().url()
    assert copy(source, there)["copied"] == 7
    back = source.replace("/source?", "/back?")
    assert copy(there, back)["copied"] == 7
    assert everything(back) == everything(there) == everything(source)


def test_through_sentinel_and_cluster(source):
    """Records are spread over masters, and found again."""
    steps = []
    for number in range(30):
        steps += [{"op": "claim", "key": f"k-{number}"},
                  {"op": "complete", "key": f"k-{number}", "body": f"answer {number}"}]
    fill(source, *steps, {"op": "claim", "key": "lost"}, {"op": "abandon", "key": "lost"})
    first, here = everything(source), source
    for kind in ("sentinel", "cluster"):
        there = server_stores.get(kind).store(migrate=False).url()
        assert copy(here, there)["copied"] == 31
        assert copy(here, there)["already_there"] == 31
        here = there
    back = source.replace("/source?", "/back?")
    assert copy(here, back)["copied"] == 31 and everything(back) == first


def test_a_target_that_goes_away(source):
    kind = server_stores.get("redis")
    fill(source, {"op": "claim", "key": "k"})
    target = kind.store().url(timeout="1s")
    kind.server.end()
    ran = idem("store", "copy", source, target)
    assert ran.status == 1 and "127.0.0.1" in ran.err
