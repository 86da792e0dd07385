#!/usr/bin/env python3
"""Soak test of a producer and a consumer of KV blocks and their proxy, with several concurrent clients and random kills.

The test first sends --requests questions while both servers run. Then it kills one of the two servers (SIGKILL) --kills times, at random
times, and restarts the server on its ports, while the clients continue to ask. At the end it sends requests for --idle seconds without
kills.

The test fails if
- an answer differs from the answer of a single server in a token or a digit of a log probability,
- an attempt takes longer than --patience,
- a request fails while no server is killed, or the number of transferred bytes is not the number of blocks times their size,
- a block or a lease is still held at the end, or memory has grown by more than --growth-mib.

The default proxy does the same as vLLM's toy proxy. To use that proxy itself, pass --proxy ".../python .../toy_proxy_server.py".
"""

import argparse
import concurrent.futures
import http.client
import http.server
import json
import pathlib
import random
import re
import shlex
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "bench"))
import machine  # noqa: E402

WORDS = "river stone cloud lamp garden engine copper winter music paper silver bridge ocean candle forest clock".split()
# A journal of 1 MiB is full after the first questions. The servers' default journal of 32 MiB would grow for an hour.
FLAGS = ["--max-model-len", "512", "--max-num-seqs", "16", "--num-blocks", "600", "--log-level", "error", "--journal-memory", "1MiB"]
WANTS_PARAMS = {"do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None, "remote_block_ids": None,
                "remote_host": None, "remote_port": None}  # fmt: skip
NOTHING_SEEN = {"answers": 0, "wrong": 0, "failed": 0, "slowest_s": 0.0}
FAILED = (OSError, http.client.HTTPException, json.JSONDecodeError, KeyError)


def post(port: int, body: dict, timeout: float) -> dict:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return json.load(answer)


def metrics(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as page:
        return page.read().decode()


def of_tier(port: int) -> dict:
    return {name: float(value) for name, value in re.findall(r'^quire:kv_tier_(\w+)\{[^}]*tier="peer"\} (\S+)$', metrics(port), re.M)}


def is_empty(port: int) -> bool:
    return float(re.search(r"^vllm:kv_cache_usage_perc\{[^}]*\} (\S+)$", metrics(port), re.M)[1]) == 0


class Server:
    def __init__(self, options, *flags: str):
        self.port = machine.free_port()
        self.command = [options.binary, "serve", options.model, "--port", str(self.port), "--served-model-name", "model", *FLAGS, *flags]
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/ready", timeout=5)
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    sys.exit(f"the server does not start: {shlex.join(self.command)}")
                time.sleep(0.02)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def resident_mib(self) -> float:
        return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{self.process.pid}/status").read_text())[1]) / 1024


class Proxy(http.server.BaseHTTPRequestHandler):
    """Sends a request first to the producer, then to the consumer. If the producer fails, the consumer computes the prompt."""

    producer = consumer = 0

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            params = post(self.producer, {**body, "max_tokens": 1, "kv_transfer_params": WANTS_PARAMS}, 300).get("kv_transfer_params")
        except FAILED:
            params = None
        try:
            answer, status = post(self.consumer, {**body, "kv_transfer_params": params} if params else body, 300), 200
        except FAILED as error:
            answer, status = {"error": str(error)}, 502
        text = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


def make_questions(count: int, rng: random.Random) -> list[dict]:
    return [
        {"model": "model", "prompt": " ".join(rng.choice(WORDS) for _ in range(rng.randrange(10, 120))), "max_tokens": rng.randrange(1, 12),
         "temperature": 0.9, "seed": i, "logprobs": 1}
        for i in range(count)
    ]  # fmt: skip


class Clients:
    """Sends questions and compares the answers. `slowest`, `failed` and `wrong` cover all attempts since they were last read."""

    def __init__(self, questions: list[dict], options):
        self.questions, self.options, self.wanted = questions, options, [None] * len(questions)
        self.lock = threading.Lock()
        self.seen = NOTHING_SEEN.copy()

    def look(self) -> dict:
        with self.lock:
            seen, self.seen = self.seen, NOTHING_SEEN.copy()
            return seen

    def ask(self, port: int, number: int) -> bool:
        begin = time.monotonic()
        try:
            choice = post(port, self.questions[number], self.options.patience)["choices"][0]
            answer = (choice["text"], choice["logprobs"]["token_logprobs"], choice["finish_reason"])
        except FAILED:
            answer = None
        with self.lock:
            self.seen["slowest_s"] = max(self.seen["slowest_s"], time.monotonic() - begin)
            if answer is None:
                self.seen["failed"] += 1
                return False
            self.seen["answers"] += 1
            self.seen["wrong"] += self.wanted[number] is not None and answer != self.wanted[number]
        if self.wanted[number] is None:
            self.wanted[number] = answer
        return True

    def ask_all(self, port: int) -> float:
        begin = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(self.options.clients) as pool:
            list(pool.map(lambda number: self.ask(port, number), range(len(self.questions))))
        return time.monotonic() - begin

    def go_on(self, port: int, over: threading.Event, seed: int) -> None:
        rng = random.Random(seed)
        while not over.is_set():
            if not self.ask(port, rng.randrange(len(self.questions))):
                time.sleep(0.05)


def expect(what: bool, told: str, failures: list[str]) -> None:
    if not what:
        failures.append(told)
        print("FAILED:", told, flush=True)


def comes_true(what, seconds: float = 90) -> bool:
    deadline = time.monotonic() + seconds
    while not what():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--idle", type=float, default=0, metavar="SECONDS", help="duration of the calm requests after the kills")
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--patience", type=float, default=60, metavar="SECONDS", help="maximum time of an attempt (default: %(default)s)")
    parser.add_argument("--growth-mib", type=float, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--proxy", help="the command of vLLM's toy_proxy_server.py, used instead of the built-in proxy")
    options = parser.parse_args()
    rng, failures = random.Random(options.seed), []
    clients = Clients(make_questions(options.requests, rng), options)

    one = Server(options)
    alone_s = clients.ask_all(one.port)
    expect(clients.look()["failed"] == 0, "the single server answers every question", failures)
    one.kill()

    producer = Server(options, "--kv-role", "producer", "--kv-port", str(machine.free_port()), "--kv-lease", "10")
    consumer = Server(options, "--kv-role", "consumer", "--kv-producers", "127.0.0.1")
    if options.proxy:
        port = machine.free_port()
        proxy = subprocess.Popen([*shlex.split(options.proxy), "--port", str(port), "--prefiller-hosts", "127.0.0.1", "--prefiller-ports", str(producer.port),
                                  "--decoder-hosts", "127.0.0.1", "--decoder-ports", str(consumer.port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip

        def answers():
            try:
                return urllib.request.urlopen(f"http://127.0.0.1:{port}/healthcheck", timeout=5).status == 200
            except OSError:
                return False

        if not comes_true(answers, 120):
            sys.exit("the proxy does not start")
    else:
        handler = type("Handler", (Proxy,), {"producer": producer.port, "consumer": consumer.port})
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        port = server.server_port
        threading.Thread(target=server.serve_forever, daemon=True).start()

    apart_s = clients.ask_all(port)
    calm = clients.look()
    sent, loaded = of_tier(producer.port), of_tier(consumer.port)
    block_bytes = loaded["loaded_bytes_total"] / max(1, loaded["loaded_blocks_total"])
    print(f"calm: {calm}, one server {alone_s:.1f} s, two {apart_s:.1f} s; {loaded['loaded_blocks_total']:.0f} blocks of {block_bytes:.0f} bytes loaded, "
          f"{sent['stored_bytes_total']:.0f} bytes sent; failed {loaded['failed_total']:.0f}, refused {loaded['refused_total']:.0f}", flush=True)  # fmt: skip
    expect(calm["wrong"] == calm["failed"] == 0 and calm["answers"] == options.requests, "calm answers are those of one server", failures)
    expect(
        sent["stored_bytes_total"] == loaded["loaded_bytes_total"] > 0 and block_bytes % 1 == 0,
        "moved bytes are blocks times their size",
        failures,
    )
    expect(comes_true(lambda: is_empty(producer.port) and is_empty(consumer.port)), "no block is held after the calm requests", failures)

    over = threading.Event()
    asking = [threading.Thread(target=clients.go_on, args=(port, over, options.seed * 1000 + i)) for i in range(options.clients)]
    for thread in asking:
        thread.start()
    num_of = {producer: 0, consumer: 0}
    for i in range(options.kills):
        time.sleep(rng.choice((0.1, 0.5, 1.5)) * rng.random())
        before = clients.seen["answers"]
        comes_true(lambda: clients.seen["answers"] > before, options.patience)  # killing an idle server would test nothing
        time.sleep(rng.random())
        victim = rng.choice((producer, consumer))
        num_of[victim] += 1
        victim.kill()
        victim.start()
        if i % 20 == 19:
            print(f"{i + 1} killed: {clients.seen}", flush=True)
    over.set()
    for thread in asking:
        thread.join()
    killed = clients.look()
    print(f"kills: producer {num_of[producer]}, consumer {num_of[consumer]}: {killed}", flush=True)
    expect(killed["wrong"] == 0, "kills do not change answers", failures)
    expect(killed["slowest_s"] < options.patience, "no request waits for a dead server", failures)
    expect(killed["answers"] >= options.kills, "too few requests were affected: increase --kills", failures)

    until, first = time.monotonic() + options.idle, None
    while True:
        clients.ask_all(port)
        first = first or (producer.resident_mib(), consumer.resident_mib())
        if time.monotonic() >= until:
            break
    calm = clients.look()
    grown = [now - then for now, then in zip((producer.resident_mib(), consumer.resident_mib()), first)]
    print(f"calm again: {calm}; memory has grown by {grown[0]:.1f} and {grown[1]:.1f} MiB", flush=True)
    expect(calm["wrong"] == calm["failed"] == 0, "later calm answers equal the answers of one server", failures)
    expect(max(grown) < options.growth_mib, "memory does not grow", failures)
    expect(comes_true(lambda: is_empty(producer.port) and is_empty(consumer.port)), "no block is held at the end", failures)
    expect(of_tier(producer.port)["open_leases"] == 0, "no lease is open at the end", failures)
    for it in (producer, consumer):
        it.kill()
    if options.proxy:
        proxy.kill()
    print("failed: " + "; ".join(failures) if failures else "passed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
