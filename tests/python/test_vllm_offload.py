"""Tests quire.vllm.offload with stand-ins for vLLM's classes: managers, specs, copies, host memory, fingerprints and reports."""

import pytest

from test_vllm import VERSIONS, run_with_stand_ins

SCRIPTS = {
    "vllm_offload_managers.py": ["managers", "disk"],
    "vllm_offload_specs.py": ["specs", "folders", "thresholds"],
    "vllm_offload_copies.py": ["copied", "devices", "layouts"],
    "vllm_host_region.py": ["regions", "full", "stale"],
    "vllm_fingerprint.py": ["fingerprints"],
    "vllm_offload_reports.py": ["reports", "metrics"],
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("script, case", [pytest.param(script, case, id=case) for script, cases in SCRIPTS.items() for case in cases])
def test_offload_case_passes(version, script, case):
    run_with_stand_ins(script, version, case)
