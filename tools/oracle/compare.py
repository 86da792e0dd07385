"""The exception for the first difference between two schedulers. quire._vllm_compare defines what is compared."""

from quire._vllm_compare import first_difference, grammar, outputs, plan, plan_sent, shorten, stats

__all__ = ["Difference", "grammar", "outputs", "plan", "plan_sent", "stats"]


class Difference(Exception):
    """Raised when the two schedulers gave different answers. The message names the event, the part and both answers."""

    def __init__(self, index: int, event, part: str, left, right):
        self.index, self.event, self.part = index, event, part
        self.path, self.left, self.right = first_difference(left, right)
        super().__init__(self.describe())

    def describe(self) -> str:
        return (
            f"event {self.index} {self.event}: {self.part}{self.path} differs\n"
            f"  vLLM:  {shorten(self.left)}\n  quire: {shorten(self.right)}"
        )
