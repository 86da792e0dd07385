"""Tests `quire serve --kv-disk`: answers equal those without a tier, the cache is warm after kill -9, and refusals name the remedy."""
import concurrent.futures
import json
import os
import re
import signal
import subprocess
import time
import urllib.request

import openai
import pytest

from quire_server import running
from windowed_model import write_windowed

TOPICS = ("rivers", "bridges", "clocks", "maps", "bees", "glass", "salt", "tides")
TINY = ("--num-blocks", "40", "--max-model-len", "512", "--max-num-seqs", "4")  # 39 blocks of 16 tokens fit at most two prompts


def prompt(topic):
    return f"Here is all that there is to know about {topic}, told slowly and with many examples. " * 12


def ask(url, topic, max_tokens=24):
    """Returns the text with the log probability of each token, and the number of cached tokens."""
    client = openai.OpenAI(base_url=url + "/v1", api_key="-", max_retries=0, timeout=120)
    done = client.completions.create(model="smol", prompt=prompt(topic), max_tokens=max_tokens, temperature=0, logprobs=1)
    return (done.choices[0].text, done.choices[0].logprobs.token_logprobs), done.usage.prompt_tokens_details.cached_tokens


def metrics(url):
    text = urllib.request.urlopen(url + "/metrics", timeout=30).read().decode()
    return {name: float(value) for name, value in re.findall(r"^quire:kv_tier_(\w+)\{[^}]*\} (\S+)$", text, re.MULTILINE)}


@pytest.fixture(scope="module")
def expected():
    """Returns the answers without a tier, with each prompt computed as a whole."""
    with running(*TINY, "--no-enable-prefix-caching") as url:
        return {topic: ask(url, topic)[0] for topic in TOPICS}


def wait_until_stored(url, num_blocks):
    for _ in range(600):
        if metrics(url)["stored_blocks_total"] >= num_blocks:
            return
        time.sleep(0.05)
    raise AssertionError(metrics(url))


def test_every_block_is_stored_on_disk_and_loaded(tmp_path, expected):
    with running(*TINY, "--kv-disk", str(tmp_path / "kv"), "--kv-disk-budget", "256MiB") as url:
        for _ in range(2):
            for topic in TOPICS:
                text, cached = ask(url, topic)
                assert text == expected[topic]
        assert cached > 0
        told = metrics(url)
        assert told["loaded_tokens_total"] >= 16 * 8 * len(TOPICS), told
        assert told["loaded_bytes_total"] > 0 and told["refused_total"] == told["failed_total"] == 0
        assert told["used_slots"] <= told["slots"]


@pytest.mark.parametrize("secret, policy", [("", "lru"), ("long and random", "s3fifo")])
def test_first_answer_after_kill_9_is_loaded_from_disk(tmp_path, monkeypatch, expected, secret, policy):
    monkeypatch.setenv("QUIRE_TENANT_SECRET", secret)
    flags = (*TINY, "--kv-disk", str(tmp_path / "kv"), "--kv-disk-budget", "256MiB", "--kv-disk-policy", policy)
    with pytest.raises(AssertionError, match="status 0"):
        with running(*flags) as url:
            assert ask(url, "rivers") == (expected["rivers"], 0)
            wait_until_stored(url, 10)
            pid = int((tmp_path / "kv" / "quire-lock").read_text())
            os.kill(pid, signal.SIGKILL)
    with running(*flags) as url:
        text, cached = ask(url, "rivers")
        told = metrics(url)
        assert (text, told["refused_total"]) == (expected["rivers"], 0)
        assert cached > 100 and cached == told["loaded_tokens_total"]
        assert told["restored_blocks_total"] >= 10 and told["loaded_bytes_total"] > 0
        assert ask(url, "tides") == (expected["tides"], 0), "a new prompt must not hit"


# The first model has seven layers of full attention, and windows in groups of six and five layers, so blocks have three sizes. The second
# has only windows.
@pytest.mark.parametrize("period, num_blocks", [(4, 200), (0, 40)])
def test_windowed_models_are_stored_on_disk_and_loaded(tmp_path, monkeypatch, period, num_blocks):
    if not os.environ.get("QUIRE_TEST_MODEL"):
        pytest.skip("QUIRE_TEST_MODEL is not set: ./dev test sets it")
    model = tmp_path / "windowed.gguf"
    write_windowed(os.environ["QUIRE_TEST_MODEL"], model, window=40, period=period)
    monkeypatch.setenv("QUIRE_TEST_MODEL", str(model))
    tiny = ("--num-blocks", str(num_blocks), *TINY[2:])
    flags = (*tiny, "--kv-disk", str(tmp_path / "kv"), "--kv-disk-budget", "256MiB", "--kv-policy", "exact")
    with running(*tiny, "--no-enable-prefix-caching") as url:
        expected = {topic: ask(url, topic)[0] for topic in TOPICS}
    with pytest.raises(AssertionError, match="status 0"):
        with running(*flags) as url:
            for _ in range(2):
                for topic in TOPICS:
                    text, cached = ask(url, topic)
                    assert text == expected[topic]
            told = metrics(url)
            assert cached > 100 and told["loaded_tokens_total"] >= 100 * len(TOPICS), told
            assert told["loaded_bytes_total"] > 0 and told["refused_total"] == told["failed_total"] == 0
            os.kill(int((tmp_path / "kv" / "quire-lock").read_text()), signal.SIGKILL)
    with running(*flags) as url:
        text, cached = ask(url, "rivers")
        told = metrics(url)
        assert (text, told["refused_total"]) == (expected["rivers"], 0)
        assert cached > 100 and cached == told["loaded_tokens_total"], "a new process must hit the blocks"
    assert cache("verify", str(tmp_path / "kv"))[0] == 0


# Requests run one at a time, then all at the same time.
@pytest.mark.parametrize("flags", [
    ("--kv-dram", "64MiB", "--kv-policy", "exact"),
    ("--kv-swap", "64MiB"),
    ("--kv-disk", "FOLDER", "--kv-disk-budget", "256MiB", "--num-speculative-tokens", "3", "--prompt-lookup-min", "2", "--prompt-lookup-max", "3"),
    ("--kv-dram", "64MiB", "--kv-disk", "FOLDER", "--kv-disk-budget", "256MiB", "--kv-swap", "64MiB", "--async-scheduling"),
], ids=["dram", "swap", "drafts", "all"])
def test_answers_equal_those_without_a_tier_for_every_flag(tmp_path, expected, flags):
    with running(*TINY, *(flag.replace("FOLDER", str(tmp_path / "kv")) for flag in flags)) as url:
        for topic in TOPICS:
            assert ask(url, topic)[0] == expected[topic]
        with concurrent.futures.ThreadPoolExecutor(len(TOPICS)) as clients:
            assert list(clients.map(lambda topic: ask(url, topic)[0], TOPICS)) == [expected[topic] for topic in TOPICS]
        text = urllib.request.urlopen(url + "/metrics", timeout=30).read().decode()
        if "--kv-swap" in flags:
            assert float(re.search(r"^quire:kv_swap_slots(?:\{[^}]*\})? (\S+)$", text, re.MULTILINE)[1]) > 0
        if "exact" in flags:
            assert float(re.search(r'^quire:kv_tier_loaded_bytes_total\{[^}]*tier="dram"[^}]*\} (\S+)$', text, re.MULTILINE)[1]) > 0
        if "--num-speculative-tokens" in flags:
            assert float(re.search(r"^vllm:spec_decode_num_accepted_tokens_total\S* (\S+)$", text, re.MULTILINE)[1]) > 0


def kinds_of_answers(url):
    """Returns several answers, log probabilities of the prompt, beams, and vectors of all tokens. The tier has the prompt if it was
    requested before.
    """
    client = openai.OpenAI(base_url=url + "/v1", api_key="-", max_retries=0, timeout=120)

    def complete(**fields):
        done = client.completions.create(model="smol", prompt=prompt("rivers"), max_tokens=8, **fields)
        return [(choice.text, getattr(choice, "prompt_logprobs", None)) for choice in done.choices]

    drawn = complete(n=3, temperature=1, seed=5)
    rows = complete(temperature=0, extra_body={"prompt_logprobs": 2})
    beams = complete(n=3, extra_body={"use_beam_search": True})
    pooled = urllib.request.Request(url + "/pooling", json.dumps({"model": "smol", "input": "rivers and bridges", "task": "token_embed"}).encode(),
                                    {"Content-Type": "application/json"})
    return drawn, rows, beams, json.load(urllib.request.urlopen(pooled))["data"]


def test_requests_of_every_kind_work_with_a_tier(tmp_path):
    with running(*TINY, "--no-enable-prefix-caching") as url:
        expected = kinds_of_answers(url)
    for flags in [("--kv-disk", str(tmp_path / "kv"), "--kv-disk-budget", "256MiB"), ("--kv-dram", "64MiB")]:
        with running(*TINY, *flags, "--kv-policy", "exact") as url:
            for _ in range(2):
                assert kinds_of_answers(url) == expected
                ask(url, "bees"), ask(url, "salt"), ask(url, "tides")  # the cache evicts the prompt
            assert metrics(url)["loaded_bytes_total"] > 0


def of_tier(url, tier):
    text = urllib.request.urlopen(url + "/metrics", timeout=30).read().decode()
    lines = re.findall(rf'^quire:kv_tier_(\w+)\{{[^}}]*tier="{tier}"\}} (\S+)$', text, re.MULTILINE)
    return {name: float(value) for name, value in lines}


def counter(url, name):
    text = urllib.request.urlopen(url + "/metrics", timeout=30).read().decode()
    return float(re.search(rf"^{name}\{{[^}}]*\}} (\S+)$", text, re.MULTILINE).group(1))


# Memory fits thirty of more than a hundred blocks.
@pytest.mark.parametrize("more", [(), ("--kv-disk-write-through",), ("--kv-policy", "exact", "--kv-dram-policy", "arc")])
def test_memory_tier_works_above_a_folder(tmp_path, expected, more):
    tiers = ("--kv-dram", "11MiB", "--kv-disk", str(tmp_path / "kv"), "--kv-disk-budget", "256MiB", "--kv-disk-bandwidth", "1GiB")
    with running(*TINY, *tiers, "--kv-join-loads", "--kv-load-failure-policy", "fail", *more) as url:
        total = 0
        for _ in range(3):
            for topic in TOPICS:
                text, cached = ask(url, topic)
                assert text == expected[topic]
                total += cached
        dram, disk = of_tier(url, "dram"), of_tier(url, "disk")
        assert total > 16 * 4 * len(TOPICS), (dram, disk)
        assert dram["stored_blocks_total"] > 30 and disk["stored_blocks_total"] > 0, (dram, disk)
        assert (disk["taken_blocks_total"] > 0) == (not more) and disk["taken_blocks_total"] <= disk["stored_blocks_total"], (dram, disk)
        assert dram["refused_total"] == disk["refused_total"] == disk["failed_total"] == 0
        assert counter(url, "vllm:external_prefix_cache_hits_total") == dram["loaded_tokens_total"] + disk["loaded_tokens_total"]
    assert cache("verify", str(tmp_path / "kv"))[0] == 0


def test_block_is_stored_at_its_second_request(tmp_path, expected):
    flags = ("--kv-disk", str(tmp_path / "kv"), "--kv-disk-budget", "256MiB", "--kv-policy", "exact", "--kv-store-threshold", "2",
             "--kv-max-tracker-size", "1000")
    with running(*TINY, *flags) as url:
        for topic in TOPICS:
            assert ask(url, topic)[0] == expected[topic]
        assert metrics(url)["stored_blocks_total"] == 0
        for topic in TOPICS:
            assert ask(url, topic)[0] == expected[topic]
        wait_until_stored(url, 10)


# Four requests run in a cache for two: preempted requests are swapped out to memory, and to files when memory is full.
FILES = ("--kv-swap-disk", "FOLDER", "--kv-swap-disk-budget", "64MiB")


@pytest.mark.parametrize("swap", [(), ("--kv-swap", "4MiB"), ("--kv-swap", "4MiB", *FILES), FILES])
def test_answers_under_pressure_equal_those_without(tmp_path, expected, swap):
    marks = ("--kv-watermark", "0.01", "--kv-pressure-high", "0.6", "--kv-pressure-low", "0.3", "--kv-pressure-preempt")
    swap = [str(tmp_path / "swap") if flag == "FOLDER" else flag for flag in swap]
    with running(*TINY, *marks, *swap) as url:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            answers = dict(zip(TOPICS, pool.map(lambda topic: ask(url, topic)[0], TOPICS)))
        assert answers == expected
        assert counter(url, "quire:admission_stops_total") > 0
    assert not (tmp_path / "swap" / "quire-swap" / "quire-blocks").exists()


def refusal(tmp_path, *flags, model=None):
    binary, default = os.environ.get("QUIRE_BINARY"), os.environ.get("QUIRE_TEST_MODEL")
    if not binary or not default:
        pytest.skip("QUIRE_BINARY and QUIRE_TEST_MODEL are not set: ./dev test sets them")
    done = subprocess.run([binary, "serve", model or default, "--port", "0", *flags], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    return done.stderr


def test_refusals_name_the_flag_and_the_remedy(tmp_path):
    folder = str(tmp_path / "kv")
    small = ("--kv-disk", folder, "--kv-disk-budget", "64MiB")
    assert "--kv-disk-budget: 4096 bytes are too small for one block" in refusal(tmp_path, "--kv-disk", folder, "--kv-disk-budget", "4KiB")
    with running(*TINY, *small):
        assert "--kv-disk: process" in refusal(tmp_path, *small)
    message = refusal(tmp_path, *small, "--block-size", "32")
    assert "--kv-disk: the folder contains blocks of another model or another layout; use a separate folder for each model" in message
    assert "another layout" in refusal(tmp_path, *small, "--activations", "f32")
    assert "--kv-disk: prefix caching is off" in refusal(tmp_path, *small, "--no-enable-prefix-caching")
    assert "--kv-disk-budget requires --kv-disk" in refusal(tmp_path, "--kv-disk-budget", "1GiB")
    assert '--kv-disk-policy: unknown policy "mru"' in refusal(tmp_path, *small, "--kv-disk-policy", "mru")
    assert "--kv-disk: /proc/none cannot be created" in refusal(tmp_path, "--kv-disk", "/proc/none")


def cache(verb, folder, *flags):
    done = subprocess.run([os.environ["QUIRE_BINARY"], "cache", verb, folder, *flags], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


def test_folder_can_be_listed_verified_and_dropped(tmp_path, expected):
    folder = str(tmp_path / "kv")
    flags = (*TINY, "--kv-disk", folder, "--kv-disk-budget", "64MiB")
    with running(*flags) as url:
        ask(url, "rivers")
        wait_until_stored(url, 10)
        assert "process" in cache("stat", folder)[1], "the server holds the folder"
    status, text = cache("stat", folder)
    num_blocks = int(re.search(r", (\d+) hold blocks", text)[1])
    assert status == 0 and num_blocks >= 10
    status, text = cache("ls", folder, "--limit", "3")
    assert status == 0 and f"and {num_blocks - 3} older blocks" in text
    place, size = (int(word) for word in text.splitlines()[1].split()[:2])
    assert cache("verify", folder) == (0, f"{num_blocks} of {num_blocks} blocks match their checksums\n")
    place_bytes = -(-size // 4096) * 4096
    with open(os.path.join(folder, "quire-blocks"), "r+b") as blocks:
        for at in range(0, os.path.getsize(blocks.name), place_bytes):
            blocks.seek(at + 1000)
            byte = blocks.read(1)[0]
            blocks.seek(at + 1000)
            blocks.write(bytes([byte ^ 16]))
    status, text = cache("verify", folder)
    assert status == 1 and f"slot {place}: " in text and f"0 of {num_blocks} blocks match their checksums" in text
    with running(*flags) as url:
        assert ask(url, "rivers")[0] == expected["rivers"], "a corrupted block must be computed again"
        told = metrics(url)
        assert told["refused_total"] > 0 and told["loaded_tokens_total"] == 0
    status, text = cache("drop", folder)
    assert status == 2 and "--yes" in text
    assert cache("drop", folder, "--yes")[0] == 0 and not os.listdir(folder)
    status, text = cache("ls", folder)
    assert status == 2 and "does not contain a disk tier" in text
