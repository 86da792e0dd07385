"""`quire serve --kv-disk`: the same answers as without, warm after kill -9, and refusals that say what to do."""
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
TINY = ("--num-blocks", "40", "--max-model-len", "512", "--max-num-seqs", "4")  # 39 blocks of 16 tokens: two prompts at most


def prompt(topic):
    return f"Here is all that there is to know about {topic}, told slowly and with many examples. " * 12


def ask(url, topic, max_tokens=24):
    """Text with the log probability of each token, and cached tokens."""
    client = openai.OpenAI(base_url=url + "/v1", api_key="-", max_retries=0, timeout=120)
    done = client.completions.create(model="smol", prompt=prompt(topic), max_tokens=max_tokens, temperature=0, logprobs=1)
    return (done.choices[0].text, done.choices[0].logprobs.token_logprobs), done.usage.prompt_tokens_details.cached_tokens


def metrics(url):
    text = urllib.request.urlopen(url + "/metrics", timeout=30).read().decode()
    return {name: float(value) for name, value in re.findall(r"^quire:kv_tier_(\w+)\{[^}]*\} (\S+)$", text, re.MULTILINE)}


@pytest.fixture(scope="module")
def wanted():
    """What is answered without a tier, each prompt computed as a whole."""
    with running(*TINY, "--no-enable-prefix-caching") as url:
        return {topic: ask(url, topic)[0] for topic in TOPICS}


def wait_until_stored(url, num_blocks):
    for _ in range(600):
        if metrics(url)["stored_blocks_total"] >= num_blocks:
            return
        time.sleep(0.05)
    raise AssertionError(metrics(url))


def test_every_block_goes_to_disk_and_back(tmp_path, wanted):
    with running(*TINY, "--kv-disk", str(tmp_path / "kv"), "--kv-disk-budget", "256MiB") as url:
        for _ in range(2):
            for topic in TOPICS:
                text, cached = ask(url, topic)
                assert text == wanted[topic]
        assert cached > 0
        told = metrics(url)
        assert told["loaded_tokens_total"] >= 16 * 8 * len(TOPICS), told
        assert told["loaded_bytes_total"] > 0 and told["refused_total"] == told["failed_total"] == 0
        assert told["used_places"] <= told["places"]


@pytest.mark.parametrize("secret, policy", [("", "lru"), ("long and random", "s3fifo")])
def test_the_first_answer_after_kill_9_comes_from_disk(tmp_path, monkeypatch, wanted, secret, policy):
    monkeypatch.setenv("QUIRE_TENANT_SECRET", secret)
    flags = (*TINY, "--kv-disk", str(tmp_path / "kv"), "--kv-disk-budget", "256MiB", "--kv-disk-policy", policy)
    with pytest.raises(AssertionError, match="status 0"):
        with running(*flags) as url:
            assert ask(url, "rivers") == (wanted["rivers"], 0)
            wait_until_stored(url, 10)
            pid = int((tmp_path / "kv" / "quire-lock").read_text())
            os.kill(pid, signal.SIGKILL)
    with running(*flags) as url:
        text, cached = ask(url, "rivers")
        told = metrics(url)
        assert (text, told["refused_total"]) == (wanted["rivers"], 0)
        assert cached > 100 and cached == told["loaded_tokens_total"]
        assert told["restored_blocks_total"] >= 10 and told["loaded_bytes_total"] > 0
        assert ask(url, "tides") == (wanted["tides"], 0), "what was never asked is not found"


# Seven layers that attend to all, and windows in groups of six and five, so that blocks have three sizes; and windows alone.
@pytest.mark.parametrize("period, num_blocks", [(4, 200), (0, 40)])
def test_windowed_models_go_to_disk_and_back(tmp_path, monkeypatch, period, num_blocks):
    if not os.environ.get("QUIRE_TEST_MODEL"):
        pytest.skip("QUIRE_TEST_MODEL is not set: ./dev test sets it")
    model = tmp_path / "windowed.gguf"
    write_windowed(os.environ["QUIRE_TEST_MODEL"], model, window=40, period=period)
    monkeypatch.setenv("QUIRE_TEST_MODEL", str(model))
    tiny = ("--num-blocks", str(num_blocks), *TINY[2:])
    flags = (*tiny, "--kv-disk", str(tmp_path / "kv"), "--kv-disk-budget", "256MiB", "--kv-policy", "exact")
    with running(*tiny, "--no-enable-prefix-caching") as url:
        wanted = {topic: ask(url, topic)[0] for topic in TOPICS}
    with pytest.raises(AssertionError, match="status 0"):
        with running(*flags) as url:
            for _ in range(2):
                for topic in TOPICS:
                    text, cached = ask(url, topic)
                    assert text == wanted[topic]
            told = metrics(url)
            assert cached > 100 and told["loaded_tokens_total"] >= 100 * len(TOPICS), told
            assert told["loaded_bytes_total"] > 0 and told["refused_total"] == told["failed_total"] == 0
            os.kill(int((tmp_path / "kv" / "quire-lock").read_text()), signal.SIGKILL)
    with running(*flags) as url:
        text, cached = ask(url, "rivers")
        told = metrics(url)
        assert (text, told["refused_total"]) == (wanted["rivers"], 0)
        assert cached > 100 and cached == told["loaded_tokens_total"], "a cold process finds it"
    assert cache("verify", str(tmp_path / "kv"))[0] == 0


def refusal(tmp_path, *flags, model=None):
    binary, default = os.environ.get("QUIRE_BINARY"), os.environ.get("QUIRE_TEST_MODEL")
    if not binary or not default:
        pytest.skip("QUIRE_BINARY and QUIRE_TEST_MODEL are not set: ./dev test sets them")
    done = subprocess.run([binary, "serve", model or default, "--port", "0", *flags], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    return done.stderr


def test_refusals_name_the_flag_and_what_to_do(tmp_path):
    folder = str(tmp_path / "kv")
    small = ("--kv-disk", folder, "--kv-disk-budget", "64MiB")
    assert "--kv-disk-budget: 4096 bytes have no room for a block" in refusal(tmp_path, "--kv-disk", folder, "--kv-disk-budget", "4KiB")
    with running(*TINY, *small):
        assert "--kv-disk: process" in refusal(tmp_path, *small)
    message = refusal(tmp_path, *small, "--block-size", "32")
    assert "--kv-disk: the folder holds blocks of another model, or in another layout; give each its own folder" in message
    assert "another layout" in refusal(tmp_path, *small, "--activations", "f32")
    assert "--kv-disk: prefix caching is off" in refusal(tmp_path, *small, "--no-enable-prefix-caching")
    assert "--kv-disk-budget requires --kv-disk" in refusal(tmp_path, "--kv-disk-budget", "1GiB")
    assert '--kv-disk-policy: there is no policy "fifo"' in refusal(tmp_path, *small, "--kv-disk-policy", "fifo")
    assert "--kv-disk: /proc/none cannot be made" in refusal(tmp_path, "--kv-disk", "/proc/none")


def cache(verb, folder, *flags):
    done = subprocess.run([os.environ["QUIRE_BINARY"], "cache", verb, folder, *flags], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


def test_the_folder_can_be_looked_at_verified_and_dropped(tmp_path, wanted):
    folder = str(tmp_path / "kv")
    flags = (*TINY, "--kv-disk", folder, "--kv-disk-budget", "64MiB")
    with running(*flags) as url:
        ask(url, "rivers")
        wait_until_stored(url, 10)
        assert "process" in cache("stat", folder)[1], "a server has it"
    status, text = cache("stat", folder)
    num_blocks = int(re.search(r", (\d+) hold blocks", text)[1])
    assert status == 0 and num_blocks >= 10
    status, text = cache("ls", folder, "--limit", "3")
    assert status == 0 and f"and {num_blocks - 3} that were stored earlier" in text
    place, size = (int(word) for word in text.splitlines()[1].split()[:2])
    assert cache("verify", folder) == (0, f"{num_blocks} of {num_blocks} blocks are what was stored\n")
    place_bytes = -(-size // 4096) * 4096
    with open(os.path.join(folder, "quire-blocks"), "r+b") as blocks:
        for at in range(0, os.path.getsize(blocks.name), place_bytes):
            blocks.seek(at + 1000)
            byte = blocks.read(1)[0]
            blocks.seek(at + 1000)
            blocks.write(bytes([byte ^ 16]))
    status, text = cache("verify", folder)
    assert status == 1 and f"place {place}: " in text and f"0 of {num_blocks} blocks are what was stored" in text
    with running(*flags) as url:
        assert ask(url, "rivers")[0] == wanted["rivers"], "what does not verify is computed"
        told = metrics(url)
        assert told["refused_total"] > 0 and told["loaded_tokens_total"] == 0
    status, text = cache("drop", folder)
    assert status == 2 and "--yes" in text
    assert cache("drop", folder, "--yes")[0] == 0 and not os.listdir(folder)
    status, text = cache("ls", folder)
    assert status == 2 and "holds no disk tier" in text
