"""Tests tools with the official openai client on the real model: required calls are valid, streams give the same answer, and errors name
their field.
"""
import concurrent.futures
import json
import time

import jsonschema
import openai
import pydantic
import pytest

from quire_server import running

QUESTION = [{"role": "user", "content": "What is the weather in Bern? Use a tool."}]
WEATHER = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}, "unit": {"enum": ["C", "F"]},
                                            "days": {"type": "integer", "minimum": 1, "maximum": 9}},
           "required": ["city", "unit"], "additionalProperties": False}
ALARM = {"type": "object", "properties": {"hour": {"type": "integer", "minimum": 0, "maximum": 23}, "on": {"type": "boolean"}},
         "required": ["hour", "on"], "additionalProperties": False}
STRICT = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}, "required": ["a"], "additionalProperties": False}
SCHEMAS = {"get_weather": WEATHER, "set_alarm": ALARM}


def function(name, schema, **more):
    return {"type": "function", "function": {"name": name, "description": f"The function {name}", "parameters": schema, **more}}


TOOLS = [function(name, schema) for name, schema in SCHEMAS.items()]


@pytest.fixture(scope="module")
def client():
    with running("--num-blocks", "400") as url:
        yield openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=120)


def ask(client, seed=1, messages=QUESTION, tools=TOOLS, **more):
    return client.chat.completions.create(model="smol", messages=messages, tools=tools, seed=seed, temperature=1, max_tokens=250, **more)


def check(calls):
    for call in calls:
        assert call.type == "function" and call.id.startswith("call_")
        jsonschema.Draft202012Validator(SCHEMAS[call.function.name]).validate(json.loads(call.function.arguments))


def pairs(calls):
    return [(call.function.name, call.function.arguments) for call in calls or []]


def test_required_calls_are_valid_and_independent_of_others(client):
    jobs = range(12)
    alone = [ask(client, seed, tool_choice="required", parallel_tool_calls=False).choices[0] for seed in jobs]
    with concurrent.futures.ThreadPoolExecutor(12) as clients:
        together = list(clients.map(lambda seed: ask(client, seed, tool_choice="required", parallel_tool_calls=False).choices[0], jobs))
    for one, other in zip(alone, together, strict=True):
        assert one.finish_reason == "tool_calls" and one.message.content is None and len(one.message.tool_calls) == 1
        check(one.message.tool_calls)
        assert pairs(one.message.tool_calls) == pairs(other.message.tool_calls)
    assert {name for one in alone for name, _ in pairs(one.message.tool_calls)} <= SCHEMAS.keys()


def test_one_spelling_matches_json_dumps():
    page = {"type": "integer", "minimum": 0, "maximum": 99}
    note = {"type": "object", "properties": {"text": {"type": "string", "maxLength": 60}, "pages": {"type": "array", "items": page, "maxItems": 3}},
            "required": ["text", "pages"]}  # fmt: skip
    with running("--num-blocks", "400", "--tool-call-one-spelling") as url:
        client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=120)
        for seed in range(6):
            answer = ask(client, seed, tools=[function("note", note)], tool_choice="required", parallel_tool_calls=False)
            written = answer.choices[0].message.tool_calls[0].function.arguments
            assert written == json.dumps(json.loads(written), ensure_ascii=False)


def test_several_calls_have_different_ids(client):
    for seed in range(6):
        choice = ask(client, seed, tool_choice="required").choices[0]
        if choice.finish_reason == "tool_calls":
            check(choice.message.tool_calls)
            assert len({call.id for call in choice.message.tool_calls}) == len(choice.message.tool_calls)
        else:
            assert choice.finish_reason == "length"


@pytest.mark.parametrize("name", SCHEMAS)
def test_named_tool_is_called(client, name):
    for seed in range(3):
        choice = ask(client, seed, tool_choice={"type": "function", "function": {"name": name}}).choices[0]
        assert choice.finish_reason == "tool_calls" and [call.function.name for call in choice.message.tool_calls] == [name]
        check(choice.message.tool_calls)


def assembled(stream):
    """Assembles a stream as a client does."""
    calls, content, finish = [], "", None
    for chunk in stream:
        for choice in chunk.choices:
            content += choice.delta.content or ""
            finish = choice.finish_reason or finish
            for delta in choice.delta.tool_calls or []:
                if delta.id:
                    assert delta.index == len(calls) and delta.function.name
                    calls.append([delta.function.name, ""])
                calls[delta.index][1] += delta.function.arguments
    return [tuple(call) for call in calls], content or None, finish


@pytest.mark.parametrize("choice", ["required", "auto", "none", {"type": "function", "function": {"name": "set_alarm"}}])
def test_stream_gives_the_same_answer(client, choice):
    for seed in range(2):
        whole = ask(client, seed, tool_choice=choice).choices[0]
        streamed = assembled(ask(client, seed, tool_choice=choice, stream=True))
        assert streamed == (pairs(whole.message.tool_calls), whole.message.content, whole.finish_reason)


def test_arguments_are_streamed_as_deltas(client):
    named = {"type": "function", "function": {"name": "get_weather"}}
    chunks = [chunk.choices[0].delta.tool_calls[0] for chunk in ask(client, tool_choice=named, stream=True)
              if chunk.choices and chunk.choices[0].delta.tool_calls]
    assert chunks[0].function.name == "get_weather" and chunks[0].function.arguments == ""
    assert len(chunks) > 4 and all(chunk.id is None and chunk.function.name is None for chunk in chunks[1:])


def test_call_without_a_grammar_is_parsed(client):
    """No grammar forces the call: the model repeats the text, and the server recognizes it as a call."""
    call = '{"name": "set_alarm", "arguments": {"hour": 7, "on": true}}'
    choice = client.chat.completions.create(model="smol", tools=TOOLS, temperature=0, max_tokens=80, messages=[
        {"role": "user", "content": "Repeat exactly:\n" + call}, {"role": "assistant", "content": call},
        {"role": "user", "content": "Repeat exactly:\n" + call}]).choices[0]
    assert choice.finish_reason == "tool_calls"
    check(choice.message.tool_calls)


def test_choices_of_one_prompt_have_different_call_ids(client):
    whole = ask(client, 5, tool_choice="required", parallel_tool_calls=False, n=3)
    ids = set()
    for choice in whole.choices:
        check(choice.message.tool_calls)
        ids |= {call.id for call in choice.message.tool_calls}
    assert len(ids) == 3
    alone = ask(client, 6, tool_choice="required", parallel_tool_calls=False)
    assert pairs(whole.choices[1].message.tool_calls) == pairs(alone.choices[0].message.tool_calls)


def test_speculative_decoding_changes_no_call(client):
    with running("--num-speculative-tokens", "4", "--prompt-lookup-min", "1") as url:
        drafting = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=120)
        for seed in range(3):
            for choice in ["required", "auto"]:
                one, other = (ask(c, seed, tool_choice=choice, parallel_tool_calls=False).choices[0] for c in (client, drafting))
                assert (pairs(one.message.tool_calls), one.message.content) == (pairs(other.message.tool_calls), other.message.content)


class Alarm(pydantic.BaseModel):
    hour: int = pydantic.Field(ge=0, le=23)
    label: str = pydantic.Field(max_length=10)


def test_parse_gives_arguments_as_an_object(client):
    answer = client.chat.completions.parse(model="smol", messages=QUESTION, tools=[openai.pydantic_function_tool(Alarm)], temperature=0,
                                           tool_choice="required", parallel_tool_calls=False, max_tokens=100)
    assert isinstance(answer.choices[0].message.tool_calls[0].function.parsed_arguments, Alarm)


def test_stream_helper_parses_arguments(client):
    with client.chat.completions.stream(model="smol", messages=QUESTION, tools=[openai.pydantic_function_tool(Alarm)], temperature=0,
                                        tool_choice="required", parallel_tool_calls=False, max_tokens=100) as stream:
        kinds = {event.type for event in stream}
        answer = stream.get_final_completion()
    assert {"tool_calls.function.arguments.delta", "tool_calls.function.arguments.done"} <= kinds
    assert isinstance(answer.choices[0].message.tool_calls[0].function.parsed_arguments, Alarm)
    assert answer.choices[0].finish_reason == "tool_calls"


def test_loop_of_calls_and_results_ends_with_text(client):
    messages = list(QUESTION)
    for turn in range(2):
        message = ask(client, turn, messages, tool_choice="required", parallel_tool_calls=False).choices[0].message
        messages.append(message)
        messages += [{"role": "tool", "tool_call_id": call.id, "content": "12 degrees"} for call in message.tool_calls]
    last = ask(client, 9, messages, tool_choice="none").choices[0]
    assert last.message.content and not last.message.tool_calls


def test_answer_is_structured_or_a_call(client):
    schema = {"type": "object", "properties": {"answer": {"type": "string", "maxLength": 20}}, "required": ["answer"],
              "additionalProperties": False}  # fmt: skip
    for seed in range(6):
        choice = ask(client, seed, parallel_tool_calls=False,
                     response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}).choices[0]  # fmt: skip
        if choice.finish_reason == "stop":
            jsonschema.validate(json.loads(choice.message.content), schema)
        else:
            assert choice.finish_reason == "tool_calls"
            check(choice.message.tool_calls)


@pytest.mark.parametrize("wrong, param", [
    ({"tools": [function("f", {"type": "string"}, strict=True)]}, "tools[0].function.parameters.type"),
    ({"tools": [function("a b", {})]}, "tools[0].function.name"),
    ({"tools": [*TOOLS, TOOLS[0]]}, "tools[2].function.name"),
    ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": {"type": "function", "function": {"name": "cook"}}}, "tool_choice"),
    ({"tools": [], "tool_choice": "required"}, "tool_choice"),
    ({"messages": [*QUESTION, {"role": "tool", "tool_call_id": "x", "content": "y"}]}, "messages[1].tool_call_id"),
    ({"messages": [*QUESTION, {"role": "assistant", "tool_calls": [
        {"id": "x", "type": "function", "function": {"name": "f", "arguments": "[1]"}}]}]}, "messages[1].tool_calls"),
])  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
def test_invalid_field_is_named(client, wrong, param, stream):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, **wrong, stream=stream)
    assert caught.value.param == param


@pytest.mark.needs_llguidance
@pytest.mark.parametrize("choice", ["required", "auto"])
def test_strict_tool_with_unsupported_keywords_is_refused(client, choice):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, tools=[*TOOLS, function("f", STRICT, strict=True)], tool_choice=choice)
    assert caught.value.param == "tools[2].function.parameters"
    assert all(part in caught.value.message for part in ("'f'", "#/properties/a", "uniqueItems"))


DANGLING = {"type": "object", "properties": {"a": {"$ref": "#/$defs/q"}}}
UNSATISFIABLE = {"type": "object", "properties": {"s": {"type": "string", "enum": [1, 2]}}, "required": ["s"]}


@pytest.mark.needs_llguidance
@pytest.mark.parametrize("schema, place", [(DANGLING, "#/properties/a"), (UNSATISFIABLE, "#/properties/s"), ({"type": "string"}, "'type'"), ({"type": ["null"]}, "'type'"),
                                           ({"type": "object", "allOf": [False]}, "#/allOf/0")])  # fmt: skip
@pytest.mark.parametrize("choice", ["required", "auto"])
def test_tool_that_is_not_strict_never_fails_the_request(client, schema, place, choice):
    raw = client.chat.completions.with_raw_response.create(model="smol", messages=QUESTION, temperature=0, max_tokens=60,
                                                           tools=[*TOOLS, function("f", schema)], tool_choice=choice)  # fmt: skip
    assert raw.headers["x-quire-ignored-fields"] == "tools[2].function.parameters"
    (warning,) = json.loads(raw.text)["warnings"]
    assert "'f'" in warning and place in warning


@pytest.mark.needs_llguidance
@pytest.mark.parametrize("schema", [DANGLING, {**UNSATISFIABLE, "type": ["object", "null"]}, {"type": "string"}])
def test_tool_with_an_unsupported_schema_is_called_with_an_object(client, schema):
    answer = ask(client, tools=[function("f", schema)], tool_choice="required", parallel_tool_calls=False)
    if answer.choices[0].finish_reason == "tool_calls":
        assert isinstance(json.loads(answer.choices[0].message.tool_calls[0].function.arguments), dict)


@pytest.mark.needs_llguidance
@pytest.mark.parametrize("function_fields", [{}, {"parameters": None}, {"parameters": {}}, {"parameters": {"type": "object"}},
                                             {"parameters": {"type": "object", "properties": {}}, "strict": True}])  # fmt: skip
def test_tool_without_parameters_is_called_without_arguments(client, function_fields):
    tools = [{"type": "function", "function": {"name": "f", **function_fields}}]
    (call,) = ask(client, tools=tools, tool_choice="required", parallel_tool_calls=False).choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == {}


def test_unsupported_keyword_of_a_tool_that_is_not_strict_is_dropped(client):
    assert ask(client, tools=[function("f", STRICT)], tool_choice="required", parallel_tool_calls=False).choices[0].message.tool_calls


def test_thousand_tools_do_not_block_other_requests(client):
    tools = [function(f"tool_{i}", {**WEATHER, "description": f"number {i}"}) for i in range(1000)]
    with concurrent.futures.ThreadPoolExecutor(1) as other:
        began = time.monotonic()
        stream = ask(client, stream=True, tool_choice="none", extra_body={"ignore_eos": True})
        next(stream)
        refused = other.submit(ask, client, tools=tools, tool_choice="required")
        gaps, last = [], time.monotonic()
        for _ in stream:
            gaps.append(time.monotonic() - last)
            last = time.monotonic()
        with pytest.raises(openai.BadRequestError) as caught:
            refused.result(timeout=60)
    assert caught.value.param == "messages" and time.monotonic() - began < 60
    assert max(gaps) < 3, "reading a thousand tools must not delay other requests"
