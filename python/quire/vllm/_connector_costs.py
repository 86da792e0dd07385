"""Decides whether a load is faster than computing the same tokens, from recent measurements: the policy `measured` of quire.vllm.Connector.

A load is not begun if it would take longer. While a cost is unknown, blocks are loaded. Measurements of loads expire, so that blocks are
loaded again some time after loads were declined, and a tier that has become faster is noticed.
"""

import time

STALE_S = 30.0  # seconds after which a measurement of a load expires
_SMOOTHING = 0.7  # weight of the old average when a measurement is added
_MIN_TOKENS = 32  # steps with fewer prompt tokens are not measured


class CostPerItem:
    """Moving average of the seconds per item."""

    def __init__(self):
        self.seconds, self.at = None, 0.0

    def add(self, number: int, seconds: float, now: float) -> None:
        if number <= 0 or seconds < 0:
            return
        one = seconds / number
        self.seconds = one if self.seconds is None else _SMOOTHING * self.seconds + (1 - _SMOOTHING) * one
        self.at = now

    def known(self, now: float, stale_s: float | None = None) -> float | None:
        return None if stale_s is not None and now - self.at > stale_s else self.seconds


class LoadCosts:
    def __init__(self, clock=time.monotonic):
        self._clock = clock
        self._compute, self._copy, self._read = CostPerItem(), CostPerItem(), CostPerItem()
        self._steps = {}  # step -> (begin, prompt tokens)
        self._last_end = 0.0
        self._disk = (0, 0.0)

    def begin_step(self, step: int, num_tokens: int, num_prompt_tokens: int) -> None:
        """Begins to measure a step, if most of its tokens are prompt tokens."""
        if num_prompt_tokens >= _MIN_TOKENS and 2 * num_prompt_tokens >= num_tokens:
            self._steps[step] = (self._clock(), num_prompt_tokens)

    def end_step(self, step: int) -> None:
        now = self._clock()
        begin, num_tokens = self._steps.pop(step, (now, 0))
        # If the previous step has ended later than this one was begun, the time counts from that end.
        self._compute.add(num_tokens, now - max(begin, self._last_end), now)
        self._last_end = now
        for passed in [one for one in self._steps if one < step]:
            del self._steps[passed]

    def copied(self, num_blocks: int, seconds: float) -> None:
        self._copy.add(num_blocks, seconds, self._clock())

    def add_disk_reads(self, stats: dict) -> None:
        number, seconds = stats["num_read"], stats["reading_s"]
        self._read.add(number - self._disk[0], seconds - self._disk[1], self._clock())
        self._disk = (number, seconds)

    def is_load_faster(self, num_tokens: int, num_blocks: int, num_below: int) -> bool:
        """Returns whether a load is faster than computing, or a cost is unknown. num_blocks are copied, including the loads in flight;
        num_below of them must be read from disk first."""
        now = self._clock()
        compute, copy, read = self._compute.known(now), self._copy.known(now, STALE_S), self._read.known(now, STALE_S)
        if compute is None or (copy is None and num_blocks > 0) or (read is None and num_below > 0):
            return True
        return num_blocks * (copy or 0.0) + num_below * (read or 0.0) <= num_tokens * compute


class AlwaysLoad(LoadCosts):
    """The policy `exact`: stored blocks are always loaded."""

    def is_load_faster(self, num_tokens, num_blocks, num_below):
        return True
