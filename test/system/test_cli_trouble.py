"""The command and a store that is damaged, full or crashes its library: never without a word."""

import json
import os
import random
import signal
import subprocess

import pytest
import trouble

from nginx import free_port, process_state
from test_cli_support import (FAILURE, IDEM, Store, environment, idem, own_directory, refused,
                              sanitized)
from waiting import PATIENCE_S, wait_until

PAGE = 4096
NEXT_STEP = ("Restore the directory from a copy, or move it aside to begin with an empty store; "
             "then no key used before is protected")
COMMANDS = [["list"], ["show", "--key", "k1"], ["sweep"], ["store", "check"],
            ["list", "--audit"], ["resolve", "--key", "k1", "--failed", "--why", "w"],
            ["resolve", "--state", "unknown", "--failed", "--why", "w"],
            ["forget", "--key", "k1", "--why", "w"]]


@pytest.fixture(name="place")
def _place():
    with own_directory() as path:
        yield path


@pytest.fixture(scope="module")
def lock_holder_program(tmp_path_factory):
    return trouble.build_lock_holder(str(tmp_path_factory.mktemp("holder")))


class Held:
    """A store whose write lock somebody holds: a command waits in the middle of using it."""

    def __init__(self, place, program):
        self.store = Store(place / "store")
        self.store.unknown("k1")
        os.chmod(self.store.directory, 0o755)
        self.holder = trouble.LockHolder(program, self.store.directory)

    def start(self, *words):
        process = subprocess.Popen([IDEM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   stdin=subprocess.DEVNULL,
                                   env=environment(**self.store.env, **sanitized()))
        return process


@pytest.fixture
def held(place, lock_holder_program):
    made = Held(place, lock_holder_program)
    yield made
    made.holder.release()


def waits(pid):
    """True when the process sleeps with the store open: it waits for the lock."""
    try:
        with open(f"/proc/{pid}/maps", encoding="ascii", errors="replace") as maps:
            opened = "/data.mdb" in maps.read()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return opened and process_state(pid) == "S"


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT])
@pytest.mark.parametrize("words", COMMANDS)
def test_a_crash_inside_the_store_has_a_last_word(held, words, number):
    process = held.start(*words)
    wait_until(lambda: waits(process.pid) or process.poll() is not None, "it waits in the store")
    process.send_signal(number)
    _, told = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == FAILURE, told
    told = told.decode()
    assert told.startswith(f"idem {words[0]}") and told.endswith("\n"), told
    assert f"using the store in {held.store.directory} crashed" in told and NEXT_STEP in told


def trial(command):
    """The process in which `idem gateway` tries the store."""
    return next((int(pid) for pid in os.listdir("/proc") if pid.isdigit()
                 and parent(pid) == command and waits(int(pid))), None)


def parent(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            return int(stat.read().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return None


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL])
def test_a_gateway_whose_store_crashes_says_the_next_step(held, place, number):
    user = ["--user", "root"] if os.geteuid() == 0 else []
    process = held.start("gateway", "--listen", f"127.0.0.1:{free_port()}", "--upstream",
                         "http://127.0.0.1:1", "--state", str(place / "state"), *user)
    child = wait_until(lambda: trial(process.pid), "the store is tried")
    os.kill(child, number)
    _, told = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == FAILURE, told
    assert NEXT_STEP in told.decode() and held.store.directory in told.decode()


def pages_of(good):
    return range(2, len(good) // PAGE)  # the first two tell where everything is


def wreck_heads(bad, page):
    bad[page * PAGE + 16 : page * PAGE + 64] = b"\xff" * 48


def wreck_all(bad, page):
    bad[page * PAGE : (page + 1) * PAGE] = b"\xff" * PAGE


def wreck_bytes(bad, page):
    chance = random.Random(page)
    for _ in range(40):
        bad[page * PAGE + chance.randrange(PAGE)] = chance.randrange(256)


@pytest.mark.parametrize("wreck", [wreck_heads, wreck_all, wreck_bytes])
def test_damaged_files_never_end_a_command_by_a_signal(place, wreck):
    store = Store(place / "store")
    store.apply(*[{"op": "claim", "key": f"k{n}"} for n in range(300)])
    file = place / "store" / "data.mdb"
    good = file.read_bytes()
    bad = bytearray(good)
    for page in pages_of(good):
        wreck(bad, page)
    for words in COMMANDS:
        file.write_bytes(bad)
        ran = idem(*words, env=store.env)  # asserts that no signal ended it
        if "damaged" in ran.err:
            assert ran.status == FAILURE and NEXT_STEP in ran.err


def test_a_file_that_is_cut_off(place):
    store = Store(place / "store")
    store.apply(*[{"op": "claim", "key": f"k{n}", "path": "p" * 2000} for n in range(300)])
    with open(place / "store" / "data.mdb", "rb+") as file:
        file.truncate(16 * PAGE)
    for words in COMMANDS:
        assert NEXT_STEP in refused(FAILURE, *words, env=store.env).err


def test_a_damaged_record_is_removed_as_the_sentence_says(place):
    store = Store(place / "store")
    store.complete("k1", {"body": "MARK" * 20})
    file = place / "store" / "data.mdb"
    bytes_ = file.read_bytes()
    at = bytes_.rfind(b"MARKMARK")
    # What stands before the body is its length: a record with another one is damaged.
    file.write_bytes(bytes_[: at - 4] + b"\xff" * 4 + bytes_[at:])
    ran = idem("show", "--key", "k1", "--store", store.url)
    assert "is damaged; this removes it" in ran.err, (ran.out, ran.err)
    line = ran.err.rstrip("\n").rpartition(": ")[2]
    done = subprocess.run(["sh", "-c", line], capture_output=True, check=True, cwd="/",
                          env=environment())
    assert b"forgotten" in done.stdout
    assert json.loads(idem("list", "--json", env=store.env).out)["records"] == []


def test_a_full_device_gets_advice(place):
    disk = trouble.SmallDisk("256k")
    try:
        os.mkdir(disk.path("state"))
        disk.fill()
        ran = refused(FAILURE, "gateway", "--listen", f"127.0.0.1:{free_port()}", "--upstream",
                      "http://127.0.0.1:1", "--state", disk.path("state"), "--store",
                      f"lmdb:{place}/store?size=64m")
        assert "No space left" in ran.err
        assert "make room on that device, or choose another directory with --state" in ran.err
    finally:
        disk.unmount()
