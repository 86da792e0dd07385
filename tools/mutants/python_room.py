"""Mutants of the Python package. The selected mutants are written into a copy of the built package, and pytest runs the tests that reach
each of them."""

import collections
import concurrent.futures
import json
import pathlib
import random
import re
import shutil
import xml.etree.ElementTree

from . import play, python_sites, report
from .python_files import run_pytest

SOURCES = "python/quire"
BUILT = "build/release/python"
LEAST_KILLED = 0.85
BATCHES_S = (5, 60)  # limits of the batches; most mutants are killed by the fastest tests
USES_PACKAGE = r"^(import|from) quire\b|importorskip\(\"quire|test_vllm import|vllm_\w+\.py|replay_recorded\.py"
LEFT_OUT = ("test_docs.py", "test_kv_remote.py", "test_package.py")  # they take minutes and reach only a few lines of the package
# Module in the copy of the package: knows the active mutant, and records which test reached which mutant.
RUNTIME = '''
import os

ACTIVE, REACH = int(os.environ.get("QUIRE_MUTANT", -1)), os.environ.get("QUIRE_MUTANT_REACH")
reached = set()


def is_active(number):
    if REACH:
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
        if (test, number) not in reached:
            reached.add((test, number))
            with open(REACH, "a") as file:
                file.write(f"{number} {test}\\n")
    return number == ACTIVE
'''


def draw(root, count, seed):
    mutations = python_sites.find(root, SOURCES)
    random.Random(seed).shuffle(mutations)
    return dict(enumerate(mutations[:count]))


def write_package(root, package, mutants):
    shutil.rmtree(package, ignore_errors=True)
    shutil.copytree(root / BUILT / "quire", package / "quire", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(root / SOURCES, package / "quire", ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)  # may be newer than BUILT
    (package / "quire/_mutants.py").write_text(RUNTIME)
    by_path = collections.defaultdict(dict)
    for number, mutation in mutants.items():
        by_path[mutation.path][mutation.place] = number
    for path, chosen in by_path.items():
        target = package / pathlib.Path(path).relative_to("python")
        target.unlink()
        target.write_text(python_sites.mutated(root, path, chosen))


class Tests:
    """The test files that use the package."""

    def __init__(self, root, folder, package):
        self.root, self.folder = root, folder
        files = sorted(pathlib.Path(root, "tests/python").glob("test_*.py"))
        uses = [path for path in files if path.name not in LEFT_OUT and re.search(USES_PACKAGE, path.read_text(), re.M)]
        self.files = [str(path.relative_to(root)) for path in uses]
        self.environment = {"PYTHONPATH": str(package), "QUIRE_PYTHON_PACKAGE": str(package), "QUIRE_BINARY": str(root / "build/release/quire")}
        self.reached_by = collections.defaultdict(list)  # mutant -> [(seconds, test)]

    def run(self, arguments, timeout, **environment):
        return run_pytest(self.root, {**self.environment, **environment}, arguments, timeout)

    def baseline(self, jobs):
        reach, times = self.folder / "reach-python.txt", self.folder / "times-python.xml"
        reach.unlink(missing_ok=True)
        processes = ["-n", str(jobs), "--dist", "loadfile"] if jobs > 1 else []
        code, output = self.run([*processes, f"--junitxml={times}", *self.files], None, QUIRE_MUTANT_REACH=str(reach))
        if code != 0:
            raise SystemExit(f"mutants: the tests fail without a mutant:\n{output[-4000:]}")
        seconds = {}
        for case in xml.etree.ElementTree.parse(times).iter("testcase"):
            seconds[f"{case.get('classname').replace('.', '/')}.py::{case.get('name')}"] = float(case.get("time"))
        for line in reach.read_text().splitlines():
            number, _, test = line.partition(" ")
            if test in seconds:
                self.reached_by[int(number)].append((seconds[test], test))
        return len(seconds)

    def play(self, number):
        if number not in self.reached_by:
            return play.Outcome(False, "no test reaches it")
        for tests, seconds in play.batches(self.reached_by[number], BATCHES_S):
            code, output = self.run(["-x", *tests], 60 + 10 * seconds, QUIRE_MUTANT=str(number))
            if code != 0:
                failed = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.M)
                return play.Outcome(True, "timeout" if code is None else f"test {failed[1]}" if failed else f"exit status {code}")
        return play.Outcome(False, f"{len(set(self.reached_by[number]))} tests pass")


def run(root, options, equivalent, seed):
    """Returns True if enough mutants were killed."""
    folder = root / "build/mutants-python"
    folder.mkdir(parents=True, exist_ok=True)
    mutants = draw(root, options.count, seed)
    write_package(root, folder / "package", mutants)
    tests = Tests(root, folder, folder / "package")
    print(f"plug-in, seed {seed}: {len(mutants)} mutants, {tests.baseline(options.jobs)} tests", flush=True)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        outcomes = list(pool.map(tests.play, mutants))
    drawn = list(mutants.values())
    (folder / "survivors.json").write_text(json.dumps([m.key for m, o in zip(drawn, outcomes) if not o.killed and m.key not in equivalent]))
    return report.show_room("plug-in", drawn, outcomes, equivalent, LEAST_KILLED)
