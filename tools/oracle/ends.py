"""The states in which vLLM raises an exception or is inconsistent. known_ends.json (for 0.32.0: known_ends_0_32.json) lists each kind, how
to recognise a play that ends in it, and how many of 1,000 scenarios may end in it. `python -m oracle.ends` prints the table of
docs/oracle.md.
"""

import json
import math
import os

PATH = os.path.join(os.path.dirname(__file__), "known_ends.json")
NEWER_PATH = os.path.join(os.path.dirname(__file__), "known_ends_0_32.json")
REFUSED = "refuses the configuration"
# A share counts as above the listed one if this many ends or more have a lower probability than this at the listed share (Poisson,
# one-sided, separately for each kind).
SIGNIFICANCE = 1e-4

KNOWN = []
_KIND_AT = {}


def use(path: str) -> None:
    """Replaces the list of ends by the list in this file."""
    with open(path, encoding="utf-8") as file:
        KNOWN[:] = json.load(file)
    _KIND_AT.clear()
    _KIND_AT.update({place: end["kind"] for end in KNOWN for place in end["at"]})


use(PATH)


def kind_of(place: str) -> str | None:
    """Returns the kind of the end at `place` (Raised.where()), or None if it is not listed."""
    return _KIND_AT.get(place)


def _most(mean: float) -> int:
    """Returns the largest count that is not significantly above `mean`: the probability of this count or more is at least SIGNIFICANCE."""
    if mean == 0.0:
        return 0
    count, below = 0, 0.0
    while True:
        below += math.exp(count * math.log(mean) - mean - math.lgamma(count + 1))
        if 1.0 - below < SIGNIFICANCE:
            return count
        count += 1


def listed(end: dict, profile: str) -> float:
    """Returns the listed number of ends per 1,000 scenarios."""
    return end.get(profile, end["per_1000"])


def judge(counts: dict, num_scenarios: int, profile: str) -> list:
    """Returns errors in the numbers of ends per kind, or []."""
    wrong = [f"{kind}: no kind of known_ends.json" for kind in counts if kind not in _KIND_AT.values()]
    for end in KNOWN:
        most = _most(listed(end, profile) * num_scenarios / 1000)
        count = counts.get(end["kind"], 0)
        if count > most:
            wrong.append(f"{end['kind']}: {count} of {num_scenarios:,} scenarios, {listed(end, profile)} of 1,000 are listed (at most {most})")
    return wrong


def table(profile: str = "default") -> str:
    """Returns the table of the ends that occur with the default profile, or of the ends that occur only with another profile."""
    rows = ["| of 1,000 scenarios | what vLLM does | when |", "| --- | --- | --- |"]
    shown = [end for end in KNOWN if (end["per_1000"] > 0) == (profile == "default")]
    return "\n".join(rows + [f"| {listed(end, profile)} | {end['what']} | {end['when']} |" for end in shown])


if __name__ == "__main__":
    print(table() + "\n\n" + table("continuum"))
