"""Tools through the official openai client on the real model: calls that must come are valid, streams say the same, errors name their field."""
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


def test_required_calls_are_valid_and_the_same_beside_others(client):
    jobs = range(12)
    alone = [ask(client, seed, tool_choice="required", parallel_tool_calls=False).choices[0] for seed in jobs]
    with concurrent.futures.ThreadPoolExecutor(12) as clients:
        together = list(clients.map(lambda seed: ask(client, seed, tool_choice="required", parallel_tool_calls=False).choices[0], jobs))
    for one, other in zip(alone, together, strict=True):
        assert one.finish_reason == "tool_calls" and one.message.content is None and len(one.message.tool_calls) == 1
        check(one.message.tool_calls)
        assert pairs(one.message.tool_calls) == pairs(other.message.tool_calls)
    assert {name for one in alone for name, _ in pairs(one.message.tool_calls)} <= SCHEMAS.keys()


def test_one_spelling_is_what_json_dumps_writes():
    page = {"type": "integer", "minimum": 0, "maximum": 99}
    note = {"type": "object", "properties": {"text": {"type": "string", "maxLength": 60}, "pages": {"type": "array", "items": page, "maxItems": 3}},
            "required": ["text", "pages"]}  # fmt: skip
    with running("--num-blocks", "400", "--tool-call-one-spelling") as url:
        client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=120)
        for seed in range(6):
            answer = ask(client, seed, tools=[function("note", note)], tool_choice="required", parallel_tool_calls=False)
            written = answer.choices[0].message.tool_calls[0].function.arguments
            assert written == json.dumps(json.loads(written), ensure_ascii=False)


def test_several_calls(client):
    for seed in range(6):
        choice = ask(client, seed, tool_choice="required").choices[0]
        if choice.finish_reason == "tool_calls":
            check(choice.message.tool_calls)
            assert len({call.id for call in choice.message.tool_calls}) == len(choice.message.tool_calls)
        else:
            assert choice.finish_reason == "length"


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_named_tool_is_called(client, name):
    for seed in range(3):
        choice = ask(client, seed, tool_choice={"type": "function", "function": {"name": name}}).choices[0]
        assert choice.finish_reason == "tool_calls" and [call.function.name for call in choice.message.tool_calls] == [name]
        check(choice.message.tool_calls)


def assembled(stream):
    """As a client does it by hand."""
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
def test_streams_say_the_same(client, choice):
    for seed in range(2):
        whole = ask(client, seed, tool_choice=choice).choices[0]
        streamed = assembled(ask(client, seed, tool_choice=choice, stream=True))
        if whole.finish_reason == "length":
            continue  # a call that breaks off is text of a whole answer, and begun in a stream
        assert streamed == (pairs(whole.message.tool_calls), whole.message.content, whole.finish_reason)


def test_arguments_come_as_deltas(client):
    named = {"type": "function", "function": {"name": "get_weather"}}
    chunks = [chunk.choices[0].delta.tool_calls[0] for chunk in ask(client, tool_choice=named, stream=True)
              if chunk.choices and chunk.choices[0].delta.tool_calls]
    assert chunks[0].function.name == "get_weather" and chunks[0].function.arguments == ""
    assert len(chunks) > 4 and all(chunk.id is None and chunk.function.name is None for chunk in chunks[1:])


def test_a_call_in_words_of_the_models_own(client):
    """Nothing forces it: the model repeats what it was told, and a call is seen for what it is."""
    call = '{"name": "set_alarm", "arguments": {"hour": 7, "on": true}}'
    choice = client.chat.completions.create(model="smol", tools=TOOLS, temperature=0, max_tokens=80, messages=[
        {"role": "user", "content": "Repeat exactly:\n" + call}, {"role": "assistant", "content": call},
        {"role": "user", "content": "Repeat exactly:\n" + call}]).choices[0]
    assert choice.finish_reason == "tool_calls"
    check(choice.message.tool_calls)


def test_choices_of_one_prompt(client):
    whole = ask(client, 5, tool_choice="required", parallel_tool_calls=False, n=3)
    ids = set()
    for choice in whole.choices:
        check(choice.message.tool_calls)
        ids |= {call.id for call in choice.message.tool_calls}
    assert len(ids) == 3
    alone = ask(client, 6, tool_choice="required", parallel_tool_calls=False)
    assert pairs(whole.choices[1].message.tool_calls) == pairs(alone.choices[0].message.tool_calls)


def test_drafts_change_nothing(client):
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


def test_the_stream_helper(client):
    with client.chat.completions.stream(model="smol", messages=QUESTION, tools=[openai.pydantic_function_tool(Alarm)], temperature=0,
                                        tool_choice="required", parallel_tool_calls=False, max_tokens=100) as stream:
        kinds = {event.type for event in stream}
        answer = stream.get_final_completion()
    assert {"tool_calls.function.arguments.delta", "tool_calls.function.arguments.done"} <= kinds
    assert isinstance(answer.choices[0].message.tool_calls[0].function.parsed_arguments, Alarm)
    assert answer.choices[0].finish_reason == "tool_calls"


def test_a_loop_of_calls_and_results(client):
    messages = list(QUESTION)
    for turn in range(2):
        message = ask(client, turn, messages, tool_choice="required", parallel_tool_calls=False).choices[0].message
        messages.append(message)
        messages += [{"role": "tool", "tool_call_id": call.id, "content": "12 degrees"} for call in message.tool_calls]
    last = ask(client, 9, messages, tool_choice="none").choices[0]
    assert last.message.content and not last.message.tool_calls


def test_a_form_or_a_call(client):
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
    ({"tools": [function("f", {"type": "string"})]}, "tools[0].function.parameters.type"),
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
def test_what_is_wrong_is_named(client, wrong, param, stream):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, **wrong, stream=stream)
    assert caught.value.param == param


@pytest.mark.needs_llguidance
@pytest.mark.parametrize("choice, param", [("required", "tool_choice"), ("auto", "tools")])
def test_a_strict_tool_is_held_whole_or_refused(client, choice, param):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, tools=[function("f", STRICT, strict=True)], tool_choice=choice)
    assert caught.value.param == param and "uniqueItems" in caught.value.message


def test_a_keyword_that_cannot_be_held_is_let_go_where_a_tool_is_not_strict(client):
    assert ask(client, tools=[function("f", STRICT)], tool_choice="required", parallel_tool_calls=False).choices[0].message.tool_calls


def test_a_thousand_tools_stop_nobody(client):
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
    assert max(gaps) < 1, "a thousand tools are read beside the others"
