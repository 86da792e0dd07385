"""Prints every kind of first difference among many scripts, with its frequency and one seed, to show where to look next."""

import collections
import sys

from . import fuzz


def run(arguments, names: tuple) -> int:
    fuzz.setup()
    from . import generate

    kinds, examples = collections.Counter(), {}
    for seed in range(arguments.seed, arguments.seed + arguments.scenarios):
        failure = fuzz.failure_of(generate.script(seed, arguments.profile), names)
        if failure is None:
            continue
        kind = failure[0] if failure[0] != "death" else "death: " + (failure[1].splitlines() + [""])[1][:120]
        kinds[kind] += 1
        if kind not in examples:
            examples[kind] = (seed, failure[1])
            print(f"seed {seed}: {failure[1]}\n", flush=True)
    for kind, number in kinds.most_common():
        print(f"{number:6}  {kind}  (seed {examples[kind][0]})")
    print(f"{sum(kinds.values())} of {arguments.scenarios} scripts differ", file=sys.stderr)
    return 1 if kinds else 0
