"""GET /v1/requests/{id}/explain on a real model: each wait, miss and preemption of a crowded server has a cause, and the sums are the server's
own counts."""
import concurrent.futures
import json
import os
import re
import subprocess
import urllib.error
import urllib.request

import anthropic
import openai
import pytest

from quire_server import running
from test_kv_disk import TOPICS, prompt

# 47 blocks of 16 tokens: who runs must give way, and what was cached is lost.
CROWDED = ("--num-blocks", "48", "--max-model-len", "512", "--max-num-seqs", "4", "--max-num-batched-tokens", "256")


def explain(url, request):
    try:
        return json.load(urllib.request.urlopen(f"{url}/v1/requests/{request}/explain", timeout=30))["requests"]
    except urllib.error.HTTPError as refused:
        return refused.code


def counted(url, name):
    text = urllib.request.urlopen(url + "/metrics", timeout=30).read().decode()
    return sum(float(value) for value in re.findall(rf"^{name}\{{[^}}]*\}} (\S+)$", text, re.MULTILINE))


def ask(url, text, max_tokens=8, temperature=0, **more):
    client = openai.OpenAI(base_url=url + "/v1", api_key="-", max_retries=0, timeout=120)
    return client.completions.create(model="smol", prompt=text, max_tokens=max_tokens, temperature=temperature, **more)


@pytest.mark.parametrize("flags", [(), ("--kv-dram", "64MiB"), ("--no-async-scheduling",)], ids=["async", "dram", "sync"])
def test_sums_by_cause_are_the_counts(flags):
    with running(*CROWDED, *flags) as url:
        def one(number):
            return ask(url, prompt(TOPICS[number % len(TOPICS)]) + str(number // 16), max_tokens=150 if number % 3 == 0 else 8)

        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            answers = list(pool.map(one, range(48)))
        missed, hits, causes, waits, num_preemptions = 0, 0, set(), set(), 0
        for answer in answers:
            [facts] = explain(url, answer.id)
            told = facts["prompt"]
            assert told["tokens"] == answer.usage.prompt_tokens
            assert told["cached"] + told["from_tiers"] == answer.usage.prompt_tokens_details.cached_tokens
            assert told["cached"] + told["from_tiers"] + told["missed"] == told["tokens"]
            assert sum(told["missed_by_cause"].values()) == told["missed"]
            assert facts["waited_s"] == pytest.approx(sum(wait["seconds"] for wait in facts["waits"]), abs=1e-5)
            assert facts["state"] == "ended" and facts["summary"].startswith("waited")
            missed, hits = missed + told["missed"], hits + told["cached"] + told["from_tiers"]
            causes |= set(told["missed_by_cause"])
            waits |= {wait["cause"] for wait in facts["waits"]}
            num_preemptions += facts["num_preemptions"]
        assert counted(url, "quire:prompt_tokens_missed_total") == missed
        assert counted(url, "vllm:prompt_tokens_total") == missed + hits
        assert counted(url, "quire:preemptions_by_cause_total") == counted(url, "vllm:num_preemptions_total") == num_preemptions
        assert "partial_block" in causes and {"next_step", "lack_of_blocks"} <= waits, (causes, waits)
        if "--kv-dram" in flags:
            assert "loading" in waits, waits
        else:
            assert "evicted" in causes, causes
        assert num_preemptions > 0, "too much room"


def test_a_prompt_that_goes_on_otherwise_is_told_where():
    with running("--num-blocks", "64", "--max-model-len", "512") as url:
        ask(url, prompt("rivers"))
        other = ask(url, prompt("rivers").replace("examples", "pictures", 6).replace("pictures", "examples", 5))
        [facts] = explain(url, other.id)
        [fact] = [miss for miss in facts["misses"] if miss["cause"] == "diverged"]
        assert "pictures" in fact["own"] and "examples" in fact["stored"] and fact["before"].endswith("many"), fact
        assert explain(url, "cmpl-unknown") == 404
        said = subprocess.run([os.environ["QUIRE_BINARY"], "explain", other.id, "--port", url.rsplit(":", 1)[1]],
                              capture_output=True, text=True, timeout=60, check=True).stdout  # fmt: skip
        assert f"from token {fact['differs_at']} on" in said and "ended: waited" in said, said


@pytest.mark.parametrize("id, remedy", [("cmpl-x", "start quire serve"), ("../health", "is no id")])
def test_the_command_says_what_is_wrong(id, remedy):
    done = subprocess.run([os.environ["QUIRE_BINARY"], "explain", id, "--port", "1"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and remedy in done.stderr, done.stderr


def test_each_choice_and_fork_is_explained_under_its_answer():
    with running("--num-blocks", "64", "--max-model-len", "512") as url:
        answer = ask(url, prompt("rivers"), n=3, temperature=1)
        facts = explain(url, answer.id)
        assert len(facts) == 3
        assert sorted(one["prompt"]["shared"] > 0 for one in facts) == [False, True, True]


def test_it_can_be_turned_off():
    with running("--num-blocks", "64", "--max-model-len", "512", "--explained-requests", "0") as url:
        assert explain(url, ask(url, "Hello").id) == 400
        assert counted(url, "quire:prompt_tokens_missed_total") == 0


def test_hosted_clients_are_told_what_changed():
    """Anthropic's own client reads its cache diagnostics, and OpenAI's its prompt-cache diagnostics, of a real model's answers."""
    system = "You keep the records of a small town, and answer briefly. " * 8
    with running("--max-model-len", "2048") as url:
        claude = anthropic.Anthropic(base_url=url, api_key="-", max_retries=0)

        def message(previous, system=system, words="Who keeps the mill?"):
            return claude.messages.create(model="smol", max_tokens=4, system=system, messages=[{"role": "user", "content": words}],
                                          extra_body={"diagnostics": {"previous_message_id": previous}})

        first = message(None)
        assert first.diagnostics is None
        again = message(first.id)
        assert again.diagnostics is None and again.usage.cache_read_input_tokens > 100
        changed = message(first.id, system="Today is Monday. " + system).diagnostics.cache_miss_reason
        assert changed.type == "system_changed" and changed.cache_missed_input_tokens > 100
        assert message("msg_gone").diagnostics.cache_miss_reason.type == "previous_message_not_found"

        gpt = openai.OpenAI(base_url=url + "/v1", api_key="-", max_retries=0)

        def response(instructions=system, **more):
            return gpt.responses.create(model="smol", instructions=instructions, input="Who keeps the mill?", max_output_tokens=16, **more)

        base = response()
        compare = {"extra_body": {"prompt_cache_options": {"comparison_response_id": base.id}}}
        assert response(**compare).to_dict()["prompt_cache_diagnostics"] == {"type": "cache_hit"}
        missed = response("Today is Monday. " + system, **compare).to_dict()["prompt_cache_diagnostics"]
        assert missed["type"] == "cache_miss" and missed["reason"] == "input_changed" and missed["cache_missed_tokens"] > 100
        # Nothing has changed, and the cache has forgotten it.
        assert urllib.request.urlopen(urllib.request.Request(url + "/reset_prefix_cache", method="POST"), timeout=30).status == 200
        assert response(**compare).to_dict()["prompt_cache_diagnostics"] == {"type": "unavailable"}
