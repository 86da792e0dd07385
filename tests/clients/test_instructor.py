"""Tests each mode that instructor has for the openai client."""
from typing import Iterable

import instructor
import openai
import pytest

from shapes import ASKED, City, GetWeather

CITY = '{"name": "Paris", "country": "France"}'
REPEAT = [{"role": "user", "content": "Who are you? Answer in JSON."}, {"role": "assistant", "content": CITY},
          {"role": "user", "content": "Repeat exactly this JSON: " + CITY}]
CALL = '{"name": "GetWeather", "arguments": {"city": "Bern", "days": 2}}'
CALLED = [{"role": "user", "content": "Repeat exactly:\n" + CALL}, {"role": "assistant", "content": CALL},
          {"role": "user", "content": "Repeat exactly:\n" + CALL}]


def client(url, mode):
    return instructor.from_openai(openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0), mode=instructor.Mode[mode])


def created(url, mode, messages=ASKED, **more):
    return client(url, mode).create(model="smol", response_model=City, messages=messages, max_tokens=100, temperature=0, max_retries=0, **more)


@pytest.mark.parametrize("row, mode", [(("instructor", f"Mode.{mode}"), mode) for mode in ("TOOLS", "TOOLS_STRICT", "FUNCTIONS", "JSON_SCHEMA")])
def test_modes_that_enforce_the_schema_return_the_model(row, mode, url):
    assert isinstance(created(url, mode), City)


@pytest.mark.parametrize("row, mode", [(("instructor", f"Mode.{mode} (names of fields by the prompt)"), mode) for mode in ("JSON", "MD_JSON", "JSON_O1")])
def test_modes_with_prompted_field_names_return_the_model(row, mode, url):
    assert isinstance(created(url, mode, REPEAT), City)


@pytest.mark.row("instructor", "Mode.RESPONSES_TOOLS")
def test_responses_tools_mode_returns_the_model(url):
    made = client(url, "RESPONSES_TOOLS").create(model="smol", response_model=City, messages=ASKED, max_tokens=100, temperature=0, max_retries=0)
    assert isinstance(made, City)


@pytest.mark.row("instructor", "Mode.PARALLEL_TOOLS (tool_choice auto, so the model is told the call)")
def test_parallel_tools_mode_returns_all_calls(url):
    made = client(url, "PARALLEL_TOOLS").create(model="smol", response_model=Iterable[GetWeather], messages=CALLED, max_tokens=200,
                                                temperature=0, max_retries=0)
    made = list(made)
    assert made and all(isinstance(one, GetWeather) for one in made)


@pytest.mark.row("instructor", "create_partial")
def test_create_partial_ends_with_a_complete_model(url):
    made = list(client(url, "JSON_SCHEMA").create_partial(model="smol", response_model=City, messages=ASKED, max_tokens=100, temperature=0))
    City.model_validate(made[-1].model_dump())
