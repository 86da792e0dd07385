"""Tests quire.vllm: its refusals and, when a vLLM environment exists, its behavior next to vLLM's scheduler."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

REPO = pathlib.Path(__file__).resolve().parents[2]
VLLM_PYTHONS = {"0.19.0": os.environ.get("QUIRE_VLLM_PYTHON", ""), "0.32.0": os.environ.get("QUIRE_VLLM_PYTHON_0_32", "")}
VERSIONS = list(VLLM_PYTHONS)
PACKAGE = os.environ.get("QUIRE_PYTHON_PACKAGE", "")

needs_vllm = pytest.mark.skipif(not VLLM_PYTHONS["0.19.0"] or not PACKAGE, reason="no vLLM environment: ./dev oracle setup makes one")


def _skipped_without(version):
    setup = "./dev oracle setup" if version == "0.19.0" else f"./dev oracle --vllm {version} setup"
    return pytest.mark.skipif(not VLLM_PYTHONS[version] or not PACKAGE, reason=f"no environment of vLLM {version}: {setup} makes one")


def under(version, *values):
    """Returns a case that runs when that version's Python exists."""
    return pytest.param(version, *values, marks=_skipped_without(version), id="-".join([version, *(str(value[-1]) for value in values)]))


each_vllm = pytest.mark.parametrize("version", [under(version) for version in VLLM_PYTHONS])


def in_vllm(*arguments, version="0.19.0", **extra):
    environment = {**os.environ, "PYTHONPATH": f"{PACKAGE}:{REPO / 'tools'}", "PYTHONHASHSEED": "0", "VLLM_LOGGING_LEVEL": "ERROR", **extra}
    return subprocess.run([VLLM_PYTHONS[version], *map(str, arguments)], env=environment, cwd=REPO, capture_output=True, text=True)


def run_with_stand_ins(script, version, *cases):
    """Runs cases of a script with stand-ins for the classes of this vLLM."""
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    command = [sys.executable, str(REPO / "tests/python" / script), version, *cases]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert done.stdout.splitlines()[-len(cases) :] == [f"{case}: ok" for case in cases]


def with_version(folder, version, code):
    """Runs under a vLLM package that contains only its version."""
    if not PACKAGE:
        pytest.skip("the Python package is not built: ./dev build")
    (folder / "vllm.py").write_text(f"__version__ = {version!r}\n")
    environment = {**os.environ, "PYTHONPATH": f"{PACKAGE}:{folder}"}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("version, nearest", [("0.18.0", "0.19.0"), ("0.25.1", "0.19.0"), ("0.32.1+cpu", "0.32.0"), ("1.0.0", "0.32.0")])
def test_other_vllm_version_is_refused_and_the_nearest_is_named(tmp_path, version, nearest):
    done = with_version(tmp_path, version, "from quire.vllm import Scheduler")
    assert f"supports vLLM 0.19.0 and 0.32.0, and this is vLLM {version}; install version {nearest}," in done.stderr


@pytest.mark.parametrize("version, adapter", [("0.19.0", "v0_19"), ("0.19.0+cpu", "v0_19"), ("0.32.0", "v0_32")])
def test_vllms_version_chooses_the_adapter(tmp_path, version, adapter):
    code = "import importlib, types; importlib.import_module = lambda name: types.SimpleNamespace(Scheduler=name); import quire.vllm; print(quire.vllm.Scheduler)"
    assert with_version(tmp_path, version, code).stdout == f"quire.vllm.{adapter}\n"


def test_shadow_runs_on_another_version_and_names_its_adapter(tmp_path):
    code = (
        "import importlib, types; importlib.import_module = lambda name: types.SimpleNamespace(ShadowScheduler=name, Scheduler=name); "
        "import quire.vllm; print(quire.vllm.ShadowScheduler, quire.vllm.scheduler_for_shadow(), quire.vllm.is_served())"
    )
    done = with_version(tmp_path, "0.30.0", code)
    assert done.stdout == "quire.vllm._shadow quire.vllm.v0_19 False\n"
    assert "no adapter for vLLM 0.30.0; vLLM's scheduler is compared with the decisions of vLLM 0.19.0" in done.stderr


@needs_vllm
def test_random_scenarios_match_vllm():
    done = in_vllm("-m", "oracle", "fuzz", "--scenarios", "20", "--seed", "11", "--workers", "1")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@needs_vllm
@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("hasher", ["sha256", "sha256_cbor"])
def test_offloading_connector_works_under_quires_scheduler(mode, hasher):
    """Uses the scheduler half of vLLM's real OffloadingConnector. The worker half needs a GPU, so it is scripted."""
    done = in_vllm(REPO / "tests/python/vllm_offloading.py", mode, hasher)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "equal" in done.stdout


@pytest.mark.parametrize(
    "version, arguments",
    [
        under("0.19.0", ["--rounds", "3", "--kill-within", "4", "--flips", "20"]),
        # A tenth of the requested blocks. With fewer blocks than a prompt has, its last blocks evict the first ones and nothing is read.
        under("0.19.0", ["--rounds", "3", "--budget-blocks", "60"]),
        under("0.32.0", ["--rounds", "2", "--batches", "6"]),
    ],
)
def test_disk_tier_works_in_a_whole_vllm(tmp_path, version, arguments):
    """Engines on CPU are killed and restarted over one folder: every answer equals the one without a disk, and the budget holds."""
    done = in_vllm(REPO / "tests/python/vllm_disk.py", tmp_path, *arguments, version=version)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["rounds"] == int(arguments[1]) and seen["wrong"] == 0 and 0 < seen["most_bytes"] <= seen["budget"], seen
    if "--flips" not in arguments:
        assert seen["read"] > 0 and seen["answers"] == (144 if "--batches" not in arguments else 48), seen


def on_a_gpu(version):
    done = in_vllm("-c", "import torch; print(torch.cuda.is_available())", version=version)
    if done.stdout.split()[-1:] != ["True"]:
        pytest.skip("vLLM's Python sees no GPU")


ON_A_GPU = {
    "vllm_gpu_copies.py": [],
    "vllm_disk.py": ["--rounds", "3", "--flips", "20", "--device", "cuda"],
    "vllm_connector.py": ["plain", "windows", "disk", "--device", "cuda"],
}


@each_vllm
@pytest.mark.parametrize("script", ON_A_GPU)
def test_disk_tier_works_with_blocks_of_a_gpu(tmp_path, script, version):
    """Uses vLLM's copies: the test compares every loaded byte and every answer of a whole engine."""
    on_a_gpu(version)
    done = in_vllm(REPO / "tests/python" / script, tmp_path, *ON_A_GPU[script], version=version)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    for seen in (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")):
        assert seen["wrong"] == 0, seen
    assert seen.get("read", 1) > 0, seen


@needs_vllm
def test_unsupported_configurations_are_refused_at_start():
    done = in_vllm(REPO / "tests/python/vllm_refusals.py")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@needs_vllm
@pytest.mark.parametrize("case", ["silent", "planted", "written"])
def test_shadow_reports_only_real_differences(case):
    """vLLM's scheduler decides and quire's is compared: silent over 500 requests, it finds an injected difference, and its script
    reproduces it.
    """
    done = in_vllm(REPO / "tests/python/vllm_shadow.py", case)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert f"{case}:" in done.stdout
