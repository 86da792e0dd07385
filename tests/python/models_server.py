"""Starts `quire serve --models` for tests, with two copies of the test model, and asks it."""
import contextlib
import http.client
import json
import os
import pathlib
import re
import subprocess
import time
import urllib.error
import urllib.request

import pytest

from quire_server import free_port

SMALL = ["--kv-cache-memory", "64MiB", "--max-model-len", "1024"]


class Server:
    """A running server with the models "one" and "two" (the same weights)."""

    def __init__(self, port, process):
        self.port, self.process = port, process

    def ask(self, path, body=None, headers=None, method=None):
        """Returns the status, the headers and the text of the answer."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json", **(headers or {})},
                                         method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, answer.headers, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read().decode()

    def get(self, path):
        status, _, text = self.ask(path)
        assert status == 200, text
        return json.loads(text)

    def complete(self, model, **fields):
        body = {"prompt": "Once upon a time", "max_tokens": 4, "temperature": 0, **({"model": model} if model else {}), **fields}
        status, headers, text = self.ask("/v1/completions", body)
        return status, headers, json.loads(text)

    def states(self):
        return {card["id"]: card["status"]["value"] for card in self.get("/v1/models")["data"]}

    def metric(self, name, model):
        text = self.ask("/metrics")[2]
        return float(re.search(rf'^{name}{{model_name="{model}"}} (\S+)$', text, re.MULTILINE)[1])

    def children(self):
        """Returns the process ids of the models' processes."""
        return children_of(self.process.pid)

    def process_of(self, model):
        """Returns the process id of a loaded model."""
        (pid,) = [pid for pid in self.children() if f"--served-model-name={model}\0" in pathlib.Path(f"/proc/{pid}/cmdline").read_text()]
        return pid

    def stream(self, model, max_tokens):
        """Begins a streamed completion. Returns the connection and the response."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        body = {"model": model, "prompt": "Once upon a time", "max_tokens": max_tokens, "ignore_eos": True, "stream": True}
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        return connection, connection.getresponse()


def children_of(parent):
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            pid, rest = int(stat.parent.name), stat.read_text().rpartition(")")[2].split()
            if int(rest[1]) == parent and rest[0] != "Z":
                found.append(pid)
    return found


def until(met, why, seconds=60):
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline, why
        time.sleep(0.05)


def needs_model():
    if not os.environ.get("QUIRE_BINARY") or not os.environ.get("QUIRE_TEST_MODEL"):
        pytest.skip("QUIRE_BINARY and QUIRE_TEST_MODEL are not set: ./dev test sets them")


def models_file(folder, extra=""):
    """Writes a file with two copies of the test model."""
    needs_model()
    for name in ("one", "two"):
        (folder / f"{name}.gguf").symlink_to(os.environ["QUIRE_TEST_MODEL"])
    path = folder / "models.yaml"
    path.write_text(f"""{extra}
models:
  - name: one
    model: {folder}/one.gguf
    aliases: [uno, "claude-*"]
  - name: two
    model: {folder}/two.gguf
    aliases: [gpt-4o, "gpt-*"]
    flags:
      max-model-len: 512
""")
    return path


@contextlib.contextmanager
def serving(models, *flags, env=None):
    port = free_port()
    process = subprocess.Popen([os.environ["QUIRE_BINARY"], "serve", "--models", str(models), "--port", str(port), *SMALL, *flags],
                               env={**os.environ, **(env or {})})
    try:
        def is_up():
            assert process.poll() is None, f"quire serve ended with {process.returncode}"
            with contextlib.suppress(OSError):
                return urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).status == 200
        until(is_up, "quire serve --models did not come up")
        yield Server(port, process)
        if process.poll() is None:
            process.terminate()
            assert process.wait(60) == 0, "SIGTERM must drain and end with status 0"
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
