"""What a load costs against computing the same tokens, by what was measured lately: the policy `measured` of quire.vllm.Connector.

A load is not begun where it would take longer. While one of the costs is not known, blocks are loaded; and so they are now and then where
loads have been declined for a while, so that a tier that has become faster is found to be.
"""

import time

STALE_S = 30.0  # a measured load counts for so long
_KEPT = 0.7  # of what was known, at each new measurement
_MIN_TOKENS = 32  # of a step that says how fast prompts are computed


class Speed:
    """Seconds for one thing, by the latest measurements."""

    def __init__(self):
        self.seconds, self.at = None, 0.0

    def add(self, number: int, seconds: float, now: float) -> None:
        if number <= 0 or seconds < 0:
            return
        one = seconds / number
        self.seconds = one if self.seconds is None else _KEPT * self.seconds + (1 - _KEPT) * one
        self.at = now

    def known(self, now: float, stale_s: float | None = None) -> float | None:
        return None if stale_s is not None and now - self.at > stale_s else self.seconds


class Costs:
    def __init__(self, clock=time.monotonic):
        self._clock = clock
        self._compute, self._copy, self._read = Speed(), Speed(), Speed()
        self._steps = {}  # step -> (begin, tokens of prompts)
        self._last_end = 0.0
        self._disk = (0, 0.0)

    def step_begins(self, step: int, num_tokens: int, num_prompt_tokens: int) -> None:
        """Steps that mostly compute prompts say how fast that goes."""
        if num_prompt_tokens >= _MIN_TOKENS and 2 * num_prompt_tokens >= num_tokens:
            self._steps[step] = (self._clock(), num_prompt_tokens)

    def step_ends(self, step: int) -> None:
        now = self._clock()
        begin, num_tokens = self._steps.pop(step, (now, 0))
        # Behind another one a step begins when that is over.
        self._compute.add(num_tokens, now - max(begin, self._last_end), now)
        self._last_end = now
        for passed in [one for one in self._steps if one < step]:
            del self._steps[passed]

    def copied(self, num_blocks: int, seconds: float) -> None:
        self._copy.add(num_blocks, seconds, self._clock())

    def look_at_disk(self, stats: dict) -> None:
        number, seconds = stats["num_read"], stats["reading_s"]
        self._read.add(number - self._disk[0], seconds - self._disk[1], self._clock())
        self._disk = (number, seconds)

    def load_pays(self, num_tokens: int, num_blocks: int, num_below: int) -> bool:
        """num_blocks are copied, those of loads under way included, num_below of them are to come up from disk before."""
        now = self._clock()
        compute, copy, read = self._compute.known(now), self._copy.known(now, STALE_S), self._read.known(now, STALE_S)
        if compute is None or (copy is None and num_blocks > 0) or (read is None and num_below > 0):
            return True
        return num_blocks * (copy or 0.0) + num_below * (read or 0.0) <= num_tokens * compute


class NoCosts(Costs):
    """The policy `exact`: what is there is loaded."""

    def load_pays(self, num_tokens, num_blocks, num_below):
        return True
