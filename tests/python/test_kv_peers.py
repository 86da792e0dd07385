"""Tests `quire serve --kv-share` and `--kv-peers`: servers hit each other's blocks. A peer that is killed, stopped, or has another key or
other activations loses no answer.
"""
import os
import signal
import time

import pytest

from quire_server import free_port, running, started
from test_kv_disk import TINY, TOPICS, ask, of_tier, refusal
from test_kv_remote import ask_until_found

DRAM = ("--kv-dram", "256MiB", "--kv-policy", "exact")


@pytest.fixture(scope="module")
def expected():
    """Returns the answers without a tier, with each prompt computed as a whole."""
    with running(*TINY, "--no-enable-prefix-caching") as url:
        return {topic: ask(url, topic)[0] for topic in TOPICS}


def wait_until_stored(url, num_blocks):
    for _ in range(1200):
        if of_tier(url, "dram")["stored_blocks_total"] >= num_blocks:
            return
        time.sleep(0.05)
    raise AssertionError(of_tier(url, "dram"))


def wait_until_given(url, num_blocks):
    """The metrics of the server's own share, once it has counted so many blocks as sent."""
    for _ in range(1200):
        told = of_tier(url, "peer_cache")
        if told["stored_blocks_total"] == num_blocks:
            return told
        time.sleep(0.05)
    raise AssertionError(told)


def test_second_servers_first_request_hits_and_each_asks_the_other(tmp_path, expected):
    key = tmp_path / "kv.key"
    key.write_bytes(os.urandom(32))
    ports = [free_port(), free_port()]
    flags = (*TINY, *DRAM, "--kv-peers", ",".join(f"127.0.0.1:{port}" for port in ports), "--kv-key", str(key))
    with running(*flags, "--kv-share", f"127.0.0.1:{ports[0]}") as first:
        for topic in TOPICS[:4]:
            assert ask(first, topic) == (expected[topic], 0)
        wait_until_stored(first, 10 * 4)
        with running(*flags, "--kv-share", f"127.0.0.1:{ports[1]}") as second:
            _, cached, told = ask_until_found(second, expected, "peer_cache", TOPICS[:4])
            assert cached == told["loaded_tokens_total"], told
            assert told["loaded_blocks_total"] == cached / 16
            given = wait_until_given(first, cached // 16)
            assert told["loaded_bytes_total"] == given["stored_bytes_total"] > 0
            assert told["refused_total"] == told["failed_total"] == 0
            for topic in TOPICS:
                assert ask(second, topic)[0] == ask(first, topic)[0] == expected[topic]
            assert of_tier(first, "peer_cache")["loaded_tokens_total"] > 0, "a peer that was unreachable at first must be asked again"


def test_peer_with_other_activations_or_key_gives_nothing(tmp_path, expected):
    keys = [tmp_path / "one.key", tmp_path / "other.key"]
    for key in keys:
        key.write_bytes(os.urandom(32))
    port = free_port()
    with running(*TINY, *DRAM, "--kv-share", f"127.0.0.1:{port}", "--kv-key", str(keys[0])) as first:
        assert ask(first, "rivers") == (expected["rivers"], 0)
        wait_until_stored(first, 10)
        for flags in (("--kv-key", str(keys[1])), ("--kv-key", str(keys[0]), "--activations", "f32")):
            with running(*TINY, "--kv-peers", f"127.0.0.1:{port}", *flags) as second:
                text, cached = ask(second, "rivers")
                assert cached == 0 and of_tier(second, "peer_cache")["loaded_blocks_total"] == 0
                assert "--activations" in flags or text == expected["rivers"]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_killed_or_hanging_peer_loses_no_answer(expected, how):
    port = free_port()
    with started(*TINY, *DRAM, "--kv-share", f"127.0.0.1:{port}") as (first, process), running(*TINY, "--kv-peers", f"127.0.0.1:{port}") as second:
        for topic in TOPICS:
            assert ask(first, topic)[0] == expected[topic]
        wait_until_stored(first, 10 * len(TOPICS))
        ask_until_found(second, expected, "peer_cache")
        process.send_signal(how)
        for _ in range(2):
            for topic in TOPICS:
                assert ask(second, topic)[0] == expected[topic]
        told = of_tier(second, "peer_cache")
        assert told["refused_total"] == 0 and told["late_answers_total"] + told["failed_total"] > 0
        if how == signal.SIGSTOP:
            process.send_signal(signal.SIGCONT)
            before = told["loaded_tokens_total"]
            for turn in range(100):
                assert ask(second, TOPICS[turn % len(TOPICS)])[0] == expected[TOPICS[turn % len(TOPICS)]]
                if of_tier(second, "peer_cache")["loaded_tokens_total"] > before:
                    break
                time.sleep(0.2)
            assert of_tier(second, "peer_cache")["loaded_tokens_total"] > before, "the peer must be used again"


def test_refusals_name_the_flag_and_the_problem(tmp_path):
    assert "--kv-peers: 'host' has no host or no port" in refusal(tmp_path, "--kv-peers", "host")
    assert "--kv-share: is set, but this server has no tier in host memory" in refusal(tmp_path, "--kv-share", "127.0.0.1:0")
    assert "--kv-key: is required, because servers on other machines" in refusal(tmp_path, *DRAM, "--kv-share", "0.0.0.0:0")
    assert "--kv-key: " in refusal(tmp_path, "--kv-peers", "127.0.0.1:1", "--kv-key", "/nonexistent")
    assert "--kv-peers: prefix caching is off" in refusal(tmp_path, "--kv-peers", "127.0.0.1:1", "--no-enable-prefix-caching")
    port = free_port()
    with running(*TINY, *DRAM, "--kv-share", f"127.0.0.1:{port}"):
        assert f"--kv-share: cannot listen on 127.0.0.1:{port}: " in refusal(tmp_path, *DRAM, "--kv-share", f"127.0.0.1:{port}")
