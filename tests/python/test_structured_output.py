"""Answers of a given form, through the official openai client, on the real model: what is finished is valid, whatever runs beside it."""
import concurrent.futures
import json
import re

import jsonschema
import openai
import pydantic
import pytest

from quire_server import running

QUESTION = [{"role": "user", "content": "Tell me about a river in Europe. Answer in JSON."}]
SCHEMAS = [
    {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}, "km": {"type": "integer", "minimum": 1, "maximum": 9999}},
     "required": ["name", "km"], "additionalProperties": False},
    {"type": "array", "items": {"enum": ["Rhine", "Danube", 3, None]}, "minItems": 1, "maxItems": 4},
    {"anyOf": [{"const": "Elbe"}, {"type": "object", "properties": {"x": {"$ref": "#/$defs/flag"}}, "required": ["x"],
                                   "additionalProperties": False}], "$defs": {"flag": {"type": "boolean"}}},
    {"type": "object", "properties": {"code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"},
                                      "pair": {"type": "array", "prefixItems": [{"type": "integer", "minimum": 0, "maximum": 99}, {"type": "boolean"}],
                                               "items": False, "minItems": 2}},
     "required": ["code", "pair"], "additionalProperties": False},
]


@pytest.fixture(scope="module")
def client():
    with running("--num-blocks", "400") as url:
        yield openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=120)


def form(schema):
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}


def ask(client, schema, seed, **more):
    return client.chat.completions.create(model="smol", messages=QUESTION, max_tokens=200, temperature=1, seed=seed,
                                          response_format=form(schema), **more)


def test_what_is_finished_is_valid_and_the_same_beside_others(client):
    jobs = [(schema, seed) for schema in SCHEMAS for seed in range(6)]
    alone = [ask(client, *job).choices[0] for job in jobs]
    with concurrent.futures.ThreadPoolExecutor(12) as clients:
        together = list(clients.map(lambda job: ask(client, *job).choices[0], jobs))
    finished = 0
    for (schema, _), one, other in zip(jobs, alone, together, strict=True):
        assert one.message.content == other.message.content and one.finish_reason == other.finish_reason
        if one.finish_reason == "stop":
            jsonschema.Draft202012Validator(schema).validate(json.loads(one.message.content))
            finished += 1
    assert finished >= 0.8 * len(jobs)


def test_drafts_change_nothing(client):
    with running("--num-speculative-tokens", "4", "--prompt-lookup-min", "1") as url:
        drafting = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=120)
        for schema in SCHEMAS:
            for seed in range(3):
                assert ask(drafting, schema, seed).choices[0].message.content == ask(client, schema, seed).choices[0].message.content


def test_parse_gives_an_object(client):
    class River(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=20)
        is_long: bool

    answer = client.chat.completions.parse(model="smol", messages=QUESTION, response_format=River, temperature=0, max_tokens=100)
    assert isinstance(answer.choices[0].message.parsed, River)


def test_streams_choices_and_log_probabilities(client):
    whole = ask(client, SCHEMAS[0], 3, n=3, logprobs=True)
    texts = {i: "" for i in range(3)}
    for chunk in ask(client, SCHEMAS[0], 3, n=3, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert [texts[i] for i in range(3)] == [choice.message.content for choice in whole.choices]
    assert len(set(texts.values())) > 1
    for choice in whole.choices:
        assert "".join(entry.token for entry in choice.logprobs.content).startswith(choice.message.content)


@pytest.mark.parametrize("extra, pattern", [
    ({"structured_outputs": {"regex": "[A-Z][a-z]{2,8} flows"}}, r"[A-Z][a-z]{2,8} flows"),
    ({"structured_outputs": {"choice": ["Rhine", "Danube"]}}, r"Rhine|Danube"),
    ({"guided_grammar": "root ::= \"It is \" [0-9]{2,4} \" km\""}, r"It is [0-9]{2,4} km")])
def test_other_forms(client, extra, pattern):
    for seed in range(3):
        answer = client.completions.create(model="smol", prompt="A river:", max_tokens=60, temperature=1, seed=seed, extra_body=extra)
        assert answer.choices[0].finish_reason == "stop" and re.fullmatch(pattern, answer.choices[0].text)


def test_json_mode(client):
    answer = client.chat.completions.create(model="smol", messages=QUESTION, max_tokens=300, temperature=0, response_format={"type": "json_object"})
    assert answer.choices[0].finish_reason == "length" or isinstance(json.loads(answer.choices[0].message.content), dict)


@pytest.mark.needs_llguidance
@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_be_held_is_refused_by_its_keyword(client, stream):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, {"type": "array", "uniqueItems": True}, 1, stream=stream)
    assert caught.value.param == "response_format" and "uniqueItems" in caught.value.message
