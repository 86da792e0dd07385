"""Tests that quire serve takes sampling defaults from generation_config.json and from its flags."""
import json
import os
import subprocess

import openai
import pytest

from quire_server import running

ASKED = [{"role": "user", "content": "Name three rivers."}]


def test_flags_set_the_defaults(tmp_path):
    (tmp_path / "generation_config.json").write_text(json.dumps({"temperature": 0.0, "top_k": 20}))
    with running("--generation-config", str(tmp_path), "--override-generation-config", '{"max_new_tokens": 5}') as url:
        client = openai.OpenAI(base_url=url + "/v1", api_key="none")
        answers = [client.chat.completions.create(model="smol", messages=ASKED) for _ in range(2)]
        assert answers[0].choices[0].message.content == answers[1].choices[0].message.content
        assert [answer.usage.completion_tokens for answer in answers] == [5, 5]
        assert client.completions.create(model="smol", prompt="Rivers:", max_tokens=50).usage.completion_tokens <= 5
        response = client.responses.create(model="smol", input="Name three rivers.")
        assert response.temperature == 0 and response.usage.output_tokens <= 5


def test_start_prints_the_defaults_and_their_source(tmp_path, capfd):
    (tmp_path / "generation_config.json").write_text(json.dumps({"temperature": 0.5}))
    with running("--generation-config", str(tmp_path), "--override-generation-config", '{"top_p": 0.9}'):
        pass
    lines = [line for line in capfd.readouterr().out.splitlines() if line.startswith("Sampling defaults: ")]
    assert lines == [f"Sampling defaults: temperature 0.5, top_p 0.9 (from {tmp_path}/generation_config.json and --override-generation-config; "
                     "see --generation-config)"]


def test_misspelt_field_is_refused_before_the_model_loads():
    binary, model = os.environ.get("QUIRE_BINARY"), os.environ.get("QUIRE_TEST_MODEL")
    if not binary or not model:
        pytest.skip("QUIRE_BINARY and QUIRE_TEST_MODEL are not set: ./dev test sets them")
    done = subprocess.run([binary, "serve", model, "--override-generation-config", '{"temprature": 1}'], capture_output=True, text=True,
                          timeout=60)
    assert done.returncode != 0
    assert "--override-generation-config.temprature" in done.stderr and "did you mean 'temperature'" in done.stderr, done.stderr
