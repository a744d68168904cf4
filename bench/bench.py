"""Measures the gateway against plain nginx, on this machine, in one run.

    bench/run [BUILD] [--stores lmdb,redis,postgres,mariadb] [--rounds N] [--seconds S]
              [--workers N] [--upstream same|own]

What counts are ratios to plain proxy_pass in the same nginx process, measured within the same
minute: machines differ, and this one is different from one minute to the next. Each round is

    plain, first executions with sync=always, with sync=off, replays, plain

and yields one ratio of each kind to the mean of its two plain runs; the median over all rounds is
printed. One connection is measured the same way, in milliseconds, together with what one commit of
the store costs on the same file system (idem-bench-store).

Load generator, gateway and upstream run on the same machine over loopback. Two settings matter:

  --workers   One worker, unless told otherwise. LMDB has one writer at a time, so that one process
              makes the largest batches. With two workers on two processors first executions were
              slower (12 000 instead of 20 000 a second at 128 connections), while plain requests,
              which share nothing, were faster by a third.
  --upstream  The upstream is a server of the same nginx, unless told otherwise, so that a plain
              request and a guarded one cost the event loop the same two hops; the targets were set
              for this. With `own` it is another nginx, on a processor that the commits need too.
              On two processors plain proxy_pass is then about half as fast again, while the disk is
              what it was: the ratios of first executions are lower by a third. Both are true; look
              at the one that is more like your machine.

The stores that are servers are measured after LMDB, each beside its own server on this machine
(stores.py); --stores names those that are wanted.

A table comes first; the last line is one JSON object. Any answer that is not the expected one ends
the bench with exit code 1. Missed targets are marked; with --strict they are exit code 1 too.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import load
import servers
import stores

CONNECTIONS = (32, 128)
MEMORY_KEYS = 200_000
MEMORY_SETTLE_S = 3
MEMORY_MIB_MAX = 32
UNGUARDED_LOSS_MAX = 0.02

TARGETS = {
    "first_always_32": 0.20, "first_always_128": 0.35,
    "first_off_32": 0.45, "first_off_128": 0.50,
    "replay_32": 1.0, "replay_128": 1.0,
}


def say(text):
    print(text, flush=True)


def spread(values):
    return f"{min(values):.3f} … {max(values):.3f}"


def throughput(gateway, connections, rounds, seconds):
    """The ratios of every round, by kind, and the rates."""
    ratios = {"first_always": [], "first_off": [], "replay": []}
    rates = {"plain": [], "first_always": [], "first_off": [], "replay": []}
    for _ in range(rounds):
        before = load.fresh(gateway, "plain", connections, seconds)["rate"]
        found = {
            "first_always": load.fresh(gateway, "always", connections, seconds)["rate"],
            "first_off": load.fresh(gateway, "off", connections, seconds)["rate"],
            "replay": load.replay(gateway, "always", connections, seconds)["rate"],
        }
        after = load.fresh(gateway, "plain", connections, seconds)["rate"]
        plain = (before + after) / 2
        rates["plain"].append(plain)
        for kind, rate in found.items():
            rates[kind].append(rate)
            ratios[kind].append(rate / plain)
    return ratios, rates


def throughput_report(gateway, connections, arguments, results):
    ratios, rates = throughput(gateway, connections, arguments.rounds, arguments.seconds)
    say(f"\n{connections} connections            requests/s   ratio to plain (lowest … highest)")
    say(f"  plain proxy_pass          {statistics.median(rates['plain']):10.0f}")
    for kind, values in ratios.items():
        name = f"{kind}_{connections}"
        results[name] = round(statistics.median(values), 4)
        verdict = "" if results[name] >= TARGETS[name] else "   MISSED"
        say(f"  {name:<24}  {statistics.median(rates[kind]):10.0f}   {results[name]:.3f} "
            f"({spread(values)})   target {TARGETS[name]:.2f}{verdict}")


def commit_ms(program, directory, commits=200):
    """The median of one commit with one claim, in a store of its own on the same file system."""
    store = tempfile.mkdtemp(prefix="commit-", dir=directory)
    done = subprocess.run([program, f"lmdb:{store}?sync=always", str(commits)], capture_output=True,
                          text=True, check=False)
    shutil.rmtree(store)
    if done.returncode != 0:
        raise servers.BenchError(f"{program}: {done.stderr}")
    return json.loads(done.stdout)


def latency_report(gateway, program, directory, arguments, results):
    """One connection: what the guard adds to a first execution, and what a commit costs."""
    added, plain, guarded, commits = [], [], [], []
    for _ in range(arguments.rounds):
        before = load.fresh(gateway, "plain", 1, arguments.seconds)["p50_ms"]
        with_guard = load.fresh(gateway, "always", 1, arguments.seconds)["p50_ms"]
        commits.append(commit_ms(program, directory))
        after = load.fresh(gateway, "plain", 1, arguments.seconds)["p50_ms"]
        plain.append((before + after) / 2)
        guarded.append(with_guard)
        added.append(with_guard - plain[-1])
    results["added_ms_1"] = round(statistics.median(added), 4)
    results["commit_ms_1"] = round(statistics.median(c["commit_ms_1"] for c in commits), 4)
    limit = 2 * results["commit_ms_1"] + 0.2
    verdict = "" if results["added_ms_1"] <= limit else "   MISSED"
    say("\n1 connection, median           ms")
    say(f"  plain proxy_pass          {statistics.median(plain):.3f}")
    say(f"  first execution, always   {statistics.median(guarded):.3f}")
    say(f"  added_ms_1                {results['added_ms_1']:.3f} ({spread(added)})   "
        f"target <= 2 commits + 0.2 = {limit:.3f}{verdict}")
    say("\nthe store alone, sync=always   ms a commit   claims/s")
    for size in (1, 8, 64):
        time_ms = statistics.median(c[f"commit_ms_{size}"] for c in commits)
        rate = statistics.median(c[f"claims_per_s_{size}"] for c in commits)
        say(f"  batch of {size:<2}               {time_ms:.3f}         {rate:8.0f}")
    return verdict == ""


def memory_report(gateway, arguments, results):
    """What the worker's private memory grows by over 200 000 distinct keys, the store's map
    included, which the store tidies up once a second."""
    load.fresh(gateway, "off", 32, arguments.seconds)  # pools and buffers reach their size
    time.sleep(MEMORY_SETTLE_S)
    anonymous_before, private_before = gateway.memory_kib()
    keys = 0
    while keys < MEMORY_KEYS:
        keys += load.fresh(gateway, "off", 32, arguments.seconds)["requests"]
    time.sleep(MEMORY_SETTLE_S)
    anonymous_after, private_after = gateway.memory_kib()
    results["memory_mib"] = round((private_after - private_before) / 1024, 2)
    verdict = "" if results["memory_mib"] < MEMORY_MIB_MAX else "   MISSED"
    say(f"\nmemory over {keys} distinct keys")
    say(f"  private to the worker     {results['memory_mib']:+.1f} MiB   "
        f"target < {MEMORY_MIB_MAX}{verdict}")
    say(f"  anonymous, without the store's map   "
        f"{(anonymous_after - anonymous_before) / 1024:+.1f} MiB")
    return verdict == ""


def cost(server):
    """Processor time of the workers for one request at a location that nobody guards."""
    before = server.processor_s()
    requests = load.fresh(server, "plain", 32, 1)["requests"]
    return (server.processor_s() - before) / requests


def unguarded_report(bare, gateway, arguments, results):
    """Locations that nobody guards: nginx as it comes against nginx with the module and stores.

    Compared by the workers' processor time, idle threads of the stores included: that is what
    bounds a busy nginx, and other programs on the machine hardly change it, while two runs of the
    same nginx differ in requests a second by much more than what is looked for here. Disturbances
    only ever add to it, so the lower quartile of each side is taken."""
    costs = {bare: [], gateway: []}
    for pair in range(arguments.pairs):
        for server in (bare, gateway) if pair % 2 == 0 else (gateway, bare):
            costs[server].append(cost(server) * 1e6)
    without, with_module = (statistics.quantiles(costs[s], n=4)[0] for s in (bare, gateway))
    results["unguarded_loss"] = round(1 - without / with_module, 4)
    verdict = "" if results["unguarded_loss"] < UNGUARDED_LOSS_MAX else "   MISSED"
    say(f"\nunguarded locations, {arguments.pairs} pairs   us of a processor a request")
    say(f"  nginx as it comes         {without:.2f} ({spread(costs[bare])})")
    say(f"  with module and stores    {with_module:.2f} ({spread(costs[gateway])})")
    say(f"  loss                      {results['unguarded_loss'] * 100:+.1f} %   "
        f"target < {UNGUARDED_LOSS_MAX * 100:.0f} %{verdict}")
    return verdict == ""


def measure_lmdb(directory, module, program, arguments):
    started = []

    def start(server):
        started.append(server)
        return server.start()

    results = {}
    try:
        port = start(servers.upstream(directory)).port if arguments.upstream == "own" else None
        bare = start(servers.gateway(directory, "bare", arguments.workers, port))
        guard = start(servers.gateway(directory, "guard", arguments.workers, port, module))
        for location in ("always", "off"):
            load.post(guard, location, load.run_name())  # the stores are open
        for connections in CONNECTIONS:
            throughput_report(guard, connections, arguments, results)
        good = all(results[name] >= target for name, target in TARGETS.items())
        good &= latency_report(guard, program, directory, arguments, results)
        good &= memory_report(guard, arguments, results)
        good &= unguarded_report(bare, guard, arguments, results)
    finally:
        for server in reversed(started):
            server.stop()
    for server in started:
        if "[alert]" in server.log() or "[crit]" in server.log():
            raise servers.BenchError("nginx complains:\n" + server.log())
    return good, results


STORES = ("lmdb", *stores.KINDS)


def store_names(text):
    names = text.split(",")
    for name in names:
        if name not in STORES:
            raise argparse.ArgumentTypeError(f"{name} is none of {', '.join(STORES)}")
    return names


def measure(directory, build, arguments):
    good, results = True, {}
    for name in arguments.stores:
        if name == "lmdb":
            met, figures = measure_lmdb(directory, build["module"], build["program"], arguments)
        else:
            met, figures = stores.measure(name, directory, build["module"], build["program"],
                                          build["idem"], arguments, say)
        good &= met
        results.update(figures)
    return good, results


def main():
    parser = argparse.ArgumentParser(description="Measures the gateway against plain nginx.")
    parser.add_argument("build", nargs="?", default="build", help="build directory")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each measurement")
    parser.add_argument("--seconds", type=int, default=2, help="length of each run of wrk")
    parser.add_argument("--pairs", type=int, default=20, help="pairs of unguarded runs")
    parser.add_argument("--workers", type=int, default=1, help="nginx workers of the gateway")
    parser.add_argument("--upstream", choices=("same", "own"), default="same",
                        help="the upstream is in the same nginx, or in its own")
    parser.add_argument("--stores", type=store_names, default=list(STORES),
                        help=f"which of {','.join(STORES)}; all unless told otherwise")
    parser.add_argument("--strict", action="store_true", help="a missed target is an error")
    arguments = parser.parse_args()

    build = os.path.abspath(arguments.build)
    paths = {"module": os.path.join(build, "nginx", "ngx_http_idempotency_module.so"),
             "program": os.path.join(build, "bench", "idem-bench-store"),
             "idem": os.path.join(build, "cli", "idem")}
    for path in paths.values():
        if not os.path.exists(path):
            sys.exit(f"bench: {path} is missing: run `make build`, or name the build directory")
    directory = tempfile.mkdtemp(prefix="bench-", dir=build)
    say(f"nginx with {arguments.workers} worker(s), upstream in "
        f"{'the same' if arguments.upstream == 'same' else 'its own'} nginx, {os.cpu_count()} "
        f"processors, load {os.getloadavg()[0]:.1f}, {arguments.rounds} rounds of "
        f"{arguments.seconds} s")
    try:
        good, results = measure(directory, paths, arguments)
    except servers.BenchError as error:
        sys.exit(f"bench: {error}")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    say("")
    say(json.dumps(results))
    sys.exit(1 if arguments.strict and not good else 0)


if __name__ == "__main__":
    main()
