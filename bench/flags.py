#!/usr/bin/env python3
"""Compares two sets of engine flags in pairs, to find out whether a flag makes the engine faster.

    ./dev bench flags -- --no-async-scheduling                 the given flags (B) against no flags (A)
    ./dev bench flags --a="--isa avx2" --pairs 9 -- --isa avx512

Each pair runs `quire bench` once with A's flags and once with B's, in alternating turns. Prints for each number of concurrent requests
output tokens per second (medians), and the geometric mean of the paired ratios A / B with its 95 % interval.
"""

import math
import shlex
import statistics
import subprocess
import sys

import machine

# 95 % quantiles (two-sided) of Student's t by number of pairs; 2 is accurate enough for more pairs.
STUDENT = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26, 12: 2.20, 15: 2.14, 20: 2.09, 30: 2.05}


def run(arguments, flags: list) -> dict:
    """Runs `quire bench`. Returns output tokens per second by concurrency."""
    command = [arguments.binary, "bench", arguments.model, "--rounds", "1", "--concurrency", arguments.concurrency,
               "--prompt-tokens", str(arguments.prompt_tokens), "--output-tokens", str(arguments.output_tokens), *flags]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(command)} failed: {done.stderr.strip()}")
    rows = [line.split() for line in done.stdout.splitlines() if line.strip()[:1].isdigit()]
    return {int(row[0]): float(row[1]) for row in rows}


def interval(ratios: list) -> str:
    logs = [math.log(ratio) for ratio in ratios]
    middle = statistics.fmean(logs)
    if len(logs) < 2:
        return f"{math.exp(middle):.3f}"
    factor = STUDENT[max(count for count in STUDENT if count <= len(logs))]
    half = factor * statistics.stdev(logs) / math.sqrt(len(logs))
    return f"{math.exp(middle):.3f} ({math.exp(middle - half):.3f} to {math.exp(middle + half):.3f})"


def main() -> int:
    parser = machine.parser(__doc__, pairs=10, prompt_tokens=128, output_tokens=64)
    parser.add_argument("--a", default="", help="flags of A, as one string (default: none)")
    parser.add_argument("--concurrency", default="1,8,64")
    parser.add_argument("b", nargs="+", help="flags of B, after --")
    arguments = parser.parse_args()
    flags = {"a": shlex.split(arguments.a), "b": arguments.b}
    seen: list = []
    for pair in range(arguments.pairs):
        seen.append({side: run(arguments, flags[side]) for side in ("ab" if pair % 2 == 0 else "ba")})
        print(f"\rpair {pair + 1} of {arguments.pairs}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(f"A: {arguments.a or '(defaults)'}   B: {shlex.join(arguments.b)}   {arguments.pairs} pairs")
    print("    c   A tok/s   B tok/s   A / B (95 % interval)")
    for concurrency in seen[0]["a"]:
        middle = {side: statistics.median(pair[side][concurrency] for pair in seen) for side in "ab"}
        ratios = [pair["a"][concurrency] / pair["b"][concurrency] for pair in seen]
        print(f"{concurrency:5} {middle['a']:9.1f} {middle['b']:9.1f}   {interval(ratios)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
