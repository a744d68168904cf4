"""idem gateway, running: from ready to the last signal."""

import json
import os
import pwd
import re
import signal
import socket
import subprocess
import time

import pytest

from nginx import children, process_state
from scene import Background, new_key
from test_cli_support import (CUT, FAILURE, IDEM, OK, REFUSED, USAGE, Gateway, Ran, Store,
                              environment, good, group_alive, idem, own_directory, refused,
                              tear_down_all)
from waiting import hold_true_for, wait_until


@pytest.fixture(name="place")
def _place():
    with own_directory() as path:
        yield path


@pytest.fixture
def make_gateway(place, make_upstream):
    made = []

    def make(*words, upstream=None, directory=None, **options):
        upstream = upstream or make_upstream()
        url = upstream if isinstance(upstream, str) else f"http://127.0.0.1:{upstream.port}"
        gateway = Gateway(directory or place / f"gateway{len(made)}", url, *words, **options)
        gateway.upstream = upstream
        made.append(gateway)
        return gateway

    yield make

    def release(gateway):
        if not isinstance(gateway.upstream, str):
            gateway.upstream.release_all()

    tear_down_all(made, before=release)


def held(gateway, key):
    """A request that the upstream holds; it has reached the upstream."""
    gate = gateway.upstream.gate()
    gateway.upstream.answer(hold=gate)
    background = Background(gateway.post, key)
    gateway.upstream.wait_count(1, key)
    return background, gate


def unknown_keys(gateway):
    ran = good("list", "--state", "unknown", "--json", "--store", gateway.store_url)
    return [record["key"] for record in ran.json()["records"]]


# ---- what it is for

def test_once_and_the_same_answer_again(make_gateway, key):
    gateway = make_gateway().start()
    first = gateway.post(key)
    again = gateway.post(key)
    assert first.status == again.status == 201 and first.body == again.body
    assert not first.replayed and again.replayed
    assert gateway.upstream.count() == 1
    record = good("show", "--key", key, "--json", "--store", gateway.store_url).json()
    assert record["state"] == "completed" and record["answer"]["body"].encode() == first.body
    assert gateway.stop() == OK
    assert "every request that it had taken is answered" in gateway.out()


def test_one_line_when_it_is_really_ready(make_gateway):
    for _ in range(5):
        gateway = make_gateway().start()
        assert gateway.out() == (f"idem gateway: ready on http://127.0.0.1:{gateway.port}, "
                                 f"upstream http://127.0.0.1:{gateway.upstream.port}, "
                                 f"store {gateway.store_url}\n")
        assert gateway.post(new_key()).status == 201, "ready means ready"
        assert gateway.stop() == OK


def test_what_the_upstream_sees(make_gateway, key):
    gateway = make_gateway().start()
    gateway.post(key, target="/a%2Fb//c?x=%20&y", headers=[("X-Forwarded-For", "10.0.0.1")])
    seen = gateway.upstream.last()
    assert (seen.version, seen.target) == ("HTTP/1.1", "/a%2Fb//c?x=%20&y")
    assert seen.get("Connection") is None
    assert seen.get("Host") == f"127.0.0.1:{gateway.port}" or seen.get("Host") == "idem.test"
    assert seen.get("X-Forwarded-For") == "10.0.0.1, 127.0.0.1"
    assert seen.get("X-Forwarded-Proto") == "http"
    assert (seen.get("Idempotency-Key"), seen.get("Idempotency-Attempt")) == (key, "1")


def test_required(make_gateway, key):
    gateway = make_gateway("--required").start()
    assert gateway.post().status == 400 and gateway.upstream.count() == 0
    assert gateway.post(key).status == 201


def test_a_directive_that_is_set_works(make_gateway, key):
    gateway = make_gateway("--set", "idempotency_replay_status 200; idempotency_replay_header X-R;",
                           "--set", 'proxy_set_header X-Extra "a b;c";').start()
    assert gateway.post(key).status == 201
    assert gateway.upstream.last().get("X-Extra") == "a b;c"
    again = gateway.post(key)
    assert again.status == 200 and again.get("X-R") == "true"


def test_an_upstream_that_comes_later(make_gateway, make_upstream, key):
    upstream = make_upstream(listening=False)
    gateway = make_gateway(upstream=upstream).start()
    assert "nothing answers at" in gateway.err()
    assert gateway.post(key).status == 502
    upstream.listen()
    assert gateway.post(key).status == 201 and upstream.count() == 1


def test_an_upstream_behind_a_socket_file(make_gateway, place, key):
    path = place / "up.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(8)
        path.chmod(0o777)
        gateway = make_gateway(upstream=f"unix:{path}").start()
        # The probe of the command comes and goes before the request.
        background = Background(gateway.post, key)
        data = b""
        while not data:
            peer, _ = listener.accept()
            with peer:
                data = peer.recv(65536)
                if data:
                    assert f"Idempotency-Key: {key}".encode() in data
                    peer.sendall(b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok")
                    assert background.result().body == b"ok"


def test_the_access_log_on_standard_output(make_gateway, key):
    gateway = make_gateway("--access-log", "-").start()
    gateway.post(key)
    gateway.post(key)
    assert gateway.stop() == OK
    lines = gateway.out().splitlines()
    assert "ready on" in lines[0] and "stopped" in lines[-1]
    logged = [json.loads(line) for line in lines[1:-1]]
    assert [entry["outcome"] for entry in logged] == ["executed", "replayed"]
    assert logged[0]["status"] == 201 and re.fullmatch(r"[0-9a-f]{64}", logged[0]["id"])


def test_the_default_store_is_in_the_state_directory(make_gateway, key):
    gateway = make_gateway(store="").start()
    assert gateway.post(key).status == 201
    url = f"lmdb:{gateway.state}/store"
    assert url in gateway.out()
    assert good("show", "--key", key, "--json", "--store", url).json()["state"] == "completed"


def test_a_new_store_is_told_and_an_old_one_is_not(make_gateway, key):
    gateway = make_gateway().start()
    told = f"made a new, empty store in {gateway.state}/store: no earlier key is protected"
    assert f"idem gateway: {told}\n" in gateway.err()
    assert gateway.stop() == OK
    again = make_gateway(upstream=gateway.upstream, directory=gateway.directory).start()
    assert told not in again.err()


def test_a_full_store_is_told_at_the_start(make_gateway, place):
    full = Store(place / "full")
    full.url = f"lmdb:{full.directory}?size=1m&reserve=512k"

    def first_is_refused():
        """By a store that was just opened: one that is in use may estimate too darkly."""
        return full.apply(*({"op": "claim", "key": new_key()} for _ in range(1000)))[0] == "full"

    wait_until(first_is_refused, "the store is full")
    user = ("--user", "root") if os.geteuid() == 0 else ()
    gateway = make_gateway("--store", full.url, *user, store="").start()
    assert "is full: a request with a new key gets 503" in gateway.err()
    assert gateway.post(new_key()).status == 503
    assert "reserve" in hinted(gateway.err()).out
    plain = make_gateway().start()
    assert "is full" not in plain.err()


def test_bodies_up_to_ten_megabytes_unless_set(make_gateway):
    gateway = make_gateway().start()
    body = b"b" * (10 << 20)
    assert gateway.post(new_key(), body=body).status == 201
    refusal = gateway.post(new_key(), body=body + b"b")
    assert refusal.status == 413 and "json" not in refusal.get("Content-Type")
    larger = make_gateway("--set", "client_max_body_size 50m;").start()
    assert larger.post(new_key(), body=body + b"b").status == 201


def test_a_relative_access_log_is_in_the_current_directory(make_gateway, key):
    gateway = make_gateway("--access-log", "access.log").start()
    gateway.post(key)
    log = os.path.join(gateway.directory, "access.log")
    wait_until(lambda: os.path.exists(log) and os.path.getsize(log), "the request is logged")


@pytest.mark.parametrize("listen, upstream", [
    ("127.0.0.1", "127.0.0.1"), ("127.0.0.1", "localhost"), ("", "127.0.0.1"), ("", "localhost"),
    ("127.0.0.1", "0.0.0.0"), ("*", "0.0.0.0")])
def test_an_upstream_that_is_the_gateway_is_refused(place, listen, upstream):
    ran = refused(USAGE, "gateway", "--listen", f"{listen}:18080", "--upstream",
                  f"http://{upstream}:18080", "--state", place / "state")
    assert "is where the gateway itself listens" in ran.err
    assert os.listdir(place) == []


# ---- who may do what

def test_files_belong_to_the_right_user(make_gateway, key):
    gateway = make_gateway(store="").start()
    gateway.post(key, body=b"x" * 200000)
    worker = pwd.getpwuid(os.stat(f"/proc/{gateway.workers()[0]}").st_uid).pw_name
    store = os.path.join(gateway.state, "store")
    assert pwd.getpwuid(os.stat(store).st_uid).pw_name == worker
    for name in os.listdir(store):
        facts = os.stat(os.path.join(store, name))
        assert pwd.getpwuid(facts.st_uid).pw_name == worker and facts.st_mode & 0o077 == 0
    assert os.stat(store).st_mode & 0o077 == 0
    assert os.stat(os.path.join(gateway.state, "nginx.conf")).st_mode & 0o077 == 0
    for name in os.listdir(os.path.join(gateway.state, "tmp")):
        assert os.stat(os.path.join(gateway.state, "tmp", name)).st_mode & 0o077 == 0
    if os.geteuid() == 0:
        assert worker in ("www-data", "nginx", "nobody")
        # Root's own commands leave it so.
        good("list", "--store", f"lmdb:{store}")
        assert {os.stat(os.path.join(store, name)).st_uid for name in os.listdir(store)} == \
            {pwd.getpwnam(worker).pw_uid}
    else:
        assert worker == pwd.getpwuid(os.geteuid()).pw_name


def test_another_user_for_the_workers(make_gateway, key):
    if os.geteuid() != 0:
        gateway = make_gateway("--user", "nobody").start(ready=False)
        assert gateway.wait() == 2 and "--user needs root" in gateway.err()
        return
    for user in ("nobody", "root"):
        gateway = make_gateway("--user", user, store="").start()
        assert gateway.post(key).status == 201
        owner = os.stat(f"/proc/{gateway.workers()[0]}").st_uid
        assert owner == pwd.getpwnam(user).pw_uid
        assert os.stat(os.path.join(gateway.state, "store")).st_uid == owner


# ---- two of them

def test_a_second_gateway_on_the_state_directory(make_gateway, place, key):
    gateway = make_gateway().start()
    ran = refused(FAILURE, "gateway", "--listen", "127.0.0.1:1", "--upstream", "http://127.0.0.1:2",
                  "--state", gateway.state)
    assert f"a gateway runs on the state directory {gateway.state} already (process " \
        f"{gateway.process.pid})" in ran.err
    assert gateway.post(key).status == 201
    assert gateway.stop() == OK
    # Afterwards the directory is free, and what is in it is still there.
    second = make_gateway(upstream=gateway.upstream, directory=gateway.directory).start()
    assert second.post(key).replayed and gateway.upstream.count() == 1


def test_a_taken_port(make_gateway, place):
    gateway = make_gateway().start()
    ran = refused(FAILURE, "gateway", "--listen", f"127.0.0.1:{gateway.port}", "--upstream",
                  "http://127.0.0.1:1", "--state", place / "other")
    assert f"cannot listen on 127.0.0.1:{gateway.port}: another program" in ran.err


# ---- signals

@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_a_signal_drains(make_gateway, key, number):
    gateway = make_gateway().start()
    background, gate = held(gateway, key)
    nginx = gateway.nginx()
    gateway.signal(number)
    wait_until(lambda: refuses(gateway.port), "new connections are refused")
    assert gateway.process.poll() is None, "it waits for the request"
    gate.release()
    assert background.result().status == 201
    assert gateway.wait() == OK
    assert not group_alive(nginx)
    assert unknown_keys(gateway) == []


def refuses(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_ctrl_c_reaches_the_whole_group_and_still_drains(make_gateway, key):
    gateway = make_gateway().start()
    background, gate = held(gateway, key)
    os.killpg(gateway.process.pid, signal.SIGINT)
    wait_until(lambda: refuses(gateway.port), "new connections are refused")
    gate.release()
    assert background.result().status == 201 and gateway.wait() == OK


def test_a_second_signal_stops_at_once(make_gateway, key):
    gateway = make_gateway("--set", "idempotency_lease 1s;").start()
    background, _gate = held(gateway, key)
    begun = time.monotonic()
    assert gateway.stop_at_once() == CUT
    assert time.monotonic() - begun >= 1, "a signal within a second is the first one's echo"
    assert "second signal: stopping at once" in gateway.err()
    with pytest.raises(AssertionError):  # the connection ended without an answer
        background.result()
    wait_until(lambda: unknown_keys(gateway) == [key], "the outcome is unknown")
    assert key in hinted(gateway.err()).out, "the command that it tells to type shows the request"


def hinted(text):
    """Runs the command line at the end of a line, as a person would paste it."""
    line = re.search(r": (\S*idem [a-z].*)$", text, re.M).group(1)
    done = subprocess.run(["sh", "-c", line], capture_output=True, check=True, cwd="/",
                          env=environment())
    return Ran(done)


@pytest.mark.parametrize("numbers", [(signal.SIGTERM, signal.SIGTERM),
                                     (signal.SIGINT, signal.SIGTERM)])
def test_a_signal_that_comes_twice_at_once_is_one(make_gateway, key, numbers):
    """`timeout`, docker and supervisors signal the process and its group."""
    gateway = make_gateway().start()
    background, gate = held(gateway, key)
    gateway.signal(numbers[0])
    wait_until(lambda: refuses(gateway.port), "it drains")  # so that the two do not become one
    os.killpg(gateway.process.pid, numbers[1])
    hold_true_for(lambda: gateway.process.poll() is None, 0.3, "it still drains")
    gate.release()
    assert background.result().status == 201 and gateway.wait() == OK
    assert "second signal" not in gateway.err()


def test_the_drain_is_bounded(make_gateway, key):
    gateway = make_gateway("--drain", "200ms", "--set", "idempotency_lease 1s;").start()
    held(gateway, key)
    gateway.signal(signal.SIGTERM)
    assert gateway.wait() == CUT
    assert "the drain time is over" in gateway.err()
    wait_until(lambda: unknown_keys(gateway) == [key], "the outcome is unknown")
    assert key in hinted(gateway.err()).out


def test_hangup_reloads(make_gateway, key):
    gateway = make_gateway().start()
    before = gateway.workers()
    gateway.signal(signal.SIGHUP)
    wait_until(lambda: gateway.workers() and not set(gateway.workers()) & set(before),
               "the workers are replaced")
    assert gateway.post(key).status == 201
    assert gateway.stop() == OK


def test_a_reload_with_a_request_under_way_loses_nothing(make_gateway, key):
    gateway = make_gateway().start()
    before = gateway.workers()
    background, gate = held(gateway, key)
    gateway.signal(signal.SIGHUP)
    wait_until(lambda: set(gateway.workers()) - set(before), "new workers are there")
    gate.release()
    assert background.result().status == 201
    assert gateway.post(key).replayed and gateway.upstream.count() == 1


def test_the_log_is_opened_again(make_gateway, place, key):
    log = place / "access.log"
    gateway = make_gateway("--access-log", str(log)).start()
    gateway.post(key)
    wait_until(lambda: log.read_text(), "the request is logged")
    log.rename(place / "access.log.1")
    gateway.signal(signal.SIGUSR1)
    wait_until(log.exists, "the log is there again")
    wait_until(lambda: gateway.post(key).replayed and log.read_text(), "it is written to")


# ---- when something is killed

def test_nginx_killed(make_gateway, key):
    gateway = make_gateway().start()
    nginx = gateway.nginx()
    os.kill(nginx, signal.SIGKILL)
    assert gateway.wait() == FAILURE
    assert "nginx was killed by signal 9" in gateway.err()
    assert not group_alive(nginx), "no worker serves on without its master"


def test_nginx_killed_with_a_request_under_way(make_gateway, key):
    gateway = make_gateway().start()
    background, gate = held(gateway, key)
    os.kill(gateway.nginx(), signal.SIGKILL)
    wait_until(lambda: "killed by signal 9" in gateway.err(), "it is told")
    gate.release()
    assert background.result().status == 201
    assert gateway.wait() == FAILURE
    assert unknown_keys(gateway) == []


def test_a_worker_that_is_killed_is_replaced(make_gateway, key):
    gateway = make_gateway().start()
    worker, = gateway.workers()
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: gateway.workers() not in ([], [worker]), "another worker")
    assert gateway.post(key).status == 201
    assert gateway.stop() == OK


def test_the_command_killed_leaves_no_nginx(make_gateway, key):
    gateway = make_gateway().start()
    nginx = gateway.nginx()
    background, gate = held(gateway, key)
    gateway.signal(signal.SIGKILL)
    gateway.wait()
    # nginx drains; as long as it lives, nobody else may run on the directory.
    ran = idem("gateway", "--listen", "127.0.0.1:1", "--upstream", "http://127.0.0.1:2", "--state",
               gateway.state)
    assert ran.status == FAILURE and "a gateway runs on the state directory" in ran.err
    gate.release()
    assert background.result().status == 201
    wait_until(lambda: not group_alive(nginx), "nginx has ended")
    second = make_gateway(upstream=gateway.upstream, directory=gateway.directory).start()
    assert second.post(key).replayed and gateway.upstream.count() == 1


def test_everything_killed_and_started_again(make_gateway, key):
    gateway = make_gateway("--set", "idempotency_lease 1s;").start()
    assert gateway.post(key).status == 201
    lost = new_key()
    held(gateway, lost)
    nginx = gateway.nginx()
    os.kill(gateway.process.pid, signal.SIGKILL)
    os.killpg(nginx, signal.SIGKILL)
    gateway.wait()
    wait_until(lambda: not group_alive(nginx), "all are gone")
    assert os.path.exists(os.path.join(gateway.state, "gateway.sock")), "left behind, stale"
    second = make_gateway(upstream=gateway.upstream, directory=gateway.directory).start()
    assert second.post(key).replayed
    wait_until(lambda: unknown_keys(second) == [lost], "the request that was lost is unknown")
    assert second.post(lost).status == 409
    good("resolve", "--key", lost, "--failed", "--why", "not in the ledger", "--store",
         second.store_url)
    second.upstream.answer()
    assert second.post(lost).status == 201


# ---- settling while it runs

def test_settling_what_is_unknown_while_the_gateway_runs(make_gateway, key):
    gateway = make_gateway().start()
    gateway.upstream.answer(fault="close")
    assert gateway.post(key).status == 502
    assert gateway.post(key).status == 409
    assert unknown_keys(gateway) == [key]
    store = ("--store", gateway.store_url)
    good("resolve", "--key", key, "--completed", "--status", "201", "--header",
         "Content-Type: text/plain", "--body", "-", "--why", "seen in the ledger", *store,
         stdin=b"charged\n")
    answer = gateway.post(key)
    assert (answer.status, answer.body) == (201, b"charged\n")
    assert answer.replayed and answer.get("Content-Type") == "text/plain"
    assert gateway.upstream.count() == 1
    good("forget", "--key", key, "--why", "again, please", *store)
    gateway.upstream.answer()
    assert gateway.post(key).status == 201 and gateway.upstream.count() == 2


def test_a_running_request_is_not_settled_by_mistake(make_gateway, key):
    gateway = make_gateway().start()
    background, gate = held(gateway, key)
    store = ("--store", gateway.store_url)
    refused(REFUSED, "resolve", "--key", key, "--failed", "--why", "w", *store)
    refused(REFUSED, "forget", "--key", key, "--why", "w", *store)
    # By force it is: the late owner's answer does not overwrite the verdict.
    good("resolve", "--key", key, "--completed", "--status", "200", "--why", "w", "--force", *store)
    gate.release()
    assert background.result().status == 200, "answered from the record"
    assert good("show", "--key", key, "--json", *store).json()["answer"]["status"] == 200


def test_processes_are_not_waited_for_when_idle(make_gateway):
    """A gateway with nothing to do stays: it ends only when told."""
    gateway = make_gateway().start()
    master = gateway.nginx()
    hold_true_for(lambda: gateway.process.poll() is None and process_state(master) is not None
                  and children(master), 0.3, "the gateway runs")


def test_standard_output_closed_early(make_gateway, key):
    """A reader that goes away takes nothing with it."""
    gateway = make_gateway()
    # Its own, because the fixture's processes write into files.
    process = subprocess.Popen([IDEM, *gateway.words], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, env=environment(**gateway.env),
                               cwd=gateway.directory)
    try:
        assert b"ready on" in process.stdout.readline()
        gateway.groups.append(gateway.nginx())
        process.stdout.close()
        assert gateway.post(key).status == 201
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == FAILURE  # its last line could not be written
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
