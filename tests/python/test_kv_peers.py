"""`quire serve --kv-share` and `--kv-peers`: servers find each other's blocks, and one that is killed, stopped, has another key or other bits costs
no answer."""
import os
import signal
import time

import pytest

from quire_server import free_port, running, started
from test_kv_disk import TINY, TOPICS, ask, of_tier, refusal

DRAM = ("--kv-dram", "256MiB")


@pytest.fixture(scope="module")
def wanted():
    """What is answered without a tier, each prompt computed as a whole."""
    with running(*TINY, "--no-enable-prefix-caching") as url:
        return {topic: ask(url, topic)[0] for topic in TOPICS}


def wait_until_stored(url, num_blocks):
    for _ in range(1200):
        if of_tier(url, "dram")["stored_blocks_total"] >= num_blocks:
            return
        time.sleep(0.05)
    raise AssertionError(of_tier(url, "dram"))


def test_the_second_servers_first_request_hits_and_each_asks_the_other(tmp_path, wanted):
    key = tmp_path / "kv.key"
    key.write_bytes(os.urandom(32))
    ports = [free_port(), free_port()]
    flags = (*TINY, *DRAM, "--kv-peers", ",".join(f"127.0.0.1:{port}" for port in ports), "--kv-key", str(key))
    with running(*flags, "--kv-share", f"127.0.0.1:{ports[0]}") as first:
        assert ask(first, "rivers") == (wanted["rivers"], 0)
        wait_until_stored(first, 10)
        with running(*flags, "--kv-share", f"127.0.0.1:{ports[1]}") as second:
            text, cached = ask(second, "rivers")
            told, given = of_tier(second, "peer_cache"), of_tier(first, "peer_cache")
            assert text == wanted["rivers"] and cached > 100 and cached == told["loaded_tokens_total"], told
            assert told["loaded_blocks_total"] == given["stored_blocks_total"] == cached / 16
            assert told["loaded_bytes_total"] == given["stored_bytes_total"] > 0
            assert told["refused_total"] == told["failed_total"] == 0
            for topic in TOPICS:
                assert ask(second, topic)[0] == ask(first, topic)[0] == wanted[topic]
            assert of_tier(first, "peer_cache")["loaded_tokens_total"] > 0, "one that was away when it was first asked is asked again"


def test_one_of_other_bits_or_another_key_gives_nothing(tmp_path, wanted):
    keys = [tmp_path / "one.key", tmp_path / "other.key"]
    for key in keys:
        key.write_bytes(os.urandom(32))
    port = free_port()
    with running(*TINY, *DRAM, "--kv-share", f"127.0.0.1:{port}", "--kv-key", str(keys[0])) as first:
        assert ask(first, "rivers") == (wanted["rivers"], 0)
        wait_until_stored(first, 10)
        for flags in (("--kv-key", str(keys[1])), ("--kv-key", str(keys[0]), "--activations", "f32")):
            with running(*TINY, "--kv-peers", f"127.0.0.1:{port}", *flags) as second:
                text, cached = ask(second, "rivers")
                assert cached == 0 and of_tier(second, "peer_cache")["loaded_blocks_total"] == 0
                assert "--activations" in flags or text == wanted["rivers"]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_peer_that_is_killed_or_hangs_costs_no_answer(wanted, how):
    port = free_port()
    with started(*TINY, *DRAM, "--kv-share", f"127.0.0.1:{port}") as (first, process), running(*TINY, "--kv-peers", f"127.0.0.1:{port}") as second:
        for topic in TOPICS:
            assert ask(first, topic)[0] == wanted[topic]
        wait_until_stored(first, 10 * len(TOPICS))
        assert ask(second, TOPICS[0])[0] == wanted[TOPICS[0]]
        assert of_tier(second, "peer_cache")["loaded_tokens_total"] > 100
        process.send_signal(how)
        for _ in range(2):
            for topic in TOPICS:
                assert ask(second, topic)[0] == wanted[topic]
        told = of_tier(second, "peer_cache")
        assert told["refused_total"] == 0 and told["late_answers_total"] + told["failed_total"] > 0
        if how == signal.SIGSTOP:
            process.send_signal(signal.SIGCONT)
            before = told["loaded_tokens_total"]
            for turn in range(100):
                assert ask(second, TOPICS[turn % len(TOPICS)])[0] == wanted[TOPICS[turn % len(TOPICS)]]
                if of_tier(second, "peer_cache")["loaded_tokens_total"] > before:
                    break
                time.sleep(0.2)
            assert of_tier(second, "peer_cache")["loaded_tokens_total"] > before, "it is taken back"


def test_what_cannot_be_is_said(tmp_path):
    assert "--kv-peers: 'host' has no host and port" in refusal(tmp_path, "--kv-peers", "host")
    assert "--kv-share: there is nothing to give" in refusal(tmp_path, "--kv-share", "127.0.0.1:0")
    assert "--kv-key: others than this machine" in refusal(tmp_path, *DRAM, "--kv-share", "0.0.0.0:0")
    assert "--kv-key: " in refusal(tmp_path, "--kv-peers", "127.0.0.1:1", "--kv-key", "/nonexistent")
    assert "--kv-peers: prefix caching is off" in refusal(tmp_path, "--kv-peers", "127.0.0.1:1", "--no-enable-prefix-caching")
    port = free_port()
    with running(*TINY, *DRAM, "--kv-share", f"127.0.0.1:{port}"):
        assert f"--kv-share: 127.0.0.1:{port}: " in refusal(tmp_path, *DRAM, "--kv-share", f"127.0.0.1:{port}")
