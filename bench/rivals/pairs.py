"""The order of turns, and ratios of adjacent turns."""

import itertools
import statistics


def order(ours: list, rivals: list, rounds: int) -> list:
    """Alternates the variants of quire, in rotation, with the rivals; quire has both ends, so every turn of a rival is between two of
    quire's."""
    mine = itertools.cycle(ours)
    if not rivals:
        return [next(mine) for _ in range(rounds * len(ours))]
    turns = [name for _ in range(rounds) for rival in rivals for name in (next(mine), rival)]
    return [*turns, next(mine)]


def ratios(turns: list, ours: str, rival: str, figure: str) -> list:
    """One ratio per turn of the rival with adjacent turns of `ours`: their mean over the rival's. turns: [(name, {figure: value})]"""
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
