#!/usr/bin/env python3
"""Compares routers in front of two servers with round robin: how many turns of long sessions go to the server with their prefix, and
how much of the prompts is then in the cache.

Each router has two fresh servers that publish KV events, and gets the same turns: from recorded agents (--traces FOLDER, mini_swe), or from
sessions generated with --seed. Sessions run concurrently, with --clients turns at the same time; a turn follows the previous answer of its
session. Answers are limited to --output-tokens, and the next prompt has the recorded answers. A server's KV cache holds --cache-percent of
the tokens that all sessions have at their ends. The logs of the servers show which server got a turn, and how much of its prompt was
cached.
"""

import asyncio
import concurrent.futures
import contextlib
import functools
import json
import os
import pathlib
import random
import re
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

import machine
from sessions import TRACE, tokenize, turns_of

NAME = "routed"  # the model's name, for all servers and routers
# Hides messages that routers print at every turn.
os.environ.setdefault("DYN_LOG", "error")


def post(url: str, body: dict, name: str = "") -> dict:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json", "X-Request-Id": name})
    try:
        with urllib.request.urlopen(request, timeout=1200) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"{url}: {error.code} {error.read()[:300]}") from error


class Server:
    """One of the two servers, with the address of its KV events."""

    def __init__(self, arguments, place: int, blocks: int, format: str, folder: pathlib.Path):
        port, events, replay = machine.free_port(), machine.free_port(), machine.free_port()
        self.url, self.events, self.replay = f"http://127.0.0.1:{port}", f"tcp://127.0.0.1:{events}", f"tcp://127.0.0.1:{replay}"
        self.log = folder / f"server{place}.log"
        config = {"enable_kv_cache_events": True, "endpoint": f"tcp://*:{events}", "replay_endpoint": f"tcp://*:{replay}"}
        if format != "0.19.0":
            config["format"] = format
        command = [arguments.binary, "serve", arguments.model, "--port", str(port), "--served-model-name", NAME]
        command += ["--num-blocks", str(blocks + 1), "--log-format", "json", "--kv-events-config", json.dumps(config)]
        self.process = machine.Server(f"server {place}", command, port, log=self.log)

    def turns(self) -> dict:
        """Returns prompt tokens and cached prompt tokens, by turn."""
        told = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        asked = [line for line in told if "prompt_tokens" in line and re.fullmatch(r"turn-\d+-\d+", line["id"])]
        return {line["id"]: (line["prompt_tokens"], line["cached_tokens"]) for line in asked}


class Alternating:
    """Round robin: alternates between the two servers."""

    def __init__(self, servers: list, folder: pathlib.Path):
        self.urls, self.count, self.lock = [server.url for server in servers], 0, threading.Lock()

    def ask(self, body: dict, name: str) -> dict:
        with self.lock:
            url = self.urls[self.count % len(self.urls)]
            self.count += 1
        return post(f"{url}/v1/chat/completions", body, name)

    def stop(self):
        pass


class Dynamo:
    """ai-dynamo-runtime's SelectionService: receives the KV events, gets a prompt's tokens, and returns a server. `prefill_scale`: the
    weight of tokens that must be computed, relative to blocks of running requests."""

    def __init__(self, servers: list, folder: pathlib.Path, prefill_scale: float = 1.0):
        from dynamo.llm import SelectionService

        os.environ["DYN_ROUTER_PREFILL_LOAD_SCALE"] = str(prefill_scale)  # read when the service is created
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.tokenizer = servers[0].url
        self.service = self.do(self.make(SelectionService))
        for i, server in enumerate(servers):
            worker = {"worker_id": i, "model_name": NAME, "endpoint": server.url, "block_size": 16, "kv_events_endpoint": server.events,
                      "replay_endpoint": server.replay}  # fmt: skip
            if (told := self.do(self.call("upsert_worker", worker)))["lifecycle"] != "schedulable":
                raise RuntimeError(f"dynamo does not take the server: {told}")
        time.sleep(1)  # until its subscriptions take effect

    async def make(self, kind):
        return kind()

    async def call(self, name: str, *given):
        return await getattr(self.service, name)(*given)

    def do(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(120)

    def ask(self, body: dict, name: str) -> dict:
        tokens = post(f"{self.tokenizer}/tokenize", {"messages": body["messages"], "add_generation_prompt": True})["tokens"]
        chosen = self.do(self.call("select_and_reserve", {"model_name": NAME, "token_ids": tokens}))
        try:
            return post(f"{chosen['endpoint']}/v1/chat/completions", body, name)
        finally:
            self.do(self.call("free_reservation", chosen["selection_id"]))

    def stop(self):
        self.service.shutdown()
        self.loop.call_soon_threadsafe(self.loop.stop)


class Proxy:
    """A router that runs as a separate server in front of the others."""

    def __init__(self, command: list, folder: pathlib.Path):
        port = machine.free_port()
        command = [*command, "--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(machine.free_port())]
        self.process = machine.Server(command[0], command, port, log=folder / "router.log")
        self.url = f"http://127.0.0.1:{port}/v1/chat/completions"

    def ask(self, body: dict, name: str) -> dict:
        return post(self.url, body, name)

    def stop(self):
        self.process.stop()


def program(name: str) -> str:
    """Returns the path of the router's program, installed next to this Python."""
    return str(pathlib.Path(sys.executable).parent / name)


def vllm_router(policy: str):
    def make(servers: list, folder: pathlib.Path) -> Proxy:
        command = [program("vllm-router"), "--policy", policy, "--worker-urls", *(server.url for server in servers)]
        if policy == "kv_aware":
            for server in servers:
                command += ["--kv-event-source", f"{server.url}={server.events}"]
                command += ["--kv-event-replay-source", f"{server.url}={server.replay}"]
            command += ["--kv-event-block-size", "16", "--kv-event-model", NAME]
        return Proxy(command, folder)

    return make


def sglang_router(servers: list, folder: pathlib.Path) -> Proxy:
    urls = [server.url for server in servers]
    return Proxy([program("sglang-router"), "launch", "--policy", "cache_aware", "--worker-urls", *urls], folder)


# Name, factory, and the format of the events that it reads ("": none).
WAYS = [
    ("taking turns", Alternating, ""),
    ("dynamo", Dynamo, "0.19.0"),
    ("dynamo", Dynamo, "0.32.0"),
    # The workload has long prompts and short answers, so a larger weight of prefill load is tried too.
    ("dynamo (prefill x 8)", functools.partial(Dynamo, prefill_scale=8.0), "0.32.0"),
    ("vllm-router kv_aware", vllm_router("kv_aware"), "0.32.0"),
    ("vllm-router cache_aware", vllm_router("cache_aware"), ""),
    ("sglang-router cache_aware", sglang_router, ""),
]


def made_up(arguments) -> list:
    """Returns (session, messages): sessions with a common system prompt, a text for each session, and questions about the text."""
    rng = random.Random(arguments.seed)
    words = [f"{a}{b}" for a in "ba ke li mo nu pra sto vi".split() for b in "den ran sil tor mun gate lock port".split()]

    def text(count: int) -> str:
        return " ".join(rng.choice(words) for _ in range(count))

    system = text(60)
    sessions = [[{"role": "system", "content": system}] for _ in range(arguments.sessions)]
    turns = []
    for turn in range(arguments.turns):
        for number in rng.sample(range(len(sessions)), len(sessions)):
            messages = sessions[number]
            messages.append({"role": "user", "content": text(30 if turn else rng.randint(100, 200))})
            turns.append((number, list(messages)))
            messages.append({"role": "assistant", "content": text(20)})
    return turns


def play(router, turns: list, arguments) -> None:
    locks = {number: threading.Lock() for number, _ in turns}
    counts = dict.fromkeys(locks, 0)
    order, taking = iter(turns), threading.Lock()

    def client() -> None:
        while True:
            with taking:
                turn = next(order, None)
                if turn is None:
                    return
                locks[turn[0]].acquire()
                counts[turn[0]] += 1
                name = f"turn-{turn[0]}-{counts[turn[0]]}"
            try:
                router.ask({"model": NAME, "messages": turn[1], "max_tokens": arguments.output_tokens, "temperature": 0}, name)
            finally:
                locks[turn[0]].release()

    with concurrent.futures.ThreadPoolExecutor(arguments.clients) as clients:
        for future in [clients.submit(client) for _ in range(arguments.clients)]:
            future.result()


def report(servers: list, num_turns: int) -> str:
    """Returns the number of turns of the first server, of turns that went to their session's server, and of cached prompt tokens."""
    for _ in range(50):  # a turn's line is written after its answer
        took = [server.turns() for server in servers]
        if (heard := sum(map(len, took))) == num_turns:
            break
        time.sleep(0.1)
    else:
        raise RuntimeError(f"the servers' logs have {heard} of {num_turns} turns: the router does not pass X-Request-Id on")
    place = {tuple(map(int, name.split("-")[1:])): i for i, turns in enumerate(took) for name in turns}
    later = [key for key in place if key[1] > 1]
    stayed = sum(place[key] == place[key[0], key[1] - 1] for key in later)
    prompt, cached = (sum(values) for values in zip(*(counts for turns in took for counts in turns.values()), strict=True))
    return f"{len(took[0]) / num_turns:13.1%} {stayed / max(len(later), 1):20.1%} {cached / prompt:22.1%}"


def main() -> int:
    parser = machine.parser(__doc__, sessions=16, turns=6, most_tokens=8000, output_tokens=8, clients=4, cache_percent=60, seed=1)
    parser.add_argument("--traces", type=pathlib.Path, help=f"folder with {TRACE}; without it sessions are generated")
    parser.add_argument("--ways", default="", help="compare routers with these name prefixes (separated by commas) with round robin")
    arguments = parser.parse_args()
    wanted = tuple(name for name in arguments.ways.split(",") if name) or ("",)
    machine.end_on_sigterm()
    print(machine.describe())
    port = machine.free_port()
    with machine.Server("tokens", [arguments.binary, "serve", arguments.model, "--port", str(port)], port):
        if arguments.traces:
            turns, total = turns_of(arguments.traces / TRACE, arguments, port)
            turns.sort(key=lambda turn: len(turn[1]))  # sessions run concurrently
        else:
            turns = made_up(arguments)
            total = sum(tokenize(port, messages) for messages in dict(turns).values())
    blocks = total * arguments.cache_percent // 1600
    sessions = len(dict(turns))
    print(f"{sessions} sessions, {len(turns)} turns, {total} tokens at their ends; each server has {blocks} blocks of 16", flush=True)
    print(f"{'':25} events   first server   where its session was   prompt tokens in cache")
    failed = False
    for name, make, format in WAYS:
        if make is not Alternating and not name.startswith(wanted):
            continue
        print(f"{name:25} {format or '-':7}", end="", flush=True)
        with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as ends:
            folder = pathlib.Path(scratch)
            servers = [Server(arguments, i, blocks, format or "0.19.0", folder) for i in range(2)]
            for server in servers:
                ends.enter_context(server.process)
            try:
                router = make(servers, folder)
                ends.callback(router.stop)
                play(router, turns, arguments)
                print(report(servers, len(turns)), flush=True)
            except (ImportError, OSError, RuntimeError) as error:
                failed = True
                print(f" failed: {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
