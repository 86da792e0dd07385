"""./dev oracle: compares quire's scheduler with vLLM's own scheduler, step by step. See docs/oracle.md."""

import argparse
import json
import os
import sys

from . import fuzz
from .profiles import PROFILES


PROFILE_HELP = "production: 4,000 blocks, 8,192 tokens, 256 requests; continuum: its policy; grammar:  vLLM's own StructuredOutputManager"


def _names(arguments) -> tuple:
    return ("stock", "stock") if arguments.against == "stock" else ("stock", arguments.against)


def cmd_fuzz(arguments) -> int:
    tally, seconds = fuzz.timed(fuzz.run, arguments.seed, arguments.scenarios, arguments.workers, _names(arguments), arguments.profile)
    good = fuzz.report(tally, seconds, arguments.profile)
    if tally.failure is None:
        return 0 if good else 1
    seed, _, text = tally.failure
    print(text)
    return _shrink(seed, arguments)


def _shrink(seed: int, arguments) -> int:
    fuzz.setup()
    from . import generate
    from .shrink import Shrinker

    names = _names(arguments)
    script = generate.script(seed, arguments.profile)

    def kind(candidate):
        failure = fuzz.failure_of(candidate, names)
        return None if failure is None else failure[0]

    print("shrinking ...", file=sys.stderr)
    shrunk = Shrinker(script, kind, arguments.shrink).run()
    os.makedirs(arguments.out, exist_ok=True)
    path = os.path.join(arguments.out, f"difference-{seed}.json")
    fuzz.write_script(path, shrunk)
    print(f"\n{len(script['events'])} events became {len(shrunk['events'])}: {path}")
    print(fuzz.failure_of(shrunk, names)[1])
    print(f"again: ./dev oracle replay {path}")
    return 1


def cmd_replay(arguments) -> int:
    fuzz.setup()
    with open(arguments.file, encoding="utf-8") as file:
        script = json.load(file)
    if arguments.verbose:
        from .show import show

        show(script)
    failure = fuzz.failure_of(script, _names(arguments))
    print("no difference" if failure is None else failure[1])
    return failure is not None


def cmd_survey(arguments) -> int:
    from . import survey

    return survey.run(arguments, _names(arguments))


def cmd_coverage(arguments) -> int:
    from . import covered

    return covered.run(arguments)


def cmd_record(arguments) -> int:
    fuzz.setup()
    from . import record

    return record.run(arguments)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="./dev oracle", description=__doc__)
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    def command(name, run, help_, against="quire"):
        added = commands.add_parser(name, help=help_)
        added.set_defaults(run=run)
        added.add_argument("--against", default=against, choices=("quire", "stock"), help="the second scheduler; stock: vLLM against itself")
        return added

    added = command("fuzz", cmd_fuzz, "play random scenarios on both schedulers until they differ")
    added.add_argument("--scenarios", type=int, default=1000)
    added.add_argument("--seed", type=int, default=0)
    added.add_argument("--profile", default="default", choices=tuple(PROFILES), help=PROFILE_HELP)
    added.add_argument("--workers", type=int, default=os.cpu_count())
    added.add_argument("--shrink", type=int, default=1500, metavar="PLAYS", help="number of plays for shrinking a difference")
    added.add_argument("--out", default="build/oracle", help="folder for shrunk scripts")
    added = command("replay", cmd_replay, "play one script")
    added.add_argument("file")
    added.add_argument("--verbose", action="store_true", help="print vLLM's decisions, call by call")
    added = command("survey", cmd_survey, "print the kinds of differences among many scenarios")
    added.add_argument("--profile", default="default", choices=tuple(PROFILES))
    added.add_argument("--scenarios", type=int, default=200)
    added.add_argument("--seed", type=int, default=0)
    added = command("coverage", cmd_coverage, "print the lines of vLLM's core that the scenarios reach", "stock")
    added.add_argument("--scenarios", type=int, default=3000)
    added.add_argument("--seed", type=int, default=0)
    added.add_argument("--minimum", type=float, default=95.0)
    added = command("record", cmd_record, "write scenarios with vLLM's answers for the tests without vLLM")
    added.add_argument("--out", default="tests/golden/oracle")
    added.add_argument("--profile", default="default", choices=tuple(PROFILES))
    added.add_argument("--scenarios", type=int, default=500)
    return top


def main() -> int:
    arguments = parser().parse_args()
    return arguments.run(arguments)


if __name__ == "__main__":
    sys.exit(main())
