"""Tests the package as it is built and installed."""
import os
import pathlib
import subprocess
import sys

import pytest

REPO = pathlib.Path(__file__).resolve().parents[2]


def test_version_matches_the_project():
    quire = pytest.importorskip("quire", reason="the Python package is not built: ./dev build")
    header = (REPO / "include/quire/base/version.h").read_text(encoding="utf-8")
    project = (REPO / "python/pyproject.toml").read_text(encoding="utf-8")
    assert f'"{quire.__version__}"' in header
    assert f'version = "{quire.__version__}"' in project


def test_stub_names_everything_public():
    quire = pytest.importorskip("quire", reason="the Python package is not built: ./dev build")
    built = pathlib.Path(quire.__file__).parent
    stub = (built / "_core.pyi").read_text(encoding="utf-8")
    for name in quire.__all__:
        assert name == "__version__" or f"class {name}" in stub, name
    stub = (built / "_engine.pyi").read_text(encoding="utf-8") + (built / "engine.py").read_text(encoding="utf-8")
    for name in quire._ENGINE_NAMES:
        assert f"class {name}" in stub, name


def test_pip_installs_without_a_network(tmp_path):
    pytest.importorskip("nanobind", reason="nanobind is not installed: ./dev build")
    pytest.importorskip("scikit_build_core", reason="scikit-build-core is not installed: ./dev build")
    environment = {**os.environ, "CXX": os.environ.get("CXX", "clang++-19"), "SKBUILD_BUILD_DIR": str(tmp_path / "build")}
    environment.pop("PYTHONPATH", None)
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-build-isolation", "--no-deps", "--target", tmp_path / "site"]
    subprocess.run([*install, REPO / "python"], check=True, env=environment, cwd=tmp_path)
    program = "import quire; c = quire.Core(quire.CoreConfig(num_blocks=8, max_model_len=64)); c.add([1, 2]); print(c.schedule())"
    done = subprocess.run([sys.executable, "-c", program], env={"PYTHONPATH": str(tmp_path / "site")}, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "Plan(step=0, 1 requests, 2 tokens)\n", done.stderr
    assert {"py.typed", "_core.pyi"} <= {path.name for path in (tmp_path / "site/quire").iterdir()}, "type checkers must find the stub"


def test_build_without_python_omits_the_package(tmp_path):
    """A build with Debian packages only has no target for the package and does not need nanobind."""
    environment = {**os.environ, "CXX": os.environ.get("CXX", "clang++-19")}
    configure = ["cmake", "-G", "Ninja", "-S", REPO, "-B", tmp_path, "-DQUIRE_BUILD_TESTS=OFF", "-DPython_EXECUTABLE=/nonexistent"]
    subprocess.run(configure, check=True, env=environment, capture_output=True)
    targets = subprocess.run(["ninja", "-C", tmp_path, "-t", "targets", "all"], check=True, capture_output=True, text=True).stdout
    assert "quire_core_schedule" in targets and "quire_python" not in targets
