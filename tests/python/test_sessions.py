"""Tests streaming sessions of /v1/completions on the real model: each answer equals that of a separate request whose prompt is the whole
conversation.
"""
import json
import urllib.request

import openai
import pytest

from quire_server import running


@pytest.fixture(scope="module", params=[[], ["--async-scheduling"],
                                        ["--num-speculative-tokens", "3", "--prompt-lookup-min", "1", "--prompt-lookup-max", "3"],
                                        ["--async-scheduling", "--kv-dram", "64MiB"]], ids=["sync", "async", "drafts", "tier"])
def client(request):
    with running("--num-blocks", "300", *request.param) as url:
        yield openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=60)


def give(client, id, **body):
    asked = urllib.request.Request(f"{client.base_url}requests/{id}/input", json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(asked))


SET = {"model": "smol", "max_tokens": 20, "extra_body": {"return_token_ids": True}}


@pytest.mark.parametrize("drawn", [{"temperature": 0}, {"temperature": 1, "seed": 3}], ids=["greedy", "seeded"])
def test_answers_equal_requests_with_the_whole_conversation(client, drawn):
    inputs = ["The three longest rivers are", " and the shortest ones are", "\nIn short:"]
    stream = client.completions.create(prompt=inputs[0], stream=True, stream_options={"include_usage": True},
                                       **{**SET, **drawn, "extra_body": {"return_token_ids": True, "session": True}})
    told, tokens, context, usage = [""], [[]], [], None
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            context = context or choice.prompt_token_ids
            told[-1] += choice.text
            tokens[-1] += choice.token_ids or []
            if choice.finish_reason and len(told) < len(inputs):
                give(client, chunk.id, prompt=inputs[len(told)], end=len(told) + 1 == len(inputs))
                told.append("")
                tokens.append([])
    for text, answer, said in zip(inputs, tokens, told):
        if answer is not tokens[0]:
            context = context + json.load(urllib.request.urlopen(urllib.request.Request(
                str(client.base_url).removesuffix("v1/") + "tokenize", json.dumps({"prompt": text, "add_special_tokens": False}).encode(),
                {"Content-Type": "application/json"})))["tokens"]
        if drawn["temperature"] == 0:
            alone = client.completions.create(prompt=context, **{**SET, **drawn}).choices[0]
            assert alone.token_ids == answer and alone.text == said
        assert 0 < len(answer) <= 20
        context = context + answer
    assert usage.prompt_tokens + usage.completion_tokens == len(context) and usage.completion_tokens == sum(map(len, tokens))


def test_ended_session_refuses_input(client):
    stream = client.completions.create(prompt="One", stream=True, **{**SET, "extra_body": {"session": True}})
    id = next(iter(stream)).id
    assert give(client, id, end=True)["end"]
    with pytest.raises(urllib.error.HTTPError) as refused:
        give(client, id, prompt="more")
    assert refused.value.code in (400, 404)
    assert [choice.finish_reason for chunk in stream for choice in chunk.choices if choice.finish_reason] == ["length"]
