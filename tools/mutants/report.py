"""Prints the tables of results and checks them against the required shares."""

import collections

LEAST_KILLED = 0.90
MOST_EQUIVALENT = 0.05


def table(title, mutants, outcomes, equivalent, column):
    rows = collections.defaultdict(collections.Counter)
    for mutant, outcome in zip(mutants, outcomes):
        kind = "killed" if outcome.killed else "equivalent" if mutant.key in equivalent else "survived"
        for row in (column(mutant), "all"):
            rows[row]["drawn"] += 1
            rows[row][kind] += 1
    width = max(map(len, rows))
    print(f"\n{title:{width}}   drawn  killed  survived  equivalent")
    for row in sorted(rows, key=lambda r: (r == "all", r)):
        c = rows[row]
        print(f"{row:{width}}   {c['drawn']:5}  {c['killed']:6}  {c['survived']:8}  {c['equivalent']:10}")
    return rows["all"]


def show_room(name, mutants, outcomes, equivalent, least_killed):
    """Returns whether the result reaches the required share."""
    total = table(f"file of {name}", mutants, outcomes, equivalent, lambda m: m.path)
    wrong = show_survivors(mutants, outcomes, equivalent)
    return judge(total, least_killed) and not wrong


def show_survivors(mutants, outcomes, equivalent):
    """Returns the mutants that are listed as equivalent but were killed."""
    wrong = [(m, o) for m, o in zip(mutants, outcomes) if o.killed and m.key in equivalent]
    survivors = [(m, o) for m, o in zip(mutants, outcomes) if not o.killed and m.key not in equivalent]
    if survivors:
        print("\nsurvivors:")
    for mutant, outcome in survivors:
        print(f"  {mutant.path}:{mutant.line}: {mutant.key.split(' | ', 1)[1]}  ({outcome.by})")
    for mutant, outcome in wrong:
        print(f"\nlisted as equivalent, but killed by {outcome.by}: {mutant.path}:{mutant.line}: {mutant.key}")
    return wrong


def judge(total, least_killed):
    share = total["killed"] / max(1, total["drawn"] - total["equivalent"])
    print(f"\nkilled {total['killed']} of {total['drawn'] - total['equivalent']}: {share:.1%} (at least {least_killed:.0%}); "
          f"equivalent {total['equivalent'] / total['drawn']:.1%} of the drawn (at most {MOST_EQUIVALENT:.0%})")
    return share >= least_killed and total["equivalent"] <= MOST_EQUIVALENT * total["drawn"]


def show(mutants, outcomes, equivalent):
    """Returns whether the result reaches the required shares."""
    table("file", mutants, outcomes, equivalent, lambda m: m.path)
    total = table("operator", mutants, outcomes, equivalent, lambda m: m.operator)
    wrong = show_survivors(mutants, outcomes, equivalent)
    return judge(total, LEAST_KILLED) and not wrong
