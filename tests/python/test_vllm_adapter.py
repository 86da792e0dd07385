"""quire.vllm.Scheduler by itself, with stand-ins for vLLM's classes: what it refuses, what may be looked at, how it fails."""

import os
import subprocess
import sys

import pytest

CASES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "vllm_adapter.py")


@pytest.mark.parametrize("case", ["refusals", "pool", "views", "replaced", "idle", "broken", "order", "abort", "kept", "beyond", "continuum", "pressure", "trace"])
def test_the_adapter(case):
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run([sys.executable, CASES, case], env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
