"""Tests a draft model (--speculative-model) on the real model, which is also the draft model: answers are equal, and draft tokens are
accepted.
"""
import os
import re
import subprocess
import urllib.request

import openai
import pytest

from quire_server import running

PROMPTS = ["The three longest rivers are", "def fibonacci(n):", "Dear Sir or Madam,"]
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}, "year": {"type": "integer", "minimum": 1, "maximum": 3000}},
          "required": ["name", "year"], "additionalProperties": False}


def answers(url):
    client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=120)
    for temperature in (0, 1):
        whole = client.completions.create(model="smol", prompt=PROMPTS, max_tokens=60, temperature=temperature, seed=4, logprobs=3)
        yield from ((choice.text, choice.logprobs.token_logprobs) for choice in whole.choices)
    yield client.chat.completions.create(model="smol", messages=[{"role": "user", "content": "A scientist, in JSON."}], max_tokens=60, seed=2,
                                         response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}).choices[0].message.content


def test_answers_equal_those_without_a_draft_model():
    with running() as url:
        wanted = list(answers(url))
    for flags in (["--speculative-model", os.environ["QUIRE_TEST_MODEL"]],
                  ["--no-async-scheduling", "--speculative-config", '{"model": "%s", "num_speculative_tokens": 2}' % os.environ["QUIRE_TEST_MODEL"]]):
        with running(*flags) as url:
            assert list(answers(url)) == wanted
            told = urllib.request.urlopen(url + "/metrics", timeout=60).read().decode()
            count = {what: float(re.search(rf"^vllm:spec_decode_num_{what}_tokens_total\S* (\S+)", told, re.M)[1]) for what in ("draft", "accepted")}
            assert 0 < count["accepted"] <= count["draft"]


@pytest.mark.parametrize(("flags", "problem"), [
    (["--speculative-model", "/nowhere/small.gguf"], "--speculative-model: /nowhere/small.gguf: no such file"),
    (["--speculative-config", '{"method": "eagle", "model": "small.gguf", "num_speculative_tokens": 2}'], 'method must be "ngram" or "draft_model"'),
], ids=["path", "method"])  # fmt: skip
def test_invalid_draft_models_are_refused(flags, problem):
    binary, model = os.environ.get("QUIRE_BINARY"), os.environ.get("QUIRE_TEST_MODEL")
    if not binary or not model:
        pytest.skip("QUIRE_BINARY and QUIRE_TEST_MODEL are not set: ./dev test sets them")
    done = subprocess.run([binary, "serve", model, "--port", "0", *flags], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0 and problem in done.stderr, done.stderr
