"""Tests the official openai client against a running server."""
import math

import openai
import pytest

from quire_server import running

QUESTION = [{"role": "user", "content": "Name three rivers in Europe, please."}]


@pytest.fixture(scope="module", params=["--async-scheduling", "--no-async-scheduling"])
def client(request):
    with running(request.param) as url:
        yield openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=120)


def test_models_are_listed(client):
    models = client.models.list().data
    assert [model.id for model in models] == ["smol"]


def test_chat_ends_at_max_completion_tokens(client):
    answer = client.chat.completions.create(model="smol", messages=QUESTION, max_completion_tokens=12, temperature=0)
    choice = answer.choices[0]
    assert answer.object == "chat.completion" and choice.message.role == "assistant" and choice.message.content
    assert choice.finish_reason == "length" and answer.usage.completion_tokens == 12
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 12


def test_chat_accepts_system_messages_and_text_parts(client):
    messages = [{"role": "system", "content": "Answer briefly."}, {"role": "user", "content": [{"type": "text", "text": "Hello."}]},
                {"role": "assistant", "content": "Hello!"}, {"role": "user", "content": "Say yes."}]
    answer = client.chat.completions.create(model="smol", messages=messages, max_tokens=200, temperature=0)
    assert answer.choices[0].finish_reason == "stop"
    assert "<|im_end|>" not in answer.choices[0].message.content


def test_text_and_token_ids_give_the_same_completion(client):
    text = client.completions.create(model="smol", prompt="The capital of France is", max_tokens=4, temperature=0)
    tokens = client.post("http://" + client.base_url.netloc.decode() + "/tokenize", body={"prompt": "The capital of France is"}, cast_to=object)
    same = client.completions.create(model="smol", prompt=tokens["tokens"], max_tokens=4, temperature=0)
    assert text.choices[0].text == same.choices[0].text
    assert "Paris" in text.choices[0].text


def test_several_prompts_give_the_answers_of_each(client):
    answer = client.completions.create(model="smol", prompt=["One, two,", "A, B,"], max_tokens=3, temperature=0)
    assert [choice.index for choice in answer.choices] == [0, 1]
    alone = client.completions.create(model="smol", prompt="A, B,", max_tokens=3, temperature=0)
    assert answer.choices[1].text == alone.choices[0].text


def test_stream_gives_the_same_chat_as_a_whole_answer(client):
    options = dict(model="smol", messages=QUESTION, max_tokens=24, temperature=0)
    whole = client.chat.completions.create(**options)
    chunks = list(client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 24
    assert chunks[-2].choices[0].finish_reason == "length"


def test_stream_gives_the_same_completion(client):
    options = dict(model="smol", prompt="Once upon a time", max_tokens=16, temperature=0)
    whole = client.completions.create(**options).choices[0].text
    assert "".join(chunk.choices[0].text for chunk in client.completions.create(**options, stream=True)) == whole


def test_abandoned_stream_does_not_affect_others(client):
    with client.chat.completions.create(model="smol", messages=QUESTION, max_tokens=2000, stream=True,
                                        extra_body={"ignore_eos": True}) as stream:
        next(iter(stream))
    assert client.chat.completions.create(model="smol", messages=QUESTION, max_tokens=2).choices


def test_chat_logprobs_are_sorted_and_sum_to_at_most_one(client):
    answer = client.chat.completions.create(model="smol", messages=QUESTION, max_tokens=5, temperature=0, logprobs=True, top_logprobs=3)
    content = answer.choices[0].logprobs.content
    assert len(content) == 5
    for entry in content:
        assert entry.logprob <= 0 and len(entry.top_logprobs) == 3
        assert entry.top_logprobs[0].token == entry.token, "greedy sampling takes the likeliest token"
        assert sum(math.exp(top.logprob) for top in entry.top_logprobs) <= 1.0001
    assert b"".join(bytes(entry.bytes) for entry in content).decode() == answer.choices[0].message.content


def test_prompt_logprobs_equal_the_sampled_ones(client):
    options = dict(model="smol", temperature=0, logprobs=2)
    drawn = client.completions.create(prompt="One, two,", max_tokens=4, **options).choices[0]
    whole = client.completions.create(
        prompt="One, two," + drawn.text, max_tokens=0, echo=True, extra_body={"prompt_logprobs": 1}, **options
    ).choices[0]
    assert whole.text == "One, two," + drawn.text and whole.logprobs.token_logprobs[0] is None
    assert whole.logprobs.token_logprobs[-4:] == drawn.logprobs.token_logprobs, "the bits must equal those at sampling"
    told = whole.model_extra["prompt_logprobs"]
    assert told[0] is None and len(told) == len(whole.logprobs.tokens)
    for entry, value in zip(told[1:], whole.logprobs.token_logprobs[1:]):
        own = next(iter(entry.values()))
        assert own["logprob"] == value and own["rank"] >= 1 and len(entry) == (1 if own["rank"] == 1 else 2)


def test_completion_logprobs_match_the_text(client):
    answer = client.completions.create(model="smol", prompt="One, two,", max_tokens=4, temperature=0, logprobs=2)
    logprobs = answer.choices[0].logprobs
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.top_logprobs) == len(logprobs.text_offset) == 4
    assert "".join(logprobs.tokens) == answer.choices[0].text
    assert all(max(top.values()) == value for top, value in zip(logprobs.top_logprobs, logprobs.token_logprobs))


def test_stop_strings_end_the_answer(client):
    options = dict(model="smol", prompt="One, two, three, four,", max_tokens=30, temperature=0)
    whole = client.completions.create(**options).choices[0].text
    stop = whole[5:9]
    answer = client.completions.create(**options, stop=[stop, "never said"]).choices[0]
    assert answer.finish_reason == "stop" and answer.text == whole[:whole.index(stop)]
    streamed = client.completions.create(**options, stop=stop, stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed) == answer.text


def test_n_gives_different_choices(client):
    answer = client.chat.completions.create(model="smol", messages=QUESTION, max_tokens=16, temperature=1.5, seed=3, n=2)
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert answer.choices[0].message.content != answer.choices[1].message.content
    assert answer.usage.completion_tokens <= 32


def test_best_of_returns_the_likeliest_choices(client):
    options = dict(model="smol", prompt="My favourite colour is", max_tokens=8, temperature=1, seed=5, logprobs=0)
    drawn = client.completions.create(**options, n=6).choices
    best = client.completions.create(**options, n=2, best_of=6).choices
    drawn.sort(key=lambda choice: -sum(choice.logprobs.token_logprobs) / len(choice.logprobs.token_logprobs))
    assert [choice.text for choice in best] == [choice.text for choice in drawn[:2]]


def test_beam_search_returns_sorted_beams(client):
    options = dict(model="smol", prompt="My favourite colour is", max_tokens=8, logprobs=0, temperature=0)
    found = client.completions.create(**options, n=4, extra_body={"use_beam_search": True, "ignore_eos": True}).choices
    likelihoods = [sum(choice.logprobs.token_logprobs) for choice in found]
    assert likelihoods == sorted(likelihoods, reverse=True) and len({choice.text for choice in found}) == 4
    greedy = client.completions.create(**options, extra_body={"ignore_eos": True}).choices[0]
    narrow = client.completions.create(**options, extra_body={"use_beam_search": True, "ignore_eos": True}).choices[0]
    assert narrow.text == greedy.text and narrow.logprobs.token_logprobs == greedy.logprobs.token_logprobs
    assert likelihoods[0] >= sum(greedy.logprobs.token_logprobs)
    chat = client.chat.completions.create(model="smol", messages=QUESTION, max_tokens=200, n=3, extra_body={"use_beam_search": True})
    assert [choice.index for choice in chat.choices] == [0, 1, 2] and chat.choices[0].message.content
    for field, more in [("stream", {"stream": True}), ("n", {"n": 11}), ("stop", {"stop": "x"}), ("min_tokens", {"min_tokens": 2})]:
        with pytest.raises(openai.BadRequestError) as refused:
            client.completions.create(**options, extra_body={"use_beam_search": True} | more)
        assert refused.value.param == field


def test_fork_continues_a_running_answer(client):
    options = dict(model="smol", prompt="Once upon a time", max_tokens=150, temperature=0, extra_body={"ignore_eos": True})
    whole = client.completions.create(**options).choices[0].text
    with client.completions.create(**options, stream=True) as stream:
        parent = next(iter(stream))
        answer = client.post(f"/requests/{parent.id}/fork", body={"n": 2}, cast_to=object)
    assert [choice["text"] for choice in answer["choices"]] == [whole, whole]
    usage = answer["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == usage["prompt_tokens"], "a fork must not compute tokens again"
    with pytest.raises(openai.NotFoundError):
        client.post(f"/requests/{answer['id']}/fork", body={}, cast_to=object)


def test_seed_makes_an_answer_reproducible(client):
    def sample(seed):
        return client.completions.create(model="smol", prompt="Once", max_tokens=16, temperature=1.2, seed=seed).choices[0].text
    assert sample(1) == sample(1)
    assert sample(1) != sample(2)


def test_second_identical_call_hits_the_prompt(client):
    messages = [{"role": "user", "content": "This very long question is asked twice, word by word, " * 4}]
    first = client.chat.completions.create(model="smol", messages=messages, max_tokens=4, temperature=0)
    second = client.chat.completions.create(model="smol", messages=messages, max_tokens=4, temperature=0)
    # The system message of the template may already be cached; the question is not.
    assert first.usage.prompt_tokens_details.cached_tokens < 48
    cached = second.usage.prompt_tokens_details.cached_tokens
    assert cached >= second.usage.prompt_tokens - 17 and cached % 16 == 0
    assert first.choices[0].message.content == second.choices[0].message.content


def test_salts_separate_cached_blocks(client):
    prompt = "Salt keeps the cached blocks of two tenants apart, whatever they send. " * 3
    def cached(salt):
        answer = client.completions.create(model="smol", prompt=prompt, max_tokens=1, extra_body={"cache_salt": salt})
        return answer.usage.prompt_tokens_details.cached_tokens
    assert cached("a") == 0
    assert cached("a") > 0
    assert cached("b") == 0
