"""Starts, stops and asks a server for field.py. Any server with OpenAI's API works."""

import contextlib
import dataclasses
import http.client
import json
import pathlib
import shlex
import signal
import socket
import subprocess
import time


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclasses.dataclass
class Answer:
    status: int
    body: dict

    @property
    def text(self) -> str:
        choice = self.body["choices"][0]
        return choice["text"] if "text" in choice else choice["message"]["content"]

    @property
    def prompt_tokens(self) -> int:
        return self.body["usage"]["prompt_tokens"]

    @property
    def cached_tokens(self) -> int:
        """Returns the cached prompt tokens; 0 if the server does not report them."""
        usage = self.body.get("usage") or {}
        if "cache_read_input_tokens" in usage:
            return usage["cache_read_input_tokens"] or 0
        return (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0

    @property
    def cached_share(self) -> float:
        return self.cached_tokens / max(1, self.prompt_tokens)


class Stream:
    """The arrival times of a streamed answer. Closing it before its end aborts the request."""

    def __init__(self, port: int, body: dict, timeout_s: float):
        self.asked = time.monotonic()
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
        self.connection.request("POST", "/v1/completions", json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
        self.response = self.connection.getresponse()
        self.times: list[float] = []

    def read(self, most: int | None = None) -> int:
        """Reads until `most` parts have arrived, or to the end. Returns the number of parts."""
        while most is None or len(self.times) < most:
            line = self.response.readline()
            if not line or line.startswith(b"data: [DONE]"):
                break
            if line.startswith(b"data:"):
                self.times.append(time.monotonic())
        return len(self.times)

    def close(self) -> None:
        self.connection.close()


class Server:
    """A server that `command` starts. {port} and {tier} in the command are replaced; {tier} is a folder that outlives the server."""

    def __init__(self, command: str, tier: pathlib.Path, log: pathlib.Path, model: str, start_timeout_s: float):
        self.command, self.tier, self.log, self.model, self.start_timeout_s = command, tier, log, model, start_timeout_s
        self.process: subprocess.Popen | None = None
        self.port = 0

    @property
    def has_tier(self) -> bool:
        return "{tier}" in self.command

    def start(self) -> float:
        """Starts the server and returns the seconds to the first answer."""
        self.port = free_port()
        self.tier.mkdir(parents=True, exist_ok=True)
        words = [word.replace("{port}", str(self.port)).replace("{tier}", str(self.tier)) for word in shlex.split(self.command)]
        begin = time.monotonic()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
        while time.monotonic() - begin < self.start_timeout_s:
            if self.process.poll() is not None:
                raise SystemExit(f"the server ended with status {self.process.returncode}; see {self.log}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.complete("Hello", max_tokens=1, timeout_s=self.start_timeout_s).status == 200:
                    return time.monotonic() - begin
            time.sleep(0.02)
        raise SystemExit(f"the server did not answer within {self.start_timeout_s:.0f} s; see {self.log}")

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None

    def ask(self, path: str, body: dict | None = None, timeout_s: float = 300) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        with contextlib.closing(connection):
            if body is None:
                connection.request("GET", path)
            else:
                connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()

    def post(self, path: str, body: dict, timeout_s: float = 300) -> Answer:
        status, text = self.ask(path, {"model": self.model, "temperature": 0, **body}, timeout_s)
        try:
            return Answer(status, json.loads(text))
        except ValueError:
            return Answer(status, {})

    def complete(self, prompt: str, max_tokens: int = 16, timeout_s: float = 300, **fields) -> Answer:
        return self.post("/v1/completions", {"prompt": prompt, "max_tokens": max_tokens, **fields}, timeout_s)

    def stream(self, prompt: str, max_tokens: int, timeout_s: float = 300) -> Stream:
        body = {"model": self.model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
        return Stream(self.port, body, timeout_s)
