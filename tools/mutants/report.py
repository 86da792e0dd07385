"""The tables, and what they must show."""

import collections
import json
import re

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


def checks_of(root):
    """{place: its text} of every QUIRE_CHECK in the core. One of several lines is at its last, which clang takes for its __LINE__."""
    places = {}
    for path in sorted(root.joinpath("src/core").rglob("*")):
        if path.suffix in (".h", ".cpp"):
            lines = enumerate(path.read_text().splitlines(), 1)
            for number, line in lines:
                if re.search(r"\bQUIRE_CHECK\w*\(", line):
                    text = line.strip()
                    while not text.endswith(";"):
                        number, line = next(lines)
                        text += f" {line.strip()}"
                    places[f"{path.relative_to(root)}:{number}"] = text
    return places


def add_trips(root, file, tripped):
    """{place: by what}, of this run and of those before it; checks are kept by their text, since lines move."""
    count = collections.Counter()
    checks = {}
    for place, line in checks_of(root).items():
        text = f"{place.rpartition(':')[0]}: {line}"
        count[text] += 1
        checks[place] = text if count[text] == 1 else f"{text} ({count[text]})"
    trips = json.loads(file.read_text()) if file.exists() else {}
    trips |= {checks[place]: by for place, by in tripped.items() if place in checks and trips.get(checks[place]) != "a test"}
    file.write_text(json.dumps(trips, indent=1))
    return {place: trips[text] for place, text in checks.items() if text in trips}


def show_checks(root, tripped):
    checks = checks_of(root)
    never = [place for place in checks if place not in tripped]
    by_test = sum(tripped.get(place) == "a test" for place in checks)
    print(f"\nchecks: {len(checks)}, tripped by a test: {by_test}, by a mutant of this run or of one before only: "
          f"{len(checks) - len(never) - by_test}, by neither: {len(never)}")
    for place in never:
        print(f"  {place}: {checks[place]}")


def show(root, mutants, outcomes, equivalent, tripped):
    """True: good enough."""
    table("file", mutants, outcomes, equivalent, lambda m: m.path)
    total = table("operator", mutants, outcomes, equivalent, lambda m: m.operator)
    wrong = [(m, o) for m, o in zip(mutants, outcomes) if o.killed and m.key in equivalent]
    survivors = [(m, o) for m, o in zip(mutants, outcomes) if not o.killed and m.key not in equivalent]
    if survivors:
        print("\nsurvivors:")
    for mutant, outcome in survivors:
        print(f"  {mutant.path}:{mutant.line}: {mutant.key.split(' | ', 1)[1]}  ({outcome.by})")
    for mutant, outcome in wrong:
        print(f"\nlisted as equivalent, but killed by {outcome.by}: {mutant.path}:{mutant.line}: {mutant.key}")
    show_checks(root, tripped)
    share = total["killed"] / max(1, total["drawn"] - total["equivalent"])
    print(f"\nkilled {total['killed']} of {total['drawn'] - total['equivalent']}: {share:.1%} (at least {LEAST_KILLED:.0%}); "
          f"equivalent {total['equivalent'] / total['drawn']:.1%} of the drawn (at most {MOST_EQUIVALENT:.0%})")
    return share >= LEAST_KILLED and total["equivalent"] <= MOST_EQUIVALENT * total["drawn"] and not wrong
