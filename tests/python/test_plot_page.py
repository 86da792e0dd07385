"""Tests the page of --html: it has exactly the JSON that the command writes."""
import json
import os
import subprocess

import pytest

STEPS = (
    {"event": "step_snapshot", "step": 0, "ts": 100.0, "total_blocks": 9, "waiting_req_ids": ["1"], "waiting_job_ids": ["</script><b>"]},
    {"event": "step_decision", "step": 0, "scheduled_new_req_ids": ["1"], "num_scheduled_tokens": {"1": 5}},
)


def data_of(page):
    """Returns the JSON in a page. Its element ends at the first "</script", as in a browser."""
    return page.read_text().split('id="data">\n')[1].split("</script")[0].replace("\\u003c", "<")


def quire(*args):
    return subprocess.run([os.environ["QUIRE_BINARY"], *args], capture_output=True, text=True, timeout=60, check=True)


@pytest.mark.parametrize("sweep", [(), ("--sweep", "instances=1,2")])
def test_simulation_page_has_its_json(tmp_path, sweep):
    page = tmp_path / "page.html"
    printed = quire("simulate", "--requests", "20", "--curve", *sweep, "--json", "-", "--html", page).stdout
    assert json.loads(printed) and data_of(page) == printed


@pytest.mark.parametrize("flag", ["--html", "--svg"])
def test_trace_page_has_the_perfetto_trace(tmp_path, flag):
    (tmp_path / "run.steps.jsonl").write_text("".join(json.dumps(step) + "\n" for step in STEPS))
    done = quire("trace", tmp_path / "run", flag, tmp_path / "page.html", "--perfetto", tmp_path / "run.json")
    assert data_of(tmp_path / "page.html") == (tmp_path / "run.json").read_text()
    assert "</script><b>" in data_of(tmp_path / "page.html")
    assert done.stderr == ("quire: --svg is now --html; it writes an HTML page\n" if flag == "--svg" else "")
