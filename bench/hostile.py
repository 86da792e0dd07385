#!/usr/bin/env python3
"""Measures how much hostile clients disturb good clients.

20 good streams and one new good request each second run all the time: first alone (quiet), then next to clients that send every kind of bad
input without pause (hostile), then alone again (quiet), and finally next to 4,000 idle connections. The test fails if

  - the hostile p99 of the gap between tokens is above 2 times the quiet p99, the worst gap above 5 times, or the p99 of the first token
    above 2 times,
  - a good request is refused, or its answer is short or differs in a token or a digit of a log probability from the answer without load,
  - a bad request is accepted, answered by a server error, or not answered although its header suffices for a refusal,
  - the peak memory of the server is above the bound that is printed before the start,
  - /health does not answer with success within a second next to the idle connections.

The attackers run on the same machine, so they also compete for the CPU. To limit this, they run at nice 19 and create all requests
beforehand. Their remaining CPU use is printed; the figures are not corrected for this use.

`priority` runs on a separate server (--kind all, the default, runs both), because its requests are admitted: paying clients whose priority
improves with each request, on a cache that is too small for them, next to good clients with an even better priority. In the quiet phase
the paying clients all have one priority.

`neighbours` are loads with which one tenant can disturb another (neighbours.py), each on a separate server with a key for each tenant. The
test fails if the good tenant's p99 gap or p99 first token is above twice its value alone, a good answer is refused, or /health or /metrics
does not answer.
"""

import asyncio
import json
import os
import pathlib
import random
import statistics
import sys
import time

import machine
import neighbours
from attackers import KINDS, NEIGHBOURS, NUM_IDLE, Attacker, idle_connections, make_kind, unexpected
from good_load import GoodLoad, make_questions, percentile
from paying import PayingClients

KEY = "a-key-for-this-run"
ARRIVAL_TOKENS, ARRIVAL_PERIOD_S = 16, 1.0
MIB = 1 << 20
PRIORITY_FLAGS = ["--scheduling-policy", "priority", "--num-blocks", "640", "--max-num-batched-tokens", "256"]
MIN_ATTACKS = 20  # least number of requests of each kind; fewer requests prove nothing
LIMITS = {"p99 gap": 2.0, "worst gap": 5.0, "p99 first token": 2.0}  # limits of the ratios hostile / quiet


def memory_bound_mib(arguments, num_connections: int) -> tuple:
    """Returns (MiB, explanation of the sum) from the server's documented limits."""
    weights = pathlib.Path(arguments.model).stat().st_size / MIB
    parts = {
        "weights": weights,
        "KV cache": arguments.kv_cache_mib,
        "bodies in flight, with what is parsed of them": arguments.body_budget_mib * arguments.body_factor,
        f"{num_connections} connections of {arguments.connection_kib} KiB": num_connections * arguments.connection_kib / 1024,
        "everything else (program, vocabulary, scratch, allocator)": arguments.rest_mib,
    }
    return sum(parts.values()), " + ".join(f"{name} {mib:.0f}" for name, mib in parts.items())


def start_server(arguments, flags: list) -> machine.Server:
    port = machine.free_port()
    command = [arguments.binary, "serve", arguments.model, "--port", str(port), "--api-key", KEY,
               "--kv-cache-memory", f"{arguments.kv_cache_mib}MiB",
               "--max-body-bytes-in-flight", str(arguments.body_budget_mib * MIB), *flags, *arguments.quire_args.split()]  # fmt: skip
    return machine.Server("quire", command, port)


class Progress:
    """Prints one line, which is rewritten: the phase, its progress, and the number of good and bad answers so far."""

    def __init__(self, load: GoodLoad):
        self.load, self.tty = load, sys.stderr.isatty()

    async def wait(self, what: str, seconds: float) -> None:
        end = time.monotonic() + seconds
        if not self.tty:
            print(f"{what}: {seconds:.0f} s", file=sys.stderr, flush=True)
        while (left := end - time.monotonic()) > 0:
            if self.tty:
                state = f"good answers {self.load.num_good}, bad {len(self.load.bad)}"
                print(f"\r{what:<28} {'#' * int(30 * (1 - left / seconds)):<30} {left:4.0f} s   {state} ", end="", file=sys.stderr, flush=True)
            await asyncio.sleep(min(0.5, left))
        if self.tty:
            print(file=sys.stderr)


async def run_phase(load, progress, name, seconds, label=None) -> None:
    load.phase = name
    await progress.wait(label or name, seconds)
    load.phase = None


async def begin_good_load(load: GoodLoad, arguments):
    """Records the expected answers, then starts the load. Returns (stop event, task)."""
    rng = random.Random(arguments.seed)
    streams, arrivals = make_questions(rng, min(8, arguments.streams), arguments.stream_tokens), make_questions(rng, 4, ARRIVAL_TOKENS)
    print(f"asking {len(streams) + len(arrivals)} questions alone, for the answers to compare with", file=sys.stderr)
    await load.learn(streams + arrivals)
    stop = asyncio.Event()
    clients = [load.stream_until(stop, streams[i % len(streams)], i * 0.3) for i in range(arguments.streams)]
    return stop, asyncio.gather(*clients, load.arrive_until(stop, arrivals, ARRIVAL_PERIOD_S))


def processor_s(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def run_mixed(arguments, names: list, server) -> dict:
    attackers = [Attacker(server.port, name, make_kind(name, KEY)) for name in names]
    load = GoodLoad(server.port, KEY)
    progress = Progress(load)
    stop, task = await begin_good_load(load, arguments)
    await progress.wait("settling", arguments.settle)
    await run_phase(load, progress, "quiet", arguments.seconds / 2)
    used = processor_s(server.process.pid)
    for attacker in attackers:
        attacker.begin.set()
    await run_phase(load, progress, "hostile", arguments.seconds)
    used = processor_s(server.process.pid) - used
    for attacker in attackers:
        attacker.stop.set()
    results = {attacker.name: await asyncio.to_thread(attacker.result) for attacker in attackers}
    await progress.wait("settling", arguments.settle)
    await run_phase(load, progress, "quiet", arguments.seconds / 2)
    health = await probe_beside_idle(server, progress, arguments) if arguments.idle else None
    stop.set()
    await task
    wrong = {attacker.name: found for attacker in attackers if (found := unexpected(attacker.kind, results[attacker.name][0]))}
    return {"load": load, "attackers": results, "unexpected": wrong, "server cpu s": round(used, 1), "health": health}


async def probe_beside_idle(server, progress, arguments) -> dict:
    """Requests /health next to idle connections. Returns the slowest time and the answers by status."""
    holder = idle_connections(server.port)
    holder.begin.set()
    probing = asyncio.create_task(probe_health(server.port, arguments.idle))
    await progress.wait(f"{NUM_IDLE} idle connections", arguments.idle)
    slowest, statuses = await probing
    counts = (await asyncio.to_thread(holder.result))[0]
    return {"slowest s": slowest, "answers": statuses, "idle connections held": counts.get("held at the end", 0)}


async def probe_health(port: int, seconds: float) -> tuple:
    slowest, statuses, end = 0.0, {}, time.monotonic() + seconds
    while time.monotonic() < end:
        asked = time.monotonic()
        try:
            async with asyncio.timeout(10):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
                status = (await reader.readline()).split()
                writer.close()
            what = status[1].decode() if len(status) > 1 else "refused"
        except TimeoutError:
            what = "no answer in 10 s"
        except OSError:
            what = "refused"
        slowest = max(slowest, time.monotonic() - asked)
        statuses[what] = statuses.get(what, 0) + 1
        await asyncio.sleep(0.2)
    return slowest, statuses


async def run_priority(arguments, server) -> dict:
    """Runs the same paying clients in both phases. Their priorities improve with each request only in the hostile phase."""
    load = GoodLoad(server.port, KEY, {"priority": -(2**31)})
    progress = Progress(load)
    stop, task = await begin_good_load(load, arguments)
    paying = PayingClients(server.port, KEY, arguments.seed)
    for name, seconds in (("quiet", arguments.seconds / 2), ("hostile", arguments.seconds), ("quiet", arguments.seconds / 2)):
        paying.start(improving=name == "hostile")
        await progress.wait("settling", arguments.settle)
        await run_phase(load, progress, name, seconds, f"{name} (priority)")
        await paying.end()
    stop.set()
    await task
    bad = {what: n for what, n in paying.counts.items() if what not in (200, 429, "given up")}
    preemptions = await paying.metric("vllm:num_preemptions_total")
    return {"load": load, "unexpected": {"priority": bad} if bad else {}, "paying": dict(paying.counts), "preemptions": preemptions}


def run_and_report(title: str, scenario, server, bound_mib: float) -> tuple:
    """Runs a scenario and prints its report. Returns (raw data, failures)."""
    with server:
        run = asyncio.run(scenario)
        run["memory MiB"] = server.memory_mib("VmHWM")
        run["exit"] = server.stop()
    return run, report(title, run, bound_mib)


def figures(load: GoodLoad, phase: str) -> dict:
    samples = load.samples[phase]
    return {"p99 gap": percentile(samples.gaps, 0.99), "worst gap": max(samples.gaps, default=float("nan")),
            "p99 first token": percentile(samples.firsts, 0.99), "median gap": statistics.median(samples.gaps or [float("nan")]),
            "median first token": statistics.median(samples.firsts or [float("nan")])}  # fmt: skip


def report(title: str, run: dict, bound_mib: float) -> list:
    """Prints the run. Returns the failures."""
    load, failed = run["load"], []
    quiet, hostile = figures(load, "quiet"), figures(load, "hostile")
    print(f"\n{title}\n{'':24}{'quiet ms':>10}{'hostile ms':>12}{'ratio':>8}{'limit':>7}")
    for name, value in hostile.items():
        ratio, limit = value / quiet[name], LIMITS.get(name)
        print(f"{name:<24}{quiet[name] * 1e3:10.1f}{value * 1e3:12.1f}{ratio:8.2f}{limit or '':>7}")
        if limit and not ratio <= limit:
            failed.append(f"{name}: {ratio:.2f} times, limit {limit}")
    sizes = [len(times) for phase in ("quiet", "hostile") for times in (load.samples[phase].gaps, load.samples[phase].firsts)]
    print("samples: quiet {} gaps, {} first tokens; hostile {} gaps, {} first tokens".format(*sizes))
    print(f"good answers: {load.num_good} complete and equal, {len(load.bad)} not")
    failed += [f"good answer {problem}" for problem in load.bad[:5]] + ([f"... {len(load.bad)} in all"] if len(load.bad) > 5 else [])
    for name, (counts, seconds, cpu) in run.get("attackers", {}).items():
        rate = sum(n for what, n in counts.items() if what != "held at the end") / max(seconds, 1e-9)
        print(f"  {name:<12}{rate:8.1f} requests/s  {100 * cpu / max(seconds, 1e-9):5.1f} % of a core  {counts}")
        if sum(counts.values()) < MIN_ATTACKS:
            failed.append(f"{name}: only {sum(counts.values())} requests were sent, so the result proves nothing")
    for name in ("server cpu s", "paying", "preemptions", "health"):
        if run.get(name) is not None:
            print(f"{name}: {run[name]}")
    print(f"memory: at most {run['memory MiB']:.0f} MiB, bound {bound_mib:.0f} MiB; exit code {run['exit']}")
    if run.get("preemptions", MIN_ATTACKS) < MIN_ATTACKS:
        failed.append(f"only {run['preemptions']:.0f} preemptions, so the result proves nothing")
    failed += [f"{name}: {found}" for name, found in run["unexpected"].items()]
    if run["memory MiB"] > bound_mib:
        failed.append(f"memory: {run['memory MiB']:.0f} MiB, bound {bound_mib:.0f}")
    if run["exit"] != 0:
        failed.append(f"the server ended with {run['exit']}")
    if run.get("health") and run["health"]["slowest s"] > 1.0:
        failed.append(f"/health took {run['health']['slowest s']:.2f} s next to {NUM_IDLE} idle connections")
    sys.stdout.flush()
    return failed


def save(path: str, runs: dict) -> None:
    raw = {title: run if "load" not in run else {**{name: value for name, value in run.items() if name != "load"}, "bad": run["load"].bad,
                   "samples": {phase: vars(samples) for phase, samples in run["load"].samples.items()}} for title, run in runs.items()}  # fmt: skip
    pathlib.Path(path).write_text(json.dumps(raw, default=str))


def main():
    parser = machine.parser(__doc__, seed=1)
    parser.add_argument("--kind", choices=["all", *KINDS, "priority", "neighbours", *NEIGHBOURS], default="all")
    parser.add_argument("--seconds", type=float, default=60, help="seconds of the hostile phase, and of both quiet phases together")
    parser.add_argument("--streams", type=int, default=20, help="number of concurrent good streams")
    parser.add_argument("--stream-tokens", type=int, default=160, help="length of each stream in tokens")
    parser.add_argument("--settle", type=float, default=6, help="seconds between two phases, not counted")
    parser.add_argument("--idle", type=float, default=15, help=f"seconds next to {NUM_IDLE} idle connections; 0: skip")
    parser.add_argument("--vision-model", default="build/bench/vision-of-one-tile",
                        help="folder of a model that supports images; created if missing")  # fmt: skip
    parser.add_argument("--json", help="output file for all raw data")
    parser.add_argument("--quire-args", default="", help="additional flags for quire serve, as one string")
    limits = parser.add_argument_group("memory bound")
    limits.add_argument("--kv-cache-mib", type=int, default=512)
    limits.add_argument("--body-budget-mib", type=int, default=64, help="the server's --max-body-bytes-in-flight")
    limits.add_argument("--body-factor", type=float, default=4, help="size of a body and its parsed form, over the size of the body")
    limits.add_argument("--connection-kib", type=int, default=24)
    limits.add_argument("--rest-mib", type=int, default=256)
    arguments = parser.parse_args()
    machine.end_on_sigterm()
    print(machine.describe())
    bound, sum_of = memory_bound_mib(arguments, 4096)
    print(f"memory bound: {bound:.0f} MiB = {sum_of}", flush=True)
    runs, failed = {}, []
    if arguments.kind in ("all", *KINDS):
        names = [arguments.kind] if arguments.kind != "all" else [*KINDS]
        server = start_server(arguments, [])
        title = f"attackers: {', '.join(names)}"
        runs[title], found = run_and_report(title, run_mixed(arguments, names, server), server, bound)
        failed += found
    if arguments.kind in ("all", "priority"):
        server = start_server(arguments, PRIORITY_FLAGS)
        title = "attackers: paying clients whose priority always improves"
        runs[title], found = run_and_report(title, run_priority(arguments, server), server, bound)
        failed += found
    if arguments.kind in ("all", "neighbours", *NEIGHBOURS):
        found_runs, found = neighbours.run_all([arguments.kind] if arguments.kind in NEIGHBOURS else [*NEIGHBOURS], arguments)
        runs |= found_runs
        failed += found
    if arguments.json:
        save(arguments.json, runs)
    print("\n" + ("FAILED\n  " + "\n  ".join(failed) if failed else "passed"))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
