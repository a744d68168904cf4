"""The store in trouble: fail closed with a sentence, verdicts still get in, nothing unguarded."""

import os
import shutil
import stat

import pytest
import trouble
from problem import assert_problem, kind_of
from scene import Background, new_key
from waiting import hold_true_for, wait_until

BIG = b"v" * 60_000


@pytest.fixture
def make_disk():
    made = []

    def make(size):
        disk = trouble.SmallDisk(size)
        made.append(disk)
        return disk

    yield make
    for disk in made:
        disk.unmount()


@pytest.fixture(scope="session")
def lock_holder_program(tmp_path_factory):
    return trouble.build_lock_holder(str(tmp_path_factory.mktemp("holder")))


@pytest.fixture
def hold_lock(lock_holder_program):
    made = []

    def hold(scene):
        made.append(trouble.LockHolder(lock_holder_program, scene.store_directory))
        return made[-1]

    yield hold
    for holder in made:
        holder.release()


def assert_closed(scene, key=None, kind="store-unavailable"):
    """A guarded request is refused, and nothing reaches the upstream."""
    before = scene.upstream.count()
    assert_problem(scene.post(key or new_key()), kind)
    assert scene.upstream.count() == before


def back_to_work(scene):
    """The store works again: the gateway notices without a restart."""
    key = new_key()
    first = scene.post_until(key, lambda r: r.status == 201, "the store to work again")
    again = scene.post(key)
    assert again.replayed and again.body == first.body


def refused_or_closed(scene, hint):
    """nginx -t says what is wrong, or the gateway runs and refuses guarded requests."""
    code, output = scene.nginx.test()
    if code != 0:
        assert "[emerg]" in output and hint in output, output
        return
    scene.nginx.start()
    assert_closed(scene)
    wait_until(lambda: hint in scene.nginx.log(), "the log to say what is wrong")


# ---- the directory

def test_store_directory_is_made_and_belongs_to_the_worker(make_scene, key):
    scene = make_scene()
    assert scene.post(key).status == 201
    mode = os.stat(scene.store_directory)
    assert stat.S_IMODE(mode.st_mode) & 0o077 == 0, "records are nobody else's business"
    if os.geteuid() == 0:
        assert mode.st_uid != 0
    for name in os.listdir(scene.store_directory):
        file = os.stat(os.path.join(scene.store_directory, name))
        assert file.st_uid == mode.st_uid, name
        assert stat.S_IMODE(file.st_mode) & 0o077 == 0, name


def test_parent_of_the_store_directory_missing(make_scene):
    scene = make_scene(store="lmdb:/nonexistent/idem/store?size=64m", start=False)
    refused_or_closed(scene, "/nonexistent/idem")


def test_store_directory_is_a_file(make_scene):
    scene = make_scene(start=False)
    with open(scene.store_directory, "w", encoding="ascii") as file:
        file.write("not a directory")
    refused_or_closed(scene, scene.store_directory)


def test_store_directory_on_a_read_only_file_system(make_scene, make_disk):
    disk = make_disk("4m")
    os.mkdir(disk.path("store"))
    disk.make_read_only()
    scene = make_scene(store=f"lmdb:{disk.path('store')}?size=1m", start=False)
    refused_or_closed(scene, disk.path("store"))


def test_store_directory_unwritable_by_the_worker(make_scene):
    """The worker is unprivileged; a directory that it may not write is told, and closed."""
    scene = make_scene()
    scene.nginx.quit()
    for entry in os.scandir(scene.store_directory):
        os.unlink(entry.path)
    parent = scene.nginx.path("locked")
    os.mkdir(parent)
    shutil.move(scene.store_directory, os.path.join(parent, "store"))
    scene.store_url = f"lmdb:{parent}/store?size=64m"
    scene.configure()
    os.chmod(parent, 0)
    refused_or_closed(scene, f"{parent}/store")
    os.chmod(parent, 0o755)
    if scene.nginx.process.poll() is None:
        back_to_work(scene)


def test_store_files_of_another_user_are_told(make_scene):
    """Files made by root, say by a command line used with sudo."""
    if os.geteuid() != 0:
        pytest.skip("only root can make files of another user")
    scene = make_scene()
    scene.nginx.quit()
    for entry in os.scandir(scene.store_directory):
        os.chown(entry.path, 0, 0)
    key = new_key()
    code, _ = scene.nginx.test()
    if code == 0:
        scene.nginx.start()
        response = scene.post(key)
        if response.status != 201:
            assert_problem(response, "store-unavailable")
            assert scene.upstream.count() == 0
            wait_until(lambda: "ermission" in scene.nginx.log(), "the log to say why")


def test_store_directory_removed_under_a_running_gateway(make_scene, key):
    """What was acknowledged is still answered, or refused; it is never executed again."""
    scene = make_scene()
    first = scene.post(key)
    shutil.rmtree(scene.store_directory)
    again = scene.post(key)
    assert again.status == 503 or again.body == first.body
    assert scene.upstream.count(key) == 1


# ---- full

def fill_store(scene, limit=2000):
    """Executes until the store refuses; returns the keys and answers that were recorded."""
    kept = {}
    for _ in range(limit):
        key = new_key()
        response = scene.post(key)
        if response.status != 201:
            assert_problem(response, "store-full")
            assert scene.upstream.count(key) == 0
            return kept
        kept[key] = response.body
    raise AssertionError(f"the store took {limit} answers and is not full")


def assert_kept(scene, kept):
    """Every recorded operation is still known: replayed, or its answer was not kept; never run."""
    replayed = 0
    before = scene.upstream.counts()
    for key, body in kept.items():
        again = scene.post(key)
        if kind_of(again) == "answer-not-kept":
            continue
        assert again.replayed and again.body == body
        replayed += 1
    assert scene.upstream.counts() == before
    return replayed


def test_map_full_refuses_claims_lets_verdicts_in_and_evicts_nothing(make_scene):
    scene = make_scene(store_options="size=2m", guard="idempotency_ttl 1h;")
    held_key = new_key()
    waiting, gate = scene.held_post(held_key, {"body": b"small"})
    scene.upstream.answer(body=BIG)
    kept = fill_store(scene)
    assert kept
    gate.release()
    first = waiting.result()
    assert (first.status, first.body) == (201, b"small")
    again = scene.post(held_key)
    assert again.replayed or kind_of(again) == "answer-not-kept", again
    assert scene.upstream.count(held_key) == 1
    assert assert_kept(scene, kept) > 0
    for _ in range(5):
        assert_closed(scene, kind="store-full")


def test_many_verdicts_get_in_while_the_map_is_full(make_scene):
    scene = make_scene(store_options="size=2m")
    gate = scene.upstream.gate()
    scene.upstream.answer(hold=gate, body=b"y" * 3000)
    keys = [new_key() for _ in range(30)]
    flying = [Background(scene.post, key) for key in keys]
    scene.upstream.wait_count(len(keys))
    scene.upstream.answer(body=BIG)
    fill_store(scene)
    gate.release()
    assert all(one.result().status == 201 for one in flying)
    for key in keys:
        again = scene.post(key)
        assert again.replayed or kind_of(again) == "answer-not-kept", again
    assert all(scene.upstream.count(key) == 1 for key in keys)


def test_map_full_then_expired_records_make_room(make_scene):
    scene = make_scene(store_options="size=2m",
                       guard="idempotency_ttl 2s; idempotency_lease 300ms;")
    scene.upstream.answer(body=BIG)
    fill_store(scene)
    back_to_work(scene)


def test_map_grown_by_configuration_takes_more(make_scene):
    scene = make_scene(store_options="size=2m")
    scene.upstream.answer(body=BIG)
    kept = fill_store(scene)
    scene.nginx.quit()
    scene.store_url = f"lmdb:{scene.store_directory}?size=64m"
    scene.configure()
    scene.nginx.start()
    back_to_work(scene)
    assert assert_kept(scene, kept) > 0


def test_disk_full_fails_closed_and_recovers(make_scene, make_disk):
    disk = make_disk("8m")
    scene = make_scene(store=f"lmdb:{disk.path('store')}?size=1g&reserve=1m")
    scene.upstream.answer(body=BIG)
    kept = {}
    for _ in range(3):
        key = new_key()
        kept[key] = scene.post(key).body
    disk.fill()
    refused = None
    for _ in range(200):  # pages that the store has already may still be used
        key = new_key()
        response = scene.post(key)
        if response.status == 201:
            kept[key] = response.body
            continue
        refused = response
        break
    assert refused is not None, "a full disk was never noticed"
    assert refused.status == 503 and kind_of(refused) in ("store-full", "store-unavailable")
    assert scene.upstream.count(key) == 0
    for known, body in kept.items():
        again = scene.post(known)
        assert again.replayed and again.body == body or again.status in (409, 503), again
    assert set(scene.upstream.counts().values()) == {1}
    disk.free()
    back_to_work(scene)
    assert assert_kept(scene, kept) > 0


def test_disk_full_when_the_answer_comes_delivers_it_and_never_runs_again(make_scene, make_disk):
    disk = make_disk("8m")
    scene = make_scene(store=f"lmdb:{disk.path('store')}?size=1g&reserve=1m",
                       guard="idempotency_body_max 4m;")
    key = new_key()
    body = b"w" * 2_000_000
    waiting, gate = scene.held_post(key, {"body": body})
    disk.fill()
    gate.release()
    first = waiting.result()
    assert (first.status, first.body) == (201, body)
    disk.free()
    again = scene.post_until(
        key, lambda r: kind_of(r) not in ("in-progress", "store-unavailable", "store-full"),
        "the verdict to be recorded")
    assert (again.replayed and again.body == body) or kind_of(again) == "answer-not-kept"
    assert scene.upstream.count(key) == 1


# ---- damaged

def corrupt(path, start, size):
    with open(path, "r+b") as file:
        file.seek(start)
        file.write(os.urandom(size))


@pytest.mark.parametrize("what", ["garbage", "meta pages", "cut", "emptied", "removed"])
def test_corrupted_file_is_told_and_nothing_is_forwarded(make_scene, what):
    scene = make_scene()
    keys = [new_key() for _ in range(30)]
    for key in keys:
        assert scene.post(key).status == 201
    scene.nginx.quit()
    data = os.path.join(scene.store_directory, "data.mdb")
    size = os.path.getsize(data)
    if what == "garbage":
        corrupt(data, 0, size)
    elif what == "meta pages":
        corrupt(data, 0, 8192)
    elif what == "removed":
        os.unlink(data)  # lock.mdb tells that there was a store
    else:
        os.truncate(data, 8192 if what == "cut" else 0)
    refused_or_closed(scene, scene.store_directory)


def test_damaged_record_is_never_a_wrong_answer(make_scene, key):
    scene = make_scene()
    body = b"the exact receipt " * 20
    scene.upstream.answer(body=body)
    assert scene.post(key).body == body
    scene.nginx.quit()
    data = os.path.join(scene.store_directory, "data.mdb")
    with open(data, "r+b") as file:
        content = file.read()
        spots = [at for at in range(len(content)) if content.startswith(b"exact", at)]
        assert spots, "the record is not in the file as it was sent"
        for at in spots:
            file.seek(at)
            file.write(b"wrong")
    scene.nginx.expect_log(r"\[crit\].*damaged.*[0-9a-f]{64}|\[crit\].*[0-9a-f]{64}.*damaged")
    scene.nginx.start()
    again = scene.post(key)
    assert_problem(again, "store-unavailable")
    assert scene.upstream.count(key) == 1
    assert scene.post(new_key()).status == 201, "other keys work"
    wait_until(lambda: "damaged" in scene.nginx.log(), "the log to tell of the damage")


# ---- the store hangs

def test_hanging_store_refuses_in_time_and_recovers(make_scene, hold_lock):
    scene = make_scene()
    known = new_key()
    first = scene.post(known)
    holder = hold_lock(scene)
    again = scene.post(known)
    assert again.status == 503 or again.body == first.body
    assert_closed(scene)
    holder.release()
    back_to_work(scene)
    assert scene.post(known).replayed


def test_claim_that_timed_out_is_undone_and_the_key_is_usable(make_scene, hold_lock, key):
    """A claim whose result is not known is never forwarded; its fail is repeated (design 5.2)."""
    scene = make_scene(guard="idempotency_lease 1h;")
    holder = hold_lock(scene)
    assert_problem(scene.post(key), "store-unavailable")
    holder.release()
    first = scene.post_until(key, lambda r: r.status == 201, "the key to be free")
    assert not first.replayed and scene.upstream.count(key) == 1


def test_e61_store_lost_after_the_upstream_answered(make_scene, hold_lock, key):
    """The answer is delivered and told as unrecorded; recording is retried; never run again."""
    scene = make_scene(guard="idempotency_lease 1h;")
    waiting, gate = scene.held_post(key, {"body": b"paid"})
    holder = hold_lock(scene)
    gate.release()
    first = waiting.result()
    assert (first.status, first.body) == (201, b"paid")
    assert first.get("Idempotency-Recorded") == "false"
    assert_closed(scene, key)
    holder.release()
    again = scene.post_until(
        key, lambda r: kind_of(r) not in ("in-progress", "store-unavailable"), "the record")
    assert again.replayed and again.body == b"paid"
    assert not again.all("Idempotency-Recorded")
    assert scene.upstream.count(key) == 1


def test_lost_store_and_client_gone_is_recorded_later(make_scene, hold_lock, key):
    scene = make_scene(guard="idempotency_lease 1h;")
    gate = scene.upstream.gate()
    scene.upstream.answer(hold=gate, body=b"paid")
    client = scene.client()
    client.send(b"POST /pay HTTP/1.1\r\nHost: idem.test\r\nContent-Length: 12\r\n"
                b"Idempotency-Key: " + key.encode() + b"\r\n\r\n" + b'{"amount":1}')
    scene.upstream.wait_count(1)
    holder = hold_lock(scene)
    client.reset()
    gate.release()
    wait_until(scene.upstream.idle, "the gateway to have taken the answer")
    holder.release()
    again = scene.post_until(
        key, lambda r: kind_of(r) not in ("in-progress", "store-unavailable"), "the record")
    assert again.replayed and again.body == b"paid"


def test_drained_stop_waits_for_a_verdict_that_nobody_waits_for(make_scene, hold_lock, key):
    """A rolling restart makes no unknowns, not even while the store hangs for a while."""
    scene = make_scene(guard="idempotency_lease 1h;")
    waiting, gate = scene.held_post(key, {"body": b"paid"})
    holder = hold_lock(scene)
    gate.release()
    assert waiting.result().get("Idempotency-Recorded") == "false"
    scene.nginx.signal_quit()
    hold_true_for(lambda: scene.nginx.process.poll() is None, 3, "the worker waits")
    holder.release()
    assert scene.nginx.wait_ended() == 0
    scene.nginx.start()
    again = scene.post(key)
    assert again.replayed and again.body == b"paid"
    assert scene.upstream.count(key) == 1


# ---- fail open

def test_fail_open_passes_unguarded_and_says_so(make_scene, hold_lock, key):
    scene = make_scene(guard="idempotency_fail open;")
    holder = hold_lock(scene)
    response = scene.post(key)
    assert response.status == 201
    assert response.get("Idempotency-Bypassed") == "true"
    assert scene.outcomes(1) == ["bypassed"]
    assert scene.upstream.last().get("Idempotency-Attempt") is None
    assert "[error]" in scene.nginx.log() or "[warn]" in scene.nginx.log()
    holder.release()
    key = new_key()
    response = scene.post_until(key, lambda r: r.all("Idempotency-Bypassed") == [],
                                "the guard to work again")
    assert response.status == 201 or response.replayed


def test_fail_open_still_refuses_bad_keys(make_scene, hold_lock):
    scene = make_scene(guard="idempotency_fail open; idempotency_key $http_idempotency_key "
                             "required;")
    hold_lock(scene)
    assert_problem(scene.post(), "key-missing")
    assert_problem(scene.post('"bad'), "key-malformed")
    assert scene.upstream.count() == 0


def test_fail_open_with_a_full_store_bypasses(make_scene):
    scene = make_scene(store_options="size=2m", guard="idempotency_fail open;")
    scene.upstream.answer(body=BIG)
    for _ in range(2000):
        response = scene.post(new_key())
        assert response.status == 201
        if response.all("Idempotency-Bypassed"):
            break
    assert response.get("Idempotency-Bypassed") == "true"


def test_upstream_cannot_fake_the_gateways_marks(scene, key):
    scene.upstream.answer(headers=[("Idempotency-Recorded", "false"),
                                   ("Idempotency-Bypassed", "true")])
    for _ in range(2):
        response = scene.post(key)
        assert not response.all("Idempotency-Recorded")
        assert not response.all("Idempotency-Bypassed")


def test_unguarded_routes_and_keyless_requests_work_without_a_store(make_scene, hold_lock):
    scene = make_scene(extra="location /open { {proxy} }")
    hold_lock(scene)
    assert scene.post(target="/open", key=new_key()).status == 201
    assert scene.post(target="/pay").status == 201
    assert scene.send("GET", "/pay", key=new_key(), body=None).status == 201
