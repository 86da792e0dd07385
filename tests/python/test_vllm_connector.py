"""Tests quire.vllm.Connector: with stand-ins for vLLM's classes, and when a vLLM environment exists in a whole vLLM on CPU."""

import json

import pytest

from test_vllm import REPO, VERSIONS, each_vllm, in_vllm, run_with_stand_ins, under, with_version


HALVES = ["options", "refusals", "hits", "costs", "moves", "failures", "lost", "windows", "early", "metrics"]
SCHEDULER = {
    "vllm_connector_scheduler.py": ["workers", "tables", "room", "order", "filtered", "ends", "limits", "larger", "shared", "queued", "spared"],
    "vllm_connector_costs.py": ["declined", "measured", "below"],
    "vllm_connector_keys.py": ["keys"],
    "vllm_connector_options.py": ["texts"],
}
WORKER = ["steps", "ends", "layers", "failures", "aggregated", "copies"]
PAIR = ["loads", "sizes", "windows", "layers", "failed", "events", "disk", "device", "calls"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", HALVES)
def test_scheduler_half_case_passes(version, case):
    run_with_stand_ins("vllm_connector_halves.py", version, case)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("script, case", [pytest.param(script, case, id=case) for script, cases in SCHEDULER.items() for case in cases])
def test_rule_of_the_scheduler_half_holds(version, script, case):
    run_with_stand_ins(script, version, case)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", WORKER)
def test_worker_half_case_passes(version, case):
    run_with_stand_ins("vllm_connector_worker.py", version, case)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", PAIR)
def test_case_of_both_halves_passes(version, case):
    run_with_stand_ins("vllm_connector_pair.py", version, case)


@each_vllm
def test_halves_work_alone(version):
    """Runs in one process, because most of the time is the import of vLLM."""
    done = in_vllm(REPO / "tests/python/vllm_connector_halves.py", *HALVES, version=version)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.split("\n")[: len(HALVES)] == [f"{case}: ok" for case in HALVES]


@pytest.mark.parametrize(
    "version, cases",
    [
        under("0.19.0", ["disk:own", "errors", "layers:own", "windows"]),
        under("0.32.0", ["disk:own", "layers", "spec"]),
        under("0.32.0", ["errors", "lost:own"]),
    ],
)
def test_every_answer_equals_the_one_without_a_connector(tmp_path, version, cases):
    """Runs under vLLM's scheduler and quire's: blocks from host memory and, after a kill, from disk; failed loads; layerwise transfers; a
    cache of two groups.
    """
    done = in_vllm(REPO / "tests/python/vllm_connector.py", tmp_path, *cases, version=version)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    seen = {one["case"]: one for one in map(json.loads, (line for line in done.stdout.splitlines() if line.startswith('{"case"')))}
    assert list(seen) == cases
    for case, one in seen.items():
        assert one["wrong"] == 0 and one["answers"] >= 64 and one["loaded_tokens"] > 0, one
        kind = case.split(":")[0]
        if kind != "spec":
            assert one["jobs"] == one["requests"] == one["loading"] == 0, f"state is never released: {one}"
        if kind == "disk":
            assert one["read"] > 0 and one["answers"] == 128
        if kind in ("errors", "lost"):
            assert one["failed_blocks"] > 0
        if kind in ("windows", "lost"):
            assert one["groups"] == 2


def test_other_vllm_version_is_refused(tmp_path):
    done = with_version(tmp_path, "0.31.0", "import quire.vllm; quire.vllm.Connector")
    assert "quire.vllm.Connector supports vLLM 0.19.0 and 0.32.0, and this is vLLM 0.31.0; install one of these" in done.stderr
