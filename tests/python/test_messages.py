"""Tests Anthropic's /v1/messages with its official client, on the real model."""
import anthropic
import pytest

from quire_server import running

GREEDY = {"temperature": 0}  # this version of the client has no such argument
HELLO = [{"role": "user", "content": "Name three rivers."}]
CLOCK = {"name": "get_time", "description": "The time in a zone.",
         "input_schema": {"type": "object", "properties": {"zone": {"type": "string", "enum": ["UTC", "CET"]}}, "required": ["zone"],
                          "additionalProperties": False}}


@pytest.fixture(scope="module")
def client():
    with running("--num-blocks", "400", "--api-key", "secret") as url:
        yield anthropic.Anthropic(base_url=url, api_key="secret", max_retries=0, timeout=120)


def ask(client, **more):
    return client.messages.create(**{"model": "smol", "max_tokens": 24, "messages": HELLO, "extra_body": GREEDY, **more})


def test_message_has_usage_and_caches(client):
    answer = ask(client, system="Answer in one line.")
    assert answer.type == "message" and answer.role == "assistant" and answer.content[0].type == "text" and answer.content[0].text
    assert answer.stop_reason in ("end_turn", "max_tokens") and 0 < answer.usage.output_tokens <= 24
    counted = client.messages.count_tokens(model="smol", system="Answer in one line.", messages=HELLO)
    assert counted.input_tokens == answer.usage.input_tokens + answer.usage.cache_read_input_tokens
    again = ask(client, system=[{"type": "text", "text": "Answer in one line.", "cache_control": {"type": "ephemeral"}}])
    assert again.content[0].text == answer.content[0].text and again.usage.cache_read_input_tokens > 0


def test_stream_gives_the_same_message(client):
    whole = ask(client)
    with client.messages.stream(model="smol", max_tokens=24, messages=HELLO, extra_body=GREEDY) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text == final.content[0].text
    assert final.stop_reason == whole.stop_reason and final.usage.output_tokens == whole.usage.output_tokens


def test_stop_sequence_ends_the_message(client):
    text = ask(client).content[0].text
    answer = ask(client, stop_sequences=[text[4:7]])
    assert answer.stop_reason == "stop_sequence" and answer.stop_sequence == text[4:7] and answer.content[0].text == text[:text.index(text[4:7])]


@pytest.mark.parametrize("stream", [False, True])
def test_tool_is_called_and_its_result_is_accepted(client, stream):
    messages = [{"role": "user", "content": "What time is it in UTC?"}]
    wanted = {"model": "smol", "max_tokens": 100, "messages": messages, "tools": [CLOCK], "tool_choice": {"type": "tool", "name": "get_time"},
              "extra_body": GREEDY}
    if stream:
        with client.messages.stream(**wanted) as events:
            answer = events.get_final_message()
    else:
        answer = client.messages.create(**wanted)
    call = answer.content[-1]
    assert answer.stop_reason == "tool_use" and call.type == "tool_use" and call.name == "get_time" and call.input["zone"] in ("UTC", "CET")
    messages += [{"role": "assistant", "content": answer.content},
                 {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "12:00"}]}]
    reply = client.messages.create(model="smol", max_tokens=16, messages=messages, tools=[CLOCK], tool_choice={"type": "none"}, extra_body=GREEDY)
    assert reply.content[0].type == "text"


def test_errors_have_the_clients_types(client):
    with pytest.raises(anthropic.NotFoundError):
        ask(client, model="other")
    with pytest.raises(anthropic.BadRequestError) as caught:
        ask(client, messages=[{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}]}])
    assert "messages[0].content[0]" in caught.value.message
    with pytest.raises(anthropic.AuthenticationError):
        anthropic.Anthropic(base_url=client.base_url, api_key="wrong", max_retries=0).messages.create(model="smol", max_tokens=1, messages=HELLO)
