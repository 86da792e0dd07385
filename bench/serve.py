#!/usr/bin/env python3
"""Serving speed over HTTP, quire beside llama.cpp in one run: same model file, same client, same prompts, turns alternating.

Each round sends c requests at once (128 distinct prompt tokens in, 64 tokens out, greedy, end of text ignored) to one server, then to the
other. Reported per concurrency: output tokens per second over the whole time (prefill included) and tokens per second of a stream while it
decodes; medians over the rounds, with the spread of the paired ratios.

llama.cpp's server is used where --llama-server (or QUIRE_LLAMA_SERVER) names its binary; without it quire runs alone.
"""
import argparse
import contextlib
import http.client
import json
import os
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import threading
import time


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A server process with an OpenAI completions endpoint on a loopback port."""

    def __init__(self, name, command, port):
        self.name, self.port = name, port
        started = time.monotonic()
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while True:
            if self.process.poll() is not None:
                sys.exit(f"{name} ended with {self.process.returncode}: {' '.join(command)}")
            with contextlib.suppress(OSError):
                if self.request("GET", "/health")[0] == 200:
                    break
            time.sleep(0.02)
        self.ready_s = time.monotonic() - started

    def request(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()

    def stream(self, prompt, max_tokens):
        """Times (s) of each chunk of one streamed completion."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        body = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "stream": True, "ignore_eos": True,
                **({"cache_prompt": False} if self.name == "llama.cpp" else {})}
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise RuntimeError(f"{self.name}: {response.status} {response.read()[:300]}")
        times = []
        for line in response:
            if line.startswith(b"data: ") and not line.startswith(b"data: [DONE]"):
                times.append(time.monotonic())
        return times

    def resident_mib(self):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        return 0.0

    def stop(self):
        self.process.terminate()
        self.process.wait()


def run_round(server, prompts, max_tokens):
    """(output tokens per second over the whole time, median decode speed of a stream, median seconds to the first token)"""
    results = [None] * len(prompts)

    def client(index):
        results[index] = server.stream(prompts[index], max_tokens)

    threads = [threading.Thread(target=client, args=(index,)) for index in range(len(prompts))]
    start = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wall = time.monotonic() - start
    if any(result is None or len(result) < 2 for result in results):
        raise RuntimeError(f"{server.name}: a stream failed")
    # A chunk may carry several tokens; both servers stop at exactly max_tokens, so count tokens and not chunks.
    decode = statistics.median((max_tokens - 1) / (times[-1] - times[0]) for times in results)
    return len(prompts) * max_tokens / wall, decode, statistics.median(times[0] - start for times in results)


def idle_share(seconds=0.5):
    """Share of processor time that nobody used."""
    def sample():
        fields = [int(field) for field in open("/proc/stat").readline().split()[1:]]
        return fields[3] + fields[4], sum(fields)
    idle, total = sample()
    time.sleep(seconds)
    idle_after, total_after = sample()
    return (idle_after - idle) / max(1, total_after - total)


def wait_until_idle(limit_s):
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline and idle_share() < 0.95:
        pass


def spread(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def measure(servers, concurrency, arguments, rng):
    rows = {server.name: [] for server in servers}
    for _ in range(arguments.rounds):
        for server in servers:
            prompts = [[rng.randrange(1000, 40000) for _ in range(arguments.prompt_tokens)] for _ in range(concurrency)]
            wait_until_idle(arguments.idle_wait)
            rows[server.name].append(run_round(server, prompts, arguments.output_tokens))
    return rows


def start_servers(arguments):
    port = free_port()
    servers = [Server("quire", [arguments.binary, "serve", arguments.model, "--port", str(port), *arguments.quire_args.split()], port)]
    if arguments.llama_server:
        port, slots = free_port(), max(arguments.concurrency)
        context = slots * (arguments.prompt_tokens + arguments.output_tokens + 16)
        servers.append(Server("llama.cpp", [arguments.llama_server, "-m", arguments.model, "--port", str(port), "-np", str(slots),
                                            "-c", str(context), "-t", str(os.cpu_count()), "--no-webui"], port))
    return servers


def report(concurrency, rows):
    for name, rounds in rows.items():
        total, decode, first = (statistics.median(column) for column in zip(*rounds))
        print(f"{concurrency:4d}  {name:<10} {total:9.1f} {decode:12.1f} {first * 1e3:12.1f}", end="")
        if name == "quire" and "llama.cpp" in rows:
            pairs = list(zip(rounds, rows["llama.cpp"]))
            print(f"   total {spread([a[0] / b[0] for a, b in pairs])}, stream {spread([a[1] / b[1] for a, b in pairs])}", end="")
        print(flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, help="the quire binary")
    parser.add_argument("--model", required=True, help="a GGUF file")
    parser.add_argument("--llama-server", default=os.environ.get("QUIRE_LLAMA_SERVER"), help="llama.cpp's server binary")
    parser.add_argument("--concurrency", type=lambda text: [int(part) for part in text.split(",")], default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--output-tokens", type=int, default=64)
    parser.add_argument("--quire-args", default="", help="further flags for quire serve, as one string")
    parser.add_argument("--idle-wait", type=float, default=20, help="wait at most so many seconds for an idle machine before each round")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    servers = start_servers(arguments)
    try:
        for server in servers:
            run_round(server, [[rng.randrange(1000, 40000) for _ in range(arguments.prompt_tokens)]], 8)
            print(f"{server.name}: ready after {server.ready_s:.2f} s")
        print(f"{'c':>4}  {'server':<10} {'out tok/s':>9} {'stream tok/s':>12} {'first ms':>12}   quire / llama.cpp, median (range)")
        for concurrency in arguments.concurrency:
            report(concurrency, measure(servers, concurrency, arguments, rng))
        for server in servers:
            print(f"{server.name}: resident {server.resident_mib():.0f} MiB")
    finally:
        for server in servers:
            server.stop()


if __name__ == "__main__":
    main()
