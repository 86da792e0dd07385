#!/usr/bin/env python3
"""Measures how a long prompt and the other requests disturb each other.

Some streams decode. A prompt of --long-tokens arrives; from a second later on, a prompt of --short-tokens arrives every --short-period
seconds, until the long prompt has its first token. Earlier in the same round, the streams, the long prompt and a short prompt are each
measured alone. Each value of --step-time-target has its own server; servers and numbers of streams alternate in --rounds rounds.

Prints for each target and number of streams, as medians of the rounds with their range:

- gap: the longest pause of any stream during the long prompt's prefill, and the median pause of the streams alone, in ms;
- short: the longest time to the first token of a short prompt, and the time of a short prompt alone, in ms;
- long: the long prompt's time to its first token divided by its time alone;
- work: the seconds that all this work (long prompt, tokens of the streams, short prompts) takes alone, divided by the measured seconds.

With --turns, it measures how a conversation of --cached-tokens disturbs one stream when it continues with --turn-tokens, after a new
prompt of 1,500 tokens: the longest pause of the stream, and the time to the first token of the turn.

The goals of the default target: gap at most the larger of 100 ms and twice the median alone, short within 1 s of its time alone, long at
most 1.35, work at least 0.85. Missed goals are marked with *. The exit status does not depend on them.
"""

import asyncio
import contextlib
import dataclasses
import json
import random
import statistics
import sys
import time

import machine
from good_load import request_bytes

NEW_PROMPT_TOKENS = 1500  # before each turn of --turns: the engine has just measured prompt tokens without a long context
GOAL_GAP_MS, GOAL_GAP_FACTOR, GOAL_SHORT_MS, GOAL_LONG, GOAL_WORK = 100, 2, 1000, 1.35, 0.85


@dataclasses.dataclass
class Stream:
    """The arrival times of one request's tokens, in seconds of the monotonic clock."""

    asked: float
    tokens: list = dataclasses.field(default_factory=list)

    @property
    def first_s(self) -> float:
        return self.tokens[0] - self.asked

    def gaps(self, begin: float, end: float) -> list:
        """Returns the pauses that end between `begin` and `end`, and the pause in progress at `end`."""
        pauses = [later - earlier for earlier, later in zip(self.tokens, self.tokens[1:]) if begin < later <= end]
        last = max((token for token in self.tokens if token <= end), default=None)
        return pauses + ([end - last] if last is not None and last > begin else [])

    def num_between(self, begin: float, end: float) -> int:
        return sum(begin < token <= end for token in self.tokens)


async def ask(port: int, prompt: list, max_tokens: int, stream: Stream, salt: str = "") -> None:
    """Sends a prompt and reads the answer token by token. The caller may cancel the task, which closes the connection. Only prompts with
    the same `salt` share cached blocks; without one, the prompt finds none.
    """
    salt = salt or str(random.random())
    body = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, "stream": True, "cache_salt": salt}
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    try:
        writer.write(request_bytes("POST", "/v1/completions", json.dumps(body).encode()))
        status = await reader.readline()
        if b" 200 " not in status:
            raise RuntimeError(f"refused: {status.decode().strip()} {(await reader.read(2000)).decode(errors='replace')}")
        while line := await reader.readline():
            if line.startswith(b"data: [DONE]"):
                return
            if line.startswith(b"data: "):
                stream.tokens.append(time.monotonic())
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


class Round:
    """One round with one target and one number of streams: first each part alone, then all parts together."""

    def __init__(self, port: int, num_streams: int, arguments, rng: random.Random):
        self.port, self.num_streams, self.arguments, self.rng = port, num_streams, arguments, rng

    def prompt(self, tokens: int) -> list:
        return [self.rng.randrange(1000, 40000) for _ in range(tokens)]

    async def first_s(self, tokens: int) -> float:
        stream = Stream(time.monotonic())
        await ask(self.port, self.prompt(tokens), 1, stream)
        return stream.first_s

    async def shorts_until(self, done: asyncio.Event) -> list:
        """Sends short prompts until `done`. Returns the seconds to the first token of each short prompt. Each prompt has a separate
        client."""
        running = []
        while not done.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(done.wait(), self.arguments.short_period)
            if not done.is_set():
                running.append(asyncio.create_task(self.first_s(self.arguments.short_tokens)))
        return await asyncio.gather(*running)

    async def play(self) -> dict:
        arguments = self.arguments
        long_alone = await self.first_s(arguments.long_tokens)
        short_alone = statistics.median([await self.first_s(arguments.short_tokens) for _ in range(5)])
        streams = [Stream(time.monotonic()) for _ in range(self.num_streams)]
        clients = [asyncio.create_task(ask(self.port, self.prompt(32), arguments.stream_tokens, stream)) for stream in streams]
        try:
            while any(not stream.tokens for stream in streams):
                await asyncio.sleep(0.05)
                self.check(clients)
            await asyncio.sleep(0.5)
            begin = time.monotonic()
            await asyncio.sleep(arguments.alone_seconds)
            end = time.monotonic()
            gap_alone = statistics.median(gap for stream in streams for gap in stream.gaps(begin, end))
            tokens_per_s = sum(stream.num_between(begin, end) for stream in streams) / (end - begin)
            done = asyncio.Event()
            shorts = asyncio.create_task(self.shorts_until(done))
            begin = time.monotonic()
            long = await self.first_s(arguments.long_tokens)
            end = begin + long
            done.set()
            shorts = await shorts
            self.check(clients)
        finally:
            for client in clients:
                client.cancel()
            await asyncio.gather(*clients, return_exceptions=True)
        if not shorts:
            sys.exit("the long prompt was computed before a short one arrived. Set --long-tokens higher or --short-period lower")
        tokens = sum(stream.num_between(begin, end) for stream in streams)
        return {
            "gap": 1000 * max(gap for stream in streams for gap in stream.gaps(begin, end)), "gap alone": 1000 * gap_alone,
            "short": 1000 * max(shorts), "short alone": 1000 * short_alone, "long": long / long_alone, "long alone": long_alone,
            "work": (long_alone + tokens / tokens_per_s + len(shorts) * short_alone) / long,
        }  # fmt: skip

    async def play_turns(self) -> dict:
        """Returns the longest pause of the stream during each turn of a cached conversation, and the time to the turn's first token."""
        arguments, salt = self.arguments, str(random.random())
        conversation = self.prompt(arguments.cached_tokens)
        await ask(self.port, conversation, 1, Stream(time.monotonic()), salt)
        stream = Stream(time.monotonic())

        async def decode_forever():
            while True:
                await ask(self.port, self.prompt(32), arguments.stream_tokens, stream)

        client = asyncio.create_task(decode_forever())
        gaps, firsts = [], []
        try:
            await asyncio.sleep(1.0)
            for _ in range(arguments.turns):
                await self.first_s(NEW_PROMPT_TOKENS)
                await asyncio.sleep(0.3)
                turn = Stream(time.monotonic())
                await ask(self.port, conversation + self.prompt(arguments.turn_tokens), 1, turn, salt)
                gaps.append(1000 * max(stream.gaps(turn.asked, turn.tokens[0])))
                firsts.append(turn.first_s)
                await asyncio.sleep(0.2)
        finally:
            client.cancel()
            await asyncio.gather(client, return_exceptions=True)
        return {"gap": gaps, "first": firsts}

    @staticmethod
    def check(clients: list) -> None:
        for client in clients:
            if client.done():
                client.result()
                sys.exit("a stream ended before the long prompt was computed. Set --stream-tokens higher")


def cell(values: list, digits: int, missed: bool = False) -> str:
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f}){' *' if missed else ''}"


def row(target: str, num_streams: int, rounds: list) -> str:
    of = {key: [one[key] for one in rounds] for key in rounds[0]}
    middle = {key: statistics.median(values) for key, values in of.items()}
    most_gap = max(GOAL_GAP_MS, GOAL_GAP_FACTOR * middle["gap alone"])
    return "| " + " | ".join([
        target, str(num_streams), cell(of["gap"], 0, middle["gap"] > most_gap), cell(of["gap alone"], 1),
        cell(of["short"], 0, middle["short"] > middle["short alone"] + GOAL_SHORT_MS), cell(of["short alone"], 0),
        cell(of["long"], 2, middle["long"] > GOAL_LONG), cell(of["long alone"], 2), cell(of["work"], 2, middle["work"] < GOAL_WORK),
    ]) + " |"  # fmt: skip


async def main() -> int:
    parser = machine.parser(__doc__, rounds=3, long_tokens=6000, short_tokens=20, stream_tokens=1500, seed=1)
    parser.add_argument("--streams", default="1,8,32", help="numbers of streams (default: %(default)s)")
    parser.add_argument("--targets", default="default,0", help="values of --step-time-target; `default` sets none (default: %(default)s)")
    parser.add_argument("--short-period", type=float, default=1.0, help="seconds between short prompts (default: %(default)s)")
    parser.add_argument("--alone-seconds", type=float, default=2.0, help="how long the streams are measured alone (default: %(default)s)")
    parser.add_argument("--turns", type=int, default=0, help="number of turns of a cached conversation next to one stream (default: %(default)s)")
    parser.add_argument("--cached-tokens", type=int, default=7000, help="cached tokens of that conversation (default: %(default)s)")
    parser.add_argument("--turn-tokens", type=int, default=600, help="new tokens of each turn (default: %(default)s)")
    parser.add_argument("--quire-args", default="", help="further flags of the servers")
    arguments = parser.parse_args()
    counts = [int(count) for count in arguments.streams.split(",")]
    targets = arguments.targets.split(",")
    rng = random.Random(arguments.seed)
    print(machine.describe(), flush=True)
    results = {(target, count): [] for target in targets for count in counts}
    with contextlib.ExitStack() as stack:
        servers = {}
        for target in targets:
            port = machine.free_port()
            flags = [] if target == "default" else ["--step-time-target", target]
            command = [arguments.binary, "serve", arguments.model, "--port", str(port), "--max-num-seqs", str(max(counts) + 64), *flags,
                       *arguments.quire_args.split()]  # fmt: skip
            servers[target] = stack.enter_context(machine.Server(f"quire {target}", command, port))
        done = 0
        for number in range(arguments.rounds):
            for count in counts:
                for target in targets if number % 2 == 0 else reversed(targets):
                    results[target, count].append(await Round(servers[target].port, count, arguments, rng).play())
                    done += 1
                    print(f"\rrounds {done} of {arguments.rounds * len(counts) * len(targets)}", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        turns = {target: await Round(servers[target].port, 1, arguments, rng).play_turns() for target in targets if arguments.turns > 0}
    print("| target, ms | streams | gap, ms | gap alone, ms | short, ms | short alone, ms | long | long alone, s | work |")
    print("|---|---|---|---|---|---|---|---|---|")
    for (target, count), rounds in results.items():
        print(row(target, count, rounds))
    for target, turn in turns.items():
        print(f"turns, target {target}: longest pause of the stream {cell(turn['gap'], 0)} ms, first token {cell(turn['first'], 2)} s")
    return 0


if __name__ == "__main__":
    machine.end_on_sigterm()
    sys.exit(asyncio.run(main()))
