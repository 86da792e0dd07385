"""Tests structured outputs with the official openai client on the real model: finished answers are valid, whatever runs at the same time.
"""
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


def test_finished_answers_are_valid_and_independent_of_others(client):
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


def test_speculative_decoding_changes_no_answer(client):
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


def test_streamed_choices_equal_whole_choices(client):
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
def test_regex_choice_and_grammar_are_enforced(client, extra, pattern):
    for seed in range(3):
        answer = client.completions.create(model="smol", prompt="A river:", max_tokens=60, temperature=1, seed=seed, extra_body=extra)
        assert answer.choices[0].finish_reason == "stop" and re.fullmatch(pattern, answer.choices[0].text)


def test_json_mode_returns_an_object(client):
    answer = client.chat.completions.create(model="smol", messages=QUESTION, max_tokens=300, temperature=0, response_format={"type": "json_object"})
    assert answer.choices[0].finish_reason == "length" or isinstance(json.loads(answer.choices[0].message.content), dict)


@pytest.mark.needs_llguidance
@pytest.mark.parametrize("stream", [False, True])
def test_unsupported_keyword_is_refused_by_name(client, stream):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, {"type": "array", "uniqueItems": True}, 1, stream=stream)
    assert caught.value.param == "response_format" and "uniqueItems" in caught.value.message


@pytest.mark.needs_llguidance
def test_schema_that_is_not_strict_never_fails_the_request(client):
    """The server enforces what it can and reports the rest in the answer."""
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object", "properties": {"n": {"$ref": "#/$defs/none"}}, "required": ["n"]}}}
    raw = client.chat.completions.with_raw_response.create(model="smol", messages=QUESTION, max_tokens=20, temperature=0, response_format=form)
    assert raw.headers["x-quire-ignored-fields"] == "response_format.json_schema.schema"
    (warning,) = json.loads(raw.text)["warnings"]
    assert "#/properties/n" in warning and "'#/$defs/none'" in warning


@pytest.mark.needs_llguidance
def test_escapes_are_passed_through(client):
    """A model that has begun an escape must be able to end it: the value is the same with and without a schema."""
    prompt = '{"name": "caf\\u00e9 M\\u00fcller", "city": "Z\\u00fcrich", "url": "https:\\/\\/a.example\\/b"}\n' * 6
    schema = {"type": "object", "properties": {key: {"type": "string"} for key in ("url", "name", "city")}, "required": ["name", "city", "url"]}
    answers = [client.completions.create(model="smol", prompt=prompt, max_tokens=80, temperature=0, stop=["\n"], extra_body=extra).choices[0].text
               for extra in ({}, {"structured_outputs": {"json": schema}})]  # fmt: skip
    assert "\\u00e9" in answers[0] and json.loads(answers[0]) == json.loads(answers[1])


@pytest.mark.needs_llguidance
def test_whitespace_is_bounded(client):
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 10}, "age": {"type": "integer", "maximum": 999, "minimum": 0},
                                               "ok": {"type": "boolean"}}, "required": ["name", "age", "ok"], "additionalProperties": False}  # fmt: skip
    answer = client.chat.completions.create(model="smol", messages=[{"role": "user", "content": "Say hi."}], max_tokens=1500, temperature=0,
                                            response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": schema}})  # fmt: skip
    assert answer.choices[0].finish_reason == "stop"
    for seed in range(4):
        extra = {"structured_outputs": {"json": schema, "disable_any_whitespace": True}}
        text = client.chat.completions.create(model="smol", messages=QUESTION, max_tokens=200, temperature=1, seed=seed, extra_body=extra).choices[0].message.content
        assert re.sub(r'"[^"]*"', '""', text).count(" ") <= 5 and "\n" not in re.sub(r'"[^"]*"', '""', text)
