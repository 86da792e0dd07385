"""Tests litellm: chats, streams, tools and structured output."""
import json

import litellm
import pytest

from shapes import ASKED, WEATHER, City, GetWeather

TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "The weather", "parameters": GetWeather.model_json_schema()}}]


@pytest.fixture
def ask(url):
    def asked(call=litellm.completion, **more):
        return call(model="openai/smol", api_base=url + "/v1", api_key="none", **{"messages": ASKED, "temperature": 0, "max_tokens": 100, **more})

    return asked


@pytest.mark.row("litellm", "completion")
def test_completion_answers_within_max_tokens(ask):
    answer = ask(max_tokens=20)
    assert "Paris" in answer.choices[0].message.content and answer.usage.completion_tokens <= 20


@pytest.mark.row("litellm", "completion, stream, usage")
def test_stream_gives_the_same_text_and_usage(ask):
    chunks = list(ask(stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == ask().choices[0].message.content
    assert any(getattr(chunk, "usage", None) for chunk in chunks)


@pytest.mark.row("litellm", "acompletion")
async def awaited(ask):
    return await ask(litellm.acompletion)


@pytest.mark.row("litellm", "acompletion")
def test_acompletion_answers(ask):
    import asyncio

    assert "Paris" in asyncio.run(awaited(ask)).choices[0].message.content


@pytest.mark.row("litellm", "text_completion")
def test_text_completion_answers_a_prompt(url):
    answer = litellm.text_completion(model="text-completion-openai/smol", api_base=url + "/v1", api_key="none",
                                     prompt="The capital of France is", max_tokens=4, temperature=0)
    assert "Paris" in answer.choices[0].text


@pytest.mark.row("litellm", "completion, tools required and named")
def test_required_and_named_tools_are_called(ask):
    for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
        (call,) = ask(messages=WEATHER, tools=TOOLS, tool_choice=choice, parallel_tool_calls=False).choices[0].message.tool_calls
        assert call.function.name == "get_weather"
        GetWeather.model_validate_json(call.function.arguments)


@pytest.mark.row("litellm", "completion, tools, stream")
def test_streamed_chunks_form_one_tool_call(ask):
    chunks = list(ask(messages=WEATHER, tools=TOOLS, tool_choice="required", parallel_tool_calls=False, stream=True))
    (call,) = litellm.stream_chunk_builder(chunks).choices[0].message.tool_calls
    GetWeather.model_validate_json(call.function.arguments)


@pytest.mark.row("litellm", "completion, a tool's result")
def test_tool_results_are_accepted(ask):
    first = ask(messages=WEATHER, tools=TOOLS, tool_choice="required", parallel_tool_calls=False).choices[0].message
    messages = [*WEATHER, first, {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "12 degrees"}]
    assert ask(messages=messages, tools=TOOLS, tool_choice="none").choices[0].message.content


@pytest.mark.row("litellm", "completion, response_format: JSON schema, pydantic model, JSON object")
def test_response_formats_return_valid_json(ask):
    schema = {"type": "json_schema", "json_schema": {"name": "city", "schema": City.model_json_schema()}}
    for form in (schema, City):
        City.model_validate_json(ask(response_format=form).choices[0].message.content)
    assert isinstance(json.loads(ask(response_format={"type": "json_object"}, messages=[
        {"role": "user", "content": 'Repeat exactly: {"name": "Bern"}'}]).choices[0].message.content), dict)


@pytest.mark.row("litellm", "embedding")
def test_embedding_has_the_model_width(url):
    answer = litellm.embedding(model="openai/smol", api_base=url + "/v1", api_key="none", input=["one", "two"])
    assert len(answer.data) == 2 and len(answer.data[0]["embedding"]) == 576


@pytest.mark.row("litellm", "BadRequestError")
def test_bad_request_raises_bad_request_error(ask):
    with pytest.raises(litellm.BadRequestError):
        ask(messages=[], max_retries=0)


@pytest.mark.row("litellm", "responses")
def test_responses_continue_a_conversation(url):
    asked = {"model": "openai/smol", "api_base": url + "/v1", "api_key": "none", "temperature": 0, "max_output_tokens": 50}
    first = litellm.responses(input="What is the capital of France?", **asked)
    assert "Paris" in first.output_text
    assert litellm.responses(input="Are you sure?", previous_response_id=first.id, **asked).output_text
