"""Starts `quire serve` on a free port for the tests of this folder."""
import contextlib
import os
import random
import socket
import subprocess
import time
import urllib.request

import pytest


def free_port():
    """Returns a port below the range that the system assigns to other sockets."""
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", random.SystemRandom().randrange(15_000, 32_000)))
            return probe.getsockname()[1]


@contextlib.contextmanager
def running(*flags):
    """Yields the base URL and stops the server like an operator. Skips the test when the binary or the model is not set."""
    with started(*flags) as (url, process):
        yield url
        process.terminate()
        assert process.wait(60) == 0, "SIGTERM must drain and end with status 0"


@contextlib.contextmanager
def serving(model, *flags):
    """Like running(), with another model."""
    with started(*flags, model=str(model)) as (url, process):
        yield url
        process.terminate()
        assert process.wait(60) == 0, "SIGTERM must drain and end with status 0"


@contextlib.contextmanager
def started(*flags, model=None):
    """Yields the base URL and the process, which the test may kill."""
    binary, model = os.environ.get("QUIRE_BINARY"), model or os.environ.get("QUIRE_TEST_MODEL")
    if not binary or not model:
        pytest.skip("QUIRE_BINARY and QUIRE_TEST_MODEL are not set: ./dev test sets them")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen([binary, "serve", model, "--port", str(port), "--served-model-name", "smol",
                                "--kv-cache-memory", "256MiB", *flags])
    try:
        deadline = time.monotonic() + 60
        while True:
            assert process.poll() is None, f"quire serve ended with {process.returncode}"
            with contextlib.suppress(OSError):
                if urllib.request.urlopen(url + "/health", timeout=5).status == 200:
                    break
            assert time.monotonic() < deadline, "quire serve did not come up"
            time.sleep(0.05)
        yield url, process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
