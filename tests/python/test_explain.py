"""Tests GET /v1/requests/{id}/explain on a real model: each wait, miss and preemption of a crowded server has a cause, and the sums equal
the server's counters.
"""
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

# With 47 blocks of 16 tokens, running requests are preempted and cached blocks are evicted.
CROWDED = ("--num-blocks", "48", "--max-model-len", "512", "--max-num-seqs", "4", "--max-num-batched-tokens", "256",
           "--step-time-target", "0")  # so that decisions do not depend on the speed of the machine


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
def test_sums_by_cause_equal_the_counters(flags):
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
        assert num_preemptions > 0, "the cache must be small enough for preemptions"


def test_diverging_prompt_is_explained_at_its_position():
    with running("--num-blocks", "64", "--max-model-len", "512") as url:
        ask(url, prompt("rivers"))
        other = ask(url, prompt("rivers").replace("examples", "pictures", 6).replace("pictures", "examples", 5))
        [facts] = explain(url, other.id)
        [fact] = [miss for miss in facts["misses"] if miss["cause"] == "diverged"]
        assert "pictures" in fact["own"] and "examples" in fact["stored"] and fact["before"].endswith("many"), fact
        assert explain(url, "cmpl-unknown") == 404
        said = subprocess.run([os.environ["QUIRE_BINARY"], "explain", other.id, "--port", url.rsplit(":", 1)[1]],
                              capture_output=True, text=True, timeout=60, check=True).stdout  # fmt: skip
        assert f"first difference at token {fact['differs_at']}:" in said and "ended: " in said, said


def test_no_request_is_named_for_a_wait_for_a_slot():
    """Includes the server's first request, which has the smallest id: with one batch slot every wait is for the slot, not for another
    request.
    """
    with running("--num-blocks", "64", "--max-model-len", "512", "--max-num-seqs", "1") as url:
        first = ask(url, "Once upon a time")
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            crowd = list(pool.map(lambda number: ask(url, f"Tale {number}:", max_tokens=64), range(4)))
        last = ask(url, "And then")
        facts = {answer.id: explain(url, answer.id)[0] for answer in [first, *crowd, last]}
        assert any(wait["cause"] == "no_slot" and wait["seconds"] > 0 for one in facts.values() for wait in one["waits"]), "no request waited"
        assert {id: one["blocked_by"] for id, one in facts.items()} == dict.fromkeys(facts)


def test_swapped_tokens_are_not_lost():
    flags = ("--num-blocks", "40", "--max-model-len", "512", "--max-num-seqs", "4", "--kv-swap", "64MiB", "--kv-swap-choice", "always")
    with running(*flags) as url:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda number: ask(url, f"{number}. " + prompt(TOPICS[number]), max_tokens=200, extra_body={"ignore_eos": True}), range(4)))
        preemptions = [one for answer in answers for one in explain(url, answer.id)[0]["preemptions"]]
        assert counted(url, "quire:kv_swap_in_tokens_total") > 0, "at least one request must be swapped in"
        assert counted(url, "quire:kv_swap_lost_total") == 0
        swapped = [one for one in preemptions if one["swapped_out"]]
        assert swapped and all(one["lost_tokens"] == 0 for one in swapped), preemptions


@pytest.mark.parametrize("id, remedy", [("cmpl-x", "start quire serve"), ("../health", "is not the id of an answer")])
def test_command_reports_the_problem(id, remedy):
    done = subprocess.run([os.environ["QUIRE_BINARY"], "explain", id, "--port", "1"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and remedy in done.stderr, done.stderr


def test_each_choice_is_explained_under_its_answer():
    with running("--num-blocks", "64", "--max-model-len", "512") as url:
        answer = ask(url, prompt("rivers"), n=3, temperature=1)
        facts = explain(url, answer.id)
        assert len(facts) == 3
        assert sorted(one["prompt"]["shared"] > 0 for one in facts) == [False, True, True]


def test_explanations_can_be_turned_off():
    with running("--num-blocks", "64", "--max-model-len", "512", "--explained-requests", "0") as url:
        assert explain(url, ask(url, "Hello").id) == 400
        assert counted(url, "quire:prompt_tokens_missed_total") == 0


def test_hosted_clients_read_what_changed():
    """Anthropic's client reads its cache diagnostics, and OpenAI's client its prompt-cache diagnostics, from a real model's answers."""
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
        # The prompt has not changed, but the cache was reset.
        assert urllib.request.urlopen(urllib.request.Request(url + "/reset_prefix_cache", method="POST"), timeout=30).status == 200
        assert response(**compare).to_dict()["prompt_cache_diagnostics"] == {"type": "unavailable"}
