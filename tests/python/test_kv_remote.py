"""Tests `quire serve --kv-remote`: servers that share a Redis hit each other's blocks, and a store that dies, stalls or is full loses no
answer.
"""
import contextlib
import os
import shutil
import socket
import subprocess
import time

import pytest

from quire_server import free_port, running
from test_kv_disk import TINY, TOPICS, ask, of_tier, refusal

# Debian's redis-tools has the server's program under another name, without the service of the package redis-server.
PROGRAM = shutil.which("redis-server") or shutil.which("redis-check-rdb")
pytestmark = pytest.mark.skipif(not PROGRAM, reason="there is no Redis: Debian's redis-tools has it")


@contextlib.contextmanager
def redis(*flags, port=None):
    port = port or free_port()
    process = subprocess.Popen(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", *flags], executable=PROGRAM,
                               stdout=subprocess.DEVNULL)
    tls = "--tls-port" in flags
    try:
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", int(flags[flags.index("--tls-port") + 1]) if tls else port), 1):
                break
            assert process.poll() is None, "redis-server ended"
            time.sleep(0.05)
        yield port
    finally:
        process.kill()
        process.wait()


def cli(port, *words):
    return subprocess.run(["redis-cli", "-p", str(port), *words], capture_output=True, text=True, timeout=30, check=True).stdout.strip()


@pytest.fixture(scope="module")
def expected():
    """Returns the answers without a tier, with each prompt computed as a whole."""
    with running(*TINY, "--no-enable-prefix-caching") as url:
        return {topic: ask(url, topic)[0] for topic in TOPICS}


def ask_until_found(url, expected, tier, topics=TOPICS):
    """Asks for one topic after another until a prompt is found in the tier. (topic, its cached tokens, the tier's metrics)

    A tier whose answer is late is not waited for, so on a busy machine some prompts are computed. Other reasons fail the test.
    """
    before = of_tier(url, tier)
    for topic in topics:
        text, cached = ask(url, topic)
        assert text == expected[topic]
        told = of_tier(url, tier)
        if cached > 100:
            return topic, cached, told
        assert told["late_answers_total"] > before["late_answers_total"], told
        before = told
    raise AssertionError(f"each answer of the tier was late: {before}")


def wait_for(url, what, seconds=60):
    for _ in range(20 * seconds):
        if what(of_tier(url, "remote")):
            return
        time.sleep(0.05)
    raise AssertionError(of_tier(url, "remote"))


def test_second_servers_first_request_hits(expected):
    with redis() as port:
        flags = (*TINY, "--kv-remote", f"redis://127.0.0.1:{port}/2", "--kv-remote-ttl", "1000")
        with running(*flags) as first, running(*flags) as second:
            for topic in TOPICS:
                assert ask(first, topic) == (expected[topic], 0)
            wait_for(first, lambda told: told["stored_blocks_total"] >= 10 * len(TOPICS))
            topic, cached, told = ask_until_found(second, expected, "remote")
            assert cached == told["loaded_tokens_total"], told
            assert told["found_blocks_total"] * 16 >= cached and told["refused_total"] == told["failed_total"] == 0
            for topic in TOPICS:
                assert ask(first, topic)[0] == ask(second, topic)[0] == expected[topic]
        keys = cli(port, "-n", "2", "--scan").splitlines()
        assert len(keys) > 10 and all(key.startswith("quire:") for key in keys)
        assert 0 < int(cli(port, "-n", "2", "ttl", keys[0])) <= 1000
        with running(*flags, "--activations", "f32") as other:
            assert ask(other, topic)[1] == 0, "blocks of other activations must not hit"


def test_server_hits_its_earlier_blocks_and_memory_works_above(expected):
    with redis() as port:
        flags = (*TINY, "--kv-dram", "11MiB", "--kv-remote", f"redis://127.0.0.1:{port}")
        for _ in range(2):
            with running(*flags) as url:
                for topic in TOPICS:
                    text, _ = ask(url, topic)
                    assert text == expected[topic]
                wait_for(url, lambda told: told["stored_blocks_total"] + told["loaded_blocks_total"] >= 50)
                loaded = of_tier(url, "remote")["loaded_tokens_total"]
        assert loaded > 100 * len(TOPICS) / 2, "the second run must load the blocks of the first"


def test_python_engines_share_a_store():
    quire = pytest.importorskip("quire.engine", reason="the Python package has no engine: ./dev build")
    options = {"kv_cache_memory": "64MiB", "max_model_len": 512}
    story = "Here is all that there is to know about rivers, told slowly and with many examples. " * 8
    with redis() as port:
        address = f"redis://127.0.0.1:{port}"
        with quire.Engine(os.environ["QUIRE_TEST_MODEL"], kv_remote=address, kv_remote_ttl=1000, **options) as first:
            told = first.generate(story, temperature=0, max_tokens=8)
            for _ in range(600):
                if int(cli(port, "dbsize")) >= 8:
                    break
                time.sleep(0.05)
        with quire.Engine(os.environ["QUIRE_TEST_MODEL"], kv_remote=address, kv_remote_budget="1GiB", **options) as second:
            again = second.generate(story, temperature=0, max_tokens=8)
    assert again.tokens == told.tokens
    # On a slow machine some blocks may arrive too late and are computed.
    assert again.num_cached_tokens > 0 == told.num_cached_tokens
    with pytest.raises(ValueError, match="kv_remote: "):
        quire.Engine(os.environ["QUIRE_TEST_MODEL"], kv_remote="http://127.0.0.1", **options)


def test_killed_store_is_skipped_and_used_again(expected):
    port = free_port()
    with running(*TINY, "--kv-remote", f"redis://127.0.0.1:{port}") as url:
        with redis(port=port):
            wait_for(url, lambda told: told["loads_left_out"] == 0)
            for topic in TOPICS:
                assert ask(url, topic)[0] == expected[topic]
            wait_for(url, lambda told: told["stored_blocks_total"] >= 10)
        for turn in range(200):
            topic = TOPICS[turn % len(TOPICS)]
            assert ask(url, topic)[0] == expected[topic]
            told = of_tier(url, "remote")
            if told["loads_left_out"] and told["stores_left_out"]:
                break
        assert told["loads_left_out"] == told["stores_left_out"] == 1, told
        with redis(port=port):
            before = told["stored_blocks_total"]
            for turn in range(1000):
                topic = TOPICS[turn % len(TOPICS)]
                assert ask(url, topic)[0] == expected[topic]
                told = of_tier(url, "remote")
                if told["stored_blocks_total"] > before and not told["loads_left_out"]:
                    break
            assert told["stored_blocks_total"] > before and told["left_out_total"] >= 2, told


def test_full_store_is_still_read(expected):
    with redis("--maxmemory", "12mb", "--maxmemory-policy", "noeviction") as port:
        with running(*TINY, "--kv-remote", f"redis://127.0.0.1:{port}") as url:
            for _ in range(2):
                for topic in TOPICS:
                    assert ask(url, topic)[0] == expected[topic]
            told = of_tier(url, "remote")
            assert told["failed_total"] > 0 and told["loads_left_out"] == 0, told


def test_password_and_key_are_required(tmp_path, monkeypatch, expected):
    keys = []
    for number in range(2):
        keys.append(tmp_path / f"key{number}")
        keys[-1].write_text(f"{number}" * 32)
    with redis("--requirepass", "open sesame") as port:
        monkeypatch.setenv("QUIRE_KV_REMOTE", f"redis://:open%20sesame@127.0.0.1:{port}")
        with running(*TINY, "--kv-remote-key", str(keys[0])) as url:
            for topic in TOPICS:
                assert ask(url, topic) == (expected[topic], 0)
            wait_for(url, lambda told: told["stored_blocks_total"] >= 10 * len(TOPICS))
        for key, finds in zip(keys, (True, False)):
            with running(*TINY, "--kv-remote-key", str(key)) as url:
                if finds:
                    ask_until_found(url, expected, "remote")
                else:
                    assert all(ask(url, topic) == (expected[topic], 0) for topic in TOPICS)


def certificate(folder):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", folder / "key.pem", "-out", folder / "cert.pem",
                    "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"], check=True, capture_output=True)
    return folder / "cert.pem", folder / "key.pem"


def test_tls_certificates_are_verified(tmp_path, expected):
    cert, key = certificate(tmp_path)
    (tmp_path / "other").mkdir()
    other, _ = certificate(tmp_path / "other")
    port = free_port()
    with redis("--tls-port", str(port), "--tls-cert-file", str(cert), "--tls-key-file", str(key), "--tls-auth-clients", "no"):
        for host in ("localhost", "127.0.0.1"):
            with running(*TINY, "--kv-remote", f"rediss://{host}:{port}", "--kv-remote-ca", str(cert)) as url:
                assert ask(url, "rivers")[0] == expected["rivers"]
                wait_for(url, lambda told: told["stored_blocks_total"] + told["loaded_blocks_total"] >= 10)
        for flags in (("--kv-remote-ca", str(other)), ()):
            with running(*TINY, "--kv-remote", f"rediss://localhost:{port}", *flags) as url:
                assert ask(url, "bees")[0] == expected["bees"]
                wait_for(url, lambda told: told["failed_total"] > 0)
                assert of_tier(url, "remote")["stored_blocks_total"] == 0, "no block may go to a server with an invalid certificate"


def test_cluster_works_as_one_store(tmp_path, expected):
    with contextlib.ExitStack() as nodes:
        ports = []
        for number in range(3):
            (tmp_path / str(number)).mkdir()
            ports.append(nodes.enter_context(redis("--cluster-enabled", "yes", "--dir", str(tmp_path / str(number)), "--cluster-port", str(free_port()))))
        subprocess.run(["redis-cli", "--cluster", "create", *(f"127.0.0.1:{port}" for port in ports), "--cluster-yes"], check=True,
                       capture_output=True, timeout=60)
        while not all("cluster_state:ok" in cli(port, "cluster", "info") for port in ports):
            time.sleep(0.1)
        for port in ports[:2]:
            with running(*TINY, "--kv-remote", f"redis://127.0.0.1:{port}") as url:
                for topic in TOPICS:
                    assert ask(url, topic)[0] == expected[topic]
                wait_for(url, lambda told: told["stored_blocks_total"] + told["loaded_blocks_total"] >= 50)
                assert of_tier(url, "remote")["failed_total"] == 0
        assert all(int(cli(port, "dbsize")) > 10 for port in ports), "each node must have a share of the blocks"


def test_refusals_name_the_flag_and_the_remedy(tmp_path):
    short = tmp_path / "short"
    short.write_text("short\n")
    os.environ.pop("QUIRE_KV_REMOTE", None)
    assert "--kv-remote: the address must begin with redis://" in refusal(tmp_path, "--kv-remote", "http://127.0.0.1")
    assert "--kv-remote-key: is required, because others can write to a store on another machine" in refusal(tmp_path, "--kv-remote", "redis://10.0.0.1")
    assert "--kv-remote-key: " in refusal(tmp_path, "--kv-remote", "redis://10.0.0.1", "--kv-remote-key", str(short))
    assert "--kv-remote-budget: 1000 bytes are too small" in refusal(tmp_path, "--kv-remote", "redis://localhost", "--kv-remote-budget", "1000")
    assert "--kv-remote-ttl: 0 s" in refusal(tmp_path, "--kv-remote", "redis://localhost", "--kv-remote-ttl", "0")
    assert "--kv-remote-ca: " in refusal(tmp_path, "--kv-remote", "rediss://localhost", "--kv-remote-ca", str(short))
    assert "--kv-remote: prefix caching is off" in refusal(tmp_path, "--kv-remote", "redis://localhost", "--no-enable-prefix-caching")
    assert "--kv-remote-ttl requires --kv-remote" in refusal(tmp_path, "--kv-remote-ttl", "10")
