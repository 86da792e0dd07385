"""The environment of the schedulers during a play, which must be equal for both: clock, random values, and the scripted objects that
they call.

A `Side` is one of the schedulers, with the log of its outside calls and its random values. `enter(side)` makes a side current and begins
a call on it; the clock does not advance during a call. quire's core takes one random seed per call and draws from SplitMix64. vLLM draws
one value at a time, so each call has a seed here, and `random.random` draws from it as the core does.
"""

import random
import time
import zlib

real_monotonic = time.monotonic
MASK = (1 << 64) - 1


def draw(*parts) -> int:
    """Returns a number in 0..2^32-1 that depends only on its arguments."""
    return zlib.crc32(repr(parts).encode())


class Unsound(Exception):
    """vLLM's state is inconsistent; docs/oracle.md lists the cases. Its later behaviour is undefined."""


class Side:
    def __init__(self, name: str, seed: int, answers: dict):
        self.name = name
        self.answers = answers  # the "connector" part of the configuration
        self.seed = seed
        self.num_calls = 0
        self.state = 0  # state of SplitMix64
        self.log = []  # outside calls, in order
        self.scheduler = None
        self.connector = None
        self.grammars = None
        self.tape = None  # tape.Tape of a play that is being recorded, or played from a record
        self.requests = {}  # request id -> this side's Request

    def begin(self) -> None:
        self.num_calls += 1
        self.state = draw(self.seed, self.num_calls) << 32 | draw(self.num_calls, self.seed)

    def random(self) -> float:
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return ((z ^ (z >> 31)) >> 11) * 2.0**-53

    def check(self) -> None:
        """Stops the process if the state of quire's core is inconsistent."""
        if self.name == "quire" and self.scheduler is not None:
            self.scheduler.check_invariants()

    def is_transferring(self) -> bool:
        return self.connector is not None and bool(self.connector.loading or self.connector.sending)

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
        self._saved = (time.monotonic, time.monotonic_ns, time.time, random.random, random.getrandbits)
        time.monotonic = lambda: self.now
        time.monotonic_ns = lambda: int(self.now * 1e9)
        time.time = lambda: self.now + 1.7e9
        random.random = lambda: self.side.random()
        random.getrandbits = lambda bits: self.side.state & ((1 << bits) - 1)
        return self

    def __exit__(self, *_):
        time.monotonic, time.monotonic_ns, time.time, random.random, random.getrandbits = self._saved


CLOCK = Clock()


def current() -> Side:
    return CLOCK.side


def enter(side: Side) -> None:
    CLOCK.side = side
    side.begin()
