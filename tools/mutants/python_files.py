"""Runs files of Python tests against mutated programs of the product: which file reaches which mutant, and which mutants it notices."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from . import play

TOOLS = ("quire", "quire_template_tool", "quire_calls_tool", "quire_tokenize_tool")
VARIABLES = ("QUIRE_BINARY", "QUIRE_TEMPLATE_TOOL", "QUIRE_CALLS_TOOL", "QUIRE_TOKENIZE_TOOL")


class PythonFiles:
    def __init__(self, root, folder, files):
        """folder: contains the mutated programs in build/. files: names in tests/python without test_ and .py."""
        self.root, self.folder, self.files = root, folder, files
        package = str(root / "build/release/python")  # not mutated
        programs = dict(zip(VARIABLES, (str(folder / "build" / tool) for tool in TOOLS)))
        self.environment = {**os.environ, **programs, "PYTHONPATH": package, "QUIRE_PYTHON_PACKAGE": package, "HF_HUB_OFFLINE": "1",
                            "TOKENIZERS_PARALLELISM": "false"}  # fmt: skip
        self.seconds, self.reached = {}, {}  # by file

    def run(self, file, timeout, **environment):
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-o", "tmp_path_retention_policy=failed", f"tests/python/test_{file}.py"]
        process = subprocess.Popen(command, cwd=self.root, env={**self.environment, **environment}, start_new_session=True, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)  # with the servers that it started
            return None, ""
        return process.returncode, output

    def learn(self, file):
        reach = self.folder / f"reach-{file}.bin"
        reach.unlink(missing_ok=True)
        begin = time.monotonic()
        code, output = self.run(file, None, QUIRE_MUTANT_REACH=str(reach))
        if code not in (0, 5):  # 5: no tests were collected
            raise SystemExit(f"mutants: tests/python/test_{file}.py fails without a mutant:\n{output[-4000:]}")
        self.seconds[file] = time.monotonic() - begin
        content = reach.read_bytes() if reach.exists() else b""
        self.reached[file] = {number for number, is_reached in enumerate(content) if is_reached}

    def baseline(self, jobs):
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(self.learn, self.files))

    def play(self, number, files):
        outcome = None
        for file in sorted(files, key=lambda file: self.seconds[file]):
            if number not in self.reached[file]:
                continue
            code, _ = self.run(file, 60 + 5 * self.seconds[file], QUIRE_MUTANT=str(number))
            if code != 0:
                return play.Outcome(True, "timeout" if code is None else f"tests/python/test_{file}.py")
            outcome = play.Outcome(False, f"tests/python/test_{file}.py passes")
        return outcome

