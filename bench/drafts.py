#!/usr/bin/env python3
"""Measures the gain and the cost of speculative decoding: two servers, one with --num-speculative-tokens, get the same prompts in
alternating turns.

copy   "repeat this text" over passages of this repository's sources and documents: the prompt contains the answer
new    the first half of a passage, continued freely at temperature 1: the prompt has almost nothing to copy

Prints for each part output tokens per second (medians), the geometric mean of the paired ratios with / without with its 95 % interval, and
the number of accepted draft tokens. Answers must have the same tokens on both sides. Both parts have --prompts prompts, each asked once per
side.
"""

import concurrent.futures
import json
import pathlib
import re
import statistics
import sys
import time
import urllib.request

import machine
from flags import interval

ROOT = pathlib.Path(__file__).resolve().parent.parent
PASSAGE = 700  # characters


def passages(count: int) -> list:
    """Returns passages of the sources and documents, spread over all files."""
    files = sorted(path for pattern in ("src/**/*.cpp", "src/**/*.h", "docs/*.md") for path in ROOT.glob(pattern))
    pieces = [text[at : at + PASSAGE] for path in files for text in [path.read_text(encoding="utf-8")]
              for at in range(0, len(text) - PASSAGE, PASSAGE)]  # fmt: skip
    return [pieces[i * len(pieces) // count] for i in range(count)]


def copy_body(passage: str) -> dict:
    # The prompt contains the beginning of the copy, so that a small model continues it.
    prompt = f"The text:\n\n{passage}\n\nThe same text once more, word for word:\n\n{passage[:40]}"
    return {"prompt": prompt, "temperature": 0}


def new_body(passage: str) -> dict:
    return {"prompt": passage[: PASSAGE // 2], "temperature": 1, "seed": len(passage)}


def complete(server, body: dict, output_tokens: int) -> str:
    body = {**body, "max_tokens": output_tokens, "ignore_eos": True, "logprobs": 0}
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as response:
        return json.dumps(json.load(response)["choices"][0]["logprobs"])


def ask(server, bodies: list, arguments) -> tuple[float, list]:
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(arguments.clients) as clients:
        answers = list(clients.map(lambda body: complete(server, body, arguments.output_tokens), bodies))
    return len(bodies) * arguments.output_tokens / (time.monotonic() - begin), answers


def drafts_of(server) -> tuple[float, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as page:
        counts = dict(re.findall(r"^vllm:spec_decode_(num_draft_tokens|num_accepted_tokens)_total(?:\{[^}]*\})? (\S+)$", page.read().decode(), re.M))
    return float(counts.get("num_draft_tokens", 0)), float(counts.get("num_accepted_tokens", 0))


def measure(name: str, bodies: list, servers: dict, arguments) -> None:
    # Each group of prompts is timed as one pair: groups are long enough to be timed, and there are enough of them for an interval.
    size = max(arguments.clients, len(bodies) // arguments.pairs)
    groups = [bodies[i : i + size] for i in range(0, len(bodies) - size + 1, size)]
    before, speeds = drafts_of(servers["with"]), []
    for number, group in enumerate(groups):
        turn = {side: ask(servers[side], group, arguments) for side in (list(servers) if number % 2 == 0 else list(servers)[::-1])}
        if turn["with"][1] != turn["without"][1]:
            raise RuntimeError(f"{name}: draft tokens changed an answer")
        speeds.append({side: turn[side][0] for side in servers})
        print(f"\r{name}: {number + 1} of {len(groups)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    drafted, accepted = (after - first for after, first in zip(drafts_of(servers["with"]), before))
    middle = {side: statistics.median(speed[side] for speed in speeds) for side in servers}
    ratios = [speed["with"] / speed["without"] for speed in speeds]
    print(f"{name}, {arguments.clients} clients, {sum(map(len, groups))} prompts in {len(groups)} pairs: {middle['without']:.1f} tokens/s without,"
          f" {middle['with']:.1f} with draft tokens, with / without {interval(ratios)}; {accepted:.0f} of {drafted:.0f} were accepted;"
          " the same tokens and log probabilities")  # fmt: skip


def main() -> int:
    parser = machine.parser(__doc__, clients=1, prompts=120, pairs=20, output_tokens=96, num_speculative_tokens=4)
    parser.add_argument("flags", nargs="*", help="flags of both servers, after --")
    arguments = parser.parse_args()
    machine.end_on_sigterm()
    print(machine.describe())
    texts = passages(arguments.prompts)
    ports = {"without": machine.free_port(), "with": machine.free_port()}
    extra = {"without": [], "with": ["--num-speculative-tokens", str(arguments.num_speculative_tokens), "--prompt-lookup-min", "2",
                                     "--prompt-lookup-max", "5"]}  # fmt: skip
    command = {side: [arguments.binary, "serve", arguments.model, "--port", str(ports[side]), *extra[side], *arguments.flags] for side in ports}
    with machine.Server("without", command["without"], ports["without"]) as without, machine.Server("with", command["with"], ports["with"]) as drafting:
        servers = {"without": without, "with": drafting}
        for server in servers.values():
            ask(server, [new_body(text) for text in texts[:8]], arguments)  # warms up the server
        measure("copy", [copy_body(text) for text in texts], servers, arguments)
        measure("new", [new_body(text) for text in texts], servers, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
