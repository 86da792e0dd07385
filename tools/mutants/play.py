"""Builds the binary with the selected mutants, finds which tests reach which mutant, and runs each mutant in the tests that reach it."""

import collections
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import subprocess

from . import rewrite

# If a mutant is in a function that computes a constant, only a note names its line.
COMPILE_ERROR = re.compile(r"^(\S+?):(\d+):(\d+): (?:(?:fatal )?error: |note: non-constexpr function 'on')", re.M)
NUMBER = re.compile(r"QUIRE_MUTANT\((\d+)\)")
BROKEN = re.compile(r"(src/\S+?:\d+): invariant broken")
MOST_IN_FILE = 1024
BATCHES_MS = (300, 3000)  # limits of the batches; most mutants are killed by the fastest tests


@dataclasses.dataclass
class Outcome:
    killed: bool
    by: str  # the test, check, crash or timeout that killed the mutant; otherwise why it survived


def compile_headers(root, folder):
    """Returns the compile errors in headers, found by compiling one file that includes them."""
    folder = pathlib.Path(folder)
    headers = sorted(str(p.relative_to(folder / "src")) for p in folder.joinpath("src/core").rglob("*.h"))
    everything = folder / "headers.cpp"
    everything.write_text("".join(f'#include "{h}"\n' for h in headers))
    places = [folder / "src", root / "src", root / "include"]
    checked = subprocess.run(["clang++-19", "-std=c++23", "-fsyntax-only", "-w", "-Wno-c++11-narrowing", "-ferror-limit=0",
                              *(f"-I{place}" for place in places), "-include", str(root / "tools/mutants/runtime.h"), str(everything)],
                             capture_output=True, text=True)
    return checked.returncode, checked.stderr


def compile_all(root, folder, jobs):
    if not pathlib.Path(folder, "build.ninja").exists():
        subprocess.run(["cmake", "-S", str(root / "tools/mutants"), "-B", str(folder), "-G", "Ninja", "-DCMAKE_CXX_COMPILER=clang++-19"],
                       check=True, stdout=subprocess.DEVNULL)
    built = subprocess.run(["ninja", "-C", str(folder), "-k", "0", "-j", str(jobs), "mutated"], capture_output=True, text=True)
    return built.returncode, built.stdout


def numbered(mutations):
    """Returns {number: mutation}. A change of one file does not change the numbers in other files."""
    paths = sorted({m.path for m in mutations})
    count = collections.Counter()
    numbers = {}
    for mutation in mutations:
        numbers[paths.index(mutation.path) * MOST_IN_FILE + count[mutation.path]] = mutation
        count[mutation.path] += 1
    assert max(count.values()) <= MOST_IN_FILE
    return numbers


def blamed(folder, valid, path, line, column):
    """Returns the mutant nearest to a compile error. If no mutant is in the error's line, returns all mutants that span the line."""
    lines = pathlib.Path(folder, path).read_text().splitlines()
    near = [(abs(match.start() - column), int(match[1])) for match in NUMBER.finditer(lines[line - 1]) if int(match[1]) in valid]
    return [min(near)[1]] if near else [n for n, m in valid.items() if path == m.path and m.line <= line <= m.end_line]


def build(root, folder, mutations, jobs):
    """Builds the binary. Returns {number: mutation} of the mutants in it: all that compile."""
    broken_file = folder / "broken.json"  # keys of mutants that do not compile, saved for the next build
    broken = set(json.loads(broken_file.read_text())) if broken_file.exists() else set()
    valid = {n: m for n, m in numbered(mutations).items() if m.key not in broken}
    while True:
        rewrite.write(root, folder, valid)
        code, output = compile_headers(root, folder)
        if code == 0:
            code, output = compile_all(root, folder, jobs)
        if code == 0:
            return valid
        errors = {(path.removeprefix(f"{folder}/"), int(line), int(column)) for path, line, column in COMPILE_ERROR.findall(output)}
        ours = sorted(error for error in errors if error[0].startswith("src/core/"))
        bad = {number for error in ours for number in blamed(folder, valid, *error)}
        if not bad:
            raise SystemExit(f"mutants: the build fails in a line without a mutant:\n{output[-4000:]}")
        broken |= {valid[number].key for number in bad}
        valid = {n: m for n, m in valid.items() if m.key not in broken}
        broken_file.write_text(json.dumps(sorted(broken)))


def batches(reached, limits):
    """Yields (tests, their total time): the fastest tests first, in batches that end when their time exceeds the next limit. reached:
    [(time, test)]."""
    batch, total, limits = [], 0, list(limits)
    for time, test in sorted(set(reached)):
        batch.append(test)
        total += time
        if limits and total > limits[0]:
            yield batch, total
            batch, total = [], 0
            limits.pop(0)
    if batch:
        yield batch, total


class Player:
    def __init__(self, root, folder):
        self.root, self.binary = root, str(pathlib.Path(folder, "core_mutants"))
        self.reach_file = pathlib.Path(folder, "reach.txt")
        self.reached_by = collections.defaultdict(list)  # mutant -> [(ms, test)]

    def run(self, environment, arguments, timeout):
        try:
            done = subprocess.run([self.binary, "--gtest_brief=1", *arguments], cwd=self.root, env={**os.environ, **environment}, timeout=timeout,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        except subprocess.TimeoutExpired:
            return -24, ""
        return done.returncode, done.stdout.decode(errors="replace")

    def baseline(self):
        """Runs all tests without a mutant. They must pass, and they report the mutants that they reach."""
        code, output = self.run({"QUIRE_MUTANT_REACH": str(self.reach_file)}, [], None)
        if code != 0:
            raise SystemExit(f"mutants: the suites fail without a mutant:\n{output[-4000:]}")
        tests = 0
        for line in self.reach_file.read_text().splitlines():
            test, ms, *reached = line.split()
            tests += 1
            for mutant in reached:
                self.reached_by[int(mutant)].append((int(ms), test))
        return tests

    def play(self, mutant):
        if mutant not in self.reached_by:
            return Outcome(False, "no test reaches it")
        for tests, ms in batches(self.reached_by[mutant], BATCHES_MS):
            cpu_s = 2 + ms // 100  # ten times their normal time
            code, output = self.run({"QUIRE_MUTANT": str(mutant), "QUIRE_MUTANT_CPU_S": str(cpu_s)},
                                    ["--gtest_fail_fast", f"--gtest_filter={':'.join(tests)}"], 60 + 5 * cpu_s)
            if code != 0:
                return self.death(code, output)
        return Outcome(False, f"{len(self.reached_by[mutant])} tests pass")

    def death(self, code, output):
        check = BROKEN.search(output)
        if check:
            return Outcome(True, f"check {check[1]}")
        if code in (-24, -9):
            return Outcome(True, "timeout")
        failed = re.search(r"\[  FAILED  \] ([\w/.]+)", output)
        if code == 1 and failed:
            return Outcome(True, f"test {failed[1]}")
        return Outcome(True, f"crash ({code})")

    def play_all(self, numbers, jobs):
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            yield from pool.map(self.play, numbers)
