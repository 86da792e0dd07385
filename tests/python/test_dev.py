"""./dev on machines that lack something: each function of tools/dev by itself, on made-up folders, without network and without a build."""

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
    """Runs shell text after tools/dev/setup.sh, in a clone of its own whose path has a space. Returns (status, stdout, stderr)."""
    clone = tmp_path / "a clone"
    shutil.copytree(ROOT / "tools" / "dev", clone / "tools" / "dev")

    def run(text, setup="source tools/dev/setup.sh; source tools/dev/commands.sh", **variables):
        script = f"set -euo pipefail; {setup}; {text}"
        done = subprocess.run(["bash", "-c", script], cwd=clone, env={**os.environ, **variables}, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout.strip(), done.stderr

    run.clone = clone
    return run


def machine(folder, cgroup, mib, files):
    """A /proc with `mib` MiB free and the membership `cgroup`, and the files of a /sys/fs/cgroup."""
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
def test_memory_and_cores_are_those_that_the_control_groups_leave(dev, tmp_path, cgroup, files, mib, cores):
    where = machine(tmp_path / "machine", cgroup, 8000, files)
    assert dev(f"nproc() {{ echo 64; }}; usable_mib {where}; usable_cores {where}")[:2] == (0, f"{mib}\n{cores}")


def test_little_memory_means_fewer_jobs_and_a_line_that_says_so(dev):
    assert dev("jobs_for 8 4096; jobs_for 2 64000; jobs_for 8 100; jobs_for 1 64000")[1].split() == ["4", "2", "1", "1"]
    small = "say() { echo $*; }; nproc() { echo 8; }; awk() { echo 2100; }; source tools/dev/jobs.sh"
    assert dev("say_jobs", setup=small, JOBS="")[1] == "2 at a time on 8 cores: 2100 MiB of memory are free (JOBS=N decides otherwise)"
    assert dev("echo $JOBS; say_jobs", setup=small, JOBS="5")[1] == "5"


def test_without_llguidance_one_line_says_what_is_missing_and_nothing_stops(dev):
    offline = {"https_proxy": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9", "no_proxy": "", "NO_PROXY": ""}
    status, out, said = dev("want_llguidance; want_llguidance; ls .cache; echo on", **offline)
    assert status == 0 and out.split() == ["log", "on"]
    assert said.count("Without structured output: crates.io does not answer") == 1 and len(said.strip().splitlines()) == 1


def test_an_old_compiler_is_named_with_the_packages_that_bring_a_newer_one(dev):
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
def test_a_build_without_llguidance_gets_it_once_it_is_there(dev, library, archive, looks_again):
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
def test_a_package_takes_an_archive_that_this_compiler_would_make(dev, made_by, is_made_anew):
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


def test_a_full_disk_is_named(dev):
    status, _, said = dev('df() { printf "Avail\\n 12\\n"; }; die_of "build/release was not built"')
    assert status == 2 and "is full: 12 MiB are free" in said and said.endswith("dev: build/release was not built\n")
    for df in ('df() { printf "Avail\\n 90000\\n"; }', "df() { return 1; }"):
        status, _, said = dev(f'{df}; die_of "pip failed"')
        assert status == 2 and said == "dev: pip failed\n"


def test_a_home_without_rights_has_the_compiler_cache_in_the_clone(dev):
    if not shutil.which("ccache"):
        pytest.skip("ccache is not installed: ./dev installs it")
    (dev.clone / "file").touch()
    nowhere = str(dev.clone / "file" / "home")
    without = {"HOME": nowhere, "CCACHE_DIR": "", "XDG_CACHE_HOME": ""}
    assert dev("unset CCACHE_DIR XDG_CACHE_HOME; need_ccache_folder; echo $CCACHE_DIR", **without)[1] == f"{dev.clone}/.cache/ccache"
    home = str(dev.clone / "home")
    assert dev("unset CCACHE_DIR XDG_CACHE_HOME; need_ccache_folder; echo ${CCACHE_DIR:-its own}", HOME=home)[1] == "its own"


def test_names_in_the_docs_are_checked_in_a_tree_without_a_history(tmp_path):
    for name in ("code/first.cpp", "build/b.cpp", ".cache/c.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    sys.path.insert(0, str(ROOT / "tools"))
    import check_docs
    assert check_docs.listed_files(tmp_path) == {"code/first.cpp"}


def test_a_report_names_the_slowest_suites(tmp_path):
    cases = "".join(f'<testcase name="All/Suite.Case{i}/0" classname="All/Suite.Case{i}/0" time="{i}"/>' for i in (1, 2))
    (tmp_path / "cpp.xml").write_text(f'<testsuite>{cases}<testcase name="fuzz_json" classname="fuzz_json" time="9.5"/></testsuite>')
    (tmp_path / "python.xml").write_text('<testsuites><testcase classname="tests.python.test_a" name="test_b[1]" time="0.5"/></testsuites>')
    paths = [tmp_path / "cpp.xml", tmp_path / "python.xml"]
    assert report.slowest(paths, 10) == [(9.5, 1, "fuzz_json (cpp)"), (3.0, 2, "Suite (cpp)"), (0.5, 1, "tests.python.test_a (python)")]
    assert len(report.slowest(paths, 2)) == 2
