"""Runs llm-comply's tests of the three APIs: answers must match the vendors' published schemas. FORMATS lists tests that cannot pass, and why."""
import json
import pathlib
import subprocess
import sys

import pytest

from quire_server import running

READS_TEXT = "the default model supports text only, and an image gets a 400 with this reason"
NOT_A_VENDORS_MODEL = "llm-comply skips it unless the model has a vendor's name"
NAMES_NO_MODEL = "it sends no model and expects a 400; quire, like vLLM, uses the served model"
FORMATS = {
    "openai-chat": {"chat-image-input": READS_TEXT, "chat-reasoning-summary": NOT_A_VENDORS_MODEL,
                    "chat-error-handling": NAMES_NO_MODEL},
    "open-responses": {"image-input": READS_TEXT, "reasoning-summary": NOT_A_VENDORS_MODEL, "error-handling": NAMES_NO_MODEL},
    "anthropic": {"anth-image-input": READS_TEXT, "anth-thinking-display": NOT_A_VENDORS_MODEL},
}


@pytest.fixture(scope="module")
def url():
    # At temperature 0 the default model ends its answers itself.
    with running("--max-model-len", "2048", "--override-generation-config", '{"temperature": 0}') as address:
        yield address


@pytest.mark.parametrize("api", FORMATS)
def test_what_applies_passes(url, api):
    command = [str(pathlib.Path(sys.executable).with_name("llm-comply")), "--base-url", url + "/v1", "--api-key", "none", "--model", "smol",
               "--format", api, "--timeout", "300", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    results = json.loads(done.stdout[done.stdout.index("{"):])["results"]
    failed = {result["id"]: result["errors"] for result in results if result["status"] != "passed"}
    assert len(results) > 8, "tests ran"
    unexpected = {name: errors for name, errors in failed.items() if name not in FORMATS[api]}
    assert not unexpected, json.dumps(unexpected, indent=1)
    assert set(failed) == set(FORMATS[api]), "each test in FORMATS fails"
