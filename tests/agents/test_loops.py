"""Runs whole loops of popular agents: the agent reads, fixes and runs a file. The server is real; its model answers from a script.

From the second turn on, the cache has all earlier prompts and answers, except for the last block.
"""
import importlib.metadata
import json
import os
import subprocess

import pytest

from clients import AGENTS, BROKEN, FINAL, MENDED, NODE, PYTHON, SAID
from conftest import rows

BLOCK = 16


def version(agent):
    manifest = NODE / agent.package / "package.json"
    if manifest.exists():
        return json.loads(manifest.read_text())["version"]
    for info in PYTHON.glob(f"*/lib/python*/site-packages/{agent.package.replace('-', '_')}-*.dist-info"):
        return importlib.metadata.PathDistribution(info).version
    pytest.skip(f"{agent.package} is not installed: ./dev test --all installs it")


def run(agent, folder, home, url):
    for path, text in agent.settings(home, url).items():
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(text)
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
    env = {**kept, "HOME": str(home), "TERM": "dumb", "CI": "1", "DO_NOT_TRACK": "1", "NO_COLOR": "1",
           **{name: value.format(url=url) for name, value in agent.env.items()}}  # fmt: skip
    return subprocess.run(agent.command(folder, home, url), cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=300)  # fmt: skip


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
def test_loop(agent, scripted, tmp_path):
    installed = version(agent)
    folder, home = tmp_path / "work", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    (folder / "hello.py").write_text(BROKEN)
    server = scripted(agent.script(folder))
    done = run(agent, folder, home, server.url)
    server.stop()
    requests = [line for line in server.events("request") + server.events("slow_request") if line.get("output_tokens")]
    ignored = sorted({name for line in server.events("ignored_fields") for name in line["fields"].split(", ")})
    says = done.stdout[-3000:]
    # Titles and summaries have separate prompts, which are short.
    turns = [line for line in requests if line["prompt_tokens"] > max(r["prompt_tokens"] for r in requests) / 2]
    shares = [line["cached_tokens"] / line["prompt_tokens"] for line in turns]
    is_done = (SAID if agent.last else FINAL) in says
    rows.append((agent.name, installed, "done" if is_done else "not done",
                 ", ".join(f"{share:.1%}" for share in shares), ", ".join(ignored) or "none"))  # fmt: skip
    assert done.returncode == 0 and is_done, says
    assert (folder / "hello.py").read_text() == MENDED, says
    assert [line for line in server.events("request") if line["status"] != 200] == [], says
    jobs = set(server.jobs())
    assert len(jobs) == 1 and (None not in jobs) == agent.has_session, jobs
    assert len(turns) == len(agent.turns(folder)) and min(shares[1:]) > agent.least, turns
    for before, after in zip(turns, turns[1:]):
        if agent.breaks:
            break
        known = before["prompt_tokens"] + before["output_tokens"]
        assert after["cached_tokens"] >= min(known, after["prompt_tokens"]) - 2 * BLOCK, (turns, says)
