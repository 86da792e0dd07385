"""Plays scripts by the thousand; stops at the first difference, shrinks it and writes it down."""

import collections
import contextlib
import dataclasses
import json
import multiprocessing
import os
import sys
import time
import traceback

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

        parties.install()


def failure_of(script: dict, names: tuple) -> tuple | None:
    """(kind, description) of what goes wrong when the script is played; None if nothing does."""
    from . import compare, play

    player = play.Player(script, names)
    try:
        player.play()
    except compare.Difference as difference:
        return f"{difference.part}{_shape(difference.path)}", difference.describe()
    except Exception as error:
        return type(error).__name__, traceback.format_exc()
    return None


def _shape(path: str) -> str:
    """The path without what changes when a script is shrunk."""
    return path.split("[", 1)[0].split(".r", 1)[0]


def play_seeds(seeds, names: tuple) -> Tally:
    from . import compare, generate, play

    tally = Tally()
    for seed in seeds:
        player = play.Player(generate.script(seed), names)
        try:
            player.play()
        except compare.Difference as difference:
            tally.failure = (seed, difference.part, difference.describe())
        except Exception as error:
            tally.failure = (seed, type(error).__name__, traceback.format_exc())
        tally.scenarios += 1
        tally.steps += player.num_steps
        if player.raised:
            where = player.raised.split("):", 1)[0] + ")"
            tally.ended[where] += 1
            tally.examples.setdefault(where, seed)
        if tally.failure:
            break
    return tally


_names = ("stock", "stock")


def _start_worker(names: tuple) -> None:
    global _names
    _names = names
    setup()


def _work(seeds: range) -> Tally:
    return play_seeds(seeds, _names)


def run(first: int, count: int, workers: int, names: tuple, chunk: int = 50) -> Tally:
    """Plays the scripts of seeds first..first+count-1."""
    tally, started = Tally(), real_monotonic()
    chunks = [range(start, min(start + chunk, first + count)) for start in range(first, first + count, chunk)]
    # A process for each worker, not a thread: a native core that stops the program must not take the driver along.
    with multiprocessing.get_context("spawn").Pool(workers, _start_worker, (names,)) as pool:
        for part in pool.imap_unordered(_work, chunks):
            tally.add(part)
            _progress(tally, count, started)
            if tally.failure:
                pool.terminate()
                break
    sys.stderr.write("\n")
    return tally


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
        print(f"vLLM itself raised in {sum(tally.ended.values()):,} of them ({share:.2f} %); these were compared up to there:")
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
