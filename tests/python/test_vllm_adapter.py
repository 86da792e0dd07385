"""Tests quire.vllm.Scheduler alone, with stand-ins for vLLM's classes: its refusals, its readable state, and its failures."""

import os
import subprocess
import sys

import pytest

from test_vllm import run_with_stand_ins

HERE = os.path.dirname(os.path.abspath(__file__))


CASES = ["refusals", "pool", "views", "replaced", "queued", "ending", "idle", "broken", "order", "abort", "kept", "beyond", "continuum"]


@pytest.mark.parametrize("case", CASES)
def test_adapter_case_passes(case):
    run("vllm_adapter.py", case)


@pytest.mark.parametrize("case", ["pool", "idle", "broken", "order", "gone"])
def test_adapter_case_passes_under_vllm_0_32(case):
    run("vllm_adapter.py", "0.32.0", case)


NEWER = {
    "vllm_adapter_newer_options.py": ["refusals", "caches", "options", "connectors"],
    "vllm_adapter_newer_requests.py": ["ends", "numbers", "sampling", "grammars", "orders", "sessions"],
    "vllm_adapter_newer_loads.py": ["loads", "stages", "lives"],
}


@pytest.mark.parametrize("script, case", [pytest.param(script, case, id=case) for script, cases in NEWER.items() for case in cases])
def test_case_of_vllm_0_32_passes(script, case):
    run_with_stand_ins(script, "0.32.0", case)


@pytest.mark.parametrize("case", ["pressure", "trace", "journal"])
def test_quires_options_case_passes(case):
    run("vllm_options.py", case)


def run(file, *case):
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run([sys.executable, os.path.join(HERE, file), *case], env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
