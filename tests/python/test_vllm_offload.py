"""Tests quire.vllm.offload with stand-ins for vLLM's classes: managers, specs, copies, host memory, fingerprints and reports."""

import pytest

from test_vllm import VERSIONS, run_with_stand_ins

CASES = [
    "managers", "disk", "specs", "folders", "thresholds", "copied", "devices", "layouts", "regions", "full", "stale", "fingerprints", "reports",
    "metrics",
]  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", CASES)
def test_offload_case_passes(version, case):
    run_with_stand_ins("vllm_offload_alone.py", version, case)
