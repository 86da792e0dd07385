#!/usr/bin/env python3
"""Serving speed over HTTP, quire beside other engines in one run: same model, same client, same prompts, turns alternating.

A turn sends c requests at once to one server (greedy, exact lengths): `distinct` is 128 tokens in, 64 out, nothing in common; `shared` 1,024 in
common and 64 of their own in, 32 out, the common ones in every engine's prefix cache from a turn before that is not counted; `alone` one
request at a time, 512 tokens in and one out, then 64 after the first (quire and llama.cpp without HTTP: quire bench, llama-bench); `long`, when
asked for, one of 8,000 tokens in and 64 out. With fewer than 8 clients each asks several times per turn. Turns go quire, rival, quire, the next
rival, ..., so that each rival's turn lies between two of quire's, with which it is compared; with two ways of quire's activations they take
turns. A turn in which processes that are neither server nor client took 5 % of the processors or more is repeated, at most twice, and the
quietest counts; the last column says how many turns were not quiet even so.

Per row: output tokens per second over the whole time, prefill included; tokens per second of a stream while it decodes; milliseconds to the
first token; MiB that were resident at most, of all the server's processes; seconds from start to ready; quire's figures over this engine's.
All are medians, ratios with their range.
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

QUIET = 0.05  # most that others may use of the processors in a turn
ATTEMPTS = 3
COLUMNS = {"total": "total", "stream": "stream", "first": "first, ms", "prompt": "prompt tokens/s", "output": "output tokens/s"}


class Fleet:
    """The servers, each started when first needed, and anew when its command line changes."""

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
    """(figures, share of others) of the quietest attempt"""
    attempts = []
    while not attempts or (attempts[-1][1] >= QUIET and len(attempts) < ATTEMPTS):
        wait_until_idle(limit_s)
        watch = foreign.Watch(pid)
        figures = play()
        attempts.append((figures, watch.share()))
    return min(attempts, key=lambda attempt: attempt[1])


class Cell:
    """One workload with one number of clients."""

    def __init__(self, fleet, workload, clients, arguments, problems):
        self.fleet, self.workload, self.clients, self.arguments, self.problems = fleet, workload, clients, arguments, problems
        self.asker = Asker(workload, clients, arguments.seed)
        self.turns, self.loud, self.servers = [], {}, {}

    def guarded(self, action, one):
        """action(one). Where an engine fails it leaves the cell; where quire does, that ends the run."""
        try:
            return action(one)
        except (Failed, OSError, SystemExit, subprocess.SubprocessError) as problem:
            if one.is_ours or (isinstance(problem, SystemExit) and isinstance(problem.code, int)):
                raise
            self.fleet.drop(one)
            self.problems.append(f"{one.name} left {self.workload.name}, c = {self.clients}: {problem}")
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
    """For argparse, which shows its message."""
    try:
        return listing.parse(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from problem


def workloads(text):
    unknown = set(text.split(",")) - set(WORKLOADS)
    if unknown:
        raise argparse.ArgumentTypeError(f"no workload {', '.join(sorted(unknown))}; there are {', '.join(WORKLOADS)}")
    return [WORKLOADS[name] for name in text.split(",")]


def parse_arguments():
    parser = machine.parser(__doc__, seed=1)
    parser.add_argument("--against", type=names, default=[], help="engines to install once, measured beside quire: llama.cpp,vllm,openvino")
    parser.add_argument("--workload", type=workloads, default=[one for one in WORKLOADS.values() if one.is_default], help="of distinct,shared,alone,long")
    parser.add_argument("--concurrency", type=numbers, help="instead of each workload's own: 1,8")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each rival")
    parser.add_argument("--llama-types", type=lambda text: text.split(","), default=["Q4_0", "Q4_1"], help="llama.cpp's weights")
    parser.add_argument("--vllm-types", type=lambda text: text.split(","), default=["bf16", "int8"], help="vLLM's weights")
    parser.add_argument("--activations", type=lambda text: text.split(","), default=["int16", "int8"],
                        help="ways of ours: int16,int8,f32, and bf16 for weights in bf16, where int16 means floats")
    parser.add_argument("--as-avx2", action="store_true", help="every engine as on a processor with AVX2 alone; vLLM can't be told so")
    parser.add_argument("--quire-args", default="", help="further flags for quire serve, as one string")
    parser.add_argument("--idle-wait", type=float, default=20, help="wait at most so many seconds for an idle machine before each turn")
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
