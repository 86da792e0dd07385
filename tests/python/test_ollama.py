"""Tests Ollama's API on the real model: it answers as OpenAI's API does, and a stream has the same parts as the whole answer."""
import datetime
import json
import urllib.error
import urllib.request

import pytest

from quire_server import running

HELLO = [{"role": "user", "content": "Name three rivers."}]
GREEDY = {"temperature": 0, "num_predict": 24}
CITY = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "rivers": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["name", "rivers"]}


@pytest.fixture(scope="module")
def url():
    with running("--max-model-len", "1024") as base:
        yield base


def post(url, path, body):
    """Returns the status, the headers and the text of the answer."""
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


def whole(url, path, **body):
    status, _, text = post(url, path, {"model": "smol", "stream": False, "options": GREEDY, **body})
    assert status == 200, text
    return json.loads(text)


def lines(url, path, **body):
    status, headers, text = post(url, path, {"model": "smol", "options": GREEDY, **body})
    assert status == 200 and headers["Content-Type"] == "application/x-ndjson", text
    return [json.loads(line) for line in text.splitlines()]


def test_chat_answers_as_openais_api_does(url):
    answer = whole(url, "/api/chat", messages=HELLO)
    _, _, text = post(url, "/v1/chat/completions", {"messages": HELLO, "temperature": 0, "max_tokens": 24})
    expected = json.loads(text)
    assert answer["message"] == {"role": "assistant", "content": expected["choices"][0]["message"]["content"]}
    assert answer["done_reason"] == expected["choices"][0]["finish_reason"] == "length"
    assert (answer["prompt_eval_count"], answer["eval_count"]) == (expected["usage"]["prompt_tokens"], 24)


def test_durations_add_up(url):
    answer = whole(url, "/api/chat", messages=HELLO)
    parts = [answer[name + "_duration"] for name in ("load", "prompt_eval", "eval")]
    assert min(parts) > 0 and sum(parts) == answer["total_duration"] < 60e9, answer
    created = datetime.datetime.fromisoformat(answer["created_at"].replace("Z", "+00:00"))
    assert abs((datetime.datetime.now(datetime.timezone.utc) - created).total_seconds()) < 60


def test_stream_has_the_text_of_the_whole_answer(url):
    parts = lines(url, "/api/chat", messages=HELLO)
    assert "".join(part["message"]["content"] for part in parts) == whole(url, "/api/chat", messages=HELLO)["message"]["content"]
    assert [part["done"] for part in parts] == [False] * (len(parts) - 1) + [True] and parts[-1]["eval_count"] == 24


def test_generate_renders_a_prompt_unless_it_is_raw(url):
    assert whole(url, "/api/generate", prompt=HELLO[0]["content"])["response"] == whole(url, "/api/chat", messages=HELLO)["message"]["content"]
    raw = whole(url, "/api/generate", prompt="The capital of France is", raw=True)
    _, _, text = post(url, "/v1/completions", {"prompt": "The capital of France is", "temperature": 0, "max_tokens": 24})
    assert raw["response"] == json.loads(text)["choices"][0]["text"]
    assert "".join(part["response"] for part in lines(url, "/api/generate", prompt="The capital of France is", raw=True)) == raw["response"]


@pytest.mark.needs_llguidance
def test_format_makes_valid_json(url):
    text = whole(url, "/api/chat", messages=HELLO, format=CITY, options={"temperature": 0})["message"]["content"]
    assert set(json.loads(text)) == {"name", "rivers"}
    streamed = "".join(part["response"] for part in lines(url, "/api/generate", prompt="A city as JSON", format=CITY, options={"temperature": 0}))
    assert set(json.loads(streamed)) == {"name", "rivers"}


def test_logprobs_cover_each_token(url):
    for path, prompt in (("/api/chat", {"messages": HELLO}), ("/api/generate", {"prompt": "The capital", "raw": True})):
        answer = whole(url, path, **prompt, logprobs=True, top_logprobs=2)
        assert len(answer["logprobs"]) == answer["eval_count"]
        assert all(len(token["top_logprobs"]) == 2 and token["logprob"] <= 0 for token in answer["logprobs"])
        streamed = [token for part in lines(url, path, **prompt, logprobs=True, top_logprobs=2) for token in part.get("logprobs", [])]
        assert [token["token"] for token in streamed] == [token["token"] for token in answer["logprobs"]]


def test_embed_returns_the_vectors_of_openais_route(url):
    answer = whole(url, "/api/embed", input=["one", "two"], options={})
    _, _, text = post(url, "/v1/embeddings", {"input": ["one", "two"]})
    assert answer["embeddings"] == [item["embedding"] for item in json.loads(text)["data"]]
    long = whole(url, "/api/embed", input="word " * 3000, options={})
    assert long["prompt_eval_count"] == 1023, "a text that does not fit is shortened"
    _, _, text = post(url, "/api/embeddings", {"model": "smol", "prompt": "one"})
    assert len(json.loads(text)["embedding"]) == len(answer["embeddings"][0])


def test_prompt_that_does_not_fit_is_refused(url):
    status, headers, text = post(url, "/api/chat", {"model": "smol", "messages": [{"role": "user", "content": "word " * 2000}], "truncate": True})
    assert status == 400 and "maximum context length is 1024 tokens" in json.loads(text)["error"]
    status, _, text = post(url, "/api/chat", {"model": "smol", "messages": HELLO, "options": {"num_ctx": 2048}})
    assert status == 400 and json.loads(text)["error"].startswith("options.num_ctx: is 2048, but the context has 1024 tokens")
    _, headers, _ = post(url, "/api/chat", {"model": "smol", "messages": HELLO, "stream": False, "options": {**GREEDY, "num_ctx": 512}})
    assert headers["X-Quire-Ignored-Fields"] == "options.num_ctx"


def test_model_that_does_not_think_refuses_to(url):
    status, _, text = post(url, "/api/chat", {"model": "smol", "messages": HELLO, "think": True})
    assert status == 400 and '"smol" does not support thinking' in json.loads(text)["error"]
