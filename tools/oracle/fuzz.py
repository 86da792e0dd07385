"""Plays thousands of scripts. Stops at the first difference, shrinks the script and writes it to a file."""

import collections
import concurrent.futures
import contextlib
import dataclasses
import gc
import json
import multiprocessing
import os
import re
import signal
import sys
import time
import traceback

from . import ends, isolate
from .stage import real_monotonic


MOST_CPU_S = 300  # limit of one play; a call that never returns ends its process


@dataclasses.dataclass
class Tally:
    scenarios: int = 0
    steps: int = 0
    alone: int = 0  # number of steps of quire after vLLM's play ended
    preempting: int = 0  # number of scenarios with a preemption
    counts: collections.Counter = dataclasses.field(default_factory=collections.Counter)  # counts of guided.Manager
    ended: collections.Counter = dataclasses.field(default_factory=collections.Counter)  # by kind of ends.py
    examples: dict = dataclasses.field(default_factory=dict)
    failure: tuple | None = None  # (seed, kind, description)

    def add(self, other: "Tally") -> None:
        self.scenarios += other.scenarios
        self.steps += other.steps
        self.alone += other.alone
        self.preempting += other.preempting
        self.counts.update(other.counts)
        self.ended.update(other.ended)
        for key, seed in other.examples.items():
            self.examples.setdefault(key, seed)
        self.failure = self.failure or other.failure


def setup() -> None:
    """Called once per process, before any module of vLLM is imported."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    if os.environ.get("PYTHONHASHSEED") != "0":
        sys.exit("oracle: PYTHONHASHSEED must be 0, otherwise the order of sets of strings differs between processes")
    with contextlib.redirect_stderr(sys.stderr):
        from . import parties

        parties.install_once()


def failure_of(script: dict, names: tuple) -> tuple | None:
    """Plays the script in a separate process. Returns (kind, description) of the failure, or None if it succeeds."""
    from . import config

    config.install(script["config"])
    failure, death = isolate.isolated(_failure_of, script, names)
    if death is not None:
        return "death", death
    return failure


def _failure_of(script: dict, names: tuple) -> tuple | None:
    return _outcome(script, names)[1]


def _outcome(script: dict, names: tuple) -> tuple:
    """Plays the script. Returns (Player after the play, (kind, description) of the failure or None)."""
    from . import compare, play, recorded

    player = (recorded.RecordedPlayer if "recorded" in script else play.Player)(script, names)
    signal.setitimer(signal.ITIMER_PROF, MOST_CPU_S)
    try:
        player.play()
    except compare.Difference as difference:
        return player, (f"{difference.part}{_shape(difference.path)}", difference.describe())
    except Exception as error:
        after = f" after {player.raised!r}" if player.alone else ""
        return player, (type(error).__name__ + (" alone" if player.alone else ""), traceback.format_exc() + after)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    if player.raised and ends.kind_of(player.raised.where()) is None:
        return player, (f"new end {player.raised.where()}", f"vLLM ends in a way that known_ends.json does not list: {player.raised!r}")
    return player, None


def _shape(path: str) -> str:
    """Returns the path without the parts that change when a script is shrunk: for requests and lists, only the field remains."""
    path = re.sub(r"\.r\d+", ".request", re.sub(r"\.[0-9a-f]{16,}", ".key", path))
    *heads, last = re.split(r"(?=\[)", path)
    return "".join(re.sub(r"\d+", "#", head) for head in heads) + (last if heads and heads[-1].endswith(("]", "request")) else re.sub(r"\d+", "#", last))


def play_seeds(seeds, names: tuple, profile: str, note=None) -> Tally:
    """Plays seeds until a failure. Calls `note(seed)` before each seed."""
    from . import generate

    tally = Tally()
    for seed in seeds:
        if note is not None:
            note(seed)
        player, failure = _outcome(generate.script(seed, profile), names)
        tally.scenarios += 1
        tally.steps += player.num_steps
        tally.alone += player.num_steps_alone
        tally.preempting += player.num_preemptions > 0
        tally.counts.update(player.counts)
        if failure is not None:
            tally.failure = (seed, *failure)
            break
        if player.raised:
            kind = ends.kind_of(player.raised.where())
            tally.ended[kind] += 1
            tally.examples.setdefault(kind, seed)
    return tally


class Worker:
    """State of a worker process: the schedulers to compare, and the file with the seed in progress, in case the process dies."""

    names = ("stock", "stock")
    profile = "default"
    notes = None

    @classmethod
    def start(cls, names: tuple, profile: str, notes, counter) -> None:
        with counter.get_lock():
            place = counter.value
            counter.value += 1
        cls.names, cls.profile, cls.notes = names, profile, lambda seed: notes.__setitem__(place, seed)
        setup()
        from . import play  # noqa: F401  all of vLLM that a play needs

        gc.freeze()  # garbage collection then skips the imported modules

    @classmethod
    def work(cls, seeds: range) -> Tally:
        return play_seeds(seeds, cls.names, cls.profile, cls.notes)


def run(first: int, count: int, workers: int, names: tuple, profile: str = "default") -> Tally:
    """Plays the scripts of the seeds first..first+count-1."""
    tally, started = Tally(), real_monotonic()
    chunk = 2 if profile == "production" else 50
    chunks = [range(start, min(start + chunk, first + count)) for start in range(first, first + count, chunk)]
    context = multiprocessing.get_context("spawn")
    notes, counter = context.Array("q", [-1] * workers), context.Value("i", 0)
    pool = concurrent.futures.ProcessPoolExecutor(workers, context, Worker.start, (names, profile, notes, counter))
    try:
        for part in concurrent.futures.as_completed([pool.submit(Worker.work, seeds) for seeds in chunks]):
            tally.add(part.result())
            _progress(tally, count, started)
            if tally.failure:
                break
    except concurrent.futures.process.BrokenProcessPool:
        tally.failure = _who_died([seed for seed in notes if seed >= 0], names, profile)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    sys.stderr.write("\n")
    return tally


def _who_died(seeds: list, names: tuple, profile: str) -> tuple:
    from . import generate

    setup()
    for seed in seeds:
        failure = failure_of(generate.script(seed, profile), names)
        if failure is not None:
            return (seed, *failure)
    return (-1, "death", f"a worker process died while it played one of the seeds {seeds}, but none of them fails alone")


def _progress(tally: Tally, count: int, started: float) -> None:
    elapsed = max(1e-9, real_monotonic() - started)
    done, width = tally.scenarios / count, 30
    bar = "#" * int(width * done)
    left = elapsed / done * (1 - done)
    sys.stderr.write(
        f"\r[{bar:<{width}}] {tally.scenarios:,}/{count:,} scenarios, {tally.steps:,} steps, "
        f"{tally.steps / elapsed:,.0f} steps/s, {left:,.0f} s left   "
    )
    sys.stderr.flush()


def report(tally: Tally, seconds: float, profile: str) -> bool:
    """Prints the result. Returns whether it has no errors."""
    print(f"{tally.scenarios:,} scenarios, {tally.steps:,} steps ({tally.steps / max(1, tally.scenarios):.1f} each) in {seconds:,.0f} s")
    print(f"something was preempted in {tally.preempting:,} of them ({100 * tally.preempting / max(1, tally.scenarios):.1f} %)")
    if tally.counts:
        print("grammars: " + ", ".join(f"{number:,} {what}" for what, number in sorted(tally.counts.items())))
    if tally.ended:
        total = sum(tally.ended.values())
        print(
            f"vLLM raised or contradicted itself in {total:,} ({100 * total / tally.scenarios:.2f} %); these were compared up to there, "
            f"and quire continued alone for {tally.alone:,} steps:"
        )
        for kind, number in tally.ended.most_common():
            print(f"  {number:6,}  {kind}  ({1000 * number / tally.scenarios:.2f} of 1,000; seed {tally.examples[kind]})")
    from . import versions

    ends.use(ends.NEWER_PATH if versions.IS_NEWER else ends.PATH)  # worker processes have already selected their list
    wrong = ends.judge(tally.ended, tally.scenarios, profile)
    print("\n".join(f"MORE ENDS THAN LISTED: {line}" for line in wrong) or "ends: as listed in known_ends.json")
    print("0 differences" if tally.failure is None else f"DIFFERENCE at seed {tally.failure[0]}: {tally.failure[1]}")
    return tally.failure is None and not wrong


def write_script(path: str, script: dict) -> None:
    head = {key: value for key, value in script.items() if key != "events"}
    with open(path, "w", encoding="utf-8") as file:
        file.write(json.dumps(head)[:-1] + ', "events": [\n' + ",\n".join(json.dumps(event) for event in script["events"]) + "\n]}\n")


def timed(function, *arguments):
    started = time.perf_counter()
    result = function(*arguments)
    return result, time.perf_counter() - started
