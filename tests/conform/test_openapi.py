"""Runs schemathesis with docs/openapi.json: sends requests that match the description and requests that do not, and checks each answer."""
import pathlib
import subprocess
import sys

from quire_server import running

SPEC = pathlib.Path(__file__).resolve().parents[2] / "docs/openapi.json"
# These routes stop the server's answers, never end, write files, or need a model that the test does not have.
LEFT_OUT = r"^/(pause|resume|v1/watch|v1/journal/save|v1/load_lora_adapter|v1/unload_lora_adapter|v1/audio/.*)$"
# This check requires that the server accepts each request that the description allows. The description has types and bounds of fields; other
# rules (a regular expression compiles, a prompt fits into the context, fields can be combined) are only in its texts.
NOT_HELD = "positive_data_acceptance"


def test_the_server_is_as_described(tmp_path):
    with running("--max-model-len", "256", "--override-generation-config", '{"max_new_tokens": 4}') as url:
        command = [str(pathlib.Path(sys.executable).with_name("schemathesis")), "run", str(SPEC), "--url", url, "--exclude-path-regex", LEFT_OUT,
                   "--phases", "examples,coverage,fuzzing", "--max-examples", "20", "--seed", "1", "--exclude-checks", NOT_HELD,
                   "--request-timeout", "60", "--suppress-health-check", "all", "--warnings", "off", "--no-shrink"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2000:]
