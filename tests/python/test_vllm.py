"""quire.vllm: what it refuses, and, where a vLLM environment is at hand, what it does beside vLLM's own scheduler."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

REPO = pathlib.Path(__file__).resolve().parents[2]
VLLM_PYTHON = os.environ.get("QUIRE_VLLM_PYTHON", "")
PACKAGE = os.environ.get("QUIRE_PYTHON_PACKAGE", "")

needs_vllm = pytest.mark.skipif(not VLLM_PYTHON or not PACKAGE, reason="no vLLM environment: ./dev oracle setup makes one")


def in_vllm(*arguments, **extra):
    environment = {**os.environ, "PYTHONPATH": f"{PACKAGE}:{REPO / 'tools'}", "PYTHONHASHSEED": "0", "VLLM_LOGGING_LEVEL": "ERROR", **extra}
    return subprocess.run([VLLM_PYTHON, *map(str, arguments)], env=environment, cwd=REPO, capture_output=True, text=True)


def test_another_vllm_is_refused_by_name(tmp_path):
    if not PACKAGE:
        pytest.skip("the Python package is not built: ./dev build")
    (tmp_path / "vllm.py").write_text('__version__ = "0.18.0"\n')
    done = subprocess.run([sys.executable, "-c", "import quire.vllm"], env={"PYTHONPATH": f"{PACKAGE}:{tmp_path}"}, capture_output=True, text=True)
    assert "serves vLLM 0.19.0, and this is vLLM 0.18.0" in done.stderr


@needs_vllm
def test_random_scenarios_go_as_in_vllm():
    done = in_vllm("-m", "oracle", "fuzz", "--scenarios", "20", "--seed", "11", "--workers", "1")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@needs_vllm
@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("hasher", ["sha256", "sha256_cbor"])
def test_the_offloading_connector_works_under_it(mode, hasher):
    """vLLM's real OffloadingConnector, scheduler half; the worker half, which needs a GPU, is scripted."""
    done = in_vllm(REPO / "tests/python/vllm_offloading.py", mode, hasher)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "equal" in done.stdout


@needs_vllm
@pytest.mark.parametrize("arguments", [["--kill-within", "4", "--flips", "20"], ["--budget-blocks", "15"]], ids=["kills", "small"])
def test_blocks_on_disk_in_a_whole_vllm(tmp_path, arguments):
    """Engines on CPU, killed and begun again over one folder: every answer is the one without a disk, and the budget is kept."""
    done = in_vllm(REPO / "tests/python/vllm_disk.py", tmp_path, "--rounds", "3", *arguments)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["rounds"] == 3 and seen["wrong"] == 0 and 0 < seen["most_bytes"] <= seen["budget"], seen
    if "--flips" not in arguments:
        assert seen["read"] > 0 and seen["answers"] == 144, seen


@needs_vllm
def test_what_it_cannot_serve_is_refused_at_start():
    done = in_vllm(REPO / "tests/python/vllm_refusals.py")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@needs_vllm
@pytest.mark.parametrize("case", ["silent", "planted", "written"])
def test_the_shadow(case):
    """vLLM's scheduler decides and quire's is compared: silent over 500 requests, it finds a planted difference, and its script shows it."""
    done = in_vllm(REPO / "tests/python/vllm_shadow.py", case)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert f"{case}:" in done.stdout
