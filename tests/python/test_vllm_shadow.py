"""Tests quire.vllm.ShadowScheduler with stand-ins for vLLM's classes: two quire.vllm.Schedulers, of which a test changes one."""

import pytest

from test_vllm import VERSIONS, run_with_stand_ins

CASES = [
    "written", "planted", "long", "ended", "unserved", "refused", "passed", "drafts", "compared", "copied", "recorded_values", "answers",
]  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", CASES)
def test_shadow_case_passes(version, case):
    run_with_stand_ins("vllm_shadow_alone.py", version, case)
