"""Tests `quire doctor`: it reports this machine as text and as JSON, and names a port in use."""
import json
import os
import socket
import subprocess

import pytest


def doctor(*flags):
    binary = os.environ.get("QUIRE_BINARY")
    if not binary:
        pytest.skip("QUIRE_BINARY is not set: ./dev test sets it")
    return subprocess.run([binary, "doctor", *flags], capture_output=True, text=True, timeout=60, check=True).stdout


def checks(*flags):
    return {check["name"]: check for check in json.loads(doctor("--json", *flags))["checks"]}


def test_text_and_json_report_the_same_checks():
    names = ["processor", "cores", "memory", "huge pages", "io_uring", "open files", "port", "build"]
    found = checks("--port", "0")
    assert list(found) == names
    text = doctor("--port", "0")
    for name, check in found.items():
        marked = "!" if check["remedy"] else " "
        if name != "memory":  # the available memory changes between two runs
            assert f"{marked} {name:<11} {check['result']}\n" in text
        assert not check["remedy"] or f"To change this: {check['remedy']}\n" in text


def test_cores_are_those_that_this_process_may_use():
    binary = os.environ.get("QUIRE_BINARY")
    if not binary or os.sysconf("SC_NPROCESSORS_ONLN") < 2:
        pytest.skip("needs QUIRE_BINARY and two cores")
    core = str(min(os.sched_getaffinity(0)))
    done = subprocess.run(["taskset", "-c", core, binary, "doctor", "--json"], capture_output=True, text=True, timeout=60, check=True)
    cores = json.loads(done.stdout)["checks"][1]
    assert cores["result"].startswith(f"1 of {os.sysconf('SC_NPROCESSORS_ONLN')} ") and cores["remedy"]


def test_port_in_use_is_a_limit():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        check = checks("--port", str(port))["port"]
    assert f"127.0.0.1:{port}: Address already in use" in check["result"] and "--port" in check["remedy"]
    assert checks("--port", str(port))["port"] == {"name": "port", "result": f"{port} is free", "remedy": None}
