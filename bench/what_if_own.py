#!/usr/bin/env python3
"""The simulator against a real server on this machine: quire serve is run with one workload, a worker is fitted to its journal (quire calibrate),
and quire simulate is asked what another workload, at another rate, with other lengths and shared beginnings, will get. That one is then served,
and the two are compared: throughput, TTFT and TPOT. Wants an idle machine: the second run must be on the machine that the first was on.
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
    """(seconds after the one before, prompt, answer's tokens) of each request."""
    prefixes = [[rng.randrange(1000, 40000) for _ in range(shared_tokens)] for _ in range(num_prefixes)]
    for _ in range(count):
        prompt = rng.choice(prefixes) + [rng.randrange(1000, 40000) for _ in range(int(rng.uniform(0.4, 1.6) * prompt_tokens))]
        yield rng.expovariate(rate), prompt, int(rng.uniform(0.5, 1.5) * output_tokens) + 1


class Run:
    """Serves a workload; what its clients saw."""

    def __init__(self, arguments, folder, requests):
        self.firsts, self.gaps, self.num_tokens, self.end, self.lock = [], [], 0, 0.0, threading.Lock()
        port = machine.free_port()
        command = [arguments.binary, "serve", arguments.model, "--port", str(port), *ENGINE, "--journal", str(folder), "--generation-config", "vllm"]
        with machine.Server("quire", command, port) as server, concurrent.futures.ThreadPoolExecutor(256) as pool:
            self.ask(port, [1, 2, 3], 4)  # so that nothing is the first of its kind
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
    one = list(workload(rng, arguments.requests, 3.0, 120, 40, 16, 1))
    other = list(workload(rng, arguments.requests, 1.6, 260, 70, 96, 4))
    first = Run(arguments, folder / "one", one)
    fitted = subprocess.run([arguments.binary, "calibrate", first.journal, "--output", folder / "worker.json"], capture_output=True, text=True, check=True)
    print(fitted.stdout.splitlines()[0])
    second = Run(arguments, folder / "other", other)
    simulated = json.loads(subprocess.run([arguments.binary, "simulate", second.journal, "--worker", folder / "worker.json", *SIMULATED, "--json", "-"],
                                          capture_output=True, text=True, check=True).stdout)  # fmt: skip
    (folder / "simulated.json").write_text(json.dumps(simulated, indent=1))
    rows = [("tokens per second", second.num_tokens / second.seconds, simulated["output_tokens"] / simulated["makespan_s"])]
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        rows.append((f"TTFT {name}, s", percentile(second.firsts, share), simulated["ttft_s"][name]))
    for name, share in (("p50", 0.5), ("p90", 0.9)):
        rows.append((f"TPOT {name}, s", percentile(second.gaps, share), simulated["tpot_s"][name]))
    print(f"{'':20}{'measured':>12}{'simulated':>12}{'error':>9}")
    for name, measured, predicted in rows:
        print(f"{name:20}{measured:12.4f}{predicted:12.4f}{100 * (predicted / measured - 1):+8.1f} %")
    print(f"figures, journals and the worker are in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
