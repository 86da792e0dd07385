#!/usr/bin/env python3
"""Compares the predicted curve of the prefix cache with the hit rates of the core.

Usage: curve.py --traces FOLDER [--binary build/release/quire]. FOLDER holds Mooncake's conversation trace (mooncake/), Claude Code's
sessions (claude_code/) and mini-SWE-agent's (mini_swe/). A missing trace is skipped, and the output says so.

Each trace is first played on the core with one size of the cache. The hit rates at half, twice and four times this size are predicted from
only this run; then the trace is played with these sizes. The first part has loads that the engine can serve at all four sizes; the goal
applies to this part. The second part has loads that are too high: requests that wait for blocks then run later, next to other requests,
which no single run can predict.
"""
import argparse
import json
import pathlib
import subprocess
import tempfile

FACTORS = (0.5, 2, 4)
MAX_ERROR_POINTS, MAX_MEMORY_MIB = 1.5, 32
# Four H100s with an 8B model. The default worker, a single H100, would be overloaded by the agents below at half of the memory.
WORKER = {"host_s": 0.0005, "step_s": 0.005, "prefill_token_s": 8e-6, "decode_row_s": 5e-6, "context_token_s": 12e-9,
          "prefill_pair_s": 3e-10, "source": "about four H100s with an 8B model"}
AGENTS = ["--agents", "40", "--max-think", "300"]
# (name, trace, blocks of the first run, flags)
KEEPS_UP = [
    ("Mooncake's hour, at a quarter of its rate", "mooncake/conversation_trace.jsonl.gz", 8000, ["--rate-scale", "0.25"]),
    ("Claude Code, 40 agents", "claude_code/cc_global.jsonl.gz", 60000, AGENTS),
    ("mini-SWE-agent, 350 sessions", "mini_swe/gemini3_swebench_350.jsonl.gz", 40000, []),
]
OVERLOADED = [
    ("Claude Code, 40 agents", "claude_code/cc_global.jsonl.gz", 30000, AGENTS),
    ("mini-SWE-agent, 350 sessions", "mini_swe/gemini3_swebench_350.jsonl.gz", 20000, []),
]


def play(args, worker, trace, num_blocks, flags):
    """Plays the trace. Returns the figures of a run with this many blocks, without the null block."""
    command = [args.binary, "simulate", args.traces / trace, "--kv-blocks", str(num_blocks + 1), "--max-num-batched-tokens", "8192",
               "--worker", worker, "--json", "-", *flags]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def compare(args, worker, runs):
    """Prints a row per trace: the errors in percentage points, and the largest memory of a sampler in MiB."""
    print("| trace | blocks | hits, held now | " + " | ".join(f"x{factor}: predicted, true" for factor in FACTORS) + " | mean error | sampled |")
    print("|---|---|---|" + "---|" * len(FACTORS) + "---|---|")
    errors, memory = [], 0.0
    for name, trace, num_blocks, flags in runs:
        if not (args.traces / trace).exists():
            print(f"| {name}: not in {args.traces}, left out |")
            continue
        now = play(args, worker, trace, num_blocks, [*flags, "--curve"])
        rates = {row["blocks"]: row["hit_rate"] for row in now["curve"]["rows"]}
        memory = max(memory, now["curve"]["memory_bytes"] / 2**20)
        cells, apart = [], []
        for factor in FACTORS:
            predicted = rates[int(num_blocks * factor)]
            truth = play(args, worker, trace, int(num_blocks * factor), flags)["hit_rate"]
            apart.append(abs(predicted - truth) * 100)
            cells.append(f"{predicted:.2%}, {truth:.2%}")
        errors += apart
        print(f"| {name} | {num_blocks:,} | {now['hit_rate']:.2%}, {now['kv_usage_mean']:.0%} | {' | '.join(cells)} | "
              f"{sum(apart) / len(apart):.2f} points | {now['curve']['sampling_rate']:.3g} |", flush=True)
    return errors, memory


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=pathlib.Path, required=True)
    parser.add_argument("--binary", default="build/release/quire")
    args = parser.parse_args()
    with tempfile.NamedTemporaryFile("w", suffix=".json") as worker:
        json.dump(WORKER, worker)
        worker.flush()
        errors, memory = compare(args, worker.name, KEEPS_UP)
        print("\nLoads for which half of the memory is too little:\n")
        compare(args, worker.name, OVERLOADED)
    if not errors:
        raise SystemExit("no trace was found")
    mean = sum(errors) / len(errors)
    print(f"\nwhere it keeps up: mean absolute error {mean:.2f} points (goal: at most {MAX_ERROR_POINTS}), largest {max(errors):.2f}; "
          f"{memory:.1f} MiB (goal: at most {MAX_MEMORY_MIB})")
    if mean > MAX_ERROR_POINTS or memory > MAX_MEMORY_MIB:
        raise SystemExit("the goal is missed")


if __name__ == "__main__":
    main()
