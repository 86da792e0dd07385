"""Tests pydantic-ai, openai-agents and llm: structured answers, tools, and loops that end."""
import asyncio
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
from typing import Literal

import agents
import openai
import pydantic_ai
import pytest
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from shapes import QUESTION, WEATHER, City

SETTINGS = {"max_tokens": 100, "temperature": 0}


@pytest.fixture
def pydantic_model(url):
    return OpenAIChatModel("smol", provider=OpenAIProvider(base_url=url + "/v1", api_key="none"))


@pytest.mark.row("pydantic-ai", "run_sync")
def test_pydantic_ai_answers_with_text(pydantic_model):
    assert "Paris" in pydantic_ai.Agent(pydantic_model, model_settings=SETTINGS).run_sync(QUESTION).output


@pytest.mark.row("pydantic-ai", "run_stream")
def test_pydantic_ai_streams_text(pydantic_model):
    async def streamed():
        async with pydantic_ai.Agent(pydantic_model, model_settings=SETTINGS).run_stream(QUESTION) as result:
            return [text async for text in result.stream_text(delta=True)]

    assert "Paris" in "".join(asyncio.run(streamed()))


@pytest.mark.parametrize("row, form", [(("pydantic-ai", "output_type (ToolOutput)"), pydantic_ai.ToolOutput),
                                       (("pydantic-ai", "NativeOutput"), pydantic_ai.NativeOutput)])
def test_pydantic_ai_returns_the_output_type(row, form, pydantic_model):
    agent = pydantic_ai.Agent(pydantic_model, output_type=form(City), model_settings=SETTINGS, retries=0)
    assert isinstance(agent.run_sync(QUESTION).output, City)


@pytest.mark.row("pydantic-ai", "a tool, then output_type (tool_choice names the tool, which is gone then)")
def test_pydantic_ai_calls_a_tool_and_returns_the_output_type(pydantic_model):
    def settings(context):
        return {**SETTINGS, "parallel_tool_calls": False, **({"tool_choice": ["get_country"]} if context.run_step == 1 else {})}

    async def once(context, definition):
        return definition if context.run_step == 1 else None

    called = []
    agent = pydantic_ai.Agent(pydantic_model, output_type=City, model_settings=settings)

    @agent.tool_plain(prepare=once)
    def get_country(city: Literal["Paris", "Bern"]) -> str:
        """The country of a city."""
        called.append(city)
        return {"Paris": "France", "Bern": "Switzerland"}[city]

    result = agent.run_sync(QUESTION, usage_limits=pydantic_ai.UsageLimits(request_limit=8))
    assert isinstance(result.output, City) and called


class Turns(agents.AgentHooks):
    """The default model does not end a loop by itself: the first turn requires one tool by name, the next the other, then a text answer."""

    def __init__(self):
        self.order = ["weather", "none"]
        self.called = []

    async def on_tool_end(self, context, agent, tool, result):
        self.called.append(tool.name)
        agent.model_settings = dataclasses.replace(agent.model_settings, tool_choice=self.order.pop(0))


@agents.function_tool
def find_city(country: Literal["Switzerland", "Norway"]) -> str:
    """The capital of a country."""
    return {"Switzerland": "Bern", "Norway": "Oslo"}[country]


@agents.function_tool
def weather(city: Literal["Bern", "Oslo"]) -> str:
    """The weather in a city."""
    return f"12 degrees in {city}"


# The default class uses /v1/responses, the other one /v1/chat/completions.
MODELS = [agents.OpenAIResponsesModel, agents.OpenAIChatCompletionsModel]


def rows(call):
    return pytest.mark.parametrize("row, made", [(("openai-agents", f"{made.__name__}: {call}"), made) for made in MODELS])


def looping(url, made):
    model = made(model="smol", openai_client=openai.AsyncOpenAI(base_url=url + "/v1", api_key="none", max_retries=0))
    hooks = Turns()
    settings = agents.ModelSettings(tool_choice="find_city", parallel_tool_calls=False, **SETTINGS)
    return agents.Agent(name="helper", model=model, tools=[find_city, weather], model_settings=settings, reset_tool_choice=False, hooks=hooks), hooks


@rows("run, two tools, then the answer (tool_choice named, named, none)")
def test_openai_agents_runs_a_loop_of_tools(row, made, url):
    agent, hooks = looping(url, made)
    result = agents.Runner.run_sync(agent, WEATHER[0]["content"], max_turns=4)
    assert hooks.called == ["find_city", "weather"] and result.final_output


@rows("run_streamed, the same loop")
def test_openai_agents_streams_a_loop_of_tools(row, made, url):
    async def streamed():
        agent, hooks = looping(url, made)
        result = agents.Runner.run_streamed(agent, WEATHER[0]["content"], max_turns=4)
        kinds = {event.type async for event in result.stream_events()}
        return hooks.called, result.final_output, kinds

    called, final, kinds = asyncio.run(streamed())
    assert called == ["find_city", "weather"] and final and "raw_response_event" in kinds


@rows("output_type")
def test_openai_agents_returns_the_output_type(row, made, url):
    agent, _ = looping(url, made)
    agent = dataclasses.replace(agent, tools=[], hooks=None, output_type=City, model_settings=agents.ModelSettings(**SETTINGS))
    assert isinstance(agents.Runner.run_sync(agent, QUESTION).final_output, City)


@pytest.fixture
def llm(url, tmp_path):
    (tmp_path / "extra-openai-models.yaml").write_text(
        f"- model_id: smol\n  model_name: smol\n  api_base: {url}/v1\n  api_key_name: none\n  supports_schema: true\n  supports_tools: true\n")

    def run(*arguments):
        done = subprocess.run([pathlib.Path(sys.executable).parent / "llm", "-m", "smol", "--key", "none", "-o", "temperature", "0",
                               "-o", "max_tokens", "100", *arguments], capture_output=True, text=True, timeout=120,
                              env={**os.environ, "LLM_USER_PATH": str(tmp_path)})
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.row("llm", "prompt, stream and not")
def test_llm_answers_the_same_with_and_without_streaming(llm):
    assert "Paris" in llm(QUESTION) and llm(QUESTION) == llm("--no-stream", QUESTION)


@pytest.mark.row("llm", "--schema")
def test_llm_follows_a_schema(llm):
    assert llm("--schema", json.dumps(City.model_json_schema()), QUESTION)
    City.model_validate_json(llm("--schema", json.dumps(City.model_json_schema()), QUESTION))


@pytest.mark.row("llm", "--functions (tools, auto)")
def test_llm_accepts_functions(llm):
    assert llm("--functions", 'def add(a: int, b: int) -> int:\n    "Adds"\n    return a + b\n', "--no-stream", "Say hello.")
