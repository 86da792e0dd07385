"""Compares the table of request fields with the parameters of the official clients, and tests how these clients handle models, fields and
refusals.
"""
import json
import pathlib
import re
import sys

import anthropic
import openai

import pytest

from quire_server import running

REPO = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(REPO / "tools"))
import request_fields  # noqa: E402

MESSAGES = [{"role": "user", "content": "Say hello."}]


@pytest.fixture(scope="module")
def url():
    with running("--max-model-len", "512", "--served-model-name", "org/smol v1") as base:
        yield base


@pytest.fixture(scope="module")
def openai_client(url):
    return openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=120)


@pytest.fixture(scope="module")
def anthropic_client(url):
    return anthropic.Anthropic(base_url=url, api_key="none", max_retries=0, timeout=120)


def test_each_parameter_of_the_clients_has_a_row():
    rows = re.findall(r'^    \{"(\w+)"', request_fields.TABLE.read_text(encoding="utf-8"), re.MULTILINE)
    assert list(request_fields.table()) == rows, "the pattern finds each row"
    assert list(request_fields.complaints()) == []


@pytest.mark.parametrize("name, reports", [
    ("max_tokens", ["openai sends it to completion", "openai sends it to chat", "anthropic sends it to messages", "completion_request.cpp reads it",
                    "../api/anthropic/messages_request.cpp reads it"]),
    ("truncation", ["openai sends it to responses", "../api/responses/responses_request.cpp reads it"]),
    ("verbosity", ["openai sends it to chat"]),
    ("min_p", ["completion_request.cpp reads it"]),
])
def test_parameter_without_a_row_is_reported(monkeypatch, name, reports):
    rows = request_fields.table()
    rows.pop(name)
    monkeypatch.setattr(request_fields, "table", lambda: rows)
    assert list(request_fields.complaints()) == [f"{name}: {report}, and the table has no row" for report in reports]


def test_parameter_that_is_read_but_ignored_in_the_table_is_reported(monkeypatch):
    ignored = dict.fromkeys(request_fields.APIS, "ignored")
    rows = {**request_fields.table(), "min_p": ignored}
    monkeypatch.setattr(request_fields, "table", lambda: rows)
    assert list(request_fields.complaints()) == [f"min_p: completion_request.cpp reads it, and the table says {ignored}"]


def test_page_matches_the_table():
    assert request_fields.page() in (REPO / "docs/requests.md").read_text(encoding="utf-8"), request_fields.page()


def test_model_is_found_by_its_name(openai_client, anthropic_client):
    for client in (openai_client, anthropic_client):
        assert client.models.retrieve("org/smol v1").id == "org/smol v1"
        assert [model.id for model in client.models.list()] == ["smol", "org/smol v1"]
    assert anthropic_client.models.retrieve("org/smol v1").type == "model"
    for client, error in ((openai_client, openai.NotFoundError), (anthropic_client, anthropic.NotFoundError)):
        with pytest.raises(error) as caught:
            client.models.retrieve("org/other")
        assert "org/other" in str(caught.value)
    with pytest.raises(openai.NotFoundError) as caught:
        openai_client.models.retrieve("org/other")
    assert caught.value.code == "model_not_found"


def test_other_servers_names_of_structured_outputs_are_applied(openai_client, anthropic_client):
    for form in ({"grammar": 'root ::= "yes" | "no"'}, {"regex": "yes|no"}, {"guided_choice": ["yes", "no"]},
                 {"json_schema": {"enum": ["yes", "no"]}}, {"format": {"enum": ["yes", "no"]}}):
        chat = openai_client.chat.completions.create(model="org/smol v1", messages=MESSAGES, max_tokens=32, extra_body=form)
        response = openai_client.responses.create(model="org/smol v1", input="Say hello.", max_output_tokens=32, extra_body=form)
        message = anthropic_client.messages.create(model="org/smol v1", messages=MESSAGES, max_tokens=32, extra_body=form)
        for text in (chat.choices[0].message.content, response.output_text, message.content[0].text):
            assert (json.loads(text) if text.startswith('"') else text) in ("yes", "no"), (form, text)


def test_unsupported_fields_are_refused_by_name(openai_client, anthropic_client):
    for field, value in (("typical_p", 0.3), ("mirostat", 2), ("stop_regex", "a+"), ("schema", {"type": "object"})):
        with pytest.raises(openai.BadRequestError) as caught:
            openai_client.chat.completions.create(model="org/smol v1", messages=MESSAGES, max_tokens=2, extra_body={field: value})
        assert caught.value.param == field
        with pytest.raises(openai.BadRequestError) as caught:
            openai_client.responses.create(model="org/smol v1", input="hi", extra_body={field: value})
        assert caught.value.param == field
        with pytest.raises(anthropic.BadRequestError) as caught:
            anthropic_client.messages.create(model="org/smol v1", messages=MESSAGES, max_tokens=2, extra_body={field: value})
        assert field in str(caught.value)


def test_embeddings_report_unknown_fields_too(url):
    with running("--pooling", "mean") as base:
        client = openai.OpenAI(base_url=base + "/v1", api_key="none", max_retries=0, timeout=120)
        answer = client.embeddings.with_raw_response.create(model="smol", input="hi", user="me", extra_body={"xyzzy": 1})
        assert answer.headers["x-quire-ignored-fields"] == "user, xyzzy"
        with pytest.raises(openai.BadRequestError) as caught:
            client.embeddings.create(model="smol", input="hi", extra_body={"input_type": "query"})
        assert caught.value.param == "input_type"


def test_unknown_response_has_openais_code(openai_client):
    with pytest.raises(openai.APIStatusError) as caught:
        openai_client.responses.create(model="org/smol v1", input="hi", previous_response_id="resp_none")
    assert caught.value.code == "previous_response_not_found"


def test_unknown_route_names_the_known_routes(url, openai_client):
    with pytest.raises(openai.NotFoundError) as caught:
        openai.OpenAI(base_url=url, api_key="none", max_retries=0).chat.completions.create(model="m", messages=MESSAGES)
    assert "/v1/chat/completions" in caught.value.message
    with pytest.raises(openai.NotFoundError) as caught:
        openai_client.images.generate(prompt="a cat")
    assert "/v1/responses" in caught.value.message
