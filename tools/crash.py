#!/usr/bin/env python3
"""Crash test of the whole program: kills `quire serve --kv-disk` (SIGKILL) at random times, from its first millisecond on, while it starts,
looks up stored blocks, loads, stores and evicts. Each restarted server gets the same questions in another order.

The test fails if an answer differs in a token or a digit of a log probability from the answer of a server without tier and prefix cache. It
also fails if a run finds less than --least of the blocks that the previous run reported as held (found at its start or stored since, and
not evicted). Every second folder is too small for all blocks, so that blocks are evicted.
"""

import argparse
import concurrent.futures
import http.client
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "bench"))
import machine  # noqa: E402

OFTEN_S = 0.02  # seconds between two readings of the counters


def ask(port: int, prompt: list, output_tokens: int):
    """Returns the text, the log probabilities and the number of cached tokens, or None if the server was killed before the answer."""
    body = {"prompt": prompt, "max_tokens": output_tokens, "temperature": 0, "ignore_eos": True, "logprobs": 1}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        done = json.loads(connection.getresponse().read())
    except (OSError, http.client.HTTPException, json.JSONDecodeError):
        return None
    finally:
        connection.close()
    if "choices" not in done:
        sys.exit(f"refused: {done}")
    choice = done["choices"][0]
    return (choice["text"], tuple(choice["logprobs"]["token_logprobs"])), done["usage"]["prompt_tokens_details"]["cached_tokens"]


def counters(port: int) -> dict:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
            text = page.read().decode()
    except (OSError, http.client.HTTPException):
        return {}
    return {name: float(value) for name, value in re.findall(r"^quire:kv_tier_(\w+)(?:\{[^}]*\})? (\S+)$", text, re.M)}


class Run:
    """A run of the server, until it is killed."""

    def __init__(self, arguments, folder: str, budget: int, rng: random.Random):
        self.port = machine.free_port()
        command = [arguments.binary, "serve", arguments.model, "--port", str(self.port), "--num-blocks", "120", "--max-model-len", "1024",
                   "--kv-disk", folder, "--kv-disk-budget", str(budget), "--log-level", "error"]  # fmt: skip
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.seen: dict = {}  # the last values of the counters
        self.found = None  # blocks found at the start; known when the whole folder was read
        self.timer = threading.Timer(rng.choice((0.3, 1.0, 2.5)) * rng.random() * arguments.slow, self.process.kill)
        self.timer.start()

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def watch(self) -> None:
        while self.is_alive():
            now = counters(self.port)
            if now:
                self.seen = now
                if self.found is None and now["unread_places"] == 0:
                    self.found = now["restored_blocks_total"]
            time.sleep(OFTEN_S)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--folder", default=None, help="directory for the tiers' folders (default: the directory for temporary files)")
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--per-folder", type=int, default=20, help="number of kills before the test starts a new folder")
    parser.add_argument("--prompts", type=int, default=40)
    parser.add_argument("--least", type=float, default=0.99)
    parser.add_argument("--slow", type=float, default=1.0, help="factor for the time until a kill, for slow machines")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    machine.end_on_sigterm()
    rng = random.Random(arguments.seed)
    prompts = [[rng.randrange(1000, 40000) for _ in range(rng.randrange(100, 700))] for _ in range(arguments.prompts)]
    port = machine.free_port()
    plain = [arguments.binary, "serve", arguments.model, "--port", str(port), "--no-enable-prefix-caching", "--max-model-len", "1024"]
    with machine.Server("plain", plain, port):
        wanted = [ask(port, prompt, 8)[0] for prompt in prompts]
    totals = dict.fromkeys(("answers", "wrong", "cut", "stored", "held", "found", "tokens", "refused", "early"), 0)
    for kill in range(arguments.kills):
        if kill % arguments.per_folder == 0:
            above = tempfile.TemporaryDirectory(dir=arguments.folder)
            budget = (512 << 20) if kill // arguments.per_folder % 2 == 0 else (100 << 20)
            held = 0.0
        run = Run(arguments, above.name + "/kv", budget, rng)
        watcher = threading.Thread(target=run.watch)
        watcher.start()
        order = rng.sample(range(len(prompts)), len(prompts))

        def client(i, run=run):
            while run.is_alive():
                answer = ask(run.port, prompts[i], 8)
                if answer is not None:
                    return i, answer
                if not run.seen:
                    time.sleep(OFTEN_S)  # not ready yet
            return i, None

        with concurrent.futures.ThreadPoolExecutor(3) as clients:
            for i, answer in clients.map(client, order):
                totals["answers" if answer else "cut"] += 1
                if answer:
                    totals["tokens"] += answer[1]
                    totals["wrong"] += answer[0] != wanted[i]
        run.timer.join()
        run.process.wait()
        watcher.join()
        if run.found is None:
            totals["early"] += 1  # killed before the folder was read, which still contains the previous run's blocks
            continue
        totals["held"] += held
        totals["found"] += min(held, run.found)
        totals["refused"] += run.seen["refused_total"]
        totals["stored"] += run.seen["stored_blocks_total"]
        # A block that is being written at the kill contains neither its old nor its new content.
        held = min(run.found + run.seen["stored_blocks_total"], run.seen["places"] - 8)
        print(f"\rkill {kill + 1} of {arguments.kills}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(f"{arguments.kills} kills, {totals['early']} of them before all that was stored had been looked up; {totals['answers']} answers,"
          f" {totals['wrong']} wrong; {totals['tokens']} of their tokens found, not computed; {totals['stored']:.0f} blocks stored,"
          f" {totals['found']:.0f} of {totals['held']:.0f} found again; {totals['refused']:.0f} did not verify")  # fmt: skip
    if totals["stored"] < 30 * arguments.kills or totals["early"] * 2 > arguments.kills:
        sys.exit("too few blocks were found: increase --slow, so that kills come later")
    return 1 if totals["wrong"] or totals["found"] < arguments.least * totals["held"] else 0


if __name__ == "__main__":
    sys.exit(main())
