"""Determines the order of turns, and computes ratios of adjacent turns."""

import itertools
import statistics


def order(ours: list, rivals: list, rounds: int) -> list:
    """Returns the order of turns: variants of quire, in rotation, alternate with the rivals. quire has the first and the last turn, so
    every turn of a rival is between two turns of quire."""
    mine = itertools.cycle(ours)
    if not rivals:
        return [next(mine) for _ in range(rounds * len(ours))]
    turns = [name for _ in range(rounds) for rival in rivals for name in (next(mine), rival)]
    return [*turns, next(mine)]


def ratios(turns: list, ours: str, rival: str, figure: str) -> list:
    """Returns one ratio per turn of the rival: the mean of the adjacent turns of `ours` divided by the rival's turn. turns: [(name,
    {figure: value})]."""
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
