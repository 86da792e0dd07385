"""Plays scripts by the thousand; stops at the first difference, shrinks it and writes it down."""

import collections
import concurrent.futures
import contextlib
import dataclasses
import gc
import json
import multiprocessing
import os
import re
import sys
import time
import traceback

from . import isolate
from .stage import real_monotonic


@dataclasses.dataclass
class Tally:
    scenarios: int = 0
    steps: int = 0
    ended: collections.Counter = dataclasses.field(default_factory=collections.Counter)  # where vLLM itself gave up
    examples: dict = dataclasses.field(default_factory=dict)
    failure: tuple | None = None  # (seed, kind, description)

    def add(self, other: "Tally") -> None:
        self.scenarios += other.scenarios
        self.steps += other.steps
        self.ended.update(other.ended)
        for key, seed in other.examples.items():
            self.examples.setdefault(key, seed)
        self.failure = self.failure or other.failure


def setup() -> None:
    """Once per process, before anything of vLLM is imported."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    if os.environ.get("PYTHONHASHSEED") != "0":
        sys.exit("oracle: PYTHONHASHSEED must be 0, or sets of strings are walked in another order each time")
    with contextlib.redirect_stderr(sys.stderr):
        from . import parties

        parties.install_once()


def failure_of(script: dict, names: tuple) -> tuple | None:
    """(kind, description) of what goes wrong when the script is played, in a process of its own; None if nothing does."""
    failure, death = isolate.isolated(_failure_of, script, names)
    if death is not None:
        return "death", death
    return failure


def _failure_of(script: dict, names: tuple) -> tuple | None:
    from . import compare, play

    try:
        play.Player(script, names).play()
    except compare.Difference as difference:
        return f"{difference.part}{_shape(difference.path)}", difference.describe()
    except Exception as error:
        return type(error).__name__, traceback.format_exc()
    return None


def _shape(path: str) -> str:
    """The path without what changes when a script is shrunk: of requests and lists only which field."""
    path = re.sub(r"\.r\d+", ".request", re.sub(r"\.[0-9a-f]{16,}", ".key", path))
    *heads, last = re.split(r"(?=\[)", path)
    return "".join(re.sub(r"\d+", "#", head) for head in heads) + (last if heads and heads[-1].endswith(("]", "request")) else re.sub(r"\d+", "#", last))


def play_seeds(seeds, names: tuple, note=None) -> Tally:
    """Plays until something goes wrong. `note(seed)` is told what comes next."""
    from . import compare, generate, play

    tally = Tally()
    for seed in seeds:
        if note is not None:
            note(seed)
        player = play.Player(generate.script(seed), names)
        try:
            player.play()
        except compare.Difference as difference:
            tally.failure = (seed, f"{difference.part}{_shape(difference.path)}", difference.describe())
        except Exception as error:
            tally.failure = (seed, type(error).__name__, traceback.format_exc())
        tally.scenarios += 1
        tally.steps += player.num_steps
        if player.raised:
            where = player.raised.where()
            tally.ended[where] += 1
            tally.examples.setdefault(where, seed)
        if tally.failure:
            break
    return tally


class Worker:
    """What a worker process knows: whom to compare, and where to write which seed it plays, should it die."""

    names = ("stock", "stock")
    notes = None

    @classmethod
    def start(cls, names: tuple, notes, counter) -> None:
        with counter.get_lock():
            place = counter.value
            counter.value += 1
        cls.names, cls.notes = names, lambda seed: notes.__setitem__(place, seed)
        setup()
        from . import play  # noqa: F401  all of vLLM that a play needs

        gc.freeze()  # its modules need not be searched again and again

    @classmethod
    def work(cls, seeds: range) -> Tally:
        return play_seeds(seeds, cls.names, cls.notes)


def run(first: int, count: int, workers: int, names: tuple, chunk: int = 50) -> Tally:
    """Plays the scripts of seeds first..first+count-1."""
    tally, started = Tally(), real_monotonic()
    chunks = [range(start, min(start + chunk, first + count)) for start in range(first, first + count, chunk)]
    context = multiprocessing.get_context("spawn")
    notes, counter = context.Array("q", [-1] * workers), context.Value("i", 0)
    pool = concurrent.futures.ProcessPoolExecutor(workers, context, Worker.start, (names, notes, counter))
    try:
        for part in concurrent.futures.as_completed([pool.submit(Worker.work, seeds) for seeds in chunks]):
            tally.add(part.result())
            _progress(tally, count, started)
            if tally.failure:
                break
    except concurrent.futures.process.BrokenProcessPool:
        tally.failure = _who_died([seed for seed in notes if seed >= 0], names)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    sys.stderr.write("\n")
    return tally


def _who_died(seeds: list, names: tuple) -> tuple:
    from . import generate

    setup()
    for seed in seeds:
        failure = failure_of(generate.script(seed), names)
        if failure is not None:
            return (seed, *failure)
    return (-1, "death", f"a worker process died while it played one of the seeds {seeds}; alone, none of them does it again")


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


def report(tally: Tally, seconds: float) -> None:
    print(f"{tally.scenarios:,} scenarios, {tally.steps:,} steps ({tally.steps / max(1, tally.scenarios):.1f} each) in {seconds:,.0f} s")
    if tally.ended:
        share = 100 * sum(tally.ended.values()) / tally.scenarios
        print(f"vLLM raised or contradicted itself in {sum(tally.ended.values()):,} of them ({share:.2f} %); these were compared up to there:")
        for where, number in tally.ended.most_common():
            print(f"  {number:6,}  {where}  (seed {tally.examples[where]})")
    print("0 differences" if tally.failure is None else f"DIFFERENCE at seed {tally.failure[0]}")


def write_script(path: str, script: dict) -> None:
    head = {key: value for key, value in script.items() if key != "events"}
    with open(path, "w", encoding="utf-8") as file:
        file.write(json.dumps(head)[:-1] + ', "events": [\n' + ",\n".join(json.dumps(event) for event in script["events"]) + "\n]}\n")


def timed(function, *arguments):
    started = time.perf_counter()
    result = function(*arguments)
    return result, time.perf_counter() - started
