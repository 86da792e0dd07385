"""Clients with a key whose requests are admitted. The priority of each client's requests either improves steadily or is always the same.
The prompts of these clients and of the good clients together need more blocks than the cache has, so the scheduler must preempt requests.
"""

import asyncio
import collections
import contextlib
import itertools
import json
import random
import re

from good_load import request_bytes

NUM_CLIENTS = 24
PROMPT_TOKENS, OUTPUT_TOKENS = 200, 300
PATIENCE_S = 15.0  # seconds after which a delayed client gives up and asks again


class PayingClients:
    def __init__(self, port: int, key: str, seed: int):
        self.port, self.headers = port, (f"Authorization: Bearer {key}",)
        self.rng = random.Random(seed)
        self.counts: collections.Counter = collections.Counter()
        self._better = itertools.count(2**30, -1)
        self._tasks: list = []

    def start(self, improving: bool) -> None:
        self._tasks = [asyncio.create_task(self._client(improving)) for _ in range(NUM_CLIENTS)]

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _client(self, improving: bool) -> None:
        while True:
            prompt = [self.rng.randrange(1000, 40000) for _ in range(PROMPT_TOKENS)]
            body = {"prompt": prompt, "max_tokens": OUTPUT_TOKENS, "ignore_eos": True, "stream": True,
                    "priority": next(self._better) if improving else 2**30}  # fmt: skip
            try:
                async with asyncio.timeout(PATIENCE_S):
                    self.counts[await self._ask(json.dumps(body).encode())] += 1
            except TimeoutError:
                self.counts["given up"] += 1
            except OSError as error:
                self.counts[f"{type(error).__name__}"] += 1
                await asyncio.sleep(0.1)

    async def _ask(self, body: bytes):
        """Sends a request. Returns the status; an error that ends a stream counts as 500."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(request_bytes("POST", "/v1/completions", body, self.headers))
            status = int((await reader.readline()).split()[1])
            while line := await reader.readline():
                if line.startswith(b'data: {"error"'):
                    return 500
                if line.startswith(b"data: [DONE]"):
                    break
            if status == 429:
                await asyncio.sleep(1)
            return status
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def metric(self, name: str) -> float:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(request_bytes("GET", "/metrics", headers=("Connection: close", *self.headers)))
        found = re.search(rf"^{re.escape(name)}(?:{{[^}}]*}})? ([0-9.e+-]+)", (await reader.read()).decode(), re.M)
        writer.close()
        return float(found.group(1)) if found else float("nan")
