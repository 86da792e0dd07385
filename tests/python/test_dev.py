"""Tests ./dev on machines with missing parts: each function of tools/dev alone, on invented folders, without network and without a build.
"""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "dev"))
import report  # noqa: E402


@pytest.fixture
def dev(tmp_path):
    """Runs shell text after tools/dev/setup.sh, in a separate clone whose path has a space. Returns (status, stdout, stderr)."""
    clone = tmp_path / "a clone"
    shutil.copytree(ROOT / "tools" / "dev", clone / "tools" / "dev")

    def run(text, setup="source tools/dev/setup.sh; source tools/dev/commands.sh", **variables):
        script = f"set -euo pipefail; {setup}; {text}"
        done = subprocess.run(["bash", "-c", script], cwd=clone, env={**os.environ, **variables}, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout.strip(), done.stderr

    run.clone = clone
    return run


def machine(folder, cgroup, mib, files):
    """Writes a /proc with `mib` MiB free and the membership `cgroup`, and the files of a /sys/fs/cgroup."""
    (folder / "proc" / "self").mkdir(parents=True)
    (folder / "proc" / "meminfo").write_text(f"MemTotal: {2 * mib * 1024} kB\nMemAvailable: {mib * 1024} kB\n")
    (folder / "proc" / "self" / "cgroup").write_text(cgroup)
    for name, text in files.items():
        path = folder / "sys" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return f"{folder / 'proc'} {folder / 'sys'}"


@pytest.mark.parametrize(("cgroup", "files", "mib", "cores"), [
    ("0::/\n", {}, 8000, 64),
    ("0::/box/job\n", {"box/memory.max": "4294967296\n", "box/memory.current": "1073741824\n", "box/memory.stat": "inactive_file 536870912\n",
                       "box/job/memory.max": "max\n", "box/job/memory.current": "1\n", "box/cpu.max": "150000 100000\n"}, 3584, 2),
    ("4:memory:/box\n1:cpu,cpuacct:/box\n", {"memory/box/memory.limit_in_bytes": "2147483648\n", "memory/box/memory.usage_in_bytes": "0\n",
                                             "memory/memory.limit_in_bytes": "9223372036854771712\n"}, 2048, 64),
    ("0::/\n", {"memory.max": "1048576\n", "memory.current": "2097152\n", "cpu.max": "max 100000\n"}, 0, 64),
])
def test_memory_and_cores_respect_control_groups(dev, tmp_path, cgroup, files, mib, cores):
    where = machine(tmp_path / "machine", cgroup, 8000, files)
    assert dev(f"nproc() {{ echo 64; }}; usable_mib {where}; usable_cores {where}")[:2] == (0, f"{mib}\n{cores}")


@pytest.mark.parametrize(("line", "features"), [
    ("flags\t\t: fpu avx2 fma avx512f avx512_bf16 avx512_vnni amx_bf16 amx_tile amx_int8", "avx2 avx512f avx512_vnni avx512_bf16 amx_int8 amx_bf16"),
    ("flags\t\t: fpu sse2 avx avx2 avx_vnni", "avx2 avx_vnni"),
    ("Features\t: fp asimd asimddp i8mm bf16", "asimddp i8mm bf16"),
    ("flags\t\t: fpu sse2 avx", "no AVX2 and no NEON dot products: plain kernels"),
])
def test_doctor_names_instruction_sets_that_kernels_use(dev, tmp_path, line, features):
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor\t: 0\n{line}\n\nprocessor\t: 1\n{line}\n")
    assert dev(f"processor_features {cpuinfo}")[:2] == (0, features)


def test_each_ci_turn_runs_its_stages_and_names_the_others(dev):
    stages = "stage() { echo ran $1; }; for turn in 0 1 2; do stage_in_turn $turn part$turn true; done; echo left ${LEFT_OUT[*]:-nothing}"
    for turn in range(3):
        _, out, _ = dev(f"git() {{ echo {300 + turn}; }}; {stages}", QUIRE_CI_ROTA="")
        left = " ".join(f"part{other} (turn {other})" for other in range(3) if other != turn)
        assert out == f"ran part{turn}\nleft {left}"
    assert dev(stages, QUIRE_CI_ROTA="0,1,2")[1] == "ran part0\nran part1\nran part2\nleft nothing"


def test_little_memory_reduces_jobs_and_is_reported(dev):
    assert dev("jobs_for 8 4096; jobs_for 2 64000; jobs_for 8 100; jobs_for 1 64000")[1].split() == ["4", "2", "1", "1"]
    small = "say() { echo $*; }; nproc() { echo 8; }; awk() { echo 2100; }; source tools/dev/jobs.sh"
    assert dev("say_jobs", setup=small, JOBS="")[1] == "2 at a time on 8 cores: 2100 MiB of memory are free (JOBS=N decides otherwise)"
    assert dev("echo $JOBS; say_jobs", setup=small, JOBS="5")[1] == "5"


def test_missing_llguidance_is_reported_in_one_line(dev):
    offline = {"https_proxy": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9", "no_proxy": "", "NO_PROXY": ""}
    status, out, said = dev("want_llguidance; want_llguidance; ls .cache; echo on", **offline)
    assert status == 0 and out.split() == ["log", "on"]
    assert said.count("Without structured output: crates.io does not answer") == 1 and len(said.strip().splitlines()) == 1


def test_old_compiler_is_reported_with_packages_of_a_newer_one(dev):
    fakes = dev.clone / "bin"
    fakes.mkdir()
    (fakes / "cargo").write_text("#!/bin/sh\necho cargo 1.63.0\n")
    (fakes / "cargo").chmod(0o755)
    text = f'rust_at_least "{fakes}/cargo" 1.85 && echo new; rust_at_least "{fakes}/cargo" 1.63 && echo old'
    assert dev(text)[1] == "old"
    text = "find_cargo() { return 1; }; try_apt() { return 1; }; tar() { :; }; sha256sum() { cat >/dev/null; }; /usr/bin/python3() { :; }; want_llguidance"
    status, _, said = dev(text)
    assert status == 0 and "Rust 1.85 or newer is missing (as root: apt-get install rustc-web cargo-web)" in said


@pytest.mark.parametrize(("library", "archive", "looks_again"), [
    ("LLGUIDANCE_LIBRARY-NOTFOUND", False, False),
    ("LLGUIDANCE_LIBRARY-NOTFOUND", True, True),
    ("{clone}/.cache/llguidance/stamp", True, False),
    ("{clone}/gone/libllguidance.a", False, True),
])
def test_build_without_llguidance_adds_it_when_available(dev, library, archive, looks_again):
    folder = dev.clone / "build" / "release"
    folder.mkdir(parents=True)
    (folder / "build.ninja").touch()
    (folder / "CMakeCache.txt").write_text(f"LLGUIDANCE_LIBRARY:FILEPATH={library.format(clone=dev.clone)}\n")
    if archive:
        (dev.clone / ".cache" / "llguidance").mkdir(parents=True)
        (dev.clone / ".cache" / "llguidance" / "stamp").touch()
    assert dev("reconfigure_for_llguidance build/release")[0] == 0
    assert (folder / "build.ninja").exists() != looks_again


@pytest.mark.parametrize(("made_by", "is_made_anew"), [(None, True), ("cargo 1.85.0", True), ("cargo 1.87.0", False)])
def test_package_uses_an_archive_of_the_same_compiler(dev, made_by, is_made_anew):
    archive = dev.clone / ".cache" / "llguidance"
    archive.mkdir(parents=True)
    (archive / "stamp").write_text("1.9.1\n")
    fake = dev.clone / "cargo"
    fake.write_text("#!/bin/sh\necho cargo 1.87.0\n")
    fake.chmod(0o755)
    text = f"""source tools/dev/package.sh; find_cargo() {{ echo "{fake}"; }}
      made_by "{fake}" | sed "1s/.*/{made_by}/" >"$LLGUIDANCE/said"; {"mv" if made_by else "rm"} "$LLGUIDANCE/said" {'"$LLGUIDANCE/made-by"' if made_by else ""}
      build_llguidance() {{ mkdir -p "$LLGUIDANCE"; echo new >"$LLGUIDANCE/stamp"; }}
      need_this_llguidance; cat "$LLGUIDANCE/stamp" """
    status, out, _ = dev(text)
    assert status == 0 and out == ("new" if is_made_anew else "1.9.1")


def test_full_disk_is_reported(dev):
    status, _, said = dev('df() { printf "Avail\\n 12\\n"; }; die_of "build/release was not built"')
    assert status == 2 and "is full: 12 MiB are free" in said and said.endswith("dev: build/release was not built\n")
    for df in ('df() { printf "Avail\\n 90000\\n"; }', "df() { return 1; }"):
        status, _, said = dev(f'{df}; die_of "pip failed"')
        assert status == 2 and said == "dev: pip failed\n"


def test_unwritable_home_moves_the_compiler_cache_to_the_clone(dev):
    if not shutil.which("ccache"):
        pytest.skip("ccache is not installed: ./dev installs it")
    (dev.clone / "file").touch()
    nowhere = str(dev.clone / "file" / "home")
    without = {"HOME": nowhere, "CCACHE_DIR": "", "XDG_CACHE_HOME": ""}
    assert dev("unset CCACHE_DIR XDG_CACHE_HOME; need_ccache_folder; echo $CCACHE_DIR", **without)[1] == f"{dev.clone}/.cache/ccache"
    home = str(dev.clone / "home")
    assert dev("unset CCACHE_DIR XDG_CACHE_HOME; need_ccache_folder; echo ${CCACHE_DIR:-its own}", HOME=home)[1] == "its own"


def test_systems_without_apt_get_one_line_with_the_remedy(dev, tmp_path):
    (tmp_path / "os-release").write_text('ID=fedora\nVERSION_ID=42\nPRETTY_NAME="Fedora Linux 42"\n')
    setup = f"source tools/dev/setup.sh; source tools/dev/commands.sh; OS_RELEASE={tmp_path}/os-release; PATH=/nonexistent"
    status, out, said = dev("need_apt cmake", setup=setup)
    assert (status, out, said.count("\n")) == (2, "", 1)
    assert "Fedora Linux 42 has no apt-get. Install a package (docs/install.md), or build with CMake 3.25, clang 19 or g++ 12" in said
    status, out, said = dev("try_apt cmake || echo continues", setup=setup)
    assert (status, out, said.count("\n")) == (0, "continues", 1) and "Fedora Linux 42 has no apt-get: cmake" in said
    # Another release of Debian has apt-get, but not all packages of Debian 12.
    (tmp_path / "os-release").write_text('ID=ubuntu\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04 LTS"\n')
    status, _, said = dev("has_apt() { true; }; try_apt() { false; }; need_apt cmake", setup=setup)
    assert status == 2 and "packages of Debian 12, and this is Ubuntu 24.04 LTS: docs/install.md says how to build with CMake" in said
    (tmp_path / "os-release").write_text('ID=debian\nVERSION_ID="12"\nPRETTY_NAME="Debian 12"\n')
    assert dev("has_apt() { true; }; try_apt() { false; }; need_apt cmake", setup=setup)[2] == "dev: these packages are required\n"


def test_docs_are_checked_in_a_tree_without_git(tmp_path):
    for name in ("code/first.cpp", "build/b.cpp", ".cache/c.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    sys.path.insert(0, str(ROOT / "tools"))
    import check_docs
    assert check_docs.listed_files(tmp_path) == {"code/first.cpp"}


def test_report_names_the_slowest_suites(tmp_path):
    cases = "".join(f'<testcase name="All/Suite.Case{i}/0" classname="All/Suite.Case{i}/0" time="{i}"/>' for i in (1, 2))
    (tmp_path / "cpp.xml").write_text(f'<testsuite>{cases}<testcase name="fuzz_json" classname="fuzz_json" time="9.5"/></testsuite>')
    (tmp_path / "python.xml").write_text('<testsuites><testcase classname="tests.python.test_a" name="test_b[1]" time="0.5"/></testsuites>')
    paths = [tmp_path / "cpp.xml", tmp_path / "python.xml"]
    assert report.slowest(paths, 10) == [(9.5, 1, "fuzz_json (cpp)"), (3.0, 2, "Suite (cpp)"), (0.5, 1, "tests.python.test_a (python)")]
    assert len(report.slowest(paths, 2)) == 2


def test_listed_equivalent_mutants_exist():
    """A key that matches nothing stops ./dev mutants, which runs too long for every change."""
    sys.path.insert(0, str(ROOT / "tools"))
    from mutants import python_room, python_sites, sites

    keys = {mutation.key for mutation in [*sites.find(ROOT, ("src",)), *python_sites.find(ROOT, python_room.SOURCES)]}
    lines = (ROOT / "tools/mutants/equivalent.txt").read_text().splitlines()
    listed = [line.rpartition(" # ") for line in lines if line and not line.startswith("#")]
    assert listed and [key for key, _, reason in listed if key not in keys or not reason] == []


def test_default_model_is_served_with_its_sampling_parameters_unless_flags_set_them(dev):
    assert dev("default_model_sampling serve --port 1")[:2] == (0, '--override-generation-config\n{"temperature": 0.2, "top_p": 0.9}')
    for flags in ("serve --generation-config vllm", "serve --port 1 --override-generation-config={}", "serve --config quire.yaml", "demo"):
        assert dev(f"default_model_sampling {flags}")[:2] == (0, ""), flags
