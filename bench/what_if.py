#!/usr/bin/env python3
"""Compares the simulator with real runs, and measures its speed.

Usage: what_if.py --traces FOLDER [--binary build/release/quire]. FOLDER holds vllm_ref/*/requests.jsonl with the prompts in sharegpt/,
Mooncake's conversation trace (mooncake/) and Claude Code's sessions (claude_code/). A missing part is skipped, and the output says so.

First part: for each machine with a log of vLLM 0.19.0, a worker is fitted to the first half of the requests (by arrival), and the times of
the other half are predicted. Second part: seconds of CPU and memory of two long simulations.
"""
import argparse
import bisect
import csv
import json
import os
import pathlib
import re
import subprocess
import tempfile

# Configuration of each run, from meta.json. The number of blocks of the second run is assumed, because this run never filled its cache.
RUNS = {
    "RTX4090_Llama-3.1-8B": ["--kv-blocks", "2588", "--max-num-seqs", "256"],
    "RTXPRO6000_Llama-3.1-8B": ["--kv-blocks", "30000", "--max-num-seqs", "128"],
}
SPEED = {
    "Mooncake's hour, 1 instance": ["mooncake/conversation_trace.jsonl.gz", "--kv-blocks", "1000"],
    "Mooncake's hour, 4 instances": ["mooncake/conversation_trace.jsonl.gz", "--kv-blocks", "1000", "--instances", "4"],
    "1,000 Claude Code agents, 8 instances, by prefix": [
        "claude_code/cc_global.jsonl.gz", "--agents", "1000", "--instances", "8", "--kv-blocks", "20000", "--routing", "prefix",
        "--max-num-batched-tokens", "8192"],
}
SCORE = re.compile(r"^(makespan|(?:TTFT|TPOT) \w+) +([\d.]+) +([\d.]+) +([-+][\d.]+)%")


def predict(binary, requests, prompts, flags, share, worker):
    """Runs quire calibrate. Returns the rows of the score, and writes the fitted worker to the file `worker`."""
    command = [binary, "calibrate", "--vllm-run", requests, "--prompts", prompts, "--fit-share", str(share), "--score", "--output", worker,
               *flags]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [match.groups() for line in text.splitlines() if (match := SCORE.match(line))]


def show_series(binary, requests, prompts, flags, worker):
    """Compares figures that were not fitted, second by second: vLLM's queues and its cache usage."""
    command = [binary, "simulate", requests, "--prompts", prompts, "--worker", worker, "--json", "-", *flags]
    samples = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["samples"]
    times = [sample[0] for sample in samples]
    logged = list(csv.DictReader((requests.parent / "timeseries.csv").open()))
    pairs = [(samples[bisect.bisect(times, float(row["t"])) - 1], row) for row in logged if float(row["t"]) < times[-1]]
    for name, column, scale in (("running", 1, 1), ("waiting", 2, 1), ("kv_cache_pct", 3, 100)):
        if not any(float(row[name]) for row in logged):
            continue
        apart = sum(abs(sample[column] * scale - float(row[name])) for sample, row in pairs) / len(pairs)
        print(f"{name}: {apart:.2f} apart in the mean of {len(pairs)} s; at most {max(s[column] for s in samples) * scale:.0f} simulated, "
              f"{max(float(row[name]) for row in logged):.0f} logged")
    print()


def show_reality(args):
    prompts = sorted((args.traces / "sharegpt").glob("*.jsonl*"))
    for name, flags in RUNS.items():
        requests = args.traces / "vllm_ref" / name / "requests.jsonl"
        if not requests.exists() or not prompts:
            print(f"{name}: not in {args.traces}, left out\n")
            continue
        print(f"{name}, the first {args.fit_share:.0%} of the requests fitted, the others:\n")
        print("| | measured, s | simulated, s | error |\n|---|---|---|---|")
        with tempfile.NamedTemporaryFile(suffix=".json") as worker:
            for what, measured, simulated, error in predict(args.binary, requests, prompts[0], flags, args.fit_share, worker.name):
                print(f"| {what} | {float(measured):.4g} | {float(simulated):.4g} | {error} % |")
            print()
            show_series(args.binary, requests, prompts[0], flags, worker.name)


def show_speed(args):
    print("| simulation | CPU, s | memory, MiB | steps | requests | output tokens |\n|---|---|---|---|---|---|")
    for name, (trace, *flags) in SPEED.items():
        if not (args.traces / trace).exists():
            print(f"| {name}: not in {args.traces}, left out | | | | | |")
            continue
        with tempfile.NamedTemporaryFile(suffix=".json") as figures:
            process = subprocess.Popen([args.binary, "simulate", args.traces / trace, "--json", figures.name, *flags],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            if status != 0:
                raise SystemExit(f"{name}: quire simulate failed")
            result = json.load(figures)
        print(f"| {name} | {usage.ru_utime + usage.ru_stime:.2f} | {usage.ru_maxrss / 1024:.0f} | {result['num_steps']:,} | "
              f"{result['num_finished']:,} | {result['output_tokens']:,} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=pathlib.Path, required=True)
    parser.add_argument("--binary", default="build/release/quire")
    parser.add_argument("--fit-share", type=float, default=0.5)
    args = parser.parse_args()
    show_reality(args)
    show_speed(args)


if __name__ == "__main__":
    main()
