"""The order of turns, and ratios of turns that are neighbours in time."""

import itertools
import statistics


def order(ours: list, rivals: list, rounds: int) -> list:
    """Alternately one of ours, in rotation, and a rival, with one of ours at both ends: every turn of a rival is between two of ours."""
    mine = itertools.cycle(ours)
    if not rivals:
        return [next(mine) for _ in range(rounds * len(ours))]
    turns = [name for _ in range(rounds) for rival in rivals for name in (next(mine), rival)]
    return [*turns, next(mine)]


def ratios(turns: list, ours: str, rival: str, figure: str) -> list:
    """One per turn of the rival that has turns of `ours` beside it: their mean over the rival's. turns: [(name, {figure: value})]"""
    found = []
    for index, (name, values) in enumerate(turns):
        beside = [turns[at][1][figure] for at in (index - 1, index + 1) if 0 <= at < len(turns) and turns[at][0] == ours]
        if name == rival and beside:
            found.append(statistics.mean(beside) / values[figure])
    return found


def spread(values: list) -> str:
    if not values:
        return "–"
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"
