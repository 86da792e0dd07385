"""Runs alternating pairs of turns of two sides on one server; shared by the benchmarks of request features."""

import concurrent.futures
import json
import statistics
import sys
import time
import urllib.request

from flags import interval


def complete(port: int, body: dict) -> None:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as response:
        usage = json.load(response)["usage"]
    if usage["completion_tokens"] != body["max_tokens"]:
        raise RuntimeError(f"{usage['completion_tokens']} tokens of {body['max_tokens']}: no comparison")


def tokens_per_second(port: int, bodies: list, num_clients: int) -> float:
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(num_clients) as clients:
        list(clients.map(lambda body: complete(port, body), bodies))
    return sum(body["max_tokens"] for body in bodies) / (time.monotonic() - begin)


def compare(title: str, pairs: int, turn) -> tuple[dict, str]:
    """Runs `pairs` pairs of turns and compares the sides. turn(side, pair) must return tokens per second of the side "without" or "with".
    Returns the medians, and a line with the medians and their ratio."""
    seen: list = []
    for pair in range(pairs + 1):  # the first pair warms up the server
        order = ("without", "with") if pair % 2 == 0 else ("with", "without")
        seen.append({side: turn(side, pair) for side in order})
        print(f"\r{title}: pair {pair} of {pairs}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    seen = seen[1:]
    middle = {side: statistics.median(pair[side] for pair in seen) for side in ("without", "with")}
    ratios = [pair["with"] / pair["without"] for pair in seen]
    return middle, (f"{middle['without']:.1f} tokens/s without, {middle['with']:.1f} with, with / without {interval(ratios)}")
