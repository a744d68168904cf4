"""What a tired operator does: wrong words, streams that are closed, Ctrl-C, the same store twice.

Most tests here ask one thing of every command, or of every option, so that a new one is asked too.
"""

import json
import os
import re
import signal
import subprocess

import pytest
import server_stores
import trouble

from test_cli_support import (COMMANDS, FAILURE, IDEM, OK, USAGE, Store, environment,
                              everything, fill, good, idem, own_directory)
from waiting import PATIENCE_S, wait_until

ODD = {"huge": b"a" * 100_000, "escape": b"\x1b[2J\x1b]0;x\x07\x9b31m",
       "no UTF-8": b"\xff\xfe\xc3(", "direction": "\u202etxt.exe".encode(),
       "lines": b"x\nidem list: all is well"}
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")
C0 = re.compile("[\x00-\x08\x0b-\x1f\x7f]")


@pytest.fixture(name="place")
def _place():
    with own_directory() as path:
        yield path


@pytest.fixture(name="store")
def _store(place):
    store = Store(place / "store")
    store.complete("done", {"body": "y" * 3000})
    store.unknown("lost")
    store.unknown("odd", scope="s")
    return store


@pytest.fixture(scope="module")
def lock_holder_program(tmp_path_factory):
    return trouble.build_lock_holder(str(tmp_path_factory.mktemp("holder")))


def lines(store, place):
    """Each command as it works on a store, and prints something."""
    return [["list"], ["list", "--json"], ["list", "--audit", "--json"], ["show", "--key", "done"],
            ["show", "--key", "done", "--json"], ["show", "--key", "done", "--body"],
            ["resolve", "--state", "unknown", "--failed", "--why", "w", "--dry-run"],
            ["resolve", "--key", "lost", "--failed", "--why", "w", "--dry-run", "--json"],
            ["forget", "--state", "unknown", "--why", "w", "--dry-run"], ["sweep"],
            ["sweep", "--json"], ["store", "check"], ["store", "check", "--json"],
            ["store", "copy", store.url, f"lmdb:{place}/copy?size=64m"],
            ["store", "copy", store.url, f"lmdb:{place}/copy?size=64m", "--json"],
            ["migrate", "memory:"], ["migrate", "memory:", "--json"], ["key"], ["--version"],
            ["gateway", "--listen", ":1", "--upstream", "http://a:1", "--print-conf"]]


def shell(redirection, words, store):
    """Runs the command with its streams as the shell makes them."""
    return subprocess.run(["sh", "-c", f'exec "$@" {redirection}', "sh", IDEM, *words], check=False,
                          env=environment(**store.env), timeout=2 * PATIENCE_S,
                          capture_output=True)


# ---- streams

@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&-", "<&- >&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_never_the_store(store, place, closed):
    """What is opened next gets its number: what was printed once went into the store's own file."""
    before = everything(store.url)
    for words in lines(store, place):
        done = shell(closed, words, store)
        assert done.returncode == (FAILURE if ">&-" in closed.replace("2>&-", "") else OK), words
        assert everything(store.url) == before, words
    assert store.good("store", "check", "--json").json()["verdict"] == "good"


@pytest.mark.parametrize("redirection", [">/dev/full", "| true"])
def test_output_that_goes_nowhere(store, place, redirection):
    """A full disk is a failure; a reader that has gone away may be, and is no signal."""
    for words in lines(store, place):
        if redirection == "| true":
            reading, writing = os.pipe()
            os.close(reading)
            done = subprocess.run([IDEM, *words], stdout=writing, stderr=subprocess.PIPE,
                                  env=environment(**store.env), check=False)
            os.close(writing)
        else:
            done = shell(redirection, words, store)
        assert done.returncode == FAILURE, words
        assert b"not all output could be written" in done.stderr, words


# ---- words

def options_of(command):
    return re.findall(r"^  --([a-z0-9-]+) [A-Z']", good(*command.split(), "--help").out, re.M)


def assert_clean(done, words):
    """No signal, nothing that acts on a terminal, no flood, and whole JSON or none."""
    assert 0 <= done.returncode <= 5, (words, done.returncode)
    for raw in (done.stdout, done.stderr):
        # A configuration is for a file: what is no control stands in it byte by byte.
        file = raw is done.stdout and b"--print-conf" in words
        text = raw.decode("latin-1" if file else "utf-8")
        assert not (C0 if file else CONTROLS).search(text), (words, text)
        assert len(text) < 20_000, (words, len(text))
    assert done.returncode == OK or done.stderr.startswith(b"idem"), (words, done.stderr)
    if b"--json" in words and done.stdout:
        json.loads(done.stdout)


def odd_run(words, store):
    words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    done = subprocess.run([IDEM, *words], env=environment(**store.env), capture_output=True,
                          check=False, stdin=subprocess.DEVNULL, timeout=2 * PATIENCE_S)
    assert_clean(done, words)
    return done


@pytest.mark.parametrize("odd", sorted(ODD))
@pytest.mark.parametrize("command", COMMANDS)
def test_odd_values_of_every_option(store, place, command, odd):
    """Beside what the command needs anyway, so that the value is looked at."""
    needed = {"gateway": ["--print-conf", "--listen", ":1", "--upstream", "http://a:1",
                          "--state", place / "state"],
              "show": ["--key", "done"], "forget": ["--key", "none", "--why", "w"],
              "resolve": ["--key", "none", "--failed", "--why", "w"],
              "store copy": [store.url, f"lmdb:{place}/t?size=64m"], "migrate": ["memory:"]}
    for name in options_of(command):
        rest = list(needed.get(command, []))
        if f"--{name}" in rest:
            del rest[rest.index(f"--{name}"):][:2]
        json_too = ["--json"] if command != "gateway" else []
        odd_run([*command.split(), *rest, *json_too, f"--{name}", ODD[odd]], store)
    odd_run([*command.split(), ODD[odd]], store)
    odd_run([*command.split(), b"--" + ODD[odd]], store)
    odd_run([*command.split(), b"--json", ODD[odd], ODD[odd]], store)
    odd_run([ODD[odd]], store)


@pytest.mark.parametrize("odd", sorted(ODD))
def test_odd_urls_are_shown_as_they_are_harmless(store, place, odd):
    """Whole JSON too, though what is in a path need not be UTF-8."""
    value = ODD[odd].replace(b"\n", b"_").replace(b"/", b"_")
    for url in (b"lmdb:" + bytes(place) + b"/" + value, b"redis://127.0.0.1:1/0?prefix=" + value,
                b"postgresql://127.0.0.1:1/" + value, b"mariadb://127.0.0.1:1/" + value,
                b"redis+unix:/" + value, value, b"memory:?size=" + value):
        (place / "url").write_bytes(url + b"\n")
        for named in (url, f"@{place}/url"):
            for words in (["store", "check"], ["migrate"], ["store", "copy", store.url]):
                for more in ([], ["--json"]):
                    odd_run([*words, named, *more], store)


def test_a_path_that_is_no_utf8_is_told_in_json(store, place):
    name = os.path.join(bytes(place), b"\xffx")
    done = odd_run(["store", "copy", store.url, b"lmdb:" + name + b"?size=64m", "--json"], store)
    told = json.loads(done.stdout)
    assert done.returncode == OK and told["copied"] == 3
    assert told["to"] == f"lmdb:{place}/\\xffx?size=64m"


def test_files_that_hold_no_url(place):
    (place / "noise").write_bytes(os.urandom(100_000).replace(b":", b""))
    (place / "zeroes").write_bytes(b"\0" * 10)
    for name in (place, place / "none", place / "noise", place / "zeroes", "/dev/zero", ""):
        done = odd_run(["list", "--json", "--store", f"@{name}"], Store(place / "store"))
        assert done.returncode == USAGE and done.stdout == b"", name


# ---- failures half-way

def test_json_of_a_list_is_whole_when_its_store_goes_away():
    """The command has filled the pipe and waits when the server is ended."""
    kind = server_stores.get("redis")
    url = kind.store().url(sync="off", timeout="1s")
    fill(url, *[{"op": "claim", "key": f"{number:04}" + "k" * 1000} for number in range(400)])
    with subprocess.Popen([IDEM, "list", "--json", "--limit", "400", "--store", url],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=environment()) as running:
        begun = os.read(running.stdout.fileno(), 1)
        kind.server.end()
        out, err = running.communicate(timeout=2 * PATIENCE_S)
    kind.steady()
    told = json.loads(begun + out)
    assert running.returncode == FAILURE and b"Redis" in err
    assert 0 < len(told["records"]) < 400 and told["more"]
    assert told["last"] and {record["state"] for record in told["records"]} == {"processing"}


def test_json_of_digits_that_name_several_records(store):
    for key in ("k267", "k3721"):  # found among 5000: their ids begin alike
        store.claim(key)
    for command in (["forget"], ["resolve", "--failed"]):
        ran = store.refused(USAGE, *command, "224786", "--why", "w", "--json")
        assert ran.json() == {"dry_run": False, "records": [], "whole": False, "done": 0,
                              "refused": 0, "changed": 0, "absent": 0}


# ---- copying

def copying(store, target, *words):
    return subprocess.Popen([IDEM, "store", "copy", store.url, target, "--json", *words],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env=environment(**store.env))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_copy_that_is_interrupted_tells_what_it_did(store, place, lock_holder_program, number):
    """It waits for the target's lock when the signal comes; a second one would end it at once."""
    target = Store(place / "target")
    good("store", "check", target.url, "--create")
    for signals in (1, 2):
        holder = trouble.LockHolder(lock_holder_program, target.directory)
        running = copying(store, target.url)
        wait_until(lambda: waits(running.pid, target), "it waits for the lock")
        for _ in range(signals):
            running.send_signal(number)
            wait_until(lambda: running.poll() is not None or not pending(running.pid, number),
                       "the signal has come")
        if signals == 2:
            assert running.wait(PATIENCE_S) == -number
        holder.release()
        out, err = running.communicate(timeout=2 * PATIENCE_S)
        if signals == 1:
            assert running.returncode == FAILURE and b"interrupted" in err
            assert json.loads(out)["whole"] is False
    assert good("store", "copy", store.url, target.url, "--json").json()["copied"] == 3


def waits(pid, store):
    with open(f"/proc/{pid}/maps", encoding="ascii", errors="replace") as maps:
        opened = f"{store.directory}/data.mdb" in maps.read()
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
        return opened and stat.read().rpartition(")")[2].split()[0] == "S"


def pending(pid, number):
    """True while the signal waits to be taken."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as status:
            masks = re.findall(r"^(?:Shd|Sig)Pnd:\s*([0-9a-f]+)$", status.read(), re.M)
    except (FileNotFoundError, ProcessLookupError):
        return False
    return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)


@pytest.mark.parametrize("kind", ["lmdb", *server_stores.KINDS])
def test_two_copies_at_once(store, place, kind):
    store.apply(*[step for number in range(150) for step in
                  ({"op": "claim", "key": f"k{number}"},
                   {"op": "complete", "key": f"k{number}", "body": "z" * 2000})])
    target = f"lmdb:{place}/target?size=64m"
    if kind != "lmdb":
        target = server_stores.get(kind).store().url()
    both = [copying(store, target) for _ in range(2)]
    outs = [running.communicate(timeout=2 * PATIENCE_S) for running in both]
    assert [running.returncode for running in both] == [OK, OK], outs
    told = [json.loads(out) for out, _ in outs]

    for counts in told:
        assert counts["found"] == 153 and counts["copied"] + counts["already_there"] == 153
    assert everything(target) == everything(store.url)


@pytest.mark.parametrize("spell", [lambda path: f"{path}/", lambda path: f"{path}/../store",
                                   lambda path: path.replace("store", "linked")])
def test_a_directory_by_another_name_is_the_same_store(store, place, spell):
    os.symlink(store.directory, place / "linked")
    for words in ([], ["--dry-run"], ["--json"]):
        ran = store.refused(USAGE, "store", "copy", store.url,
                            f"lmdb:{spell(store.directory)}?size=64m&sync=off", *words)
        assert "FROM and TO are the same store" in ran.err and ran.out == ""


@pytest.mark.parametrize("kind", server_stores.KINDS)
def test_a_server_by_another_name_is_the_same_store(kind):
    url = server_stores.get(kind).store().url()
    fill(url, {"op": "claim", "key": "k"})
    other = url.replace("127.0.0.1", "localhost")
    before = everything(url)
    for words in ([], ["--dry-run"]):
        ran = idem("store", "copy", url, other, *words)
        assert ran.status == USAGE and "FROM and TO are the same store" in ran.err, ran.out
    assert everything(url) == before


def test_a_store_that_was_copied_is_not_the_same_one(store, place):
    """Both then have one salt."""
    target = f"lmdb:{place}/target?size=64m"
    good("store", "copy", store.url, target)
    assert good("store", "copy", store.url, target, "--json").json()["already_there"] == 3
    assert good("store", "copy", target, store.url, "--json").json()["already_there"] == 3
