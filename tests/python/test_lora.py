"""Tests LoRA adapters of `quire serve` through common clients."""

import concurrent.futures
import json
import os
import pathlib
import random
import sys
import urllib.error
import urllib.request

import anthropic
import openai
import pytest

from quire_server import running, started
from test_kv_disk import wait_until_stored

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "bench"))
from lora import read_shape, write_adapter  # noqa: E402

PROMPT = (
    "The sea is everything. It covers seven tenths of the terrestrial globe. Its breath is pure and healthy. Tell me of ships, "
    "of harbours and lighthouses, of those who sailed around the world for the first time, and of what they brought home:"
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    model = os.environ.get("QUIRE_TEST_MODEL")
    if not model:
        pytest.skip("QUIRE_TEST_MODEL is not set: ./dev test sets it")
    folder = tmp_path_factory.mktemp("adapters")
    rng = random.Random(3)
    for name, rank in (("sea", 8), ("sky", 5)):
        write_adapter(folder / name, read_shape(model), rank, rng, 60.0)
    return folder


def serving(folders, *flags):
    return running("--enable-lora", "--max-loras", "2", "--lora-modules", f"sea={folders}/sea", f"sky={folders}/sky", *flags)


def client_of(url):
    return openai.OpenAI(base_url=url + "/v1", api_key="-", max_retries=0, timeout=120)


def complete(client, model, prompt=PROMPT, tokens=12):
    return client.completions.create(model=model, prompt=prompt, max_tokens=tokens, temperature=0).choices[0].text


def post(url, path, body):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_adapter_is_a_model_for_every_client(folders):
    with serving(folders) as url:
        client = client_of(url)
        models = {model.id: model for model in client.models.list()}
        assert set(models) == {"smol", "sea", "sky"}
        assert models["sea"].parent == "smol" and models["sea"].root == f"{folders}/sea"
        alone = {model: complete(client, model) for model in models}
        assert len(set(alone.values())) == 3, "each adapter must change the answer"
        chat = {
            model: client.chat.completions.create(model=model, messages=[{"role": "user", "content": PROMPT}], max_tokens=8, temperature=0)
            for model in models
        }
        assert all(answer.model == model for model, answer in chat.items())
        assert len({answer.choices[0].message.content for answer in chat.values()}) == 3
        message = anthropic.Anthropic(base_url=url, api_key="-", max_retries=0).messages.create(
            model="sea", max_tokens=8, extra_body={"temperature": 0}, messages=[{"role": "user", "content": PROMPT}]
        )
        assert message.content[0].text == chat["sea"].choices[0].message.content
        vectors = {model: client.embeddings.create(model=model, input=PROMPT).data[0].embedding for model in models}
        assert vectors["sea"] != vectors["sky"] != vectors["smol"]
        with pytest.raises(openai.NotFoundError, match="land"):
            complete(client, "land")
        # Concurrent requests with the same prompt get the same answers as alone.
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            asked = [model for model in models for _ in range(4)]
            assert list(pool.map(lambda model: complete(client, model), asked)) == [alone[model] for model in asked]


def test_adapters_load_and_unload_at_run_time(folders):
    with running("--enable-lora", "--allow-runtime-lora-updating") as url:
        client = client_of(url)
        base = complete(client, "smol")
        status, text = post(url, "/v1/load_lora_adapter", {"lora_name": "mine", "lora_path": f"{folders}/sea"})
        assert (status, text) == (200, "Success: LoRA adapter 'mine' added successfully.")
        sea = complete(client, "mine")
        assert sea != base
        assert post(url, "/v1/load_lora_adapter", {"lora_name": "mine", "lora_path": f"{folders}/sky"})[0] == 400
        assert post(url, "/v1/load_lora_adapter", {"lora_name": "mine", "lora_path": f"{folders}/sky", "load_inplace": True})[0] == 200
        assert complete(client, "mine") not in (base, sea), "blocks of the old weights must not hit"
        assert post(url, "/v1/load_lora_adapter", {"lora_name": "other", "lora_path": "/nowhere"})[0] == 404
        status, text = post(url, "/v1/unload_lora_adapter", {"lora_name": "mine"})
        assert (status, text) == (200, "Success: LoRA adapter 'mine' removed successfully.")
        with pytest.raises(openai.NotFoundError):
            complete(client, "mine")
        assert complete(client, "smol") == base


def test_loading_at_run_time_requires_the_flag(folders):
    with serving(folders) as url:
        status, text = post(url, "/v1/load_lora_adapter", {"lora_name": "mine", "lora_path": f"{folders}/sea"})
        assert status == 403 and "allow-runtime-lora-updating" in text


def cached_tokens(url, model):
    body = {"model": model, "prompt": PROMPT, "max_tokens": 4, "temperature": 0}
    status, text = post(url, "/v1/completions", body)
    assert status == 200, text
    answer = json.loads(text)
    return answer["choices"][0]["text"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_blocks_on_disk_after_a_kill_hit_for_the_same_weights_only(folders, tmp_path):
    flags = [
        "--enable-lora",
        "--lora-modules",
        f"sea={folders}/sea",
        "--kv-disk",
        str(tmp_path / "kv"),
        "--kv-disk-budget",
        "64MiB",
        "--kv-policy",
        "exact",
    ]
    with started(*flags) as (url, process):
        first = cached_tokens(url, "sea")
        assert first[1] == 0
        cached_tokens(url, "sea")
        client_of(url).completions.create(model="sea", prompt="Now something else, so that steps go on. " * 4, max_tokens=32)
        wait_until_stored(url, 4)
        process.kill()
        process.wait()
    # The adapter has another name: only the bytes of its weights count.
    with started(*[flag.replace("sea=", "renamed=") for flag in flags]) as (url, process):
        text, cached = cached_tokens(url, "renamed")
        assert text == first[0] and cached > 0
        assert cached_tokens(url, "smol")[1] == 0
