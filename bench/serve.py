#!/usr/bin/env python3
"""Serving speed over HTTP, quire beside llama.cpp in one run: same model, same client, same prompts, turns alternating.

Each round sends c requests at once (128 distinct prompt tokens in, 64 tokens out, greedy, end of text ignored) to one server, then to the
next. Reported per concurrency: output tokens per second over the whole time (prefill included), tokens per second of a stream while it
decodes, and milliseconds to the first token; medians over the rounds, with the spread of the paired ratios.

llama.cpp's server is used where --llama-server (or QUIRE_LLAMA_SERVER) names its binary; without it quire runs alone. It gets the model as
given and, where llama-quantize lies beside it, as Q4_0 and Q8_0 too, for it has fast kernels for these and none for Q4_1. All servers start
anew for each concurrency: llama.cpp with as many slots as clients, the context that these need, and no cache of old prompts (-cram 0).
"""
import argparse
import contextlib
import dataclasses
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

import machine


@dataclasses.dataclass
class Contestant:
    """A server that takes part: how its command line is made from port and number of clients, and what its requests need besides."""

    name: str
    command: object
    extra: dict = dataclasses.field(default_factory=dict)


def contestants(arguments) -> list:
    found = [Contestant("quire", lambda port, _: [arguments.binary, "serve", arguments.model, "--port", str(port), *arguments.quire_args.split()])]
    if arguments.llama_server:
        found += [llama(arguments, label, model) for label, model in llama_models(arguments).items()]
    return found


def llama(arguments, label: str, model: str) -> Contestant:
    def command(port, clients):
        context = clients * (arguments.prompt_tokens + arguments.output_tokens + 16)
        return [arguments.llama_server, "-m", model, "--port", str(port), "-np", str(clients), "-c", str(context), "-t", str(os.cpu_count()),
                "-cram", "0", "--no-webui"]  # fmt: skip

    return Contestant(f"llama.cpp {label}", command, {"cache_prompt": False})


def llama_models(arguments) -> dict:
    """The model file by label: as given, and requantised once into the cache."""
    models = {"as given": arguments.model}
    quantize = pathlib.Path(arguments.llama_server).with_name("llama-quantize")
    if not quantize.exists():
        print(f"llama.cpp runs the model as given only: {quantize} is missing, so there is no Q4_0 and no Q8_0")
        return models
    cache = pathlib.Path(arguments.cache)
    cache.mkdir(parents=True, exist_ok=True)
    for label in ("Q4_0", "Q8_0"):
        target = cache / f"{pathlib.Path(arguments.model).stem}.to.{label}.gguf"
        if not target.exists():
            part = target.with_suffix(".part")
            done = subprocess.run([quantize, "--allow-requantize", arguments.model, part, label], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                sys.exit(f"{quantize} failed: {done.stderr[-500:]}")
            part.rename(target)
        models[label] = str(target)
    return models


def stream(server, prompt, max_tokens, extra):
    """Times (s) of each chunk of one streamed completion."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
    body = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "stream": True, "ignore_eos": True, **extra}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise RuntimeError(f"{server.name}: {response.status} {response.read()[:300]}")
    return [time.monotonic() for line in response if line.startswith(b"data: ") and not line.startswith(b"data: [DONE]")]


def run_round(server, prompts, max_tokens, extra):
    """(output tokens per second over the whole time, median decode speed of a stream, median seconds to the first token)"""
    results = [None] * len(prompts)

    def client(index):
        results[index] = stream(server, prompts[index], max_tokens, extra)

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


def measure(taking_part, concurrency, arguments, rng):
    """{name: (rounds, most resident MiB, seconds to ready)}"""
    with contextlib.ExitStack() as stack:
        servers = []
        for one in taking_part:
            port = machine.free_port()
            servers.append(stack.enter_context(machine.Server(one.name, one.command(port, concurrency), port)))
            run_round(servers[-1], [[rng.randrange(1000, 40000) for _ in range(arguments.prompt_tokens)]], 8, one.extra)
        rounds = {one.name: [] for one in taking_part}
        for _ in range(arguments.rounds):
            for one, server in zip(taking_part, servers):
                prompts = [[rng.randrange(1000, 40000) for _ in range(arguments.prompt_tokens)] for _ in range(concurrency)]
                wait_until_idle(arguments.idle_wait)
                rounds[one.name].append(run_round(server, prompts, arguments.output_tokens, one.extra))
        return {server.name: (rounds[server.name], server.memory_mib("VmHWM"), server.ready_s) for server in servers}


def report(concurrency, results):
    ours = results["quire"][0]
    for name, (rounds, resident, ready) in results.items():
        total, decode, first = (statistics.median(column) for column in zip(*rounds))
        print(f"{concurrency:4d}  {name:<18} {total:9.1f} {decode:12.1f} {first * 1e3:10.1f} {resident:9.0f} {ready:7.2f}", end="")
        if name != "quire":
            pairs = list(zip(ours, rounds))
            print(f"   total {spread([a[0] / b[0] for a, b in pairs])}, stream {spread([a[1] / b[1] for a, b in pairs])}", end="")
        print(flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, help="the quire binary")
    parser.add_argument("--model", required=True, help="a GGUF file")
    parser.add_argument("--llama-server", default=os.environ.get("QUIRE_LLAMA_SERVER"), help="llama.cpp's server binary")
    parser.add_argument("--cache", default=".cache/bench", help="where the requantised models are kept")
    parser.add_argument("--concurrency", type=lambda text: [int(part) for part in text.split(",")], default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--output-tokens", type=int, default=64)
    parser.add_argument("--quire-args", default="", help="further flags for quire serve, as one string")
    parser.add_argument("--idle-wait", type=float, default=20, help="wait at most so many seconds for an idle machine before each round")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    machine.end_on_sigterm()
    print(machine.describe())
    taking_part = contestants(arguments)
    print("resident: the most at any time, MiB, the KV cache as far as it was used")
    print(f"{'c':>4}  {'server':<18} {'out tok/s':>9} {'stream tok/s':>12} {'first ms':>10} {'resident':>9} {'ready s':>7}"
          "   quire / this one, median (range)")  # fmt: skip
    for concurrency in arguments.concurrency:
        report(concurrency, measure(taking_part, concurrency, arguments, rng))


if __name__ == "__main__":
    main()
