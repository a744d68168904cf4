"""The commands that look into a store and settle what is in it."""

import base64
import datetime
import json
import os
import pwd
import re

import pytest

from test_cli_support import (ABSENT, FAILURE, OK, REFUSED, USAGE, Store, good, idem, own_directory,
                              refused)
from waiting import wait_until

SELFTEST = 7  # the kind of what a store proves itself with


@pytest.fixture(name="place")
def _place():
    with own_directory() as path:
        yield path


ANSWER = {"status": 201, "headers": [["Content-Type", "application/json"], ["Link", "a"],
                                     ["Link", "b"]], "body": '{"id":1}'}


@pytest.fixture
def store(place):
    made = Store(place / "store")
    made.apply()
    return made


# ---- opening

@pytest.mark.parametrize("words", [["list"], ["show", "abcdef"], ["sweep"], ["store", "check"],
                                   ["resolve", "abcdef", "--failed", "--why", "w"],
                                   ["forget", "abcdef", "--why", "w"]])
def test_no_command_makes_a_store_that_is_not_there(place, words):
    missing = place / "no" / "store"
    ran = refused(FAILURE, *words, env={"IDEM_STORE": f"lmdb:{missing}"})
    assert f"there is no store in {missing}" in ran.err and "--store URL" in ran.err
    empty = place / "empty"
    empty.mkdir()
    ran = refused(FAILURE, *words, "--store", f"lmdb:{empty}")
    assert "a directory without a store" in ran.err
    assert os.listdir(place) == ["empty"] and os.listdir(empty) == []


def test_a_file_is_no_store(place):
    (place / "file").write_text("x")
    assert "is no directory" in refused(FAILURE, "list", "--store", f"lmdb:{place}/file").err


@pytest.mark.parametrize("words", [["list"], ["show", "abcdef"], ["sweep"], ["store", "check"],
                                   ["resolve", "abcdef", "--failed", "--why", "w"],
                                   ["forget", "abcdef", "--why", "w"]])
@pytest.mark.parametrize("url", ["lmdb", "lmdb:", "nosuch:place", "lmdb:/x?size=1q",
                                 "lmdb:/" + "x" * 2048])
def test_bad_urls(url, words, place):
    refused(USAGE, *words, "--store", url)
    refused(USAGE, *words, env={"IDEM_STORE": url})
    assert os.listdir(place) == []


def test_the_store_is_found_by_option_then_environment_then_state_directory(place, store):
    store.unknown("by-environment")
    assert store.keys() == ["by-environment"]
    other = Store(place / "other")
    other.unknown("by-option")
    ran = store.good("list", "--json", "--store", other.url)
    assert [record["key"] for record in ran.json()["records"]] == ["by-option"]
    ran = idem("list", env={"XDG_STATE_HOME": str(place / "xdg")}, user=another_user())
    assert ran.status == FAILURE and f"{place}/xdg/idem/store" in ran.err


def another_user():
    """A user that is not root, for rules that do not bind root; None keeps the one we are."""
    return "nobody" if os.geteuid() == 0 else None


def test_a_store_of_another_user_is_refused_with_its_name(place, store):
    if os.geteuid() == 0:
        os.chmod(store.directory, 0o755)
        ran = idem("list", env=store.env, user="nobody")
        assert ran.status == FAILURE
        assert "belongs to user root" in ran.err and "sudo -u root" in ran.err
        os.chmod(store.directory, 0o700)
        ran = idem("list", env=store.env, user="nobody")
        assert ran.status == FAILURE and "user nobody may not" in ran.err
    else:
        os.chmod(os.path.join(store.directory, "data.mdb"), 0o400)
        ran = idem("list", env=store.env)
        assert ran.status == FAILURE and "belongs to user" in ran.err


def test_root_leaves_a_store_to_its_owner(place, store):
    store.unknown("k")
    lock = os.path.join(store.directory, "lock.mdb")
    owner = os.stat(store.directory).st_uid
    if os.geteuid() == 0:
        owner = pwd.getpwnam("nobody").pw_uid
        os.chown(store.directory, owner, -1)
        os.chown(os.path.join(store.directory, "data.mdb"), owner, -1)
    # A restored backup has no lock file: whoever opens first makes it.
    os.unlink(lock)
    assert store.keys() == ["k"]
    assert os.stat(lock).st_uid == owner


# ---- list

@pytest.fixture
def mixed(store):
    store.complete("done", ANSWER, scope="tenant-1", method="POST", path="/pay?x=1")
    store.unknown("lost", scope="tenant-1", method="POST", path="/pay")
    store.failed("refused")
    store.claim("running")
    store.claim("job", kind=5)
    return store


def test_list_for_people(mixed):
    lines = mixed.good("list").out.splitlines()
    assert lines[0].split() == ["ID", "STATE", "UPDATED", "TRY", "STATUS", "SCOPE", "KEY",
                                "REQUEST"]
    assert len(lines) == 6
    row = next(line for line in lines if "tenant-1" in line and " 201 " in line)
    assert re.match(r"[0-9a-f]{16}  completed   \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ  1    201     "
                    r"tenant-1  done     POST /pay\?x=1$", row), row
    assert {line.split()[1] for line in lines[1:]} == \
        {"completed", "unknown", "failed", "processing"}


def test_list_filters(mixed):
    assert mixed.keys() == ["done", "job", "lost", "refused", "running"]
    assert mixed.keys("--state", "unknown") == ["lost"]
    assert mixed.keys("--state", "unknown,failed") == ["lost", "refused"]
    assert mixed.keys("--scope", "tenant-1") == ["done", "lost"]
    assert mixed.keys("--scope", "") == ["job", "refused", "running"]
    assert mixed.keys("--kind", "job") == ["job"]
    assert mixed.keys("--since", "1h") == mixed.keys()
    assert mixed.keys("--before", "1h") == []
    assert mixed.keys("--state", "completed", "--scope", "tenant-2") == []


def test_list_since_and_before_are_exact(mixed):
    instant = mixed.show("refused")["updated_at"]
    assert "refused" in mixed.keys("--since", instant)
    assert "refused" not in mixed.keys("--before", instant)
    assert "running" not in mixed.keys("--before", instant)  # it came later
    east = re.sub(r"Z$", "+00:00", instant)
    assert mixed.keys("--since", east) == mixed.keys("--since", instant)


def test_a_lapsed_lease_is_unknown(store):
    store.claim("lapsed", lease_ms=100)
    wait_until(lambda: store.keys("--state", "unknown") == ["lapsed"], "the lease lapses")
    shown = store.show("lapsed")
    assert shown["state"] == "unknown" and shown["reason"] == "lapsed"
    assert "the lease ended without a verdict" in store.good("show", "--key", "lapsed").out


def test_nothing_matches(store):
    ran = store.idem("list")
    assert (ran.status, ran.out, ran.err) == (OK, "", "no records match\n")
    assert store.good("list", "--json").json() == {"records": [], "more": False, "last": None,
                                                   "damaged": []}


def test_pages(store):
    store.apply(*[{"op": "claim", "key": f"k{i}"} for i in range(150)])
    everything = store.good("list", "--json", "--limit", 1000).json()
    ids = [record["id"] for record in everything["records"]]
    assert len(ids) == 150 and ids == sorted(ids) and everything["more"] is False
    seen, after = [], []
    while True:
        page = store.good("list", "--json", "--limit", 40, *after).json()
        seen += [record["id"] for record in page["records"]]
        if not page["more"]:
            break
        after = ["--after", page["last"]]
    assert seen == ids
    ran = store.idem("list")  # 100 unless told otherwise
    assert len(ran.out.splitlines()) == 101 and f"--after {ids[99]}" in ran.err
    assert store.good("list", "--json", "--limit", 150).json()["more"] is False
    assert store.good("list", "--json", "--limit", 149).json()["more"] is True


# ---- bytes that are no text

HOSTILE = [b"\xff\x00A\n", b"\x1b[2J\x1b[31mred", "\u202egnp.exe".encode(), b"back\\slash",
           "Zahlung-€".encode(), b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\x7f\xc2\x9b"]


@pytest.mark.parametrize("key", HOSTILE)
def test_bytes_cannot_act_on_a_terminal_and_survive_json(store, key):
    store.apply({"op": "claim", "key_hex": key.hex(), "path_hex": key.hex(), "method": "POST"},
                {"op": "complete", "key_hex": key.hex(), "status": 200, "body_hex": key.hex()})
    record = store.good("list", "--json").json()["records"][0]
    for words in (["list"], ["show", record["id"]]):
        printed = store.good(*words).out
        for char in printed:
            assert char == "\n" or (char.isprintable() and char != "\u202e"), repr(printed)
    whole = store.good("show", record["id"], "--json").json()
    for object_, name in ((whole, "key"), (whole, "path"), (whole["answer"], "body")):
        if name in object_:
            assert object_[name].encode("utf-8") == key and f"{name}_base64" not in object_
        else:
            assert base64.b64decode(object_[f"{name}_base64"]) == key
            with pytest.raises(UnicodeDecodeError):
                key.decode("utf-8")
    assert store.idem("show", record["id"], "--body").raw == key


def test_escapes_are_unambiguous(store):
    store.claim("a\\n")
    store.claim("a\n")
    printed = store.good("list").out
    assert " a\\\\n " in printed and " a\\n " in printed


# ---- show

def test_show_everything(mixed):
    text = mixed.good("show", "--key", "done", "--scope", "tenant-1").out
    for line in ("scope        tenant-1", "key          done", "method       POST",
                 "path         /pay?x=1", "answer       201, 8 bytes of body",
                 "  Content-Type: application/json", "  Link: a", "  Link: b", '  {"id":1}'):
        assert line in text.splitlines(), text
    record = mixed.show("done", "--scope", "tenant-1")
    assert record["answer"]["headers"] == [{"name": "Content-Type", "value": "application/json"},
                                           {"name": "Link", "value": "a"},
                                           {"name": "Link", "value": "b"}]
    assert record["answer"]["body"] == '{"id":1}' and record["answer"]["status"] == 201
    assert record["attempt"] == 1 and record["fence"] > 0 and record["has_credential"] is False


def test_show_by_the_first_digits(mixed):
    whole = mixed.show("running")["id"]
    for size in (6, 7, 16, 63, 64):
        assert mixed.good("show", whole[:size], "--json").json()["id"] == whole
    assert mixed.good("show", whole.upper()[:10], "--json").json()["id"] == whole
    assert "6 to 64" in mixed.refused(USAGE, "show", whole[:5]).err
    assert "6 to 64" in mixed.refused(USAGE, "show", whole + "0").err
    assert "hex digits" in mixed.refused(USAGE, "show", "xyzxyz").err
    other = "0" * 6 if not whole.startswith("0" * 6) else "1" * 6
    assert "no record whose id starts with" in mixed.refused(ABSENT, "show", other).err


def test_ambiguous_digits(store):
    store.apply(*[{"op": "claim", "key": f"k{i}"} for i in range(0, 6000)])
    ids = [record["id"] for record in
           store.good("list", "--json", "--limit", 100000).json()["records"]]
    twins = [(a, b) for a, b in zip(ids, ids[1:]) if a[:6] == b[:6]]
    assert twins, "6000 ids share six digits with near certainty; use other keys"
    digits = twins[0][0][:6]
    assert "several ids start with" in store.refused(USAGE, "show", digits).err
    assert "several ids start with" in store.refused(USAGE, "forget", digits, "--why", "w").err
    assert store.good("show", twins[0][0], "--json").json()["id"] == twins[0][0]


def test_show_absent(store):
    store.refused(ABSENT, "show", "--key", "none")
    store.refused(ABSENT, "show", "0" * 64)
    store.claim("k", scope="s")
    assert "another scope" in store.refused(ABSENT, "show", "--key", "k").err


def test_show_body(store):
    body = bytes(range(256)) * 100
    store.apply({"op": "claim", "key": "k"},
                {"op": "complete", "key": "k", "body_hex": body.hex()})
    assert store.idem("show", "--key", "k", "--body").raw == body
    assert f"({len(body) - 4096} bytes more" in store.good("show", "--key", "k").out
    store.complete("text", {"body": "€" * 2000})  # 4096 bytes would cut a character in two
    text = store.good("show", "--key", "text").out
    assert "(1905 bytes more" in text and "\\x" not in text
    store.claim("running")
    assert "no kept answer" in store.refused(ABSENT, "show", "--key", "running", "--body").err


def test_a_tombstone_is_told(store):
    store.complete("big", {"status": 200, "tombstone": 6})
    assert "not kept (too_large), its status was 200" in store.good("show", "--key", "big").out
    answer = store.show("big")["answer"]
    assert answer == {"status": 200, "not_kept": "too_large"}
    assert " not kept " in store.good("list").out
    store.refused(ABSENT, "show", "--key", "big", "--body")


# ---- resolve

def test_resolve_failed_lets_the_next_request_execute(store):
    store.unknown("k")
    assert store.apply({"op": "claim", "key": "k", "owner": 2}) == ["unknown"]
    ran = store.good("resolve", "--key", "k", "--failed", "--who", "ann", "--why", "not in ledger")
    assert "resolved: the next request with this key executes" in ran.out
    assert "unanswered" in ran.out, "the record is shown first"
    shown = store.show("k")
    assert shown["state"] == "failed"
    assert (shown["resolution"]["who"], shown["resolution"]["why"]) == ("ann", "not in ledger")
    # The late owner is fenced off; the next claim executes as attempt 2.
    assert store.apply({"op": "complete", "key": "k", "owner": 1}) == ["lost"]
    assert store.apply({"op": "claim", "key": "k", "owner": 2}) == ["acquired"]
    assert store.show("k")["attempt"] == 2


def test_resolve_completed_with_an_answer(store, place):
    body = b'{"charge":"ch_88"}\n'
    (place / "answer.json").write_bytes(body)
    store.unknown("k")
    store.good("resolve", "--key", "k", "--completed", "--status", "201", "--body",
               place / "answer.json", "--header", "Content-Type:application/json ",
               "--header", "Link: a", "--header", "Link: b", "--header", "X-Empty:",
               "--why", "charged", "--ttl", "7d")
    shown = store.show("k")
    assert shown["state"] == "completed" and shown["answer"]["status"] == 201
    assert [(line["name"], line["value"]) for line in shown["answer"]["headers"]] == \
        [("Content-Type", "application/json"), ("Link", "a"), ("Link", "b"), ("X-Empty", "")]
    assert shown["answer"]["body"].encode() == body
    assert shown["expires_at"][:10] > shown["updated_at"][:10]
    assert store.apply({"op": "claim", "key": "k", "owner": 2}) == ["completed"]


def test_resolve_completed_reads_standard_input_and_never_expires(store):
    store.unknown("k")
    store.good("resolve", "--key", "k", "--completed", "--status", "200", "--body", "-",
               "--why", "w", "--ttl", "never", stdin=b"\x00\xff")
    shown = store.show("k")
    assert base64.b64decode(shown["answer"]["body_base64"]) == b"\x00\xff"
    assert shown["expires_at"] is None
    assert "expires      never" in store.good("show", "--key", "k").out


INSTANT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
DAY_S = 86400


def seconds_kept(shown):
    """From the verdict to its end."""
    def instant(name):
        return datetime.datetime.fromisoformat(shown[name].replace("Z", "+00:00")).timestamp()

    return instant("expires_at") - instant("updated_at")


@pytest.mark.parametrize("verdict", [["--failed"], ["--completed"],
                                     ["--completed", "--status", "200"]])
def test_a_verdict_never_ends_the_protection_early(store, verdict):
    store.unknown("long", unknown_ttl_ms=30 * DAY_S * 1000)
    store.unknown("short", unknown_ttl_ms=3600 * 1000)
    before = store.show("long")["expires_at"]
    dry = store.good("resolve", "--key", "long", *verdict, "--dry-run").out
    ran = store.good("resolve", "--key", "long", *verdict, "--why", "w")
    after = store.show("long")["expires_at"]
    assert after >= before
    told = re.search(rf"^resolved: .*; kept until ({INSTANT}),.*--ttl", ran.out, re.M).group(1)
    assert told[:-1] == after[:len(told) - 1], "it tells until when"
    assert re.search(rf"^would resolve: .*; kept until {INSTANT},", dry, re.M)
    ran = store.good("resolve", "--key", "short", *verdict, "--why", "w", "--json").json()
    assert ran["records"][0]["kept_until"] == store.show("short")["expires_at"]
    assert DAY_S <= seconds_kept(store.show("short")) < DAY_S + 60


def test_a_verdict_on_many_keeps_each_as_long_as_it_was(store):
    store.unknown("long", unknown_ttl_ms=30 * DAY_S * 1000)
    store.unknown("short", unknown_ttl_ms=3600 * 1000)
    before = store.show("long")["expires_at"]
    store.good("resolve", "--state", "unknown", "--completed", "--why", "w")
    assert store.show("long")["expires_at"] >= before
    assert seconds_kept(store.show("short")) < DAY_S + 60


def test_what_is_kept_for_ever_stays_so_and_ttl_counts(store):
    store.unknown("k")
    store.good("resolve", "--key", "k", "--completed", "--why", "w", "--ttl", "never")
    assert "kept for ever" in store.good("resolve", "--key", "k", "--completed", "--why", "w",
                                         "--force").out
    assert store.show("k")["expires_at"] is None
    store.good("resolve", "--key", "k", "--completed", "--why", "w", "--force", "--ttl", "1h")
    assert abs(seconds_kept(store.show("k")) - 3600) < 1


def test_resolve_completed_without_an_answer_is_a_tombstone(store):
    store.unknown("k")
    assert "told that it was executed" in store.good("resolve", "--key", "k", "--completed",
                                                     "--why", "w").out
    assert store.show("k")["answer"] == {"status": None, "not_kept": "resolved"}


def test_resolve_an_empty_answer_is_an_answer(store):
    store.unknown("k")
    store.good("resolve", "--key", "k", "--completed", "--status", "204", "--why", "w")
    assert store.show("k")["answer"] == {"status": 204, "body_size": 0, "headers": [], "body": ""}


def test_resolve_takes_unknown_records_only(mixed):
    for key, state, more in (("running", "processing", []), ("refused", "failed", []),
                             ("done", "completed", ["--scope", "tenant-1"])):
        before = mixed.show(key, *more)
        err = mixed.refused(REFUSED, "resolve", "--key", key, "--failed", "--why", "w", *more).err
        assert f"the record is {state}" in err and "--force" in err
        assert mixed.show(key, *more) == before
    mixed.good("resolve", "--key", "running", "--failed", "--why", "w", "--force")
    assert mixed.show("running")["state"] == "failed"
    mixed.refused(ABSENT, "resolve", "--key", "none", "--failed", "--why", "w")


def test_resolve_only_the_record_that_was_looked_at(store):
    store.unknown("k")
    fence = store.show("k")["fence"]
    assert "not the one that was looked at" in store.refused(
        REFUSED, "resolve", "--key", "k", "--failed", "--why", "w", "--fence", fence - 1).err
    assert store.show("k")["state"] == "unknown"
    store.good("resolve", "--key", "k", "--failed", "--why", "w", "--fence", fence)


def test_resolve_a_missing_body_file_changes_nothing(store, place):
    store.unknown("k")
    assert "No such file" in store.refused(FAILURE, "resolve", "--key", "k", "--completed",
                                           "--status", "200", "--why", "w", "--body",
                                           place / "none").err
    assert store.show("k")["state"] == "unknown"


def test_dry_runs_change_nothing(mixed):
    before = mixed.good("list", "--json").out
    ran = mixed.good("resolve", "--key", "lost", "--scope", "tenant-1", "--failed", "--dry-run")
    assert "would resolve" in ran.out
    mixed.good("resolve", "--state", "unknown", "--failed", "--dry-run")
    mixed.refused(REFUSED, "resolve", "--key", "running", "--failed", "--dry-run")
    assert "would forget" in mixed.good("forget", "--key", "refused", "--dry-run").out
    mixed.good("forget", "--state", "completed,failed,unknown", "--dry-run")
    assert mixed.good("list", "--json").out == before
    assert mixed.good("list", "--audit", "--json").json()["audit"] == []


def test_bulk_resolve(store):
    for i in range(5):
        store.unknown(f"a{i}", scope="a")
        store.unknown(f"b{i}", scope="b")
    store.claim("running", scope="a")
    dry = store.good("resolve", "--state", "unknown", "--scope", "a", "--failed", "--dry-run",
                     "--json").json()
    assert (dry["dry_run"], dry["done"]) == (True, 5)
    ran = store.good("resolve", "--state", "unknown", "--scope", "a", "--since", "1h", "--failed",
                     "--why", "outage", "--json").json()
    assert (ran["dry_run"], ran["done"], ran["refused"], ran["changed"]) == (False, 5, 0, 0)
    assert sorted(record["key"] for record in ran["records"]) == [f"a{i}" for i in range(5)]
    assert {(record["was"], record["result"]) for record in ran["records"]} == \
        {("unknown", "resolved")}
    assert store.keys("--state", "failed") == [f"a{i}" for i in range(5)]
    assert store.keys("--state", "unknown") == [f"b{i}" for i in range(5)]
    text = store.good("resolve", "--state", "unknown", "--before", "1h", "--failed", "--why", "w")
    assert text.out == "0 resolved, 0 refused, 0 changed, 0 gone\n"
    text = store.good("resolve", "--state", "unknown", "--completed", "--why", "w").out
    assert text.endswith("5 resolved, 0 refused, 0 changed, 0 gone\n")
    assert len(re.findall(rf"^resolved .*  until {INSTANT}$", text, re.M)) == 5
    ran = store.idem("resolve", "--state", "processing", "--failed", "--why", "w")
    assert ran.status == REFUSED and ran.out.endswith("0 resolved, 1 refused, 0 changed, 0 gone\n")


def test_bulk_goes_over_many_pages(store):
    store.apply(*[step for i in range(200) for step in (
        {"op": "claim", "key": f"k{i}"}, {"op": "abandon", "key": f"k{i}"})])
    ran = store.good("resolve", "--state", "unknown", "--failed", "--why", "w", "--json").json()
    assert ran["done"] == 200 and len({record["id"] for record in ran["records"]}) == 200
    assert store.good("forget", "--state", "failed", "--why", "w", "--json").json()["done"] == 200
    assert store.keys() == []


# ---- forget

def test_forget_lets_the_next_request_execute(mixed):
    ran = mixed.good("forget", "--key", "done", "--scope", "tenant-1", "--why", "test data")
    assert "as if it were the first" in ran.out
    mixed.refused(ABSENT, "show", "--key", "done", "--scope", "tenant-1")
    fence = mixed.good("list", "--audit", "--json").json()["audit"][0]["fence"]
    mixed.claim("done", scope="tenant-1", owner=9)
    again = mixed.show("done", "--scope", "tenant-1")
    assert again["attempt"] == 1 and again["fence"] > fence


def test_forget_spares_a_running_request(mixed):
    assert "the record is processing" in mixed.refused(REFUSED, "forget", "--key", "running",
                                                       "--why", "w").err
    mixed.good("forget", "--key", "running", "--why", "w", "--force")
    mixed.refused(ABSENT, "forget", "--key", "running", "--why", "w")


def test_forget_json(mixed):
    ran = mixed.good("forget", "--key", "refused", "--why", "w", "--json").json()
    assert ran["records"][0]["was"] == "failed" and ran["records"][0]["result"] == "forgotten"
    assert (ran["done"], ran["absent"]) == (1, 0)
    ran = mixed.idem("forget", "--key", "refused", "--why", "w", "--json")
    assert ran.status == ABSENT and json.loads(ran.out)["absent"] == 1


# ---- audit

def test_the_audit_trail_tells_who_did_what_and_why(store):
    store.unknown("first")
    store.failed("second")
    store.good("resolve", "--key", "first", "--failed", "--who", "ann", "--why", "ticket 1")
    store.good("forget", "--key", "second", "--who", "bob", "--why", "ticket\x1b 2")
    trail = store.good("list", "--audit", "--json").json()
    assert trail["more"] is False
    assert [(e["what"], e["was"], e["who"], e["why"]) for e in trail["audit"]] == [
        ("resolve", "unknown", "ann", "ticket 1"), ("forget", "failed", "bob", "ticket\x1b 2")]
    text = store.good("list", "--audit").out
    assert text.splitlines()[0].split() == ["AT", "WHAT", "ID", "WAS", "WHO", "WHY"]
    assert "\x1b" not in text and "ticket\\x1b 2" in text
    second = trail["audit"][1]["at"]
    since = store.good("list", "--audit", "--json", "--since", second).json()["audit"]
    assert [e["who"] for e in since] == ["bob"]
    first_page = store.good("list", "--audit", "--json", "--limit", "1").json()
    assert first_page["more"] is True and first_page["audit"][0]["who"] == "ann"


def test_who_is_the_login_name_unless_given(store):
    for key in ("a", "b", "c"):
        store.failed(key)
    env = {**store.env, "SUDO_USER": "ann"}
    good("forget", "--key", "a", "--why", "w", env=env)
    store.good("forget", "--key", "b", "--why", "w")
    who = [entry["who"] for entry in store.good("list", "--audit", "--json").json()["audit"]]
    assert who[1] != ""
    # Anybody can set a variable; only sudo's root is believed.
    assert who[0] == ("ann" if os.getuid() == 0 else who[1])


# ---- sweep and check

def test_sweep_removes_what_has_expired(store):
    store.complete("keep", ANSWER)
    for i in range(3):
        store.claim(f"short{i}", lease_ms=100, ttl_ms=100)
        store.apply({"op": "complete", "key": f"short{i}", "ttl_ms": 100})
    wait_until(lambda: store.keys() == ["keep"], "the short ones expire")
    def records():
        return int(store.good("store", "check", "--json").json()["facts"]["records"])

    def sweep():
        swept.append(store.good("sweep", "--json").json()["removed"])
        return records() == 1

    before, swept = records(), []
    assert before == 4
    wait_until(sweep, "all that expired is swept")
    assert sum(swept) >= 3  # the records of self-tests go too, and are not counted as records
    assert store.good("sweep").out.startswith("removed ")
    assert store.keys() == ["keep"]


def test_sweep_counts_what_was_never_settled(store):
    store.claim("lost", lease_ms=100, unknown_ttl_ms=100)
    ran = wait_until(lambda: (lambda r: r if r["unknown_removed"] else None)(
        store.good("sweep", "--json").json()), "the unknown record expires and is swept")
    assert ran["unknown_removed"] == 1


def test_store_check(store, place):
    text = store.good("store", "check").out
    assert re.search(r"^self-test +passed", text, re.M) and store.url in text
    assert store.good("store", "check", store.url).out.splitlines()[0] == text.splitlines()[0]
    facts = store.good("store", "check", "--json").json()
    assert facts["self_test"] == "passed" and facts["store"] == store.url
    assert "on disk" in facts["facts"]["durability"] and "nothing" in facts["facts"]["can lose"]
    weak = f"lmdb:{place}/weak?size=64m&sync=off"
    told = good("store", "check", weak, "--create", "--json").json()["facts"]
    assert "power fail" in told["can lose"]
    assert good("store", "check", weak).status == OK
    assert store.keys() == [], "the self-test leaves nothing that is listed"


def test_store_check_of_what_is_not_there_and_of_what_is_damaged(store, place):
    told = refused(FAILURE, "store", "check", f"lmdb:{place}/none", "--json").json()
    assert (told["verdict"], told["reachable"]) == ("unavailable", False)
    with open(os.path.join(store.directory, "data.mdb"), "r+b") as data:
        data.truncate(0)
    told = store.refused(FAILURE, "store", "check", "--json").json()
    assert (told["verdict"], told["reachable"]) == ("failed", True)


def test_what_a_self_test_left_is_nobodys_record(store):
    """It was cut off in the middle, by a crash; it expires within a minute."""
    store.apply({"op": "claim", "key": "left", "kind": SELFTEST},
                {"op": "complete", "key": "left", "kind": SELFTEST})
    store.unknown("mine")
    assert store.keys() == ["mine"] == store.keys("--limit", "1")
    ran = store.good("forget", "--state", "completed,unknown", "--why", "w", "--json").json()
    assert [record["key"] for record in ran["records"]] == ["mine"]


def test_store_check_of_memory():
    assert "self-test" in good("store", "check", "memory:").out
    refused(USAGE, "store", "check", "memory:", "extra")
