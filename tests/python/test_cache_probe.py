"""Tests `POST /v1/cache/probe`, `/v1/cache/warm` and "fail_if_not_cached" on a real model: the request finds the tokens that the probe
reports.
"""
import json
import random
import urllib.error
import urllib.request

import openai

from quire_server import running
from test_kv_disk import TINY, TOPICS, prompt

TIERS = ("--kv-dram", "24MiB", "--kv-policy", "exact")


def post(url, path, **body):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        return 200, json.load(urllib.request.urlopen(request, timeout=120))
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def lookups(url):
    memory = json.load(urllib.request.urlopen(url + "/v1/cache", timeout=30))["memory"]
    return memory["query_tokens"], memory["hit_tokens"]


def test_requests_find_what_the_probe_reports(tmp_path):
    choose = random.Random(5)
    disk = ("--kv-disk", str(tmp_path / "kv"), "--kv-disk-budget", "256MiB")
    with running(*TINY, *TIERS, *disk) as url:
        client = openai.OpenAI(base_url=url + "/v1", api_key="-", max_retries=0, timeout=120)
        told_by_tier = {}
        for _ in range(60):
            text = prompt(choose.choice(TOPICS))[: choose.randrange(100, 1000)]
            before = lookups(url)
            _, told = post(url, "/v1/cache/probe", prompt=text)
            assert lookups(url) == before, "a probe must not count as a query"
            done = client.completions.create(model="smol", prompt=text, max_tokens=1, temperature=0)
            assert told["prompt_tokens"] == done.usage.prompt_tokens
            assert told["cached_tokens"] == done.usage.prompt_tokens_details.cached_tokens, told
            assert told["cached_tokens"] == sum(part["tokens"] for part in told["found"])
            for part in told["found"]:
                told_by_tier[part["tier"]] = told_by_tier.get(part["tier"], 0) + part["tokens"]
        assert told["predicted"]["ttft_s"] > 0
        assert all(told_by_tier.get(tier, 0) > 0 for tier in ("memory", "dram", "disk")), told_by_tier


def test_warmed_prompt_is_cached(tmp_path):
    with running(*TINY) as url:
        client = openai.OpenAI(base_url=url + "/v1", api_key="-", max_retries=0, timeout=120)
        only_cached = {"model": "smol", "prompt": prompt("rivers"), "max_tokens": 4, "temperature": 0, "fail_if_not_cached": True}
        status, refused = post(url, "/v1/completions", **only_cached)
        assert status == 412 and refused["error"]["param"] == "fail_if_not_cached", refused
        status, warmed = post(url, "/v1/cache/warm", prompt=prompt("rivers"))
        assert status == 200 and warmed["cached_tokens"] == 0, warmed
        status, answer = post(url, "/v1/completions", **only_cached)
        assert status == 200, answer
        cold = client.completions.create(model="smol", prompt=prompt("rivers"), max_tokens=4, temperature=0,
                                         extra_body={"cache_salt": "elsewhere"})
        assert answer["choices"][0]["text"] == cold.choices[0].text, "the answer must not depend on which request computed the prompt"


def test_probe_does_not_report_another_tenants_blocks(monkeypatch):
    monkeypatch.setenv("QUIRE_TENANT_SECRET", "long and random")
    with running(*TINY, "--tenant-key", "us=our-key", "--tenant-key", "them=their-key") as url:
        def ask(path, key):
            request = urllib.request.Request(url + path, json.dumps({"prompt": prompt("bees")}).encode(),
                                             {"Content-Type": "application/json", "Authorization": "Bearer " + key})
            return json.load(urllib.request.urlopen(request, timeout=120))

        ask("/v1/cache/warm", "our-key")
        assert ask("/v1/cache/probe", "our-key")["cached_tokens"] > 0
        assert ask("/v1/cache/probe", "their-key")["cached_tokens"] == 0
