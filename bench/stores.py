"""The stores that are servers: each is started on this machine, measured, and ended.

For each: first executions at 128 connections as a ratio to plain proxy_pass in the same nginx; what
the guard adds at one connection, beside the store's own round trip; latency at half of the peak
rate; and claims a second through the library alone, beside what the store's own tool reaches.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

import load
import servers
from servers import BenchError

from private import MARIADB_PASSWORD, MARIADB_USER, Rig

BATCHES = (1, 8, 64)
CONNECTIONS = 128
RATE_CONNECTIONS = 512
RAW_COUNT = 2000


def tool(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        raise BenchError(f"{command[0]} failed: {done.stdout}{done.stderr}")
    return done.stdout


def found(pattern, text, what):
    match = re.search(pattern, text)
    if not match:
        raise BenchError(f"{what} printed no figure:\n{text}")
    return float(match.group(1))


class Redis:
    """Appended to a file that is flushed once a second, which sync=off accepts."""

    name, target, settings = "redis", 0.50, "AOF everysec, sync=off"
    raw_tool = "redis-benchmark SET, pipelined"

    def __init__(self, rig):
        self.server = rig.redis(config="appendfsync everysec")
        self.url = self.server.url() + "?sync=off"

    def raw(self, batch):
        """Milliseconds a round trip, and operations a second."""
        count = RAW_COUNT * 5 * batch
        text = tool("redis-benchmark", "-p", str(self.server.port), "-t", "set", "-c", "1", "-n",
                    str(count), "-P", str(batch), "-d", "300", "-r", "1000000", "--csv")
        rate = found(r'"SET[^"]*","([0-9.]+)"', text, "redis-benchmark")
        return batch * 1e3 / rate, rate


class Postgres:
    """As it comes: each commit waits for the disk."""

    name, target, settings = "postgres", 0.30, "synchronous_commit on"
    raw_tool = "pgbench, one INSERT a commit, as many clients"

    def __init__(self, rig):
        self.server = rig.postgres(config="shared_buffers = 256MB\nmax_wal_size = 4GB")
        self.url = self.server.url()
        self.server.psql("CREATE TABLE raw (id bigserial PRIMARY KEY, body bytea)")
        self.script = os.path.join(rig.folder, "insert.sql")
        with open(self.script, "w", encoding="ascii") as file:
            file.write("INSERT INTO raw (body) VALUES (decode(repeat('6a', 300), 'hex'));\n")
        os.chmod(self.script, 0o644)

    def raw(self, batch):
        text = tool("pgbench", "-h", "127.0.0.1", "-p", str(self.server.port), "-U", "idem", "-n",
                    "-M", "prepared", "-c", str(batch), "-t", str(RAW_COUNT // batch * 4 + 100),
                    "-f", self.script, "idem", env={**os.environ, "PGCONNECT_TIMEOUT": "10"})
        return (found(r"latency average = ([0-9.]+) ms", text, "pgbench"),
                found(r"tps = ([0-9.]+)", text, "pgbench"))


class MariaDB:
    """As it comes: each commit waits for the disk."""

    name, target, settings = "mariadb", 0.20, "innodb_flush_log_at_trx_commit 1"
    raw_tool = "mariadb-slap, one INSERT a commit, as many clients"

    def __init__(self, rig):
        self.server = rig.mariadb(options=["--innodb-buffer-pool-size=256M",
                                           "--innodb-log-file-size=512M"])
        self.url = self.server.url() + "/bench"
        self.server.sql("CREATE DATABASE raw; CREATE TABLE raw.raw (id BIGINT PRIMARY KEY "
                        "AUTO_INCREMENT, body VARBINARY(300)) ENGINE=InnoDB")

    def raw(self, batch):
        count = RAW_COUNT // batch * batch * 2
        text = tool("mariadb-slap", "--no-defaults", "--protocol=tcp", "--host=127.0.0.1",
                    f"--port={self.server.port}", f"--user={MARIADB_USER}",
                    f"--password={MARIADB_PASSWORD}", f"--concurrency={batch}",
                    f"--number-of-queries={count}", "--create-schema=raw", "--no-drop",
                    "--query=INSERT INTO raw (body) VALUES (REPEAT('j', 300))")
        seconds = found(r"Average number of seconds to run all queries: ([0-9.]+)", text,
                        "mariadb-slap")
        return seconds * batch * 1e3 / count, count / seconds


KINDS = {kind.name: kind for kind in (Redis, Postgres, MariaDB)}


def store_alone(store, program, results, say):
    """Claims a second through the library, and what the store's own tool reaches beside it."""
    mine = json.loads(tool(program, store.url))
    say(f"  without a gateway         claims/s   ms a batch   by the executor/s   raw/s "
        f"({store.raw_tool})")
    for batch in BATCHES:
        raw_ms, raw_rate = store.raw(batch)
        rate, batch_ms = mine[f"claims_per_s_{batch}"], mine[f"commit_ms_{batch}"]
        executor = mine[f"executor_claims_per_s_{batch}"]
        results[f"{store.name}_claims_per_s_{batch}"] = executor
        results[f"{store.name}_raw_per_s_{batch}"] = round(raw_rate)
        if batch == 1:
            results[f"{store.name}_round_trip_ms"] = round(raw_ms, 4)
        say(f"    batch of {batch:<2}             {rate:8.0f}   {batch_ms:10.3f}   "
            f"{executor:8.0f}            {raw_rate:8.0f}")


def throughput(guard, store, arguments, results, say):
    ratios, rates = [], []
    for _ in range(arguments.rounds):
        before = load.fresh(guard, "plain", CONNECTIONS, arguments.seconds)["rate"]
        rates.append(load.fresh(guard, store.name, CONNECTIONS, arguments.seconds)["rate"])
        after = load.fresh(guard, "plain", CONNECTIONS, arguments.seconds)["rate"]
        ratios.append(rates[-1] / ((before + after) / 2))
    ratio = round(statistics.median(ratios), 4)
    results[f"{store.name}_128"] = ratio
    good = ratio >= store.target
    say(f"  first executions, {CONNECTIONS}     {statistics.median(rates):8.0f}/s   "
        f"ratio {ratio:.3f} ({min(ratios):.3f} … {max(ratios):.3f})   target {store.target:.2f}"
        f"{'' if good else '   MISSED'}")
    return good, statistics.median(rates)


def latency(guard, store, arguments, results, say):
    """What the guard adds at one connection; two round trips of the store are in it."""
    added, trips = [], []
    for _ in range(arguments.rounds):
        before = load.fresh(guard, "plain", 1, arguments.seconds)["p50_ms"]
        guarded = load.fresh(guard, store.name, 1, arguments.seconds)["p50_ms"]
        trips.append(store.raw(1)[0])
        after = load.fresh(guard, "plain", 1, arguments.seconds)["p50_ms"]
        added.append(guarded - (before + after) / 2)
    results[f"{store.name}_added_ms_1"] = round(statistics.median(added), 4)
    limit = 2 * statistics.median(trips) + 0.3
    good = results[f"{store.name}_added_ms_1"] <= limit
    say(f"  added at 1 connection     {statistics.median(added):.3f} ms ({min(added):.3f} … "
        f"{max(added):.3f})   target <= 2 round trips of {statistics.median(trips):.3f} + 0.3 = "
        f"{limit:.3f}{'' if good else '   MISSED'}")
    return good


def pause_for(guard, store, rate, arguments):
    """
    The mean pause, in milliseconds, with which RATE_CONNECTIONS send at that rate: what is left of
    their time when an answer has taken as long as it does in a first, short run.
    """
    cycle_ms = RATE_CONNECTIONS * 1e3 / rate
    seen = load.fresh(guard, store.name, RATE_CONNECTIONS, arguments.seconds, cycle_ms)
    answer_ms = RATE_CONNECTIONS * 1e3 / seen["rate"] - cycle_ms
    return max(cycle_ms - max(answer_ms, 0), 0)


def half_rate(guard, store, peak, arguments, results, say):
    """
    What callers see who do not queue behind each other. wrk sends the next request of a connection
    only when the last was answered. So that all together send at a rate all the same, there are
    many, and each pauses by chance (exponentially distributed) before every request: most are
    pausing at any time, and a store that stands still is met by as many requests as would come from
    callers that do not wait, up to their number.
    """
    pause_ms = pause_for(guard, store, peak / 2, arguments)
    seen = load.fresh(guard, store.name, RATE_CONNECTIONS, arguments.seconds * 3, pause_ms)
    words = []
    for name in ("p50_ms", "p99_ms", "p999_ms"):
        results[f"{store.name}_half_{name}"] = round(seen[name], 3)
        words.append(f"{name[:-3]} {seen[name]:.2f} ms")
    results[f"{store.name}_half_share"] = round(seen["rate"] / peak, 3)
    say(f"  at {seen['rate'] / peak:.2f} of the peak       {seen['rate']:8.0f}/s   "
        f"{', '.join(words)}")


def measure(name, directory, module, program, idem, arguments, say):
    """One store. Returns whether its targets were met, and its figures."""
    results = {}
    with Rig(real_clock=True) as rig:
        store = KINDS[name](rig)
        tool(idem, "migrate", store.url)
        guard = servers.gateway(tempfile.mkdtemp(dir=directory), name, arguments.workers, None,
                                module, {name: store.url})
        say(f"\n{name}: {store.settings}")
        try:
            guard.start()
            load.post(guard, name, load.run_name())  # the store is open
            good, peak = throughput(guard, store, arguments, results, say)
            good &= latency(guard, store, arguments, results, say)
            half_rate(guard, store, peak, arguments, results, say)
        finally:
            guard.stop()
        store_alone(store, program, results, say)
    if "[alert]" in guard.log() or "[crit]" in guard.log():
        raise BenchError("nginx complains:\n" + guard.log())
    return good, results
