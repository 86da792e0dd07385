#!/usr/bin/env python3
"""Measures the cost and the gain of a tier: two servers, one with --kv-disk (or --kv-dram), get the same new prompts in alternating turns.

cold    every prompt is new, so nothing is hit and everything is stored: the cost of the tier
again   the same prompts once more, long evicted from memory: the gain, and the hit share of the blocks that fit
small   a budget of a tenth of the prompts, which are played twice: a tier that is far too small

Prints for each part prompts per second (medians), and the geometric mean of the paired ratios on / off with its 95 % interval; stored and
loaded bytes, and whether they match the stored and loaded blocks. The default folder is next to the build, because a RAM disk would be too
fast.
"""

import concurrent.futures
import http.client
import json
import random
import re
import statistics
import sys
import tempfile
import time
import urllib.request

import machine
from flags import interval


def complete(server, prompt, max_tokens) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
    body = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    text = response.read()
    if response.status != 200:
        raise RuntimeError(f"{server.name}: {response.status} {text[:300]}")


def prompts_per_second(server, prompts, arguments) -> float:
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(arguments.clients) as clients:
        list(clients.map(lambda prompt: complete(server, prompt, arguments.output_tokens), prompts))
    return len(prompts) / (time.monotonic() - start)


def counters(server) -> dict:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as page:
        text = page.read().decode()
    return {name: float(value) for name, value in re.findall(r"^quire:kv_tier_(\w+)(?:\{[^}]*\})? (\S+)$", text, re.M)}


def settle(server) -> dict:
    """Waits until no block is being stored."""
    before = counters(server)
    while True:
        time.sleep(0.5)
        after = counters(server)
        if after["stored_blocks_total"] == before["stored_blocks_total"]:
            return after
        before = after


def rest(server) -> None:
    """Waits until an idle server allocates no more memory; the server allocates the memory of --kv-dram while it is idle."""
    before = -1.0
    while (now := server.memory_mib()) != before:
        before = now
        time.sleep(1.0)


class Pair:
    """Both servers, and the result of each in each turn."""

    def __init__(self, arguments, folder: str, budget: int):
        self.arguments = arguments
        self.servers = {}
        for side in ("off", "on"):
            port = machine.free_port()
            command = [arguments.binary, "serve", arguments.model, "--port", str(port), "--kv-cache-memory", str(arguments.memory)]
            if side == "on":
                command += ["--kv-dram", str(budget)] if arguments.tier == "dram" else ["--kv-disk", folder, "--kv-disk-budget", str(budget)]
            self.servers[side] = machine.Server(side, command, port)
        self.turns = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for server in self.servers.values():
            server.stop()

    def turn(self, prompts) -> dict:
        self.turns += 1
        order = ("off", "on") if self.turns % 2 else ("on", "off")
        return {side: prompts_per_second(self.servers[side], prompts, self.arguments) for side in order}

    def report(self, name: str, turns: list, before: dict) -> dict:
        after = settle(self.servers["on"])
        moved = {key: after[key] - before.get(key, 0.0) for key in after}
        speed = {side: statistics.median(turn[side] for turn in turns) for side in ("off", "on")}
        print(f"{name:6} {speed['off']:8.2f} {speed['on']:8.2f}   {interval([turn['on'] / turn['off'] for turn in turns]):26}"
              f" {moved['stored_bytes_total'] / 2**20:9.0f} {moved['loaded_bytes_total'] / 2**20:9.0f}", flush=True)  # fmt: skip
        if after["failed_total"] or after["refused_total"]:
            sys.exit(f"the tier failed {after['failed_total']:.0f} times, {after['refused_total']:.0f} blocks were refused")
        return moved


def main() -> int:
    parser = machine.parser(__doc__, turns=10, prompt_tokens=513, output_tokens=8, clients=4, seed=1)
    parser.add_argument("--tier", choices=("disk", "dram"), default="disk", help="kind of tier below the KV cache (default: %(default)s)")
    parser.add_argument("--folder", default="build", help="parent directory of the tier's folder (default: %(default)s)")
    parser.add_argument("--prompts", type=int, default=16, help="prompts in a turn (default: %(default)s)")
    parser.add_argument("--memory", type=int, default=128 << 20, help="bytes of the KV cache in memory (default: %(default)s)")
    parser.add_argument("--budget", type=int, default=8 << 30, help="bytes of the tier that fits everything (default: %(default)s)")
    arguments = parser.parse_args()
    machine.end_on_sigterm()
    print(machine.describe())
    rng = random.Random(arguments.seed)
    sets = [[[rng.randrange(1000, 40000) for _ in range(arguments.prompt_tokens)] for _ in range(arguments.prompts)]
            for _ in range(arguments.turns)]  # fmt: skip
    print("part        off       on   on / off (95 % interval)     stored MiB loaded MiB")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder, Pair(arguments, folder, arguments.budget) as pair:
        pair.turn([[1] * 8])
        rest(pair.servers["on"])
        before = settle(pair.servers["on"])
        cold = pair.report("cold", [pair.turn(prompts) for prompts in sets], before)
        before = settle(pair.servers["on"])
        again = pair.report("again", [pair.turn(prompts) for prompts in sets], before)
        fits = cold["stored_blocks_total"]
        share = again["loaded_blocks_total"] / fits
        block_bytes = cold["stored_bytes_total"] / fits
        print(f"hit again: {share:.1%} of {fits:.0f} blocks of {block_bytes / 1024:.0f} KiB;"
              f" bytes loaded = blocks loaded x {again['loaded_bytes_total'] / max(1.0, again['loaded_blocks_total']) / 1024:.0f} KiB")  # fmt: skip
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder, Pair(arguments, folder, int(fits * block_bytes / 10)) as pair:
        pair.turn([[1] * 8])
        before = settle(pair.servers["on"])
        pair.report("small", [pair.turn(prompts) for prompts in sets * 2], before)
    return 0


if __name__ == "__main__":
    sys.exit(main())
