"""The client for all engines: sends the same requests over HTTP, and measures the answers."""

import http.client
import json
import random
import statistics
import threading
import time

from .contestant import Workload


class Failed(Exception):
    """A request was refused, cut off or short."""


def stream(port: int, prompt: list, max_tokens: int, more: dict) -> list:
    """Sends a request. Returns the arrival times (s) of the chunks of one streamed completion."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    body = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "stream": True, "ignore_eos": True,
            "stream_options": {"include_usage": True}, **more}  # fmt: skip
    times, usage = [], b""
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise Failed(f"{response.status} {response.read()[:300]}")
        for line in response:
            if not line.startswith(b"data: {"):
                continue
            times.append(time.monotonic())
            if b'"completion_tokens"' in line:
                usage = line
    except (OSError, http.client.HTTPException) as problem:
        raise Failed(f"the connection failed: {problem!r}") from problem
    finally:
        connection.close()
    # A chunk may have several tokens, so their number is taken from the usage.
    count = json.loads(usage[6:])["usage"]["completion_tokens"] if usage else None
    if count != max_tokens:
        raise Failed(f"{count} tokens instead of {max_tokens}")
    return times


class Asker:
    """Creates the prompts of a workload and sends them with `clients` concurrent clients; the workload "alone" sends one request at a time.
    Returns the figures of each turn as a dict.
    """

    def __init__(self, workload: Workload, clients: int, seed: int):
        self.workload, self.clients = workload, clients
        self.random = random.Random(seed)
        self.prefix = self.tokens(workload.shared)

    def tokens(self, count: int) -> list:
        return [self.random.randrange(1000, 40000) for _ in range(count)]

    def turn(self, port: int, more: dict) -> dict:
        if self.workload.name == "alone":
            return self.alone(port, more)
        waves = [self.wave(port, more, self.workload.output) for _ in range(max(1, self.workload.least // self.clients))]
        streams, output = [one for wave in waves for one in wave[1]], self.workload.output
        return {
            "total": len(streams) * output / sum(wave[0] for wave in waves),
            "stream": statistics.median((output - 1) / (times[-1] - times[0]) for _, times in streams),
            "first": 1e3 * statistics.median(times[0] - start for start, times in streams),
        }

    def wave(self, port: int, more: dict, output: int) -> tuple:
        """Sends one request per client. Returns (seconds, [(start, times)])."""
        prompts = [self.prefix + self.tokens(self.workload.own) for _ in range(self.clients)]
        results = [None] * self.clients

        def client(index):
            try:
                results[index] = stream(port, prompts[index], output, more)
            except Failed as problem:
                results[index] = problem

        threads = [threading.Thread(target=client, args=(index,)) for index in range(self.clients)]
        start = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.monotonic() - start
        for result in results:
            if not isinstance(result, list):
                raise result or Failed("a client ended early")
        return seconds, [(start, times) for times in results]

    def alone(self, port: int, more: dict) -> dict:
        """Sends one request at a time: 512 tokens in and one out, then a short prompt with 64 tokens after the first. Returns the
        figures."""
        prompt, output = [], []
        for _ in range(3):
            start = time.monotonic()
            prompt.append(512 / (stream(port, self.tokens(512), 1, more)[0] - start))
            times = stream(port, self.tokens(8), 65, more)
            output.append(64 / (times[-1] - times[0]))
        return {"prompt": statistics.mean(prompt), "output": statistics.mean(output)}
