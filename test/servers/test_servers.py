"""The private servers: they serve, keep what they acknowledged, fail as asked, and always end."""

import os
import signal
import ssl
import socket
import subprocess
import sys
import time

import pytest

from servers.guardian import start_time
from servers.process import Failed, wait_until
from servers.redis import Certificates, ask
from servers.rig import KINDS, Rig

HERE = os.path.dirname(os.path.abspath(__file__))
WITH = os.path.join(HERE, "with")
START_US = 1_700_000_000_123_456
TOLD = "for name in $(env | grep -oE '^IDEM_TEST_[A-Z0-9_]+_PID'); do " \
       "echo \"${!name}\"; done; echo \"$IDEM_TEST_FOLDER\"; exec sleep 1000"


def run_with(*words):
    return subprocess.run([WITH, *words], capture_output=True, text=True, check=False)


# ---- the command

@pytest.mark.parametrize("command, status", [
    (["true"], 0), (["sh", "-c", "exit 7"], 7), (["sh", "-c", "kill -9 $$"], 137),
    (["/no/such/program"], 127)])
def test_the_status_is_the_commands(command, status):
    assert run_with("redis", "--", *command).returncode == status


@pytest.mark.parametrize("words, status", [
    ([], 2), (["redis"], 2), (["redis", "--"], 2), (["--", "true"], 2),
    (["redis", "--real", "--", "true"], 2), (["oracle", "--", "true"], 125)])
def test_wrong_words_start_nothing(words, status):
    ran = run_with(*words)
    assert ran.returncode == status
    assert "KIND" in ran.stderr or "there is no kind oracle" in ran.stderr


def begin(*words):
    """A `with` whose command has told the pids of its servers and their folder."""
    process = subprocess.Popen([WITH, *words, "--", "bash", "-c", TOLD], stdout=subprocess.PIPE,
                               text=True, start_new_session=True)
    pids = []
    while True:
        line = process.stdout.readline().strip()
        assert line, "it ended without a word"
        if line.startswith("/"):
            return process, {pid: start_time(pid) for pid in pids}, line
        pids.append(int(line))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_servers_end_with_it_however_it_ends(number):
    process, servers, folder = begin("redis,sentinel,pgbouncer,mariadb")
    with process:
        assert len(servers) == 9 and None not in servers.values() and os.path.isdir(folder)
        process.send_signal(number)
        assert process.wait(30) == (-9 if number == signal.SIGKILL else 128 + number)
    wait_until(lambda: not any(start_time(pid) == start for pid, start in servers.items()),
               "all servers to end")
    wait_until(lambda: not os.path.exists(folder), "the folder to go")


def test_a_stopped_server_ends_too():
    process, servers, folder = begin("redis,postgres")
    with process:
        for pid in servers:
            os.kill(pid, signal.SIGSTOP)
        process.kill()
        process.wait(30)
    wait_until(lambda: not any(start_time(pid) == start for pid, start in servers.items()),
               "all servers to end")
    wait_until(lambda: not os.path.exists(folder), "the folder to go")


def test_a_command_controls_its_servers():
    ran = run_with("redis", "--", "sh", "-c", """
        set -e
        test "$($IDEM_TEST_CONTROL pid redis)" = "$IDEM_TEST_REDIS_PID"
        $IDEM_TEST_CONTROL stop redis
        grep -q '^State:.T' /proc/$IDEM_TEST_REDIS_PID/status
        $IDEM_TEST_CONTROL cont redis
        again=$($IDEM_TEST_CONTROL crash redis)
        test "$again" != "$IDEM_TEST_REDIS_PID"
        redis-cli -p $IDEM_TEST_REDIS_PORT ping
        $IDEM_TEST_CONTROL end redis
        ! redis-cli -p $IDEM_TEST_REDIS_PORT ping 2>/dev/null
        $IDEM_TEST_CONTROL start redis
        ! $IDEM_TEST_CONTROL burn redis
        ! $IDEM_TEST_CONTROL stop oracle
        """)
    assert (ran.returncode, "PONG" in ran.stdout) == (0, True), ran.stderr
    assert "there is no verb burn" in ran.stderr and "there is no server oracle" in ran.stderr


# ---- the servers

@pytest.fixture(scope="module", name="rig")
def all_kinds():
    with Rig() as rig:
        yield rig.start(KINDS)


def test_their_clock_is_turned(rig):
    before = ask(rig.servers["redis"].port, "TIME")
    assert abs(int(before[0]) - time.time()) < 5, "at first the real time shows"
    rig.clock.turn(START_US)
    try:
        for name in ("redis", "sentinel-master", "cluster-1", "cluster-6"):
            assert rig.servers[name].ask("TIME") == [b"1700000000", b"123456"]
        seen = rig.servers["postgres"].psql(
            "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
        assert int(seen) == START_US
    finally:
        rig.clock.turn(0)


def test_what_they_acknowledge_is_kept(rig):
    """By their settings, and by a crash."""
    redis = rig.servers["redis"]
    assert redis.ask("CONFIG", "GET", "appendfsync")[1] == b"always"
    assert redis.ask("CONFIG", "GET", "maxmemory-policy")[1] == b"noeviction"
    assert redis.ask("SET", "k", "v") == b"OK"
    port, pid = redis.port, redis.pid
    redis.restart(force=True)
    assert redis.port == port and redis.pid != pid and redis.ask("GET", "k") == b"v"

    postgres = rig.servers["postgres"]
    assert postgres.psql("SHOW synchronous_commit").strip() == "on"
    assert postgres.psql("SHOW fsync").strip() == "on"
    postgres.psql("CREATE TABLE kept (n int)")
    postgres.psql("INSERT INTO kept VALUES (7)")
    postgres.restart(force=True)
    assert postgres.psql("SELECT n FROM kept").strip() == "7"

    mariadb = rig.servers["mariadb"]
    assert mariadb.sql("SELECT @@innodb_flush_log_at_trx_commit").strip() == "1"
    mariadb.sql("CREATE DATABASE kept; CREATE TABLE kept.kept (n INT) ENGINE=InnoDB")
    mariadb.sql("INSERT INTO kept.kept VALUES (7)")
    mariadb.restart(force=True)
    assert mariadb.sql("SELECT n FROM kept.kept").strip() == "7"


def test_their_zones_are_none_that_one_reckons_with(rig):
    assert rig.servers["postgres"].psql("SHOW timezone").strip() == "Pacific/Chatham"
    assert rig.servers["mariadb"].sql("SELECT @@global.time_zone").strip() == "+12:45"


def test_a_stopped_server_hangs_and_goes_on(rig):
    for name in ("redis", "postgres", "mariadb"):
        server = rig.servers[name]
        server.stop()
        with pytest.raises((socket.timeout, TimeoutError)):
            hung(server.port)
        server.cont()
        wait_until(server.is_serving, f"{name} to go on")


def hung(port):
    """A connection is taken (by the kernel), and nothing comes."""
    with socket.create_connection(("127.0.0.1", port), timeout=0.2) as connection:
        connection.sendall(b"\0\0\0\x08\x04\xd2\x16\x2f")  # PostgreSQL's question for TLS
        connection.recv(1)


def test_nobody_fails_over_while_the_clock_is_turned(rig):
    group, cluster = rig.groups["sentinel"], rig.groups["cluster"]
    master = group.master_port()
    for day in range(1, 6):
        rig.clock.turn(START_US + day * 86_400_000_000)
        for node in cluster.servers:
            assert b"cluster_state:ok" in node.ask("CLUSTER", "INFO")
    rig.clock.turn(0)
    assert group.master_port() == master
    assert [node.info("replication")["role"] for node in cluster.servers] == \
        3 * ["master"] + 3 * ["slave"]


def role(node):
    """None while it is not to be asked: a change of roles ends its connections."""
    try:
        return node.info("replication")["role"]
    except OSError:
        return None


def test_they_fail_over_within_seconds_by_the_real_clock():
    with Rig(real_clock=True) as rig:
        rig.start(["sentinel", "cluster"])
        assert "IDEM_TEST_CLOCK" not in rig.environment()
        group, cluster = rig.groups["sentinel"], rig.groups["cluster"]
        group.master.kill()
        cluster.servers[0].kill()
        wait_until(lambda: group.master_port() == group.replica.port, "the replica to be named")
        wait_until(lambda: role(cluster.servers[3]) == "master", "the replica to be promoted")
        cluster.servers[0].restart()
        wait_until(lambda: role(cluster.servers[0]) == "slave", "the old master to follow")


def test_redis_speaks_tls(tmp_path):
    certificates = Certificates(str(tmp_path))
    context = ssl.create_default_context(cafile=certificates.authority)
    with Rig(real_clock=True) as rig:
        redis = rig.redis(tls=certificates)
        with socket.create_connection(("127.0.0.1", redis.tls_port), timeout=5) as plain, \
                context.wrap_socket(plain, server_hostname="localhost") as connection:
            connection.sendall(b"PING\r\n")
            assert connection.recv(7) == b"+PONG\r\n"


def test_a_server_that_cannot_start_says_why():
    with Rig(real_clock=True) as rig:
        with pytest.raises(Failed, match="Bad directive"):
            rig.redis(config="no-such-thing yes")


def test_a_missing_server_is_a_failure(tmp_path):
    """Never a skip, which Meson takes a status of 77 for."""
    for kind, program in (("redis", "redis-server"), ("mariadb", "mariadb-install-db")):
        ran = subprocess.run([WITH, kind, "--real-clock", "--", "/bin/true"], capture_output=True,
                             text=True, check=False, env={**os.environ, "PATH": str(tmp_path)})
        assert ran.returncode == 125 and f"{program} cannot be run" in ran.stderr


def test_a_mysql_takes_mariadbs_place():
    ran = subprocess.run([WITH, "mariadb", "--", "/bin/true"], capture_output=True, text=True,
                         check=False, env={**os.environ, "IDEM_MYSQLD": "/no/such/mysqld"})
    assert ran.returncode == 125 and "/no/such/mysqld cannot be run" in ran.stderr


def test_a_forgotten_rig_ends_with_its_process():
    """A Python test that never ends its rig leaves nothing behind either."""
    script = ("import sys; sys.path.insert(0, sys.argv[1])\n"
              "from servers.rig import Rig\n"
              "rig = Rig(real_clock=True); print(rig.redis().pid, rig.folder)\n")
    ran = subprocess.run([sys.executable, "-c", script, os.path.dirname(HERE)],
                         capture_output=True, text=True, check=True)
    pid, folder = ran.stdout.split()
    assert start_time(int(pid)) is None and not os.path.exists(folder)
