"""`quire serve --kv-role`: prompts computed by one server and answers given by another are those of one alone, through a proxy that does what
vLLM's toy proxy does; a server that is killed, and clients that go away, cost no answer and leave no block behind."""
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
FLAGS = ("--max-model-len", "512", "--max-num-seqs", "8", "--num-blocks", "400")
BLOCK_BYTES = 30 * 3 * 64 * 2 * 2 * 16  # layers, heads, numbers of a head, keys and values, bytes of bf16, tokens of a block


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
    """What the producer answers; its params, or none."""
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
def wanted():
    """What one server answers that does both."""
    with running(*FLAGS) as url:
        told = {how: {topic: how(url, topic) for topic in TOPICS} for how in (complete, chat, stream)}
        told[short] = {topic: complete(url, topic, text=short)[0] for topic in TOPICS}
        return told


@pytest.fixture(scope="module")
def num_tokens():
    with running(*FLAGS) as url:
        return {topic: json.load(post(url, "/tokenize", {"model": "smol", "prompt": prompt(topic)}))["count"] for topic in TOPICS}


def test_answers_of_two_servers_are_those_of_one_and_each_block_moves_once(tmp_path, wanted, num_tokens):
    key = tmp_path / "kv.key"
    key.write_bytes(os.urandom(32))
    flags = (*FLAGS, "--kv-port", "0", "--kv-key", str(key))
    with running(*flags, "--kv-role", "producer") as producer, running(*flags, "--kv-role", "consumer") as consumer:
        with proxied(producer, consumer) as url:
            for topic in TOPICS:
                assert complete(url, topic) == wanted[complete][topic]
            blocks = sum((count - 1) // 16 for count in num_tokens.values())
            told, kept = of_tier(consumer), of_tier(producer)
            # Prompts begin alike: the first blocks are there from the second on.
            shared = told["loaded_blocks_total"]
            assert 0 < shared <= blocks
            assert told["loaded_bytes_total"] == told["loaded_blocks_total"] * BLOCK_BYTES == kept["stored_bytes_total"]
            assert told["loaded_tokens_total"] == told["loaded_blocks_total"] * 16
            assert told["refused_total"] == told["failed_total"] == 0
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                assert dict(zip(TOPICS, pool.map(lambda topic: chat(url, topic), TOPICS))) == wanted[chat]
            assert {topic: stream(url, topic) for topic in TOPICS} == wanted[stream]
            wait_until(lambda: is_empty(producer) and is_empty(consumer))
            kept = of_tier(producer)
            assert kept["leases_total"] == 3 * len(TOPICS) and kept["open_leases"] == kept["expired_leases_total"] == 0


def test_either_side_may_be_killed(wanted):
    rng = random.Random(3)
    flags = (*FLAGS, "--kv-port", "0", "--kv-lease", "3")
    with contextlib.ExitStack() as stack:
        producer, of_producer = stack.enter_context(started(*flags, "--kv-role", "producer"))
        consumer, of_consumer = stack.enter_context(started(*flags, "--kv-role", "consumer"))
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
                    assert json.load(answer)["choices"][0]["text"] == wanted[short][topic]
            except (OSError, http.client.HTTPException):
                assert not kills_producer, "the other one goes on"
            assert time.monotonic() - begin < 60, "nobody waits for what will not come"
            timer.join()
            victim.wait(10)
            if kills_producer:
                wait_until(lambda: is_empty(consumer))
                producer, of_producer = stack.enter_context(started(*flags, "--kv-role", "producer"))
            else:
                wait_until(lambda: is_empty(producer))
                consumer, of_consumer = stack.enter_context(started(*flags, "--kv-role", "consumer"))


def go_away(url, path, body, seconds):
    """The whole request is sent; then nobody waits for the answer."""
    host, port = url.removeprefix("http://").split(":")
    text = json.dumps(body).encode()
    with socket.create_connection((host, int(port)), 10) as connection:
        connection.sendall(f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
                           f"Content-Length: {len(text)}\r\n\r\n".encode() + text)
        time.sleep(seconds)


def test_clients_that_go_away_leave_nothing_behind():
    flags = (*FLAGS, "--kv-port", "0", "--kv-role", "both")
    with running(*flags) as producer, running(*flags) as consumer:
        for turn, seconds in enumerate((0, 0.005, 0.02, 0.1, 0.5)):
            body = {"model": "smol", "prompt": f"{turn} " + short("rivers"), "max_tokens": 200, "temperature": 0, "ignore_eos": True}
            params = first_half(producer, "/v1/completions", body)
            assert params["remote_block_ids"][0]
            go_away(consumer, "/v1/completions", {**body, "kv_transfer_params": params}, seconds)
            wait_until(lambda: is_empty(consumer) and of_tier(producer)["open_leases"] == 0)
        # One that is refused tells the producer as well.
        params = first_half(producer, "/v1/completions", body)
        with pytest.raises(urllib.error.HTTPError):
            post(consumer, "/v1/completions", {**body, "n": 2, "temperature": 1, "kv_transfer_params": params})
        wait_until(lambda: is_empty(producer) and of_tier(producer)["open_leases"] == 0)
        # Of a prompt that is not computed to its end nothing is kept.
        go_away(producer, "/v1/completions", {**body, "prompt": prompt("glass"), "kv_transfer_params": {"do_remote_decode": True}}, 0.01)
        wait_until(lambda: is_empty(producer))
        assert of_tier(producer)["expired_leases_total"] == 0


def refusal(url, params, **more):
    with pytest.raises(urllib.error.HTTPError) as told:
        post(url, "/v1/completions", {"model": "smol", "prompt": "x", "max_tokens": 1, "kv_transfer_params": params, **more})
    assert told.value.code == 400
    return json.load(told.value)["error"]["message"]


def test_params_that_nobody_can_serve_are_refused_with_what_to_do():
    with running(*FLAGS) as url:
        assert "--kv-role" in refusal(url, {"do_remote_decode": True})
        assert "--kv-role" in refusal(url, {"do_remote_prefill": True})
    with running(*FLAGS, "--kv-role", "both", "--kv-port", "0") as url:
        assert "do not stream" in refusal(url, {"do_remote_decode": True}, stream=True)
        assert "remote_port" in refusal(url, {"do_remote_prefill": True, "remote_block_ids": [[1]]})
        assert "remote_block_ids" in refusal(url, {"do_remote_prefill": True, "remote_block_ids": [["x"]]})
        assert "remote_port" in refusal(url, {"do_remote_prefill": True, "remote_port": 70000})
        assert "one of them" in refusal(url, {"do_remote_prefill": True, "do_remote_decode": True})
        # Nobody is there: it is computed here.
        params = {"do_remote_prefill": True, "remote_block_ids": [[1, 2]], "remote_engine_id": "e", "remote_request_id": "r",
                  "remote_host": "127.0.0.1", "remote_port": free_port(), "tp_size": 1, "of_a_later_version": 1}
        with post(url, "/v1/completions", {"model": "smol", "prompt": prompt("bees"), "max_tokens": 1, "kv_transfer_params": params}) as answer:
            assert json.load(answer)["usage"]["completion_tokens"] == 1


@pytest.mark.parametrize("flags, told", [(("--kv-role", "both", "--kv-host", "0.0.0.0"), "--kv-host"),
                                         (("--kv-role", "both", "--kv-host", "192.0.2.1"), "--kv-key"),
                                         (("--kv-role", "both", "--kv-lease", "0"), "--kv-lease"),
                                         (("--kv-role", "both", "--kv-key", "/nonexistent"), "--kv-key"),
                                         (("--kv-role", "driver"), "--kv-role"), (("--kv-port", "1"), "--kv-role")])
def test_flags_that_are_wrong_are_refused_with_what_to_do(flags, told):
    binary, model = os.environ.get("QUIRE_BINARY"), os.environ.get("QUIRE_TEST_MODEL")
    if not binary or not model:
        pytest.skip("QUIRE_BINARY and QUIRE_TEST_MODEL are not set: ./dev test sets them")
    done = subprocess.run([binary, "serve", model, *flags], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and told in done.stderr, done.stderr
