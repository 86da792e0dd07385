#!/usr/bin/env python3
"""Compares the simulator with a real server on this machine. quire serve runs one workload, and a worker is fitted to its journal (quire
calibrate). quire simulate then predicts two other workloads with other rates, lengths and shared prefixes. The first of these has a rate
that the server can serve. The rate of the second is too high: a TTFT is then mostly waiting, and a small error of the speed becomes a large
error of the waiting time. Finally these workloads run on the server, and throughput, TTFT and TPOT are compared. The workload for the fit
has short and long prompts, as in production, because prompts of one length cannot predict other lengths. Requires an idle machine: all runs
must be on the machine of the first run.
"""
import concurrent.futures
import http.client
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time

import machine

ENGINE = ["--num-blocks", "1200", "--max-num-seqs", "16", "--max-num-batched-tokens", "512", "--max-model-len", "2048"]
SIMULATED = ["--kv-blocks", "1200", "--max-num-seqs", "16", "--max-num-batched-tokens", "512"]


def workload(rng, count, rate, prompt_tokens, output_tokens, shared_tokens, num_prefixes):
    """Returns (seconds after the previous request, prompt, answer's tokens) of each request. `prompt_tokens`: smallest and largest length;
    each octave has the same number of requests."""
    prefixes = [[rng.randrange(1000, 40000) for _ in range(shared_tokens)] for _ in range(num_prefixes)]
    low, high = prompt_tokens
    for _ in range(count):
        prompt = rng.choice(prefixes) + [rng.randrange(1000, 40000) for _ in range(int(low * (high / low) ** rng.random()))]
        yield rng.expovariate(rate), prompt, int(rng.uniform(0.5, 1.5) * output_tokens) + 1


class Run:
    """Runs a server with a workload, and measures it at the clients."""

    def __init__(self, arguments, folder, requests):
        self.firsts, self.gaps, self.num_tokens, self.end, self.lock = [], [], 0, 0.0, threading.Lock()
        port = machine.free_port()
        command = [arguments.binary, "serve", arguments.model, "--port", str(port), *ENGINE, "--journal", str(folder), "--generation-config", "vllm"]
        with machine.Server("quire", command, port) as server, concurrent.futures.ThreadPoolExecutor(256) as pool:
            self.ask(port, [1, 2, 3], 4)  # warms up the server before the measured requests
            self.firsts, self.gaps, self.num_tokens = [], [], 0
            self.begin, waits = time.monotonic(), []
            for i, (gap, prompt, max_tokens) in enumerate(requests):
                time.sleep(gap)
                waits.append(pool.submit(self.ask, port, prompt, max_tokens))
                print(f"\r{i + 1} sent, {len(self.firsts)} answered", end="", file=sys.stderr, flush=True)
            for wait in waits:
                wait.result()
            print(file=sys.stderr)
            server.stop()
        self.seconds = self.end - self.begin
        [self.journal] = pathlib.Path(folder).glob("*.qj")

    def ask(self, port, prompt, max_tokens):
        body = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, "stream": True}
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        sent = time.monotonic()
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        times = [time.monotonic() for line in connection.getresponse() if line.startswith(b"data: {")]
        with self.lock:
            self.firsts.append(times[0] - sent)
            if max_tokens > 1:
                self.gaps.append((times[-1] - times[0]) / (max_tokens - 1))
            self.num_tokens += max_tokens
            self.end = max(self.end, times[-1])


def percentile(values, share):
    values = sorted(values)
    at = share * (len(values) - 1)
    low = int(at)
    return values[low] + (values[min(low + 1, len(values) - 1)] - values[low]) * (at - low)


def main() -> int:
    parser = machine.parser(__doc__, requests=150, seed=1)
    arguments = parser.parse_args()
    machine.end_on_sigterm()
    print(machine.describe(), flush=True)
    rng = random.Random(arguments.seed)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="quire-what-if-"))
    first = Run(arguments, folder / "one", list(workload(rng, arguments.requests, 2.0, (16, 800), 40, 16, 1)))
    command = [arguments.binary, "calibrate", first.journal, "--output", folder / "worker.json"]
    fitted = subprocess.run(command, capture_output=True, text=True, check=True)
    print(fitted.stdout.partition("{")[0], end="", flush=True)
    for name, rate in (("kept up with", 0.8), ("more than it keeps up with", 1.6)):
        served = Run(arguments, folder / f"other-{rate}", list(workload(rng, arguments.requests, rate, (104, 416), 70, 96, 4)))
        compare(arguments, folder, name, rate, served)
    print(f"journals and the worker are in {folder}")
    return 0


def compare(arguments, folder, name, rate, served) -> None:
    command = [arguments.binary, "simulate", served.journal, "--worker", folder / "worker.json", *SIMULATED, "--json", "-"]
    simulated = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    rows = [("tokens per second", served.num_tokens / served.seconds, simulated["output_tokens"] / simulated["makespan_s"])]
    for what, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        rows.append((f"TTFT {what}, s", percentile(served.firsts, share), simulated["ttft_s"][what]))
    for what, share in (("p50", 0.5), ("p90", 0.9)):
        rows.append((f"TPOT {what}, s", percentile(served.gaps, share), simulated["tpot_s"][what]))
    print(f"{rate} requests per second: {name}\n{'':20}{'measured':>12}{'simulated':>12}{'error':>9}")
    for what, measured, predicted in rows:
        print(f"{what:20}{measured:12.4f}{predicted:12.4f}{100 * (predicted / measured - 1):+8.1f} %")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
