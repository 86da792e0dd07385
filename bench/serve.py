#!/usr/bin/env python3
"""Measures serving speed over HTTP, of quire and other engines in one run: same model, same client, same prompts, alternating turns.

A turn sends concurrent requests to one server (greedy, exact lengths). Workloads:
- `distinct`: 128 tokens in, 64 out, nothing in common;
- `shared`: 1,024 common tokens and 64 separate ones in, 32 out; an uncounted turn puts the common tokens into every engine's prefix cache;
- `alone`: one request at a time, 512 tokens in and one out, then a short prompt and 64 tokens out (quire and llama.cpp without HTTP: quire
  bench, llama-bench);
- `long`, only if requested: one request with 8,000 tokens in and 64 out.

With fewer than 8 clients each client sends several requests per turn. The order is quire, rival, quire, next rival, ..., so that each
rival's turn is between two turns of quire, with which it is compared. If quire has two variants of activations, they alternate. If other
processes used 5 % of the CPU or more in a turn, the turn is repeated at most twice, and the attempt with the least other load counts. The
last column shows how many turns still had more load.

Prints in each row: output tokens per second over the whole time, including prefill; tokens per second of a stream while it decodes;
milliseconds to the first token; largest resident MiB of all the server's processes; seconds from start to ready; quire's figures over this
engine's. All are medians, ratios with their range.
"""

import argparse
import contextlib
import statistics
import subprocess
import sys
import time

import machine
from rivals import foreign, listing, pairs
from rivals.client import Asker, Failed
from rivals.contestant import CACHE, WORKLOADS

QUIET = 0.05  # largest share of the CPU that other processes may use in a turn
ATTEMPTS = 3
COLUMNS = {"total": "total", "stream": "stream", "first": "first, ms", "prompt": "prompt tokens/s", "output": "output tokens/s"}


class Fleet:
    """The servers. Each server is started when it is first needed, and restarted when its command line changes."""

    def __init__(self):
        self.running = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for _, server in self.running.values():
            server.stop()

    def server(self, one, workload, clients):
        settings = one.command(0, workload, clients)
        if one.name in self.running and self.running[one.name][0] == settings:
            return self.running[one.name][1]
        self.drop(one)
        port = machine.free_port()
        log = CACHE / "log" / f"{one.name.replace(' ', '-')}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        server = machine.Server(one.name, one.command(port, workload, clients), port, one.environment, log)
        self.running[one.name] = (settings, server)
        return server

    def drop(self, one):
        if one.name in self.running:
            self.running.pop(one.name)[1].stop()


def wait_until_idle(limit_s):
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        watch = foreign.Watch(None)
        time.sleep(0.5)
        if watch.share() < QUIET:
            return


def quiet_turn(play, pid, limit_s):
    """Returns (figures, share of others) of the attempt with the least load by other processes."""
    attempts = []
    while not attempts or (attempts[-1][1] >= QUIET and len(attempts) < ATTEMPTS):
        wait_until_idle(limit_s)
        watch = foreign.Watch(pid)
        figures = play()
        attempts.append((figures, watch.share()))
    return min(attempts, key=lambda attempt: attempt[1])


class Cell:
    """One table cell: one workload with one number of clients."""

    def __init__(self, fleet, workload, clients, arguments, problems):
        self.fleet, self.workload, self.clients, self.arguments, self.problems = fleet, workload, clients, arguments, problems
        self.asker = Asker(workload, clients, arguments.seed)
        self.turns, self.loud, self.servers = [], {}, {}

    def guarded(self, action, one):
        """Runs action(one). An engine that fails leaves the cell empty; a failure of quire ends the run."""
        try:
            return action(one)
        except (Failed, OSError, SystemExit, subprocess.SubprocessError) as problem:
            if one.is_ours or (isinstance(problem, SystemExit) and isinstance(problem.code, int)):
                raise
            self.fleet.drop(one)
            self.problems.append(f"{one.name} failed in {self.workload.name}, c = {self.clients}: {problem}")
            return None

    def prepare(self, one):
        if not (self.workload.name == "alone" and one.alone):
            self.servers[one.name] = server = self.fleet.server(one, self.workload, self.clients)
            self.asker.wave(server.port, one.body(self.workload), 8)
        return True

    def turn(self, one):
        server = self.servers.get(one.name)
        if server:
            return quiet_turn(lambda: self.asker.turn(server.port, one.body(self.workload)), server.process.pid, self.arguments.idle_wait)
        return quiet_turn(one.alone, None, self.arguments.idle_wait)

    def measure(self, taking_part):
        ready = {one.name: one for one in taking_part if self.guarded(self.prepare, one)}
        ours = [one.name for one in ready.values() if one.is_ours]
        for name in pairs.order(ours, [name for name in ready if name not in ours], self.arguments.rounds):
            if name in ready and (result := self.guarded(self.turn, ready[name])):
                self.turns.append((name, result[0]))
                self.loud.setdefault(name, []).append(result[1] >= QUIET)
            else:
                ready.pop(name, None)
        return list(ready.values())

    def row(self, one, ours):
        mine = [figures for name, figures in self.turns if name == one.name]
        server = self.servers.get(one.name)
        cells = [str(self.clients), one.name, *(number(statistics.median(turn[key] for turn in mine)) for key in mine[0])]
        cells += [f"{foreign.tree_peak_mib(server.process.pid):,.0f}", f"{server.ready_s:.1f}"] if server else ["", ""]
        for other in ours if not one.is_ours else []:
            cells += [pairs.spread(pairs.ratios(self.turns, other.name, one.name, key)) for key in mine[0] if key != "first"]
        cells += [""] * (2 * len(ours) if one.is_ours and self.arguments.against else 0)
        return "| " + " | ".join([*cells, f"{sum(self.loud[one.name])} of {len(self.loud[one.name])}"]) + " |"


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def header(workload, ours, arguments):
    keys = ("prompt", "output") if workload.name == "alone" else ("total", "stream", "first")
    columns = ["c", "engine", *(COLUMNS[key] for key in keys), "resident", "ready, s"]
    if arguments.against:
        columns += [f"{one.name}'s {key} over it" for one in ours for key in keys if key != "first"]
    columns.append("not quiet")
    shape = f"{workload.shared + workload.own:,} tokens in" + (f", {workload.shared:,} of them shared" if workload.shared else "")
    return f"\n{workload.name}: {shape}, {workload.output} out\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}"


def numbers(text):
    return [int(part) for part in text.split(",")]


def names(text):
    """Raises an error whose message argparse prints."""
    try:
        return listing.parse(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from problem


def workloads(text):
    unknown = set(text.split(",")) - set(WORKLOADS)
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown workload {', '.join(sorted(unknown))}. Choose from {', '.join(WORKLOADS)}")
    return [WORKLOADS[name] for name in text.split(",")]


def parse_arguments():
    parser = machine.parser(__doc__, seed=1)
    parser.add_argument("--against", type=names, default=[], help="engines to install once and to compare: llama.cpp,vllm,openvino")
    parser.add_argument("--workload", type=workloads, default=[one for one in WORKLOADS.values() if one.is_default],
                        help="any of distinct,shared,alone,long")  # fmt: skip
    parser.add_argument("--concurrency", type=numbers, help="numbers of clients, instead of each workload's default: 1,8")
    parser.add_argument("--rounds", type=int, default=3, help="number of turns of each rival")
    parser.add_argument("--llama-types", type=lambda text: text.split(","), default=["Q4_0", "Q4_1"], help="weight types of llama.cpp")
    parser.add_argument("--vllm-types", type=lambda text: text.split(","), default=["bf16", "int8"], help="vLLM's weights")
    parser.add_argument("--activations", type=lambda text: text.split(","), default=["int16", "int8"],
                        help="variants of quire: int16,int8,f32, and bf16 for bf16 weights, for which int16 means floats")
    parser.add_argument("--as-avx2", action="store_true", help="limit every engine to AVX2; vLLM does not support this")
    parser.add_argument("--quire-args", default="", help="additional flags for quire serve, as one string")
    parser.add_argument("--idle-wait", type=float, default=20, help="seconds to wait at most for an idle machine before each turn")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    machine.end_on_sigterm()
    print(machine.describe(), flush=True)
    taking_part, problems = listing.contestants(arguments)
    ours = [one for one in taking_part if one.is_ours]
    for one in taking_part:
        print(f"{one.name}: {one.about}", flush=True)
    with Fleet() as fleet:
        for workload in arguments.workload:
            print(header(workload, ours, arguments), flush=True)
            for clients in (arguments.concurrency if workload.name != "alone" else None) or workload.clients:
                cell = Cell(fleet, workload, clients, arguments, problems)
                for one in cell.measure(taking_part):
                    print(cell.row(one, ours), flush=True)
    for problem in problems:
        print(f"\n{problem}", file=sys.stderr)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
