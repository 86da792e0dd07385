"""Tests quire.vllm.Scheduler alone, with stand-ins for vLLM's classes: its refusals, its readable state, and its failures."""

import os
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))


@pytest.mark.parametrize("case", ["refusals", "pool", "views", "replaced", "idle", "broken", "order", "abort", "kept", "beyond", "continuum"])
def test_adapter_case_passes(case):
    run("vllm_adapter.py", case)


@pytest.mark.parametrize("case", ["pressure", "trace", "journal"])
def test_quires_options_case_passes(case):
    run("vllm_options.py", case)


def run(file, case):
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run([sys.executable, os.path.join(HERE, file), case], env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
