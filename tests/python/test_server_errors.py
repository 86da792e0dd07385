"""Tests how the official openai client reports the server's errors."""
import openai
import pytest

from quire_server import running

MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def url():
    with running("--api-key", "secret", "--max-model-len", "256", "--max-body-bytes", "65536") as base:
        yield base


@pytest.fixture(scope="module")
def client(url):
    return openai.OpenAI(base_url=url + "/v1", api_key="secret", max_retries=0, timeout=120)


@pytest.mark.parametrize("field, value", [("temperature", 3), ("temperature", "hot"), ("top_p", 0), ("n", 0), ("max_tokens", -1), ("stop", [1]),
                                          ("logit_bias", {"x": 1}), ("response_format", "xml"), ("temprature", 1)])
def test_wrong_field_is_named(client, field, value):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="smol", messages=MESSAGES, extra_body={field: value})
    assert caught.value.param == field and field in caught.value.message
    assert caught.value.type == "invalid_request_error"


def test_unknown_fields_are_reported_as_ignored(client):
    answer = client.chat.completions.with_raw_response.create(model="smol", messages=MESSAGES, max_tokens=1, user="me", extra_body={"banana": 1})
    assert answer.headers["x-quire-ignored-fields"] == "user, banana"


def test_wrong_key_raises_an_authentication_error(url):
    with pytest.raises(openai.AuthenticationError) as caught:
        openai.OpenAI(base_url=url + "/v1", api_key="wrong", max_retries=0).models.list()
    assert caught.value.code == "invalid_api_key"


def test_unknown_model_raises_not_found(client):
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-4o", messages=MESSAGES)
    assert caught.value.code == "model_not_found" and "smol" in caught.value.message


def test_prompt_longer_than_the_context_is_refused(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="smol", messages=[{"role": "user", "content": "word " * 400}])
    assert caught.value.param == "messages" and "256" in caught.value.message


def test_body_over_the_limit_is_refused(client):
    with pytest.raises(openai.APIStatusError) as caught:
        client.chat.completions.create(model="smol", messages=[{"role": "user", "content": "x" * 100_000}])
    assert caught.value.status_code == 413


def test_image_is_refused_by_a_text_model(client):
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="smol", messages=image)
    assert caught.value.param == "messages[0].content[0]"


def test_server_still_answers_after_errors(client):
    assert client.chat.completions.create(model="smol", messages=MESSAGES, max_tokens=2).choices
