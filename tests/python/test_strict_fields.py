"""Tests --strict-fields: fields that the server would ignore and report in X-Quire-Ignored-Fields are refused by name."""
import openai
import pytest

from quire_server import running

MESSAGES = [{"role": "user", "content": "Say hello."}]
FUNCTION = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def test_ignored_fields_are_refused():
    with running("--strict-fields") as url:
        client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)

        def ask(**more):
            return client.chat.completions.create(model="smol", messages=MESSAGES, max_tokens=2, **more)

        assert ask(prompt_cache_key="session", tools=[FUNCTION]).choices
        for more, field in (({"user": "u"}, "user"), ({"extra_body": {"xyzzy": 1}}, "xyzzy"),
                            ({"tools": [FUNCTION, {"type": "web_search"}]}, "tools[1]:web_search")):
            with pytest.raises(openai.BadRequestError) as caught:
                ask(**more)
            assert caught.value.param == field
        with pytest.raises(openai.BadRequestError) as caught:
            client.responses.create(model="smol", input="Say hello.", max_output_tokens=2, extra_body={"client_metadata": {}})
        assert caught.value.param == "client_metadata"
