"""Tests /v1/responses with OpenAI's official client, on the real model."""
import json

import openai
import pydantic
import pytest

from quire_server import running

BLOCK_SIZE = 16
HELLO = "Name three rivers."
CLOCK = {"type": "function", "name": "get_time", "description": "The time in a zone.", "strict": True,
         "parameters": {"type": "object", "properties": {"zone": {"type": "string", "enum": ["UTC", "CET"]}}, "required": ["zone"],
                        "additionalProperties": False}}


class River(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=12)
    is_long: bool


@pytest.fixture(scope="module")
def client():
    with running("--num-blocks", "600", "--block-size", str(BLOCK_SIZE)) as url:
        yield openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=120)


def ask(client, **more):
    return client.responses.create(**{"model": "smol", "max_output_tokens": 24, "input": HELLO, "temperature": 0, **more})


def test_response_has_settings_and_usage(client):
    answer = ask(client, instructions="Answer in one line.", metadata={"k": "v"})
    assert answer.object == "response" and answer.output_text and answer.output[0].type == "message"
    assert answer.status in ("completed", "incomplete") and 0 < answer.usage.output_tokens <= 24
    assert answer.instructions == "Answer in one line." and answer.metadata == {"k": "v"} and answer.temperature == 0
    counted = client.responses.input_tokens.count(model="smol", input=HELLO, instructions="Answer in one line.")
    assert counted.input_tokens == answer.usage.input_tokens
    items = [{"role": "user", "content": [{"type": "input_text", "text": HELLO}]}]
    assert ask(client, input=items, instructions="Answer in one line.").output_text == answer.output_text


def test_stream_gives_the_same_response(client):
    whole = ask(client)
    with client.responses.stream(model="smol", input=HELLO, max_output_tokens=24, temperature=0) as stream:
        events = list(stream)
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == whole.output_text
    assert [event.sequence_number for event in events] == list(range(len(events)))
    final = events[-1].response
    assert events[-1].type == f"response.{whole.status}" and final.output_text == whole.output_text
    assert final.usage.output_tokens == whole.usage.output_tokens


# The next turn hits every full block of the last turn: the server stores the tokens, and the last sampled token was not computed.
@pytest.mark.parametrize("temperature", [0, 1])
def test_turns_hit_to_the_last_full_block(client, temperature):
    first = ask(client, input=f"Tell me of a river {temperature}. " * 8, max_output_tokens=60, temperature=temperature, extra_body={"seed": 7})
    second = ask(client, input="And another one.", previous_response_id=first.id)
    computed = first.usage.input_tokens + first.usage.output_tokens - 1
    assert second.usage.input_tokens_details.cached_tokens == computed // BLOCK_SIZE * BLOCK_SIZE
    assert second.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens
    assert second.previous_response_id == first.id
    by_hand = ask(client, input=[{"role": "user", "content": f"Tell me of a river {temperature}. " * 8}, *first.output,
                                 {"role": "user", "content": "And another one."}])
    if temperature == 0:
        assert by_hand.output_text == second.output_text


def test_stored_responses_can_be_used_and_deleted(client):
    answer = ask(client)
    assert client.responses.retrieve(answer.id).output_text == answer.output_text
    assert [item.content[0].text for item in client.responses.input_items.list(answer.id)] == [HELLO]
    named = ask(client, input=[{"role": "user", "content": HELLO}, {"type": "item_reference", "id": answer.output[0].id},
                               {"role": "user", "content": "More."}])
    assert named.output_text == ask(client, input="More.", previous_response_id=answer.id).output_text
    client.responses.delete(answer.id)
    for gone in (lambda: client.responses.retrieve(answer.id), lambda: client.responses.delete(answer.id),
                 lambda: ask(client, previous_response_id=answer.id)):
        with pytest.raises(openai.NotFoundError):
            gone()
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(ask(client, store=False).id)


@pytest.mark.parametrize("stream", [False, True])
def test_tool_is_called_and_its_result_is_accepted(client, stream):
    wanted = {"model": "smol", "max_output_tokens": 100, "input": "What time is it in UTC?", "tools": [CLOCK], "temperature": 0,
              "tool_choice": {"type": "function", "name": "get_time"}}
    if stream:
        with client.responses.stream(**wanted) as events:
            answer = events.get_final_response()
    else:
        answer = client.responses.create(**wanted)
    call = answer.output[-1]
    assert call.type == "function_call" and call.name == "get_time" and json.loads(call.arguments)["zone"] in ("UTC", "CET")
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "12:00"}
    reply = ask(client, input=[result], previous_response_id=answer.id, tools=[CLOCK], tool_choice="none")
    assert reply.output[0].type == "message"
    again = ask(client, input=[{"role": "user", "content": wanted["input"]}, *answer.output, result], tools=[CLOCK], tool_choice="none")
    assert again.output_text == reply.output_text


def test_answers_are_parsed(client):
    answer = client.responses.parse(model="smol", input="The Nile.", text_format=River, max_output_tokens=200, temperature=0)
    assert isinstance(answer.output_parsed, River)
    with client.responses.stream(model="smol", input="The Nile.", text_format=River, max_output_tokens=200, temperature=0) as stream:
        assert stream.get_final_response().output_parsed == answer.output_parsed


def test_log_probabilities_match_the_text(client):
    answer = ask(client, include=["message.output_text.logprobs"], top_logprobs=2, max_output_tokens=5)
    told = answer.output[0].content[0].logprobs
    assert len(told) == 5 and all(len(token.top_logprobs) == 2 and token.logprob == token.top_logprobs[0].logprob for token in told)
    assert "".join(token.token for token in told) == answer.output_text


def test_errors_name_the_field(client):
    for more, field in (({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}]}, "input[0].content[0].type"),
                        ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice"), ({"background": True}, "background"),
                        ({"input": [{"type": "function_call_output", "call_id": "gone", "output": "x"}]}, "input"),
                        ({"max_output_tokens": 10**8}, "max_output_tokens"),
                        ({"text": {"format": {"type": "json_schema", "name": "n", "strict": True, "schema": {"type": "nonsense"}}}}, "text.format")):
        with pytest.raises(openai.BadRequestError) as caught:
            ask(client, **more)
        assert caught.value.param.startswith(field), (more, caught.value.param)
