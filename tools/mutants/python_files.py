"""Runs files of Python tests with mutated programs of the product: finds which file reaches which mutant, and which mutants it detects."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from . import play

PROGRAMS = {"QUIRE_BINARY": "quire", "QUIRE_TEMPLATE_TOOL": "quire_template_tool", "QUIRE_CALLS_TOOL": "quire_calls_tool",
            "QUIRE_TOKENIZE_TOOL": "quire_tokenize_tool"}  # fmt: skip
NO_TESTS = 5  # pytest's exit status if it collected no tests


def run_pytest(root, environment, arguments, timeout):
    """Returns (exit status, or None after the timeout; output). After a timeout, also ends the servers that the tests started."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "tmp_path_retention_policy=failed", *arguments]
    process = subprocess.Popen(command, cwd=root, env={**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", **environment},
                               start_new_session=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None, ""
    return process.returncode, output


class PythonFiles:
    def __init__(self, root, folder, files):
        """Uses the mutated programs in folder/build. `files`: names of files in tests/python, without test_ and .py."""
        self.root, self.folder, self.files = root, folder, files
        package = str(root / "build/release/python")  # not mutated
        self.environment = {variable: str(folder / "build" / program) for variable, program in PROGRAMS.items()}
        self.environment |= {"PYTHONPATH": package, "QUIRE_PYTHON_PACKAGE": package, "QUIRE_TEST_MODEL": os.environ["QUIRE_MUTANT_MODEL"]}
        self.seconds, self.reached = {}, {}  # by file

    def run(self, file, timeout, **environment):
        return run_pytest(self.root, {**self.environment, **environment}, ["-x", f"tests/python/test_{file}.py"], timeout)

    def learn(self, file):
        reach = self.folder / f"reach-{file}.bin"
        reach.unlink(missing_ok=True)
        begin = time.monotonic()
        code, output = self.run(file, None, QUIRE_MUTANT_REACH=str(reach))
        if code not in (0, NO_TESTS):
            raise SystemExit(f"mutants: tests/python/test_{file}.py fails without a mutant:\n{output[-4000:]}")
        self.seconds[file] = time.monotonic() - begin
        content = reach.read_bytes() if reach.exists() else b""
        self.reached[file] = {number for number, is_reached in enumerate(content) if is_reached}

    def baseline(self, jobs):
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(self.learn, self.files))

    def play(self, number, files):
        """Returns the outcome of a mutant, or None if no file reaches it."""
        outcome = None
        for file in sorted(files, key=lambda file: self.seconds[file]):
            if number not in self.reached[file]:
                continue
            code, _ = self.run(file, 60 + 5 * self.seconds[file], QUIRE_MUTANT=str(number))
            if code != 0:
                return play.Outcome(True, "timeout" if code is None else f"tests/python/test_{file}.py")
            outcome = play.Outcome(False, f"tests/python/test_{file}.py passes")
        return outcome
