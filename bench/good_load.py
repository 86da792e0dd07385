"""Well-behaved clients with known answers: the tokens and log probabilities of each request must equal, to the last digit, the server's
answer to the same request without other load. Used by bench/hostile.py and tools/soak.py.
"""

import asyncio
import collections
import contextlib
import dataclasses
import json
import random
import time

PROMPT_TOKENS = 128
PATIENCE_S = 120  # a longer answer counts as bad


@dataclasses.dataclass(frozen=True)
class Question:
    """A request with a reproducible answer: greedy, or sampled with a separate seed."""

    prompt: tuple
    max_tokens: int
    seed: int

    def body(self, salt: str, extra: dict) -> dict:
        # A unique salt keeps the prompt out of the prefix cache, so that it is computed each time.
        return {"prompt": list(self.prompt), "max_tokens": self.max_tokens, "temperature": self.seed % 2, "seed": self.seed, "stream": True,
                "ignore_eos": True, "logprobs": 0, "cache_salt": salt, **extra}  # fmt: skip


def make_questions(rng: random.Random, count: int, max_tokens: int) -> list:
    return [Question(tuple(rng.randrange(1000, 40000) for _ in range(PROMPT_TOKENS)), max_tokens, rng.randrange(1 << 31)) for _ in range(count)]


@dataclasses.dataclass
class Samples:
    """Samples of one phase, in seconds."""

    gaps: list = dataclasses.field(default_factory=list)
    firsts: list = dataclasses.field(default_factory=list)


def percentile(values: list, share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] if values else float("nan")


def request_bytes(method: str, path: str, body: bytes = b"", headers: tuple = ()) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", *(() if any(line.startswith("Host:") for line in headers) else ("Host: 127.0.0.1",)), *headers]
    if method == "POST":
        lines += [*(() if any(line.startswith("Content-Type:") for line in headers) else ("Content-Type: application/json",)),
                  f"Content-Length: {len(body)}"]  # fmt: skip
    return "\r\n".join([*lines, "", ""]).encode() + body


class GoodLoad:
    """Asks questions and checks the answers. While `phase` is set, the times are added to `samples[phase]`; otherwise they are dropped."""

    def __init__(self, port: int, key: str = "", extra: dict | None = None):
        self.port, self.extra = port, extra or {}
        self.headers = (f"Authorization: Bearer {key}",) if key else ()
        self.known: dict = {}
        self.phase = None
        self.samples = collections.defaultdict(Samples)
        self.num_good = 0
        self.bad: list = []  # one line per answer that was refused, short or wrong
        self._salt = 0

    async def learn(self, questions: list) -> None:
        """Asks each question alone, before other load starts, and records the answers. Later answers must be equal."""
        for question in questions:
            events, problem = await self._exchange(question, 3600)
            answer = None if problem else read_answer(events)
            if problem or len(answer[0]) != question.max_tokens:
                raise RuntimeError(f"no answer to compare with: {problem or f'{len(answer[0])} tokens of {question.max_tokens}'}")
            self.known[question] = answer

    async def ask(self, question: Question) -> None:
        events, problem = await self._exchange(question, PATIENCE_S)
        problem = problem or judge(events, self.known[question])
        if problem:
            self.bad.append(problem)
        else:
            self.num_good += 1

    async def stream_until(self, stop: asyncio.Event, question: Question, delay_s: float) -> None:
        """Sends one stream after another until `stop` is set, and reads the last stream to its end."""
        await asyncio.sleep(delay_s)
        while not stop.is_set():
            await self.ask(question)

    async def arrive_until(self, stop: asyncio.Event, questions: list, period_s: float) -> None:
        """Starts a new client in every period, even if earlier clients have not finished."""
        begin, running = time.monotonic(), []
        while not stop.is_set():
            running.append(asyncio.create_task(self.ask(questions[len(running) % len(questions)])))
            await asyncio.sleep(max(0.0, begin + len(running) * period_s - time.monotonic()))
        await asyncio.gather(*running)

    async def _exchange(self, question: Question, patience_s: float):
        """Sends a request. Returns (data of all events, error or None)."""
        self._salt += 1
        body = json.dumps(question.body(f"good-{self._salt}", self.extra)).encode()
        events: list = []
        try:
            async with asyncio.timeout(patience_s):
                return events, await self._stream(request_bytes("POST", "/v1/completions", body, self.headers), events)
        except (OSError, asyncio.IncompleteReadError, TimeoutError, ValueError) as error:
            return events, f"{type(error).__name__} {error} after {len(events)} events"

    async def _stream(self, request: bytes, events: list):
        asked = last = time.monotonic()
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(request)
            status = (await reader.readline()).split()
            if status[1:2] != [b"200"]:
                return f"refused: {b' '.join(status).decode() or 'closed without an answer'}"
            while line := await reader.readline():
                if not line.startswith(b"data: "):
                    continue
                if line.startswith(b"data: [DONE]"):
                    return None
                now = time.monotonic()
                if self.phase is not None:
                    samples = self.samples[self.phase]
                    (samples.gaps if events else samples.firsts).append(now - (last if events else asked))
                last = now
                events.append(line[6:])
            return f"cut off after {len(events)} events"
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


def read_answer(events: list):
    """Returns (tokens, log probabilities, text) of a streamed completion."""
    tokens, logprobs, text = [], [], []
    for event in events:
        choice = json.loads(event)["choices"][0]
        text.append(choice["text"])
        if choice.get("logprobs"):
            tokens += choice["logprobs"]["tokens"]
            logprobs += choice["logprobs"]["token_logprobs"]
    return tokens, logprobs, "".join(text)


def judge(events: list, known):
    """Returns the error in an answer; None if the answer equals the known one."""
    try:
        tokens, logprobs, text = read_answer(events)
    except (ValueError, LookupError, TypeError) as error:
        return f"unreadable event: {error}"
    if len(tokens) < len(known[0]):
        return f"short: {len(tokens)} of {len(known[0])} tokens"
    if (tokens, logprobs, text) != known:
        at = next((i for i, pair in enumerate(zip(zip(tokens, logprobs), zip(*known[:2]))) if pair[0] != pair[1]), len(known[0]))
        return f"wrong from token {at} of {len(known[0])}"
    return None
