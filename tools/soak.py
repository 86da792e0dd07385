#!/usr/bin/env python3
"""Soak: clients that connect, cancel, stall and send garbage against a running server, beside well-behaved ones.

Two phases of the same admitted load: calm (every client well-behaved), then hostile (the others cancel in the middle of a stream, stop
reading, send garbage or half a request). Fails if the server dies, if a block is still held at the end, or if the p99 gap between tokens of
the well-behaved clients grew by more than --limit.
"""
import argparse
import asyncio
import contextlib
import json
import random
import re
import signal
import socket
import subprocess
import sys
import time

PROMPTS = ["Tell me about the sea.", "Write a short story about a lighthouse keeper.", "List ten animals.", "Explain rain to a child."]
GARBAGE = [b"\x00\xff\xfe garbage\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
           b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 20\r\n\r\n{\"messages\": [[[[[[[", b"GET " + b"a" * 70000 + b" HTTP/1.1\r\n\r\n"]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Load:
    def __init__(self, port, seed):
        self.port, self.rng = port, random.Random(seed)
        self.gaps, self.counts, self.refused = [], {}, 0

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    def request(self, max_tokens):
        body = json.dumps({"messages": [{"role": "user", "content": self.rng.choice(PROMPTS) + " " + str(self.rng.random())}],
                           "max_tokens": max_tokens, "stream": True, "ignore_eos": True, "temperature": 1.0}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body

    async def stream(self, reader, measure, stop_after=None):
        last, seen = None, 0
        while True:
            line = await asyncio.wait_for(reader.readline(), 300)
            if not line or b"[DONE]" in line:
                return seen
            if line.startswith(b"HTTP/1.1 429"):
                self.refused += 1
                return seen
            if line.startswith(b"data: "):
                now = time.monotonic()
                if measure and last is not None:
                    self.gaps.append(now - last)
                last, seen = now, seen + 1
                if stop_after is not None and seen >= stop_after:
                    return seen

    async def client(self, kind):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            if kind == "garbage":
                writer.write(self.rng.choice(GARBAGE))
                await asyncio.wait_for(reader.read(4096), 60)
            elif kind == "half":
                writer.write(self.request(8)[: self.rng.randrange(10, 150)])
                await writer.drain()
                await asyncio.sleep(self.rng.random())
            elif kind == "cancel":
                writer.write(self.request(200))
                await self.stream(reader, False, self.rng.randrange(0, 10))
            elif kind == "stall":
                writer.write(self.request(200))
                await asyncio.sleep(self.rng.uniform(1, 10))
            else:
                writer.write(self.request(32))
                await self.stream(reader, True)
            self.count(kind)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def worker(self, deadline, kinds):
        while time.monotonic() < deadline:
            try:
                await self.client(self.rng.choice(kinds))
            except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError, asyncio.LimitOverrunError, ValueError):
                self.count("connection ended by the server")
            await asyncio.sleep(self.rng.uniform(0, 0.2))

    async def phase(self, seconds, clients, hostile):
        deadline = time.monotonic() + seconds
        good = clients // 10
        kinds = ["cancel", "stall", "garbage", "half"] if hostile else ["good"]
        workers = [self.worker(deadline, ["good"]) for _ in range(good)]
        workers += [self.worker(deadline, kinds) for _ in range((clients - good) if hostile else good)]
        await asyncio.gather(*workers)


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] if values else float("nan")


def metric(port, name):
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        text = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    match = re.search(rf"^{re.escape(name)}(?:{{[^}}]*}})? ([0-9.e+-]+)", text, re.M)
    return float(match.group(1)) if match else float("nan")


def wait_for(port, server, predicate, seconds):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if server.poll() is not None:
            sys.exit(f"the server ended with {server.returncode}")
        with contextlib.suppress(OSError):
            if predicate():
                return True
        time.sleep(0.1)
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--seconds", type=float, default=600, help="of the hostile phase; the calm one takes a quarter of it")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--limit", type=float, default=3.0, help="largest allowed growth of the p99 gap")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quire-args", default="", help="further flags for quire serve, as one string")
    arguments = parser.parse_args()
    port = free_port()
    flags = ["--port", str(port), "--max-num-seqs", "32", *arguments.quire_args.split()]
    server = subprocess.Popen([arguments.binary, "serve", arguments.model, *flags])
    if not wait_for(port, server, lambda: metric(port, "vllm:num_requests_running") >= 0, 60):
        sys.exit("the server did not come up")
    calm, hostile = Load(port, arguments.seed), Load(port, arguments.seed + 1)
    asyncio.run(calm.phase(arguments.seconds / 4, arguments.clients, hostile=False))
    asyncio.run(hostile.phase(arguments.seconds, arguments.clients, hostile=True))
    free = wait_for(port, server, lambda: metric(port, "vllm:kv_cache_usage_perc") == 0 and metric(port, "vllm:num_requests_running") == 0, 60)
    resident = metric(port, "quire:process_resident_bytes") / 2**20
    server.send_signal(signal.SIGTERM)
    code = server.wait(60)
    before, after = percentile(calm.gaps, 0.99), percentile(hostile.gaps, 0.99)
    print(f"hostile clients: {hostile.counts}, refused {hostile.refused}; resident {resident:.0f} MiB")
    print(f"p99 gap between tokens: calm {before * 1e3:.1f} ms ({len(calm.gaps)}), hostile {after * 1e3:.1f} ms ({len(hostile.gaps)}), "
          f"ratio {after / before:.2f}; all blocks free: {free}; exit code {code}")
    sys.exit(0 if free and code == 0 and after / before <= arguments.limit else 1)


if __name__ == "__main__":
    main()
