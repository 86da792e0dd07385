"""Tests quire.vllm.ShadowScheduler with stand-ins for vLLM's classes: two quire.vllm.Schedulers, of which a test changes one."""

import pytest

from test_vllm import VERSIONS, run_with_stand_ins

SCRIPTS = {
    "vllm_shadow_runs.py": ["written", "planted", "long"],
    "vllm_shadow_calls.py": ["ended", "unserved", "refused", "passed", "drafts"],
    "vllm_shadow_values.py": ["compared", "copied", "recorded_values", "answers"],
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("script, case", [pytest.param(script, case, id=case) for script, cases in SCRIPTS.items() for case in cases])
def test_shadow_case_passes(version, script, case):
    run_with_stand_ins(script, version, case)
