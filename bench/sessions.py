#!/usr/bin/env python3
"""Replays recorded agents (mini_swe, gruckion/mini-swe-agent over SWE-bench) on two servers, of which one has --kv-disk. The KV cache in
memory holds a tenth of the tokens that the sessions need.

Turns have their recorded prompts, with the whole history. Answers are limited to --output-tokens, and the recorded answers go into
the next prompt. A session ends before its prompt exceeds --most-tokens. The turns of all sessions run in the order of their recorded times,
--clients at a time; a turn follows the previous answer of its session. The servers alternate after --chunk turns.
"""

import concurrent.futures
import gzip
import http.client
import json
import pathlib
import statistics
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

import machine
from flags import interval
from tiers import counters, settle

TRACE = "mini_swe/gemini3_swebench_350.jsonl.gz"


def tokenize(port: int, messages: list) -> float:
    """Returns the number of tokens of the prompt; infinity if the prompt exceeds the context."""
    body = json.dumps({"messages": messages, "add_generation_prompt": True}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/tokenize", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)["count"]
    except urllib.error.HTTPError as error:
        if error.code == 400 and b"which is all the context holds" in error.read():
            return float("inf")
        raise


def turns_of(path: pathlib.Path, arguments, port: int) -> tuple[list, int]:
    """Returns (session, messages) in the order of their times, and the number of tokens that all sessions have at their ends."""
    turns, total, count = [], 0, 0
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for number, line in enumerate(file):
            session = json.loads(line)
            longest, own = 0, []
            for call in session["requests"]:
                messages = session["messages"][: call["msg"]]
                tokens = tokenize(port, messages)
                if tokens > arguments.most_tokens:
                    break
                longest = tokens
                own.append((call["t"], number, messages))
            if len(own) < 2:
                continue
            turns += own
            total += longest
            count += 1
            if count == arguments.sessions:
                break
    turns.sort(key=lambda turn: turn[:2])
    return [(number, messages) for _, number, messages in turns], total


def first_token_s(server, messages: list, output_tokens: int) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
    body = {"messages": messages, "max_tokens": output_tokens, "temperature": 0, "stream": True, "ignore_eos": True}
    start = time.monotonic()
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise RuntimeError(f"{server.name}: {response.status} {response.read()[:300]}")
    first = None
    while line := response.readline():
        if first is None and line.startswith(b"data: {") and b'"content":"' in line and b'"content":""' not in line:
            first = time.monotonic() - start
    connection.close()
    return first if first is not None else time.monotonic() - start


def play(server, chunk: list, arguments) -> tuple[list, float]:
    """Returns the seconds to the first token of each turn, and the seconds of all turns together."""
    locks = {number: threading.Lock() for number, _ in chunk}
    order, taking, times = iter(chunk), threading.Lock(), []

    def client() -> None:
        while True:
            with taking:
                turn = next(order, None)
                if turn is None:
                    return
                locks[turn[0]].acquire()
            try:
                times.append(first_token_s(server, turn[1], arguments.output_tokens))
            finally:
                locks[turn[0]].release()

    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(arguments.clients) as clients:
        for future in [clients.submit(client) for _ in range(arguments.clients)]:
            future.result()
    return times, time.monotonic() - start


def main() -> int:
    parser = machine.parser(__doc__, sessions=30, most_tokens=8000, output_tokens=16, clients=4)
    parser.add_argument("--traces", type=pathlib.Path, default="../shared/traces", help=f"folder with {TRACE}")
    parser.add_argument("--folder", default="build", help="parent directory of the tier's folder (default: %(default)s)")
    parser.add_argument("--chunk", type=int, default=30, help="turns of a server before the other's (default: %(default)s)")
    arguments = parser.parse_args()
    if not (arguments.traces / TRACE).exists():
        sys.exit(f"{arguments.traces / TRACE} does not exist. Set --traces to the folder of the recordings")
    machine.end_on_sigterm()
    print(machine.describe())

    def serve(name: str, *flags: str):
        port = machine.free_port()
        return machine.Server(name, [arguments.binary, "serve", arguments.model, "--port", str(port), *flags], port)

    with serve("tokens") as server:
        turns, total = turns_of(arguments.traces / TRACE, arguments, server.port)
    blocks = total // 16 // 10
    print(f"{arguments.sessions} sessions, {len(turns)} turns, {total} tokens at their ends; {blocks} blocks of 16 in memory", flush=True)
    memory = ("--num-blocks", str(blocks + 1))
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder, serve("off", *memory) as off, \
            serve("on", *memory, "--kv-disk", folder, "--kv-disk-budget", str(8 << 30)) as on:  # fmt: skip
        first: dict = {"off": [], "on": []}
        took: dict = {"off": [], "on": []}
        chunks = [turns[at : at + arguments.chunk] for at in range(0, len(turns), arguments.chunk)]
        for i, chunk in enumerate(chunks):
            for server in (off, on) if i % 2 else (on, off):
                times, seconds = play(server, chunk, arguments)
                first[server.name] += times
                took[server.name].append(seconds)
            print(f"\rturns {sum(map(len, chunks[: i + 1]))} of {len(turns)}", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        settle(on)
        tier = counters(on)
    print("          first token s: p50     p90     p99   turns/s")
    for side in ("off", "on"):
        cuts = statistics.quantiles(first[side], n=100, method="inclusive")
        print(f"{side:21} {cuts[49]:7.3f} {cuts[89]:7.3f} {cuts[98]:7.3f} {len(turns) / sum(took[side]):9.3f}")
    ratios = interval([without / seconds for without, seconds in zip(took["off"], took["on"], strict=True)])
    print(f"speed on / off, by chunk (95 % interval): {ratios}")
    print(f"loaded {tier['loaded_blocks_total']:.0f} blocks, {tier['loaded_bytes_total'] / 2**20:.0f} MiB; stored {tier['stored_blocks_total']:.0f};"
          f" {tier['computed_tokens_total']:.0f} tokens computed instead; failed {tier['failed_total']:.0f}, refused {tier['refused_total']:.0f}")  # fmt: skip
    loading_s = tier["loaded_bytes_total"] / tier["load_bytes_per_second"]
    print(f"loading took about {loading_s:.1f} of the {sum(first['on']):.1f} s to first tokens: overlap can save at most this")
    return 0


if __name__ == "__main__":
    sys.exit(main())
