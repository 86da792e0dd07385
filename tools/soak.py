#!/usr/bin/env python3
"""Soak test of a server: some clients cancel, stall, and send garbage while well-behaved clients check their answers.

The test has two phases. In the calm phase, all clients are well-behaved. In the hostile phase, nine tenths of the clients cancel in the
middle of a stream, stop reading, send garbage, or send half a request.

The test fails if
- a well-behaved client receives a refusal or a short answer, or its answer differs in a token or a digit of a log probability from the
  answer to the same question asked alone,
- the largest memory in the last quarter of the hostile phase exceeds the largest memory in its first quarter by more than --growth-mib,
- the server exits, or blocks are still held at the end,
- the p99 gap between tokens of well-behaved clients is more than --limit times as long in the hostile phase as in the calm phase.
"""
import argparse
import asyncio
import collections
import contextlib
import json
import pathlib
import random
import re
import socket
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "bench"))
import machine  # noqa: E402
from good_load import GoodLoad, make_questions, percentile, request_bytes  # noqa: E402

GARBAGE = [b"\x00\xff\xfe garbage\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
           b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n{\"messages\": [[[[[[[",
           b"GET " + b"a" * 70000 + b" HTTP/1.1\r\n\r\n"]  # fmt: skip
HOSTILE = ["cancel", "stall", "garbage", "half"]


class HostileClients:
    def __init__(self, port: int, seed: int):
        self.port, self.rng, self.counts = port, random.Random(seed), collections.Counter()

    def request(self) -> bytes:
        body = {"messages": [{"role": "user", "content": f"Tell me about the number {self.rng.random()}."}], "max_tokens": 200, "stream": True,
                "ignore_eos": True}  # fmt: skip
        return request_bytes("POST", "/v1/chat/completions", json.dumps(body).encode())

    async def client(self, kind: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            if kind == "garbage":
                writer.write(self.rng.choice(GARBAGE))
                await asyncio.wait_for(reader.read(4096), 60)
            elif kind == "half":
                writer.write(self.request()[: self.rng.randrange(10, 150)])
                await writer.drain()
                await asyncio.sleep(self.rng.random())
            elif kind == "cancel":
                writer.write(self.request())
                for _ in range(self.rng.randrange(2, 40)):
                    await asyncio.wait_for(reader.readline(), 60)
            else:
                writer.write(self.request())
                await asyncio.sleep(self.rng.uniform(1, 10))
            self.counts[kind] += 1
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def work_until(self, deadline: float) -> None:
        while time.monotonic() < deadline:
            try:
                await self.client(self.rng.choice(HOSTILE))
            except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError, asyncio.LimitOverrunError, ValueError):
                self.counts["ended by the server"] += 1
            await asyncio.sleep(self.rng.uniform(0, 0.2))


class Memory:
    """Records the largest resident memory, in MiB, in the first and in the last quarter of a time span."""

    def __init__(self, server: machine.Server, seconds: float):
        self.server, self.begin, self.seconds = server, time.monotonic(), seconds
        self.early = self.late = 0.0

    async def watch(self) -> None:
        while (share := (time.monotonic() - self.begin) / self.seconds) < 1.0:
            now = self.server.memory_mib()
            if share < 0.25:
                self.early = max(self.early, now)
            elif share > 0.75:
                self.late = max(self.late, now)
            await asyncio.sleep(0.25)


async def good_until(load: GoodLoad, questions: list, rng: random.Random, deadline: float) -> None:
    while time.monotonic() < deadline:
        await load.ask(rng.choice(questions))
        await asyncio.sleep(rng.uniform(0, 0.2))


async def run(server: machine.Server, arguments):
    rng = random.Random(arguments.seed)
    load, hostile = GoodLoad(server.port), HostileClients(server.port, arguments.seed + 1)
    questions = make_questions(rng, 12, 32)
    await load.learn(questions)
    num_good = arguments.clients // 10

    def good_clients(count, deadline):
        return [good_until(load, questions, rng, deadline) for _ in range(count)]

    load.phase = "calm"
    await asyncio.gather(*good_clients(2 * num_good, time.monotonic() + arguments.seconds / 4))
    load.phase = "hostile"
    memory, deadline = Memory(server, arguments.seconds), time.monotonic() + arguments.seconds
    bad_ones = [hostile.work_until(deadline) for _ in range(arguments.clients - num_good)]
    await asyncio.gather(memory.watch(), *good_clients(num_good, deadline), *bad_ones)
    return load, hostile, memory


def metric(port: int, name: str) -> float:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        text = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    match = re.search(rf"^{re.escape(name)}(?:{{[^}}]*}})? ([0-9.e+-]+)", text, re.M)
    return float(match.group(1)) if match else float("nan")


def all_free(port: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if metric(port, "vllm:kv_cache_usage_perc") == 0 and metric(port, "vllm:num_requests_running") == 0:
                return True
        time.sleep(0.1)
    return False


def judge(load: GoodLoad, memory: Memory, free: bool, code: int, arguments) -> list:
    """Prints the results. Returns the list of failures."""
    before, after = (percentile(load.samples[phase].gaps, 0.99) for phase in ("calm", "hostile"))
    print(f"good answers: {load.num_good} complete and equal, {len(load.bad)} not")
    print(f"memory: {memory.early:.0f} MiB in the first quarter, {memory.late:.0f} in the last; may grow by {arguments.growth_mib:.0f}")
    print(f"p99 gap between tokens: calm {before * 1e3:.1f} ms ({len(load.samples['calm'].gaps)}), hostile {after * 1e3:.1f} ms "
          f"({len(load.samples['hostile'].gaps)}), ratio {after / before:.2f}; all blocks free: {free}; exit code {code}")  # fmt: skip
    failed = [f"good answer {problem}" for problem in load.bad[:10]]
    if not memory.late - memory.early <= arguments.growth_mib or memory.late == 0.0:
        failed.append(f"memory grew by {memory.late - memory.early:.0f} MiB")
    if not after / before <= arguments.limit:
        failed.append(f"the p99 gap grew {after / before:.2f} times, limit {arguments.limit}")
    if not free:
        failed.append("blocks are held although no request runs")
    return failed + ([f"the server ended with {code}"] if code != 0 else [])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--seconds", type=float, default=600, help="duration of the hostile phase; the calm phase takes a quarter of it")
    parser.add_argument("--minutes", type=float, help="duration in minutes; 1 is a smoke test")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--limit", type=float, default=3.0, help="largest allowed growth of the p99 gap")
    parser.add_argument("--growth-mib", type=float, default=48.0, help="largest allowed growth of memory")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quire-args", default="", help="additional flags for quire serve, as one string")
    arguments = parser.parse_args()
    if arguments.minutes is not None:
        arguments.seconds = arguments.minutes * 60
    port = machine.free_port()
    # The small cache is completely in use after the calm phase, so later growth of memory does not come from the cache.
    flags = ["--port", str(port), "--max-num-seqs", "32", "--kv-cache-memory", "256MiB", *arguments.quire_args.split()]
    machine.end_on_sigterm()
    with machine.Server("quire", [arguments.binary, "serve", arguments.model, *flags], port) as server:
        load, hostile, memory = asyncio.run(run(server, arguments))
        free = all_free(port, 60)
        code = server.stop()
    print(f"hostile clients: {dict(hostile.counts)}")
    failed = judge(load, memory, free, code, arguments)
    print("FAILED\n  " + "\n  ".join(failed) if failed else "passed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
