"""idem store copy between embedded stores: what moves, what stands, and what is told."""

import json
import os
import subprocess

import pytest

from test_cli_support import (FAILURE, IDEM, OK, REFUSED, USAGE, Store, everything, good, idem,
                              own_directory, refused)
from waiting import wait_until

ANSWER = {"status": 201, "headers": [["Content-Type", "text/plain"], ["Link", "a"], ["Link", "b"]],
          "body_hex": "00ff0a"}


@pytest.fixture(name="place")
def _place():
    with own_directory() as path:
        yield path


@pytest.fixture(name="source")
def _source(place):
    made = Store(place / "source")
    made.complete("done", ANSWER, scope="tenant-1", method="POST", path="/pay?x=1")
    made.complete("empty", {"status": 204})
    made.complete("never", {"status": 200, "ttl_ms": 3600000}, scope="t")
    made.unknown("lost", method="POST", path="/pay")
    made.failed("refused")
    made.claim("running")
    made.claim("job", kind=5)
    return made


@pytest.fixture(name="target")
def _target(place):
    return Store(place / "target")


def copy(source, target, *words):
    """The counts; the words on standard error are the caller's to look at."""
    ran = idem("store", "copy", source.url, target.url, "--json", *words)
    assert ran.status == OK, ran.err
    return ran.json()


def complete_many(store, count):
    """Records with answers that fill a store."""
    store.apply(*({"op": op, "key": f"big-{number}", "body": "x" * 60_000}
                  for number in range(count) for op in ("claim", "complete")))


def test_everything_is_moved_as_it_is(source, target):
    counts = copy(source, target)
    assert counts["found"] == counts["copied"] == 7 and counts["whole"]
    assert counts["already_there"] == counts["changed"] == counts["damaged"] == 0
    assert everything(target.url) == everything(source.url)
    body = good("show", "--key", "done", "--scope", "tenant-1", "--body", "--store", target.url)
    assert body.raw == b"\x00\xff\n"


def test_again_changes_nothing(source, target):
    copy(source, target)
    before = everything(target.url)
    counts = copy(source, target)
    assert counts["copied"] == 0 and counts["already_there"] == 7
    assert everything(target.url) == before


def test_requests_that_run_are_told(source, target):
    ran = idem("store", "copy", source.url, target.url)
    assert ran.status == OK and "(2)" in ran.err and "copy once more" in ran.err
    assert "7  copied" in ran.out


def test_what_the_source_did_since_is_moved(source, target):
    """Above all what failed, was copied, and was then executed: it must not execute once more."""
    copy(source, target)
    assert source.apply({"op": "claim", "key": "refused", "owner": 2}) == ["acquired"]
    assert source.apply({"op": "complete", "key": "refused", "owner": 2, "status": 202}) == ["ok"]
    assert source.apply({"op": "complete", "key": "running", "status": 203}) == ["ok"]
    good("resolve", "--key", "lost", "--completed", "--status", "299", "--why", "seen",
         "--store", source.url)
    source.complete("new", {"status": 200})
    counts = copy(source, target)
    assert (counts["copied"], counts["already_there"], counts["changed"]) == (4, 4, 0)
    assert everything(target.url) == everything(source.url)
    assert target.apply({"op": "claim", "key": "refused", "owner": 3}) == ["completed"]


def test_what_the_target_did_since_stands(source, target):
    copy(source, target)
    assert target.apply({"op": "claim", "key": "refused", "owner": 9}) == ["acquired"]
    assert target.apply({"op": "complete", "key": "refused", "owner": 9, "status": 277}) == ["ok"]
    ran = idem("store", "copy", source.url, target.url)
    assert ran.status == OK and "1  newer at the target, left" in ran.out
    assert target.show("refused")["answer"]["status"] == 277


def test_the_trail_stays_and_the_resolution_moves(source, target):
    good("resolve", "--key", "lost", "--failed", "--why", "looked", "--who", "ann",
         "--store", source.url)
    copy(source, target)
    assert target.show("lost")["resolution"]["who"] == "ann"
    assert good("list", "--audit", "--json", "--store", target.url).json()["audit"] == []


def test_a_target_with_records_of_its_own_is_refused(source, target):
    target.complete("own", ANSWER)
    before = everything(target.url)
    for words in ([], ["--dry-run"]):
        ran = refused(REFUSED, "store", "copy", source.url, target.url, *words)
        assert "another salt" in ran.err and "Name a target that is empty" in ran.err
    assert everything(target.url) == before
    good("forget", "--key", "own", "--why", "w", "--store", target.url)
    assert copy(source, target)["copied"] == 7


def test_a_dry_run_puts_nothing(source, target, place):
    counts = copy(source, target, "--dry-run")
    assert counts["dry_run"] and counts["copied"] == 7
    assert sorted(os.listdir(place)) == ["source"], "not even the directory"
    copy(source, target)
    source.complete("new", {"status": 200})
    counts = copy(source, target, "--dry-run")
    assert (counts["copied"], counts["already_there"]) == (1, 7)
    assert len(everything(target.url)) == 7


def test_a_target_without_room(source, place):
    complete_many(source, 40)
    small = Store(place / "small")
    small.url = f"lmdb:{small.directory}?size=1m&reserve=128k"
    ran = idem("store", "copy", source.url, small.url, "--json")
    assert ran.status == FAILURE and "no room" in ran.err and "run this again" in ran.err
    counts = json.loads(ran.out)
    assert not counts["whole"] and counts["copied"] > 0
    small.url = f"lmdb:{small.directory}?size=64m"
    again = copy(source, small)
    assert again["copied"] + counts["copied"] >= 47
    assert everything(small.url) == everything(source.url), "a copy is whole or not made"


def damage(store, body):
    """Turns one byte of a kept body over: the record's checksum no longer fits."""
    path = os.path.join(store.directory, "data.mdb")
    with open(path, "r+b") as file:
        data = file.read()
        at = data.find(body)
        assert at >= 0
        while at >= 0:
            file.seek(at)
            file.write(bytes([body[0] ^ 1]))
            at = data.find(body, at + 1)


def test_damaged_records_are_counted_and_fail(source, target):
    source.complete("broken", {"status": 200, "body": "to-be-damaged-" * 10})
    damage(source, b"to-be-damaged-" * 10)
    ran = idem("store", "copy", source.url, target.url, "--json")
    assert ran.status == FAILURE and "nothing protects their keys" in ran.err
    ident = source.refused(FAILURE, "list", "--json").json()["damaged"]
    assert ident == ran.json()["damaged_from"] and ident[0][:16] in ran.err
    counts = ran.json()
    assert counts["damaged"] == 1 and counts["copied"] == 7


def test_killed_and_repeated(source, target):
    complete_many(source, 64)
    target.url += "&sync=always"
    for _ in range(3):
        running = subprocess.Popen([IDEM, "store", "copy", source.url, target.url],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        path = os.path.join(target.directory, "data.mdb")
        size = os.path.getsize(path) if os.path.exists(path) else 0
        wait_until(lambda: running.poll() is not None
                   or (os.path.exists(path) and os.path.getsize(path) > size), "something copied")
        running.kill()
        running.wait()
    copy(source, target)
    assert everything(target.url) == everything(source.url)


@pytest.mark.parametrize("words", [[], ["memory:"], ["memory:", "memory:", "memory:"]])
def test_two_stores_are_named(words):
    refused(USAGE, "store", "copy", *words)


def test_one_store_is_not_copied_to_itself(source, place):
    (place / "url").write_text(source.url + "\n")
    for name in (source.url, f"@{place}/url"):
        assert "the same store" in refused(USAGE, "store", "copy", source.url, name).err


# ---- the URL in a file

def test_a_url_in_a_file(source, place):
    file = place / "url"
    file.write_text(f"  {source.url}  \nmore\n")
    assert len(good("list", "--json", "--store", f"@{file}").json()["records"]) == 7
    assert len(good("list", "--json", env={"IDEM_STORE": f"@{file}"}).json()["records"]) == 7


@pytest.mark.parametrize("end", ["\n", "\r\n", "", " \t\r\n", "\n\n#"])
def test_a_url_in_a_file_is_the_whole_line(place, end):
    """Blanks in it too, so that it means the same as on a command line."""
    store = Store(place / "a  b\tc")
    store.claim("k")
    (place / "url").write_bytes(f" {store.url}{end}".encode())
    assert len(good("list", "--json", "--store", f"@{place}/url").json()["records"]) == 1
    for url in ("postgresql://u:a b@127.0.0.1:1/d?timeout=10ms", "lmdb:/nowhere/a b"):
        (place / "url").write_bytes(f"\t{url}{end}".encode())
        told = refused(FAILURE, "list", "--store", f"@{place}/url").err
        # But for the hint, which names the file.
        assert told.splitlines()[0] == refused(FAILURE, "list", "--store", url).err.splitlines()[0]


@pytest.mark.parametrize("content", [None, "", "\n", " \n", "lmdb:/" + "x" * 3000,
                                     "lmdb:/x" + " " * 3000 + "y", " " * 3000 + "lmdb:/x"])
def test_files_without_a_url(place, content):
    file = place / "url"
    if content is not None:
        file.write_text(content)
    ran = refused(USAGE, "list", "--store", f"@{file}")
    assert str(file) in ran.err


def test_passwords_are_not_printed(place):
    """By no command, however wrong the URL is."""
    for url in ("redis://u:hush@127.0.0.1:1/0?timeout=10ms", "postgresql://u:hush/x@127.0.0.1/d",
                "redis:/u:hush@h", "nosuch://u:hush@h"):
        for words in (["list"], ["store", "check"], ["migrate"], ["sweep"],
                      ["store", "copy", "memory:"],
                      ["gateway", "--listen", "127.0.0.1:1", "--upstream", "http://127.0.0.1:1",
                       "--print-conf"]):
            named = ["--store", url] if words[0] in ("list", "sweep", "gateway") else [url]
            ran = idem(*words, *named)
            assert "hush" not in ran.out + ran.err, (words, ran.out, ran.err)
