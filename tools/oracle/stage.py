"""What surrounds the schedulers during a play and must be equal for both sides: clock, random values, and the scripted outside parties.

Each side has its own `Side`: a log of the calls that its scheduler made to the outside, and its own stream of random values from one
seed. `enter(side)` makes a side the current one; the clock stands still during a call.
"""

import random
import time
import zlib

real_monotonic = time.monotonic


def draw(*parts) -> int:
    """A number in 0..2^32-1 that depends on nothing but its arguments."""
    return zlib.crc32(repr(parts).encode())


class Side:
    def __init__(self, name: str, seed: int, answers: dict):
        self.name = name
        self.answers = answers  # the "connector" part of the configuration
        self.seed = seed
        self.random = random.Random(seed).random
        self.log = []  # calls to the outside, in order
        self.scheduler = None
        self.connector = None
        self.requests = {}  # request id -> Request as this side has it

    def take_log(self) -> list:
        log, self.log = self.log, []
        return log


class Clock:
    """Replaces the process's clock and random source while a script plays."""

    def __init__(self):
        self.now = 1000.0
        self.side = None
        self._saved = None

    def __enter__(self):
        self._saved = (time.monotonic, time.monotonic_ns, time.time, random.random)
        time.monotonic = lambda: self.now
        time.monotonic_ns = lambda: int(self.now * 1e9)
        time.time = lambda: self.now + 1.7e9
        random.random = lambda: self.side.random()
        return self

    def __exit__(self, *_):
        time.monotonic, time.monotonic_ns, time.time, random.random = self._saved


CLOCK = Clock()


def current() -> Side:
    return CLOCK.side


def enter(side: Side) -> None:
    CLOCK.side = side
