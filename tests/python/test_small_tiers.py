"""Tests that a tier that is smaller than a prompt keeps the prompt's beginning and never blocks a tier below it."""
import json
import re
import time
import urllib.request

import pytest

from quire_server import started

# The bytes of a block of 16 tokens in bf16: 30 layers, 3 heads of 64, keys and values.
BLOCK_BYTES = 30 * 3 * 64 * 2 * 2 * 16
WORDS = ("lamp", "stone", "river", "cloud", "glove", "piano", "wheat", "ladder")


def prompt(topic, words):
    return " ".join(f"{WORDS[(topic * 7 + i * (topic + 3)) % 8]} {topic} {i}" for i in range(words))


def post(url, path, body):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def ask(url, topic, words):
    """Returns the length of the prompt and the number of cached tokens."""
    usage = post(url, "/v1/completions", {"prompt": prompt(topic, words), "max_tokens": 1, "temperature": 0})["usage"]
    return usage["prompt_tokens"], (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)


def tiers_of(url):
    with urllib.request.urlopen(url + "/metrics", timeout=60) as response:
        found = re.findall(r'^quire:kv_tier_(\w+)\{[^}]*tier="(\w+)"\} (\S+)$', response.read().decode(), re.MULTILINE)
    return {(tier, name): float(value) for name, tier, value in found}


def forget(url):
    urllib.request.urlopen(urllib.request.Request(url + "/reset_prefix_cache", method="POST"), timeout=60).close()


def settled(url, name, met=lambda now: True):
    """Waits until `met` holds for the metrics and the tier writes no more blocks."""
    before, deadline = None, time.monotonic() + 60
    while True:
        now = tiers_of(url)
        if now == before and met(now):
            return now
        assert time.monotonic() < deadline
        before = now
        time.sleep(0.3)


def hit(url, name, topic, words):
    """Returns the tokens that the tier had. The policy may compute them if that is faster than loading."""
    before = tiers_of(url)
    cached = ask(url, topic, words)[1]
    return cached + tiers_of(url)[name, "computed_tokens_total"] - before[name, "computed_tokens_total"]


FLAGS = ("--num-blocks", "50", "--max-num-seqs", "2", "--max-num-batched-tokens", "128")


@pytest.mark.parametrize("tier, places", [("dram", 5), ("dram", 1), ("disk", 6), ("connector", 4)])
def test_beginning_of_a_larger_prompt_is_stored_and_hit(tier, places, tmp_path, capfd):
    size = str(places * BLOCK_BYTES + 4096)
    flags = {"dram": ("--kv-dram", size), "disk": ("--kv-disk", str(tmp_path), "--kv-disk-budget", str((places + 1) * (BLOCK_BYTES + 8192))),
             "connector": ("--kv-connector", f"OffloadingConnector,cpu_bytes_to_use={size}")}[tier]
    with started(*FLAGS, *flags) as (url, _):
        name = {"connector": "OffloadingConnector"}.get(tier, tier)
        num_places = int(tiers_of(url)[name, "slots"])
        assert abs(num_places - places) <= 1
        assert tiers_of(url)[name, "capacity_tokens"] == 16 * num_places
        tokens, found = ask(url, 1, 45)
        assert tokens // 16 > num_places and found == 0
        without_room = tokens // 16 - num_places
        after = settled(url, name, lambda now: now[name, "used_slots"] >= num_places and now[name, "without_room_total"] >= without_room)
        assert after[name, "used_slots"] == num_places
        assert after[name, "without_room_total"] == without_room, "each block must count once"
        forget(url)
        assert hit(url, name, 1, 45) == 16 * num_places
        # Another request takes the slots.
        forget(url)
        ask(url, 2, 45)
        settled(url, name, lambda now: now[name, "stored_blocks_total"] >= after[name, "stored_blocks_total"] + num_places)
        forget(url)
        assert hit(url, name, 2, 45) == 16 * num_places
    out, err = capfd.readouterr()
    assert f"{16 * num_places} tokens" in out, "the startup log must name the capacity"
    assert "kv_tier_small" in err and name in err


def test_prompts_too_large_for_memory_go_directly_to_disk(tmp_path):
    for places in (2, 9, 20):
        folder = tmp_path / str(places)
        with started(*FLAGS, "--kv-dram", str(places * BLOCK_BYTES), "--kv-disk", str(folder), "--kv-disk-budget", "64MiB") as (url, _):
            topics, lengths = range(2), []
            for topic in topics:
                lengths.append(ask(url, topic, 45)[0])
                settled(url, "disk", lambda now: now["disk", "stored_blocks_total"] + now["dram", "stored_blocks_total"] > 0)
            assert min(lengths) // 16 > 10
            # Small prompts in between stay in memory and evict nothing.
            ask(url, 7, 5)
            for topic, tokens in zip(topics, lengths):
                forget(url)
                assert ask(url, topic, 45)[1] >= (tokens - 1) // 16 * 16, (places, topic)
            now = tiers_of(url)
            assert now["dram", "without_room_total"] == now["disk", "without_room_total"] == 0


def test_exact_policy_stores_nothing_of_a_larger_prompt_like_vllm():
    with started(*FLAGS, "--kv-policy", "exact", "--kv-dram", str(5 * BLOCK_BYTES)) as (url, _):
        tokens, _ = ask(url, 1, 45)
        now = settled(url, "dram", lambda now: now["dram", "without_room_total"] > 0)
        assert now["dram", "stored_blocks_total"] == 0
        assert now["dram", "without_room_total"] == tokens // 16, "each block must count once"
