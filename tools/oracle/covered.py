"""Reports which lines of vLLM's core the scenarios reach: runs the fuzz under coverage.py, and prints the reasons for unreached lines
(unreached.txt)."""

import os
import sys

import coverage

from . import fuzz

FILES = (
    "v1/core/sched/scheduler.py",
    "v1/core/sched/async_scheduler.py",
    "v1/core/sched/request_queue.py",
    "v1/core/sched/utils.py",
    "v1/core/kv_cache_manager.py",
    "v1/core/kv_cache_coordinator.py",
    "v1/core/single_type_kv_cache_manager.py",
    "v1/core/block_pool.py",
    "v1/core/encoder_cache_manager.py",
    "v1/core/kv_cache_metrics.py",
    "v1/request.py",
    "v1/core/kv_cache_utils.py",
)
# Only the block queue and the hashing in kv_cache_utils.py, up to this function, are covered. The rest computes the size of a model's
# cache.
END_OF_HASHING = {"v1/core/kv_cache_utils.py": "def _check_enough_kv_cache_memory("}
REASONS = os.path.join(os.path.dirname(__file__), "unreached.txt")


def _reasons() -> dict:
    """Returns {file: {line: reason}}. A line of unreached.txt is `path:first-last reason`."""
    reasons = {}
    with open(REASONS, encoding="utf-8") as file:
        for text in file:
            if not text.strip() or text.startswith("#"):
                continue
            place, reason = text.strip().split(" ", 1)
            path, lines = place.rsplit(":", 1)
            first, _, last = lines.partition("-")
            for line in range(int(first), int(last or first) + 1):
                reasons.setdefault(path, {})[line] = reason
    return reasons


def _limit(path: str, name: str) -> int:
    marker = END_OF_HASHING.get(name)
    with open(path, encoding="utf-8") as file:
        lines = file.read().split("\n")
    return next((number for number, line in enumerate(lines, 1) if marker and line.startswith(marker)), len(lines) + 1)


def _report(measured: coverage.Coverage, root: str, minimum: float) -> bool:
    reasons, good, reached, total = _reasons(), True, 0, 0
    for name in FILES:
        path = os.path.join(root, name)
        _, executable, _, missing, _ = measured.analysis2(path)
        limit = _limit(path, name)
        executable = [line for line in executable if line < limit]
        missing = [line for line in missing if line < limit]
        share = 100 * (1 - len(missing) / len(executable))
        unexplained = [line for line in missing if line not in reasons.get(name, {})]
        good = good and not unexplained
        reached, total = reached + len(executable) - len(missing), total + len(executable)
        print(f"{share:6.2f} %  {len(executable) - len(missing):4}/{len(executable):4}  {name}")
        with open(path, encoding="utf-8") as file:
            source = file.read().split("\n")
        for line in missing:
            print(f"             {line:5}  {source[line - 1].strip()[:70]:70}  {reasons.get(name, {}).get(line, 'NO REASON GIVEN')}")
    print(f"{100 * reached / total:6.2f} %  {reached:4}/{total:4}  all files")
    return good and 100 * reached / total >= minimum


def run(arguments) -> int:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    spec = __import__("importlib.util", fromlist=["util"]).find_spec("vllm")
    root = os.path.dirname(spec.origin)
    measured = coverage.Coverage(include=[os.path.join(root, name) for name in FILES], data_file=None)
    measured.exclude("@abstractmethod")
    measured.start()
    fuzz.setup()
    seeds = range(arguments.seed, arguments.seed + arguments.scenarios)
    tally, seconds = fuzz.timed(fuzz.play_seeds, seeds, ("stock",), "default")
    measured.stop()
    fuzz.report(tally, seconds, "default")
    good = _report(measured, root, arguments.minimum)
    if not good:
        print(f"below {arguments.minimum} %, or lines without a reason in {os.path.relpath(REASONS)}", file=sys.stderr)
    return 0 if good and tally.failure is None else 1
