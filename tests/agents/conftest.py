"""Prints a table with one row per test at the end of the run. docs/clients.md has this table."""
import json
import os
import pathlib
import subprocess
import sys
import time
import urllib.request

import pytest

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "python"))  # quire_server

rows = []


class Scripted:
    """Runs a server that answers with the texts of `script`, and reads its log."""

    def __init__(self, folder, script, *flags):
        from quire_server import free_port

        binary, model = os.environ.get("QUIRE_SCRIPTED_SERVER"), os.environ.get("QUIRE_TEST_MODEL")
        if not binary or not model:
            pytest.skip("QUIRE_SCRIPTED_SERVER and QUIRE_TEST_MODEL are not set: ./dev test --all sets them")
        (folder / "script.json").write_text(json.dumps(script))
        port = int(os.environ.get("QUIRE_AGENTS_PORT", 0)) or free_port()
        self.url = f"http://127.0.0.1:{int(os.environ.get('QUIRE_AGENTS_PROXY', 0)) or port}"
        self.log = folder / "server.log"
        self.process = subprocess.Popen(
            [binary, "--model", model, "--chat-template", HERE / "template.jinja", "--script", folder / "script.json", "--port", str(port),
             "--trace", folder / "trace", *flags], stderr=self.log.open("w"))  # fmt: skip
        deadline = time.monotonic() + 60
        while True:
            assert self.process.poll() is None, self.log.read_text()
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
                break
            except OSError:
                assert time.monotonic() < deadline, "the server did not start in time"
                time.sleep(0.05)

    def stop(self):
        self.process.terminate()
        assert self.process.wait(60) == 0, self.log.read_text()[-2000:]

    def events(self, name):
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if line.get("event") == name or line.get("message") == name]

    def jobs(self):
        """Returns the job ids of the requests, in order."""
        found = []
        for path in sorted(self.log.parent.glob("trace.requests.jsonl*")):
            found += [json.loads(line).get("job_id") for line in path.read_text().splitlines()]
        return found


@pytest.fixture
def scripted(tmp_path):
    running = []

    def start(script, *flags):
        running.append(Scripted(tmp_path, script, *flags))
        return running[-1]

    yield start
    for server in running:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()


def pytest_terminal_summary(terminalreporter):
    if not rows:
        return
    terminalreporter.section("agents")
    terminalreporter.write_line("| agent | version | loop | hit share by turn | fields ignored |\n|---|---|---|---|---|")
    for row in rows:
        terminalreporter.write_line("| " + " | ".join(row) + " |")
