#!/usr/bin/env python3
"""Compares loading blocks with computing them. Three servers get the same stored prompts. Their disk bandwidth is limited
(--kv-disk-bandwidth) to values around the one at which loading and computing take equally long.

compute   a server without a tier
load      --kv-policy exact: always loads stored blocks
measured  --kv-policy measured, which chooses to load or to compute

A folder is filled once, without a limit; both tiers get a copy. Each server first computes two new prompts. Then each server gets each
prompt once, in turns. Prints for each bandwidth the median seconds of a prompt, and the time of `measured` divided by the smaller of the
other two.
"""

import pathlib
import random
import shutil
import statistics
import sys
import tempfile
import time

import machine
from tiers import complete, counters, settle


def ask_s(server, prompt) -> float:
    start = time.monotonic()
    complete(server, prompt, 1)
    return time.monotonic() - start


def main() -> int:
    parser = machine.parser(__doc__, prompts=12, prompt_tokens=513, seed=1)
    parser.add_argument("--folder", default="build", help="parent directory of the tiers' folders (default: %(default)s)")
    parser.add_argument("--budget", type=int, default=1 << 30)
    parser.add_argument("--mib", type=float, nargs="+", default=[4, 8, 12, 16, 20, 24, 32, 48, 96],
                        help="bandwidths in MiB per second (default: %(default)s)")  # fmt: skip
    arguments = parser.parse_args()
    machine.end_on_sigterm()
    print(machine.describe())
    rng = random.Random(arguments.seed)

    def new_prompt() -> list:
        return [rng.randrange(1000, 40000) for _ in range(arguments.prompt_tokens)]

    def serve(name: str, *flags: str):
        port = machine.free_port()
        return machine.Server(name, [arguments.binary, "serve", arguments.model, "--port", str(port), *flags], port)

    def on(name: str, folder: pathlib.Path, *flags: str):
        return serve(name, "--kv-disk", str(folder), "--kv-disk-budget", str(arguments.budget), *flags)

    stored = [new_prompt() for _ in range(arguments.prompts)]
    worst = 0.0
    with tempfile.TemporaryDirectory(dir=arguments.folder) as above:
        filled = pathlib.Path(above) / "filled"
        with on("fill", filled) as server:
            for prompt in stored:
                complete(server, prompt, 1)
            settle(server)
        print("  MiB/s   compute      load  measured   over the better   loaded of")
        for mib in arguments.mib:
            limit = ("--kv-disk-bandwidth", str(int(mib * 2**20)))
            folders = {name: pathlib.Path(above) / name for name in ("load", "measured")}
            for folder in folders.values():
                shutil.copytree(filled, folder)
            with serve("compute") as compute, on("load", folders["load"], *limit, "--kv-policy", "exact") as load, \
                    on("measured", folders["measured"], *limit, "--kv-policy", "measured") as measured:  # fmt: skip
                servers = [compute, load, measured]
                for prompt in (new_prompt(), new_prompt()):
                    for server in servers:
                        complete(server, prompt, 1)
                settle(measured)
                settle(load)
                before = counters(measured)["loaded_blocks_total"]
                seconds: dict = {server.name: [] for server in servers}
                for i, prompt in enumerate(stored):
                    for j in range(3):
                        server = servers[(i + j) % 3]
                        seconds[server.name].append(ask_s(server, prompt))
                blocks = counters(measured)["loaded_blocks_total"] - before
            for folder in folders.values():
                shutil.rmtree(folder)
            median = {name: statistics.median(times) for name, times in seconds.items()}
            over = median["measured"] / min(median["compute"], median["load"])
            worst = max(worst, over)
            print(f"{mib:7.0f} {median['compute']:9.3f} {median['load']:9.3f} {median['measured']:9.3f} {over:14.3f}"
                  f" {blocks:11.0f} {arguments.prompts * (arguments.prompt_tokens // 16):4}", flush=True)  # fmt: skip
    print(f"at most {worst:.3f} of the better choice")
    return 0


if __name__ == "__main__":
    sys.exit(main())
