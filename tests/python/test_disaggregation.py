"""Tests `quire serve --kv-role`: prompts computed by one server and answered by another give the answers of one server, through a proxy
like vLLM's toy proxy. Killed servers and disconnected clients lose no answer and leave no block held.
"""
import concurrent.futures
import contextlib
import http.client
import http.server
import json
import os
import random
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request

import openai
import pytest

from quire_server import free_port, running, started

TOPICS = ("rivers", "bridges", "clocks", "maps", "bees", "glass", "salt", "tides")
HERE = ("--kv-producers", "127.0.0.1")
FLAGS = ("--max-model-len", "512", "--max-num-seqs", "8", "--num-blocks", "400")
BLOCK_BYTES = 30 * 3 * 64 * 2 * 2 * 16  # layers, heads, head size, keys and values, bytes of bf16, tokens of a block


def prompt(topic):
    return f"Here is all that there is to know about {topic}, told slowly and with many examples. " * 12


def short(topic):
    return f"Here is all that there is to know about {topic}, told slowly and with many examples. " * 4


def post(url, path, body, timeout=60):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return urllib.request.urlopen(request, timeout=timeout)


def of_tier(url):
    text = urllib.request.urlopen(url + "/metrics", timeout=30).read().decode()
    return {name: float(value) for name, value in re.findall(r'^quire:kv_tier_(\w+)\{[^}]*tier="peer"\} (\S+)$', text, re.MULTILINE)}


def gauge(url, name):
    text = urllib.request.urlopen(url + "/metrics", timeout=30).read().decode()
    return float(re.search(rf"^{re.escape(name)}\{{[^}}]*\}} (\S+)$", text, re.MULTILINE)[1])


def is_empty(url):
    return gauge(url, "vllm:kv_cache_usage_perc") == 0


def wait_until(what, seconds=50):
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def first_half(url, path, body):
    """Returns the kv_transfer_params of the producer's answer, or None."""
    body = {**body, "kv_transfer_params": {"do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None,
                                           "remote_block_ids": None, "remote_host": None, "remote_port": None},
            "stream": False, "max_tokens": 1}
    if "max_completion_tokens" in body:
        body["max_completion_tokens"] = 1
    body.pop("stream_options", None)
    body.pop("min_tokens", None)
    with post(url, path, body) as answer:
        return json.load(answer).get("kv_transfer_params")


class Proxy(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"
    producer = consumer = None

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            params = first_half(self.producer, self.path, body)
            if params:
                body["kv_transfer_params"] = params
            with post(self.consumer, self.path, body) as answer:
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.headers["Content-Type"])
                self.end_headers()
                while chunk := answer.read1(65536):
                    self.wfile.write(chunk)
        except urllib.error.HTTPError as error:
            self.send_response(error.code)
            self.end_headers()
            self.wfile.write(error.read())

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def proxied(producer, consumer):
    handler = type("Handler", (Proxy,), {"producer": producer, "consumer": consumer})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def client_of(url):
    return openai.OpenAI(base_url=url + "/v1", api_key="-", max_retries=0, timeout=120)


def complete(url, topic, text=prompt):
    done = client_of(url).completions.create(model="smol", prompt=text(topic), max_tokens=24, temperature=0, logprobs=1)
    return done.choices[0].text, done.choices[0].logprobs.token_logprobs


def chat(url, topic):
    messages = [{"role": "user", "content": prompt(topic) + " Sum it up."}]
    done = client_of(url).chat.completions.create(model="smol", messages=messages, max_tokens=24, temperature=0, logprobs=True)
    return done.choices[0].message.content, [token.logprob for token in done.choices[0].logprobs.content]


def stream(url, topic):
    parts = client_of(url).completions.create(model="smol", prompt=prompt(topic), max_tokens=24, temperature=0.8, seed=7, stream=True)
    return "".join(part.choices[0].text for part in parts)


@pytest.fixture(scope="module")
def expected():
    """Returns the answers of one server that does both."""
    with running(*FLAGS) as url:
        told = {how: {topic: how(url, topic) for topic in TOPICS} for how in (complete, chat, stream)}
        told[short] = {topic: complete(url, topic, text=short)[0] for topic in TOPICS}
        return told


@pytest.fixture(scope="module")
def num_tokens():
    with running(*FLAGS) as url:
        return {topic: json.load(post(url, "/tokenize", {"model": "smol", "prompt": prompt(topic)}))["count"] for topic in TOPICS}


def test_two_servers_answer_like_one_and_move_each_block_once(tmp_path, expected, num_tokens):
    key = tmp_path / "kv.key"
    key.write_bytes(os.urandom(32))
    flags = (*FLAGS, "--kv-port", "0", "--kv-key", str(key))
    with running(*flags, "--kv-role", "producer") as producer, running(*flags, "--kv-role", "consumer", *HERE) as consumer:
        with proxied(producer, consumer) as url:
            for topic in TOPICS:
                assert complete(url, topic) == expected[complete][topic]
            blocks = sum((count - 1) // 16 for count in num_tokens.values())
            told, kept = of_tier(consumer), of_tier(producer)
            # All prompts share a prefix: the consumer has its blocks from the second prompt on.
            shared = told["loaded_blocks_total"]
            assert 0 < shared <= blocks
            assert told["loaded_bytes_total"] == told["loaded_blocks_total"] * BLOCK_BYTES == kept["stored_bytes_total"]
            assert told["loaded_tokens_total"] == told["loaded_blocks_total"] * 16
            assert told["refused_total"] == told["failed_total"] == 0
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                assert dict(zip(TOPICS, pool.map(lambda topic: chat(url, topic), TOPICS))) == expected[chat]
            assert {topic: stream(url, topic) for topic in TOPICS} == expected[stream]
            wait_until(lambda: is_empty(producer) and is_empty(consumer))
            kept = of_tier(producer)
            assert kept["leases_total"] == 3 * len(TOPICS) and kept["open_leases"] == kept["expired_leases_total"] == 0


def test_answers_survive_a_kill_of_either_side(expected):
    rng = random.Random(3)
    flags = (*FLAGS, "--kv-port", "0", "--kv-lease", "3")
    with contextlib.ExitStack() as stack:
        producer, of_producer = stack.enter_context(started(*flags, "--kv-role", "producer"))
        consumer, of_consumer = stack.enter_context(started(*flags, "--kv-role", "consumer", *HERE))
        for turn in range(6):
            topic = rng.choice(TOPICS)
            body = {"model": "smol", "prompt": short(topic), "max_tokens": 24, "temperature": 0}
            params = first_half(producer, "/v1/completions", body)
            assert params["do_remote_prefill"] and params["remote_block_ids"][0]
            kills_producer = turn % 2 == 0
            victim = of_producer if kills_producer else of_consumer
            timer = threading.Timer(rng.choice([0, 0.01, 0.05]), victim.send_signal, [signal.SIGKILL])
            timer.start()
            if rng.random() < 0.5:
                timer.join()
            begin = time.monotonic()
            try:
                with post(consumer, "/v1/completions", {**body, "kv_transfer_params": params}) as answer:
                    assert json.load(answer)["choices"][0]["text"] == expected[short][topic]
            except (OSError, http.client.HTTPException):
                assert not kills_producer, "the other server must continue"
            assert time.monotonic() - begin < 60, "no request may wait for a dead server"
            timer.join()
            victim.wait(10)
            if kills_producer:
                wait_until(lambda: is_empty(consumer))
                producer, of_producer = stack.enter_context(started(*flags, "--kv-role", "producer"))
            else:
                wait_until(lambda: is_empty(producer))
                consumer, of_consumer = stack.enter_context(started(*flags, "--kv-role", "consumer", *HERE))


def go_away(url, path, body, seconds):
    """Sends the whole request and disconnects without waiting for the answer."""
    host, port = url.removeprefix("http://").split(":")
    text = json.dumps(body).encode()
    with socket.create_connection((host, int(port)), 10) as connection:
        connection.sendall(f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
                           f"Content-Length: {len(text)}\r\n\r\n".encode() + text)
        time.sleep(seconds)


def test_disconnected_clients_leave_no_blocks():
    flags = (*FLAGS, "--kv-port", "0", "--kv-role", "both", *HERE)
    with running(*flags) as producer, running(*flags) as consumer:
        for turn, seconds in enumerate((0, 0.005, 0.02, 0.1, 0.5)):
            body = {"model": "smol", "prompt": f"{turn} " + short("rivers"), "max_tokens": 200, "temperature": 0, "ignore_eos": True}
            params = first_half(producer, "/v1/completions", body)
            assert params["remote_block_ids"][0]
            go_away(consumer, "/v1/completions", {**body, "kv_transfer_params": params}, seconds)
            wait_until(lambda: is_empty(consumer) and of_tier(producer)["open_leases"] == 0)
        # A refused request also notifies the producer.
        params = first_half(producer, "/v1/completions", body)
        with pytest.raises(urllib.error.HTTPError):
            post(consumer, "/v1/completions", {**body, "n": 2, "temperature": 1, "kv_transfer_params": params})
        wait_until(lambda: is_empty(producer) and of_tier(producer)["open_leases"] == 0)
        # The blocks of a prompt that is not computed to its end are freed.
        go_away(producer, "/v1/completions", {**body, "prompt": prompt("glass"), "kv_transfer_params": {"do_remote_decode": True}}, 0.01)
        wait_until(lambda: is_empty(producer))
        assert of_tier(producer)["expired_leases_total"] == 0


def refusal(url, params, **more):
    with pytest.raises(urllib.error.HTTPError) as told:
        post(url, "/v1/completions", {"model": "smol", "prompt": "x", "max_tokens": 1, "kv_transfer_params": params, **more})
    assert told.value.code == 400
    return json.load(told.value)["error"]["message"]


def test_unusable_params_are_refused_with_a_remedy():
    with running(*FLAGS) as url:
        assert "--kv-role" in refusal(url, {"do_remote_decode": True})
        assert "--kv-role" in refusal(url, {"do_remote_prefill": True})
    with running(*FLAGS, "--kv-role", "both", "--kv-port", "0", *HERE) as url:
        assert "do not stream" in refusal(url, {"do_remote_decode": True}, stream=True)
        assert "remote_port" in refusal(url, {"do_remote_prefill": True, "remote_block_ids": [[1]]})
        assert "remote_block_ids" in refusal(url, {"do_remote_prefill": True, "remote_block_ids": [["x"]]})
        assert "remote_port" in refusal(url, {"do_remote_prefill": True, "remote_port": 70000})
        assert "one of them" in refusal(url, {"do_remote_prefill": True, "do_remote_decode": True})
        # The producer does not exist, so the consumer computes the prompt.
        params = {"do_remote_prefill": True, "remote_block_ids": [[1, 2]], "remote_engine_id": "e", "remote_request_id": "r",
                  "remote_host": "127.0.0.1", "remote_port": free_port(), "tp_size": 1, "of_a_later_version": 1}
        with post(url, "/v1/completions", {"model": "smol", "prompt": prompt("bees"), "max_tokens": 1, "kv_transfer_params": params}) as answer:
            assert json.load(answer)["usage"]["completion_tokens"] == 1


def listening():
    """A socket that detects any connection."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    return listener


def has_caller(listener):
    try:
        listener.accept()[0].close()
        return True
    except BlockingIOError:
        return False


@pytest.mark.parametrize("role", ["consumer", "both"])
def test_request_can_only_contact_allowed_producers(role):
    with contextlib.ExitStack() as stack:
        allowed, other = stack.enter_context(listening()), stack.enter_context(listening())
        allowed_port, other_port = allowed.getsockname()[1], other.getsockname()[1]
        params = {"do_remote_prefill": True, "remote_block_ids": [[1, 2]], "remote_engine_id": "e", "remote_request_id": "r", "tp_size": 1}
        url = stack.enter_context(running(*FLAGS, "--kv-role", role, "--kv-port", "0", "--kv-producers",
                                          f"127.0.0.1:{allowed_port},[::1]:7"))
        for host, port in (("127.0.0.1", other_port), ("localhost", allowed_port), ("127.0.0.2", allowed_port), ("[::1]", other_port),
                           ("169.254.169.254", 80), ("producer.example.", 5600), ("0x7f.0.0.1", allowed_port), ("127.1", allowed_port)):
            for more in ({}, {"n": 2}, {"stream": True}):
                told = refusal(url, params | {"remote_host": host, "remote_port": port}, **more)
                assert "n" in more or ("--kv-producers" in told and host in told)
        time.sleep(0.5)
        assert not has_caller(other) and not has_caller(allowed)
        body = {"model": "smol", "prompt": prompt("salt"), "max_tokens": 1}
        for host in ("127.0.0.1",):
            with post(url, "/v1/completions", {**body, "kv_transfer_params": params | {"remote_host": host, "remote_port": allowed_port}}):
                pass
        wait_until(lambda: has_caller(allowed))
        # A request that is refused for another reason loads nothing; only its producer is notified.
        with pytest.raises(urllib.error.HTTPError):
            post(url, "/v1/completions", {**body, "n": 2, "kv_transfer_params": params | {"remote_host": "127.0.0.1", "remote_port": other_port}})
        time.sleep(0.3)
        assert not has_caller(other)


def test_consumer_without_producers_contacts_no_host():
    with listening() as listener, running(*FLAGS, "--kv-role", "consumer") as url:
        params = {"do_remote_prefill": True, "remote_block_ids": [[1]], "remote_engine_id": "e", "remote_request_id": "r",
                  "remote_host": "127.0.0.1", "remote_port": listener.getsockname()[1]}
        assert "--kv-producers" in refusal(url, params)
        time.sleep(0.3)
        assert not has_caller(listener)


@pytest.mark.parametrize("flags, told", [(("--kv-role", "both", "--kv-producers", "127.0.0.1:0"), "--kv-producers"),
                                         (("--kv-role", "both", "--kv-producers", "a:b:1"), "--kv-producers"),
                                         (("--kv-role", "producer", "--kv-producers", "127.0.0.1"), "--kv-producers"),
                                         (("--kv-role", "consumer", "--kv-producers", "192.0.2.1:5600"), "--kv-key"),
                                         (("--kv-role", "both", "--kv-host", "0.0.0.0"), "--kv-host"),
                                         (("--kv-role", "both", "--kv-host", "192.0.2.1"), "--kv-key"),
                                         (("--kv-role", "both", "--kv-lease", "0"), "--kv-lease"),
                                         (("--kv-role", "both", "--kv-key", "/nonexistent"), "--kv-key"),
                                         (("--kv-role", "driver"), "--kv-role"), (("--kv-port", "1"), "--kv-role")])
def test_invalid_flags_are_refused_with_a_remedy(flags, told):
    binary, model = os.environ.get("QUIRE_BINARY"), os.environ.get("QUIRE_TEST_MODEL")
    if not binary or not model:
        pytest.skip("QUIRE_BINARY and QUIRE_TEST_MODEL are not set: ./dev test sets them")
    done = subprocess.run([binary, "serve", model, *flags], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and told in done.stderr, done.stderr
