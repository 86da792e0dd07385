"""Tests bench/field.py: the cases find a server that keeps its promises and one that does not, and docs/field.md lists all of them."""
import http.server
import json
import os
import pathlib
import subprocess
import sys
import threading

import pytest

REPO = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "bench"))
import field_cases  # noqa: E402
from field_server import Server  # noqa: E402


def test_the_page_lists_all_cases_and_results():
    page = (REPO / "docs/field.md").read_text()
    for case in field_cases.CASES:
        assert f"| `{case.name}` | {case.complaint} | {case.promise} | {case.reports} |" in page, case.name
        assert page.count(f"| `{case.name}` |") == 2, f"{case.name} has a row in both tables"


class Forgetful(http.server.BaseHTTPRequestHandler):
    """A server that caches nothing, and whose answers depend on the number of requests in progress."""

    running = 0
    lock = threading.Lock()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with Forgetful.lock:
            Forgetful.running += 1
        text = f"answer {Forgetful.running}"
        threading.Event().wait(0.05)
        with Forgetful.lock:
            Forgetful.running -= 1
        choice = {"message": {"content": text}} if "messages" in body else {"text": text}
        answer = json.dumps({"choices": [choice], "usage": {"prompt_tokens": 100, "completion_tokens": 4}}).encode()
        self.send_response(404 if self.path == "/v1/messages" else 200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


@pytest.fixture
def forgetful(tmp_path):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Forgetful) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        server = Server("none", tmp_path, tmp_path / "log", "model", 10)
        server.port = listening.server_address[1]
        yield server
        listening.shutdown()


@pytest.mark.parametrize("name, held", [("cached-tokens", False), ("own-answer", False), ("sweep", False), ("same-bits", False),
                                        ("changed-header", None), ("flipped-bits", None)])  # fmt: skip
def test_a_server_without_a_cache_is_found(forgetful, name, held):
    case = next(case for case in field_cases.CASES if case.name == name)
    outcome = case.run(forgetful)
    assert outcome.held is held, outcome.measured


def test_quire_keeps_what_the_quick_cases_promise(tmp_path):
    binary, model = os.environ.get("QUIRE_BINARY"), os.environ.get("QUIRE_TEST_MODEL")
    if not binary or not model:
        pytest.skip("QUIRE_BINARY and QUIRE_TEST_MODEL are not set: ./dev test sets them")
    results = tmp_path / "results.json"
    command = [sys.executable, str(REPO / "bench/field.py"), "--binary", binary, "--model", model, "--json", str(results),
               "--only", "changed-header,own-answer,cached-tokens,aborts"]  # fmt: skip
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert {name: result["held"] for name, result in json.loads(results.read_text()).items()} == {
        "changed-header": True, "own-answer": True, "cached-tokens": True, "aborts": True}


def test_unknown_cases_are_named():
    run = subprocess.run([sys.executable, str(REPO / "bench/field.py"), "--only", "agents,aborts"], capture_output=True, text=True, check=False)
    assert run.returncode == 2 and "--only: unknown case agents" in run.stderr
