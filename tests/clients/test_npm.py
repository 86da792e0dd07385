"""Runs the npm clients with tests/clients/npm.mjs."""
import os
import pathlib
import re
import shutil
import subprocess

import pytest

SCRIPT = pathlib.Path(__file__).with_name("npm.mjs")
NODE = os.environ.get("QUIRE_CLIENTS_NODE", "")
CALLS = re.findall(r'^  async "([\w@/-]+) ([^"]+)"', SCRIPT.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("row", [("npm " + client, call) for client, call in CALLS], ids=" ".join)
def test_npm_client_call_succeeds(row, url):
    if not NODE or not shutil.which("node"):
        pytest.skip("no node, or QUIRE_CLIENTS_NODE is not set")
    shutil.copy(SCRIPT, NODE)  # node searches for packages next to the script
    done = subprocess.run(["node", SCRIPT.name, f"{row[0].removeprefix('npm ')} {row[1]}", url], cwd=NODE, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
