"""./dev mutants: small random errors in the core, one at a time, each of which the core's own suites should notice.

All mutants of src/core that compile are written beside the originals into one binary (build/mutants); some are drawn, and chosen at run
time. A mutant is killed when a test fails, a QUIRE_CHECK stops the program, or it runs for ten times as long. Those that change nothing
a caller could see are listed in tools/mutants/equivalent.txt, each with its reason."""

import argparse
import json
import os
import pathlib
import random
import sys
import time

from . import play, report, sites


def arguments():
    parser = argparse.ArgumentParser(prog="./dev mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=400, help="mutants to draw (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="draws the same mutants of the same sources again (default: a fresh one, which is printed)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="at the same time (default: one per core)")
    parser.add_argument("--within", default="", metavar="TEXT", help="draw only where the path holds this text, e.g. core/offload")
    parser.add_argument("--again", action="store_true", help="only the survivors of the last run, by what they change")
    return parser.parse_args()


def read_equivalent(path, mutations):
    """{key: reason}; a key that no source has any more is an error, so that the list does not rot."""
    equivalent = {}
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            key, _, reason = line.rpartition(" # ")
            if not key or not reason:
                raise SystemExit(f"{path}: no reason: {line}")
            equivalent[key] = reason
    stale = set(equivalent) - {m.key for m in mutations}
    if stale:
        raise SystemExit("\n  ".join([f"{path}: nothing in src/core is like this any more:", *sorted(stale)]))
    return equivalent


def main():
    options = arguments()
    root = pathlib.Path.cwd()
    folder = root / "build/mutants"
    folder.mkdir(parents=True, exist_ok=True)
    mutations = sites.find(root)
    equivalent = read_equivalent(root / "tools/mutants/equivalent.txt", mutations)
    survivors_file = folder / "survivors.json"
    seed = options.seed if options.seed is not None else int.from_bytes(os.urandom(4), "little")
    started = time.monotonic()
    valid = play.build(root, folder, mutations, options.jobs)
    print(f"built in {time.monotonic() - started:.0f} s", flush=True)

    numbers = sorted(number for number, mutation in valid.items() if options.within in mutation.path)
    if options.again:
        keys = set(json.loads(survivors_file.read_text()))
        numbers = [number for number in numbers if valid[number].key in keys]
    else:
        random.Random(seed).shuffle(numbers)
        numbers = sorted(numbers[: options.count])
    mutants = [valid[number] for number in numbers]
    print(f"seed {seed}: {len(numbers)} of {len(valid)} mutants of src/core{' in ' * bool(options.within)}{options.within}", flush=True)
    player = play.Player(root, folder)
    tests = player.baseline()
    started = time.monotonic()

    outcomes = []
    with open(folder / "outcomes.txt", "w", buffering=1) as log:
        for mutant, outcome in zip(mutants, player.play_all(numbers, options.jobs)):
            outcomes.append(outcome)
            print("killed" if outcome.killed else "survived", outcome.by, f"{mutant.path}:{mutant.line}", mutant.key, sep=" | ", file=log)
            if sys.stderr.isatty():
                print(f"\r{len(outcomes)} of {len(mutants)}", end="", file=sys.stderr, flush=True)
    print(f"\n{len(mutants)} mutants lived in up to {tests} tests, {time.monotonic() - started:.0f} s")
    survivors_file.write_text(json.dumps([m.key for m, o in zip(mutants, outcomes) if not o.killed and m.key not in equivalent]))
    good = report.show(root, mutants, outcomes, equivalent, report.add_trips(root, folder / "trips.json", player.tripped))
    print(f"seed {seed}")
    return 0 if good else 1


sys.exit(main())
