"""Schemas and prompts of the clients' tests: small enough that 135M parameters answer in few tokens, and bounded so that answers finish."""
from typing import Literal

from pydantic import BaseModel, Field

QUESTION = "What is the capital of France?"
ASKED = [{"role": "user", "content": QUESTION}]
WEATHER = [{"role": "user", "content": "What is the weather in Bern? Use a tool."}]


class City(BaseModel):
    """A city."""

    name: str = Field(max_length=20)
    country: str = Field(max_length=20)


class GetWeather(BaseModel):
    """The weather in a city."""

    city: Literal["Bern", "Oslo"]
    days: int = Field(ge=1, le=9)
