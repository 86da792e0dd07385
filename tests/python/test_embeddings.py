"""Tests embeddings with the official openai client, and reranking over plain HTTP."""
import math
import struct
import base64

import openai
import pytest
import requests

from quire_server import running

TEXTS = ["Rivers flow to the sea.", "Streams run into the ocean.", "The stock market fell on Friday."]


@pytest.fixture(scope="module")
def url():
    with running("--pooling", "mean", "--matryoshka") as base:
        yield base


@pytest.fixture(scope="module")
def client(url):
    return openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=120)


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def test_list_of_texts_gives_normalized_vectors(client):
    answer = client.embeddings.create(model="smol", input=TEXTS)
    assert [item.index for item in answer.data] == [0, 1, 2] and answer.usage.total_tokens == answer.usage.prompt_tokens > 12
    vectors = [item.embedding for item in answer.data]
    assert all(abs(sum(x * x for x in vector) - 1) < 1e-5 for vector in vectors)
    assert cosine(vectors[0], vectors[1]) > cosine(vectors[0], vectors[2])


def test_embedding_has_the_same_bits_in_base64_and_in_a_batch(client, url):
    alone = client.embeddings.create(model="smol", input=TEXTS[1], encoding_format="float").data[0].embedding
    among = client.embeddings.create(model="smol", input=TEXTS * 5, encoding_format="float").data[4].embedding
    assert alone == among
    raw = requests.post(url + "/v1/embeddings", json={"input": TEXTS[1], "encoding_format": "base64"}, timeout=60).json()
    packed = base64.b64decode(raw["data"][0]["embedding"])
    assert packed == struct.pack(f"<{len(alone)}f", *alone)


def test_dimensions_shorten_and_normalize(client):
    whole = client.embeddings.create(model="smol", input=TEXTS[0]).data[0].embedding
    short = client.embeddings.create(model="smol", input=TEXTS[0], dimensions=64).data[0].embedding
    assert len(short) == 64 and abs(sum(x * x for x in short) - 1) < 1e-5
    assert cosine(short, whole[:64]) > 0.999999


def test_token_ids_give_the_embedding_of_the_text(client, url):
    tokens = requests.post(url + "/tokenize", json={"prompt": TEXTS[0]}, timeout=60).json()["tokens"]
    answer = client.embeddings.create(model="smol", input=[tokens])
    assert answer.data[0].embedding == client.embeddings.create(model="smol", input=TEXTS[0]).data[0].embedding


def test_errors_name_the_field(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.embeddings.create(model="smol", input=[])
    assert caught.value.param == "input"
    with pytest.raises(openai.BadRequestError) as caught:
        client.embeddings.create(model="smol", input="word " * 20000)
    assert caught.value.param == "input"


def test_rerank_and_score_order_by_similarity(url):
    answer = requests.post(url + "/v1/rerank", json={"model": "smol", "query": TEXTS[0], "documents": TEXTS[1:] + TEXTS[:1]}, timeout=60).json()
    assert [result["index"] for result in answer["results"]][0] == 2
    assert answer["results"][0]["document"] == {"text": TEXTS[0]} and abs(answer["results"][0]["relevance_score"] - 1) < 1e-9
    scores = requests.post(url + "/v1/score", json={"text_1": TEXTS[0], "text_2": TEXTS}, timeout=60).json()["data"]
    assert scores[0]["score"] > scores[1]["score"] > scores[2]["score"]
