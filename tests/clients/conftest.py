"""Each test of this folder is a row of the table at the end of the run: client, version, call, "passes" or the reason of the failure."""
import importlib.metadata
import json
import os
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "python"))  # quire_server

# The clients must not send telemetry.
os.environ.update(LITELLM_TELEMETRY="False", LITELLM_LOCAL_MODEL_COST_MAP="True", OPENAI_AGENTS_DISABLE_TRACING="1", LANGSMITH_TRACING="false",
                  LANGCHAIN_TRACING_V2="false", AI_TELEMETRY_DISABLED="1", DO_NOT_TRACK="1", HF_HUB_OFFLINE="1")
for key in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
    os.environ.pop(key, None)

rows = []


@pytest.fixture(scope="session")
def url():
    from quire_server import running

    with running() as address:
        yield address


def version(client):
    if client.startswith("npm "):
        return json.loads((HERE / "package.json").read_text())["dependencies"][client.removeprefix("npm ")]
    try:
        return importlib.metadata.version("pydantic-ai-slim" if client == "pydantic-ai" else client)
    except importlib.metadata.PackageNotFoundError:
        return ""


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.when == "call" or report.skipped and report.when == "setup":
        marker = item.get_closest_marker("row")
        client, what = marker.args if marker else item.callspec.params["row"]
        if report.passed:
            result = "passes"
        elif report.skipped:
            result = "not yet: " + getattr(report, "wasxfail", "") if hasattr(report, "wasxfail") else f"skipped: {report.longrepr[2]}"
        else:
            result = "FAILS: " + str(call.excinfo.value).splitlines()[0][:120]
        rows.append((client, version(client), what, result))


def pytest_terminal_summary(terminalreporter):
    if not rows:
        return
    terminalreporter.section("clients")
    terminalreporter.write_line("| client | version | call | result |\n|---|---|---|---|")
    for row in rows:
        terminalreporter.write_line("| " + " | ".join(row) + " |")
