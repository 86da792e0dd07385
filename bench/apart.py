#!/usr/bin/env python3
"""Compares prefill and decode on separate servers with one server that does both, on this machine. Measures seconds to the first token,
gaps between tokens, and tokens per second.

    python3 bench/apart.py --binary build/release/quire --model MODEL.gguf [--clients 8] [--rounds 3]

The single server uses all cores; each of the two servers uses half of them. Both setups take turns, with the same clients and new prompts.
As a proxy does, a client sends the prompt to the producer, passes the producer's kv_transfer_params to the consumer and reads the stream.
"""

import argparse
import http.client
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import threading
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import machine  # noqa: E402

WANTS_PARAMS = {"do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None, "remote_block_ids": None,
                "remote_host": None, "remote_port": None}  # fmt: skip


def start(options, threads: int, *flags: str):
    port = machine.free_port()
    command = [options.binary, "serve", options.model, "--port", str(port), "--served-model-name", "model", "--max-model-len", "2048",
               "--threads", str(threads), "--log-level", "error", *flags]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    for _ in range(600):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5)
            return port, process
        except OSError:
            if process.poll() is not None:
                break
            time.sleep(0.1)
    sys.exit(f"the server does not start: {command}")


def post(port: int, body: dict):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        sys.exit(f"{answer.status}: {answer.read(500)}")
    return answer


def ask(producer, consumer: int, prompt: list, tokens: int, told: list) -> None:
    """Sends a prompt. Appends (seconds to the first token, gaps) to `told`."""
    begin = time.perf_counter()
    body = {"model": "model", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    if producer is not None:
        body["kv_transfer_params"] = json.load(post(producer, {**body, "max_tokens": 1, "kv_transfer_params": WANTS_PARAMS}))["kv_transfer_params"]
    at = []
    answer = post(consumer, {**body, "stream": True})
    while line := answer.readline():
        if line.startswith(b"data: {"):
            at.append(time.perf_counter())
    told.append((at[0] - begin, [b - a for a, b in zip(at, at[1:])]))


def percentile(values: list, share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def one_round(producer, consumer: int, options, rng: random.Random) -> dict:
    prompts = [[[rng.randrange(100, 40000) for _ in range(options.prompt)] for _ in range(options.each)] for _ in range(options.clients)]
    told = []

    def client(own):
        for prompt in own:
            ask(producer, consumer, prompt, options.tokens, told)

    threads = [threading.Thread(target=client, args=(own,)) for own in prompts]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - begin
    first, gaps = [it[0] for it in told], [gap for it in told for gap in it[1]]
    return {"tokens/s": len(told) * options.tokens / seconds, "TTFT p50": percentile(first, 0.5), "TTFT p99": percentile(first, 0.99),
            "gap p50": percentile(gaps, 0.5), "gap p99": percentile(gaps, 0.99)}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--each", type=int, default=3, help="requests per client in a round")
    parser.add_argument("--prompt", type=int, default=512, help="tokens")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    one, first = start(options, cores)
    producer, second = start(options, max(1, cores // 2), "--kv-role", "producer", "--kv-port", "0")
    consumer, third = start(options, max(1, cores - cores // 2), "--kv-role", "consumer")
    rng, rows = random.Random(1), {"one": [], "two": []}
    try:
        for number in range(options.rounds):
            for side in ("one", "two") if number % 2 == 0 else ("two", "one"):
                rows[side].append(one_round(*((None, one) if side == "one" else (producer, consumer)), options, rng))
                print(side, {name: round(value, 4) for name, value in rows[side][-1].items()}, flush=True)
    finally:
        for process in (first, second, third):
            process.kill()
    print(f"\n{options.clients} clients, {options.prompt} tokens in, {options.tokens} out, {cores} cores; median of {options.rounds} rounds\n")
    print("| | " + " | ".join(rows["one"][0]) + " |\n|---|" + "---|" * len(rows["one"][0]))
    for side, label in (("one", "one server"), ("two", "prefill and decode apart")):
        print(f"| {label} | " + " | ".join(f"{statistics.median(row[name] for row in rows[side]):.3g}" for name in rows["one"][0]) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
