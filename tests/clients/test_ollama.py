"""Tests the ollama package: each call of docs/ollama.md, and that the table of request fields knows each parameter of the package."""
import json
import pathlib
import sys

import ollama
import pytest

from shapes import ASKED, QUESTION, WEATHER, City, GetWeather

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tools"))
import request_fields  # noqa: E402

GREEDY = {"temperature": 0, "num_predict": 60}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "The weather", "parameters": GetWeather.model_json_schema()}}]


@pytest.fixture
def client(url):
    return ollama.Client(host=url)


@pytest.mark.row("ollama", "chat")
def test_chat_answers(client):
    answer = client.chat("smol", ASKED, options=GREEDY)
    assert "Paris" in answer.message.content and answer.done and 0 < answer.eval_count <= 60 and answer.eval_duration > 0


@pytest.mark.row("ollama", "chat, stream; AsyncClient")
def test_stream_gives_the_same_text(client, url):
    import asyncio

    async def awaited():
        parts = await ollama.AsyncClient(host=url).chat("smol", ASKED, stream=True, options=GREEDY)
        return "".join([part.message.content async for part in parts])

    whole = client.chat("smol", ASKED, options=GREEDY).message.content
    assert "".join(part.message.content for part in client.chat("smol", ASKED, stream=True, options=GREEDY)) == whole
    assert asyncio.run(awaited()) == whole


@pytest.mark.row("ollama", "chat, tools and their results, streamed or not")
def test_tools_are_called_and_their_results_accepted(client):
    # The package has no argument for tool_choice, which a model of this size needs.
    options = {**GREEDY, "tool_choice": "required", "parallel_tool_calls": False}
    for stream in (False, True):
        answer = client.chat("smol", WEATHER, tools=TOOLS, stream=stream, options=options)
        messages = [part.message for part in answer] if stream else [answer.message]
        (made,) = [made for message in messages for made in message.tool_calls or []]
        assert made.function.name == "get_weather"
        GetWeather.model_validate(made.function.arguments)
        results = [*WEATHER, ollama.Message(role="assistant", tool_calls=[made]), {"role": "tool", "tool_name": "get_weather", "content": "12 degrees"}]
        assert client.chat("smol", results, tools=TOOLS, options={**GREEDY, "tool_choice": "none"}).message.content


@pytest.mark.row("ollama", "chat, format: JSON schema, JSON")
def test_formats_return_valid_json(client):
    City.model_validate_json(client.chat("smol", ASKED, format=City.model_json_schema(), options={"temperature": 0}).message.content)
    repeat = [{"role": "user", "content": 'Repeat exactly: {"name": "Bern"}'}]
    assert isinstance(json.loads(client.chat("smol", repeat, format="json", options={"temperature": 0, "num_predict": 200}).message.content), dict)


@pytest.mark.row("ollama", "generate: stream, system, raw, logprobs")
def test_generate_answers(client):
    assert "Paris" in client.generate("smol", QUESTION, system="Be brief.", options=GREEDY).response
    assert "Paris" in "".join(part.response for part in client.generate("smol", QUESTION, stream=True, options=GREEDY))
    raw = client.generate("smol", "The capital of France is", raw=True, logprobs=True, top_logprobs=3, options={"temperature": 0, "num_predict": 4})
    assert "Paris" in raw.response and len(raw.logprobs) == 4 and len(raw.logprobs[0].top_logprobs) == 3
    assert client.generate("smol").done_reason == "load"


@pytest.mark.row("ollama", "embed, embeddings")
def test_embed_has_the_model_width(client):
    answer = client.embed("smol", ["one", "two"])
    assert len(answer.embeddings) == 2 and abs(sum(value * value for value in answer.embeddings[0]) - 1) < 1e-4
    assert len(client.embeddings("smol", "one").embedding) == 576


@pytest.mark.row("ollama", "list, show, ps")
def test_models_are_described(client):
    (model,) = client.list().models
    assert model.model == "smol:latest" and model.details.family == "llama" and model.details.quantization_level == "Q4_1"
    shown = client.show(model.model)
    assert "completion" in shown.capabilities and shown.modelinfo["llama.context_length"] > 0 and shown.template
    (running,) = client.ps().models
    assert running.name == "smol:latest" and running.context_length == shown.modelinfo["llama.context_length"]
    assert client.chat(model.model, ASKED, options=GREEDY).model == "smol:latest"


@pytest.mark.row("ollama", "ResponseError")
def test_errors_have_status_and_text(client):
    for stream in (False, True):
        with pytest.raises(ollama.ResponseError) as caught:
            list(client.chat("llama3.2", ASKED, stream=stream))
        assert caught.value.status_code == 404 and caught.value.error.startswith("model 'llama3.2' not found")
    with pytest.raises(ollama.ResponseError) as caught:
        client.generate("smol", "a", suffix="b")
    assert caught.value.status_code == 400 and caught.value.error.startswith("suffix: is not supported")
    with pytest.raises(ollama.ResponseError) as caught:
        client.pull("smol")
    assert caught.value.status_code == 404


@pytest.mark.row("ollama", "parameters in the table of request fields")
def test_each_parameter_has_a_row():
    from ollama._types import ChatRequest, GenerateRequest, Options

    rows = request_fields.table()
    for fields in (ChatRequest.model_fields, GenerateRequest.model_fields, Options.model_fields):
        assert not [name for name in fields if name not in rows]
