"""Measures how much one tenant disturbs another, with loads that a tenant can keep up without sending data, or that take long to read
(attackers.NEIGHBOURS).

The good tenant streams answers to chats with bodies of 72 KB, which the server treats as large: first alone, then next to the bad tenant,
which has a separate key. Meanwhile an operator requests /health and /metrics. Used by bench/hostile.py.
"""

import asyncio
import contextlib
import json
import pathlib
import time

import machine
import pictures
from attackers import NEIGHBOURS, Attacker, black_png, picture_chat, unexpected
from good_load import Samples, percentile, request_bytes

GOOD, BAD, OWN = "key-of-the-good", "key-of-the-bad", "key-of-the-operator"
BODY_BYTES, MAX_TOKENS, STREAMS, PATIENCE_S = 72_000, 24, 2, 120
LIMIT = 2.0  # limit of the ratio (with the other tenant) / alone
CONTEXT = ["--max-model-len", "2048"]


class GoodTenant:
    """Streams one answer after another. While `phase` is set, the times are added to `samples[phase]`."""

    def __init__(self, port: int, sees: bool):
        self.port, self.phase = port, None
        self.samples: dict = {}
        self.bad: list = []
        chat = picture_chat([black_png(16, 16)]) if sees else {"messages": [{"role": "user", "content": "Name three rivers. " * 20}]}
        self.chat = {**chat, "max_tokens": MAX_TOKENS, "ignore_eos": True, "stream": True}
        self._number = 0

    async def run(self, stop: asyncio.Event) -> None:
        await asyncio.gather(*(self._stream_until(stop) for _ in range(STREAMS)))

    async def _stream_until(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            self._number += 1
            body = json.dumps({**self.chat, "cache_salt": f"good-{self._number}"}).encode()
            body += b" " * max(0, BODY_BYTES - len(body))
            phase = self.phase
            try:
                async with asyncio.timeout(PATIENCE_S):
                    problem = await self._ask(request_bytes("POST", "/v1/chat/completions", body, (f"Authorization: Bearer {GOOD}",)), phase)
            except (OSError, TimeoutError) as error:
                problem = f"{type(error).__name__} {error}"
            if problem and phase:
                self.bad.append(f"{phase}: {problem}")
                await asyncio.sleep(0.1)

    async def _ask(self, request: bytes, phase):
        last = time.monotonic()
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        samples, is_first = self.samples.setdefault(phase, Samples()), True
        try:
            writer.write(request)
            status = (await reader.readline()).split()
            if status[1:2] != [b"200"]:
                return f"refused: {b' '.join(status).decode() or 'closed without an answer'}"
            while line := await reader.readline():
                if line.startswith(b"data: [DONE]"):
                    return None
                if line.startswith(b"data: "):
                    now = time.monotonic()
                    (samples.firsts if is_first else samples.gaps).append(now - last)
                    last, is_first = now, False
            return "cut off"
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


async def probe_operator(port: int, seconds: float) -> tuple:
    """Requests /health and /metrics in turn. Returns the slowest answer and the answers by status of each."""
    slowest, statuses, end = 0.0, {}, time.monotonic() + seconds
    paths, number = ("/health", "/metrics"), 0
    while time.monotonic() < end:
        asked = time.monotonic()
        try:
            async with asyncio.timeout(10):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(request_bytes("GET", paths[number % 2], headers=(f"Authorization: Bearer {OWN}", "Connection: close")))
                line = (await reader.readline()).split()
                writer.close()
            what = line[1].decode() if len(line) > 1 else "cut off"
        except TimeoutError:
            what = "no answer in 10 s"
        except OSError:
            what = "refused"
        slowest = max(slowest, time.monotonic() - asked)
        statuses[what] = statuses.get(what, 0) + 1
        number += 1
        await asyncio.sleep(0.2)
    return slowest, statuses


def start_server(arguments, sees: bool) -> machine.Server:
    model = pathlib.Path(arguments.vision_model) if sees else arguments.model
    if sees and not model.exists():
        pictures.write_model(model, splits=False)
    port = machine.free_port()
    keys = ["--api-key", OWN, "--tenant-key", f"good={GOOD}", "--tenant-key", f"bad={BAD}"]
    command = [arguments.binary, "serve", str(model), "--port", str(port), *keys, *CONTEXT, "--kv-cache-memory", f"{arguments.kv_cache_mib}MiB",
               *arguments.quire_args.split()]  # fmt: skip
    return machine.Server("quire", command, port)


async def measure(name: str, arguments, server: machine.Server) -> dict:
    good = GoodTenant(server.port, name == "images")
    attacker = Attacker(server.port, name, NEIGHBOURS[name](BAD))
    stop = asyncio.Event()
    task = asyncio.create_task(good.run(stop))
    await asyncio.sleep(arguments.settle)
    good.phase = "alone"
    await asyncio.sleep(arguments.seconds / 2)
    attacker.begin.set()
    await asyncio.sleep(1)
    good.phase = "beside"
    operator = await probe_operator(server.port, arguments.seconds / 2)
    good.phase = None
    counts, seconds, cpu = await asyncio.to_thread(attacker.result)
    stop.set()
    await task
    return {"good": good, "operator": operator, "counts": counts, "cpu": cpu / max(seconds, 1e-9), "unexpected": unexpected(attacker.kind, counts)}


def report(name: str, run: dict) -> list:
    """Prints a row for each figure. Returns the failures."""
    good, failed = run["good"], [f"{name}: good {problem}" for problem in run["good"].bad[:3]]
    alone, beside = (good.samples.get(phase, Samples()) for phase in ("alone", "beside"))
    for what, share, times in (("p99 gap", 0.99, "gaps"), ("p99 first token", 0.99, "firsts"), ("median first token", 0.5, "firsts")):
        before, after = percentile(getattr(alone, times), share), percentile(getattr(beside, times), share)
        ratio = after / before
        print(f"{name:<12}{what:<20}{before * 1e3:10.1f}{after * 1e3:12.1f}{ratio:8.2f}{LIMIT:7.1f}   {len(getattr(beside, times))} samples")
        if what != "median first token" and not ratio <= LIMIT:
            failed.append(f"{name}: {what} {ratio:.2f} times")
    slowest, statuses = run["operator"]
    print(f"{name:<12}operator: slowest {slowest * 1e3:.0f} ms, {statuses}; bad tenant: {run['counts']}, {100 * run['cpu']:.0f} % of a core", flush=True)
    if set(statuses) != {"200"}:
        failed.append(f"{name}: /health and /metrics answered {statuses}")
    return failed + ([f"{name}: bad tenant got {run['unexpected']}"] if run["unexpected"] else [])


def run_all(names: list, arguments) -> tuple:
    """Runs the loads. Returns (raw data, failures)."""
    runs, failed = {}, []
    print(f"\nnext to another tenant\n{'':32}{'alone ms':>10}{'beside ms':>12}{'ratio':>8}{'limit':>7}")
    for name in names:
        with start_server(arguments, name == "images") as server:
            run = asyncio.run(measure(name, arguments, server))
            failed += report(name, run)
            run["memory MiB"] = server.memory_mib("VmHWM")
            print(f"{name:<12}memory: at most {run['memory MiB']:.0f} MiB")
        good = run.pop("good")
        runs[f"neighbour {name}"] = {**run, "bad": good.bad, "samples": {str(phase): vars(samples) for phase, samples in good.samples.items()}}
    return runs, failed
