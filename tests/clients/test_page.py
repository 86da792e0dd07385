"""Runs the listings of docs/clients.md as if a reader pastes them."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

PAGE = (pathlib.Path(__file__).parents[2] / "docs/clients.md").read_text(encoding="utf-8")
LISTINGS = re.findall(r"^```(\w+) ([\w-]+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
NODE = os.environ.get("QUIRE_CLIENTS_NODE", "")


def rows():
    for language, client, text in LISTINGS:
        if language != "yaml":
            yield pytest.param((("npm " if language == "js" else "") + client, "the page's listing"), language, text, id=f"{language}-{client}")


def ran(command, **more):
    return subprocess.run(command, capture_output=True, text=True, timeout=180, **more)


@pytest.mark.parametrize("row, language, text", list(rows()))
def test_listing_of_the_page_runs(row, language, text, url, tmp_path):
    text = text.replace("http://localhost:8000", url)
    if language == "python":
        done = ran([sys.executable, "-c", text])
    elif language == "js":
        if not NODE or not shutil.which("node"):
            pytest.skip("no node, or QUIRE_CLIENTS_NODE is not set")
        done = ran(["node", "--input-type=module", "-e", text], cwd=NODE)
    else:
        (yaml,) = [text for language, client, text in LISTINGS if language == "yaml"]
        (tmp_path / "extra-openai-models.yaml").write_text(yaml.replace("http://localhost:8000", url))
        path = str(pathlib.Path(sys.executable).parent) + os.pathsep + os.environ["PATH"]
        done = ran(["sh", "-c", text], env={**os.environ, "LLM_USER_PATH": str(tmp_path), "PATH": path})
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(done.stdout.strip()) > 5, done.stderr[-2000:]
    print(done.stdout)
