"""./dev mutants: makes small random errors (mutants) in the core or in other rooms, one at a time. The suites should detect each of them.

All mutants of src/core that compile are written next to the original code into one binary (build/mutants). A random selection of them is
activated at run time, one by one. A mutant is killed if a test fails, a QUIRE_CHECK stops the program, or the test takes ten times as long.
Mutants without an effect that a caller can see are listed in tools/mutants/equivalent.txt, each with its reason. With --room, mutants are
selected from rooms outside the core instead, and only the selected mutants are compiled. The default seed is the commit's hash."""

import argparse
import json
import os
import pathlib
import random
import sys
import time

from . import play, python_room, python_sites, report, rooms, sites

PLUG_IN = "plug-in"


def arguments():
    known = [*rooms.ROOMS, PLUG_IN]
    parser = argparse.ArgumentParser(prog="./dev mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, help="number of mutants to draw (default: 400; with --room 60 of each room)")
    parser.add_argument("--seed", type=int, help="seed of the draw (default: a new one, which is printed)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="number of parallel jobs (default: one per core)")
    parser.add_argument("--within", default="", metavar="TEXT", help="draw only from files with this text in their path, e.g. core/offload")
    parser.add_argument("--room", metavar="NAME,...", help=f"draw --count from each of these rooms: all, {', '.join(known)}")
    parser.add_argument("--again", action="store_true", help="play only the survivors of the last run, found by their changes")
    options = parser.parse_args()
    options.rooms = known if options.room == "all" else options.room.split(",") if options.room else []
    for name in options.rooms:
        if name not in known:
            parser.error(f"--room: unknown room {name!r}. Give all, or some of {', '.join(known)}")
    options.count = options.count or (60 if options.rooms else 400)
    return options


def read_equivalent(path, mutations):
    """Returns {key: reason}. A key that does not match a source any more is an error, so that the list stays current. `mutations` are all
    mutations of the product."""
    equivalent = {}
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            key, _, reason = line.rpartition(" # ")
            if not key or not reason:
                raise SystemExit(f"{path}: no reason: {line}")
            equivalent[key] = reason
    stale = set(equivalent) - {m.key for m in mutations}
    if stale:
        raise SystemExit("\n  ".join([f"{path}: matches nothing in src:", *sorted(stale)]))
    return equivalent


def main():
    options = arguments()
    root = pathlib.Path.cwd()
    folder = root / "build/mutants"
    folder.mkdir(parents=True, exist_ok=True)
    equivalent = read_equivalent(root / "tools/mutants/equivalent.txt", [*sites.find(root, ("src",)), *python_sites.find(root, python_room.SOURCES)])
    if options.rooms:
        seed = options.seed if options.seed is not None else rooms.seed_of_commit(root)
        compiled = [name for name in options.rooms if name != PLUG_IN]
        is_good = not compiled or rooms.run(root, compiled, options, equivalent, seed)
        if PLUG_IN in options.rooms:
            is_good = python_room.run(root, options, equivalent, seed) and is_good
        return 0 if is_good else 1
    mutations = sites.find(root)
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
    print(f"\n{len(mutants)} mutants ran in up to {tests} tests, {time.monotonic() - started:.0f} s")
    survivors_file.write_text(json.dumps([m.key for m, o in zip(mutants, outcomes) if not o.killed and m.key not in equivalent]))
    good = report.show(mutants, outcomes, equivalent)
    print(f"seed {seed}")
    return 0 if good else 1


sys.exit(main())
