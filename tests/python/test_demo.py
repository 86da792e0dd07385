"""Tests `quire demo`: the dashboard shows data within a minute, and the command ends when its time is over."""
import json
import os
import re
import signal
import subprocess
import time
import urllib.request

import pytest


def demo(*flags):
    binary, model = os.environ.get("QUIRE_BINARY"), os.environ.get("QUIRE_TEST_MODEL")
    if not binary or not model:
        pytest.skip("QUIRE_BINARY and QUIRE_TEST_MODEL are not set: ./dev test sets them")
    return subprocess.Popen([binary, "demo", model, "--port", "0", *flags], stdout=subprocess.PIPE, text=True)


def url_of(process):
    for line in process.stdout:
        if found := re.search(r"Watch them:\s+(http://\S+)/dashboard", line):
            return found[1]
    raise AssertionError("it ended without saying where to look")


def watch(url):
    with urllib.request.urlopen(url + "/v1/watch", timeout=30) as answer:
        return json.load(answer)


def test_dashboard_has_data_soon():
    process = demo("--pace", "0.2", "--num-blocks", "200")
    try:
        url = url_of(process)
        assert "<title>" in urllib.request.urlopen(url + "/dashboard", timeout=30).read().decode()
        deadline = time.monotonic() + 180
        while True:
            frame = watch(url)
            names = frame["request_fields"]
            states = {row[names.index("state")] for row in frame["requests"]}
            if "decode" in states and len(states) > 1 and frame["engine"]["evicted_blocks"] > 0:
                break
            assert time.monotonic() < deadline, frame["engine"]
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert re.search(r"Stopped after \d+ answers", process.stdout.read())
    finally:
        process.kill()


def test_ends_after_its_seconds():
    process = demo("--seconds", "3", "--clients", "3", "--pace", "0.1")
    try:
        url_of(process)
        assert process.wait(60) == 0
        told = process.stdout.read()
        assert re.search(r"\d+ answers \(\d+ disconnected, 0 rejected\)", told), told
    finally:
        process.kill()
