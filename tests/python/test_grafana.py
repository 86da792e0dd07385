"""Tests that the Grafana board and the alert rules use existing metrics and labels."""
import json
import pathlib
import re
import shutil
import subprocess
import urllib.request

import pytest

from quire_server import running

FOLDER = pathlib.Path(__file__).parents[2] / "docs/grafana"
BOARD = json.loads((FOLDER / "quire.json").read_text(encoding="utf-8"))
RULES = (FOLDER / "alerts.yml").read_text(encoding="utf-8")
METRIC = re.compile(r"\b(?:vllm|quire):\w+")


def expressions():
    for panel in BOARD["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for variable in BOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]["query"]
    for name, rule in re.findall(r"- alert: (\w+)\n\s+expr: (.*)", RULES):
        yield name, rule


@pytest.fixture(scope="module")
def sample_names(tmp_path_factory):
    """Returns the names of all samples of a server with a tier."""
    with running("--kv-disk", str(tmp_path_factory.mktemp("kv")), "--kv-disk-budget", "64MiB") as url:
        text = urllib.request.urlopen(url + "/metrics", timeout=30).read().decode()
    names = set()
    for name, kind in re.findall(r"^# TYPE (\S+) (\w+)$", text, re.MULTILINE):
        names |= {name + end for end in ("_bucket", "_sum", "_count")} if kind == "histogram" else {name}
    return names


@pytest.mark.parametrize("where, expression", list(expressions()), ids=lambda value: re.sub(r"\W+", "-", value)[:40])
def test_every_metric_exists(where, expression, sample_names):
    asked = set(METRIC.findall(expression))
    assert asked or expression.startswith("up{"), f"{where} uses no metric"
    assert asked <= sample_names, f"{where} uses unknown metrics: {asked - sample_names}"
    assert expression.count("(") == expression.count(")") and expression.count("{") == expression.count("}")


def test_panels_do_not_overlap():
    taken = set()
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])


def test_promtool_accepts_the_rules():
    if not shutil.which("promtool"):
        pytest.skip("promtool is not there: ./dev test --all unpacks it (Debian's prometheus)")
    done = subprocess.run(["promtool", "check", "rules", FOLDER / "alerts.yml"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
