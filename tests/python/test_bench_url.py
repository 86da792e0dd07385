"""Tests quire bench --url against quire's server, and against a small server whose answers are known."""
import contextlib
import http.server
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import threading
import time
import urllib.request

import pytest
import quire_server
from test_plot_page import data_of


def bench(url, *flags, status=0):
    done = subprocess.run([os.environ["QUIRE_BINARY"], "bench", "--url", url, *flags], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done


def results(url, *flags, status=0):
    return json.loads(bench(url, *flags, "--json", "-", status=status).stdout)


@pytest.fixture(scope="module", name="quire_url")
def _quire_url():
    with quire_server.running("--max-model-len", "1024") as url:
        yield url


@pytest.mark.parametrize("endpoint", ["/v1/completions", "/v1/chat/completions"])
def test_lengths_are_met_exactly(quire_url, endpoint):
    result = results(quire_url, "--endpoint", endpoint, "--num-prompts", "6", "--input-len", "100", "--output-len", "5", "--max-concurrency", "3",
                     "--num-warmups", "1", "--seed", "11", "--save-detailed")
    assert (result["completed"], result["failed"], result["unfinished"]) == (6, 0, 0)
    assert result["input_lens"] == [100] * 6, "the number of words is adapted to the tokenizer and to the chat template"
    assert result["output_lens"] == [5] * 6 and result["total_output_tokens"] == 30
    assert result["model_id"] == "smol" and result["max_concurrent_requests"] == 3
    assert 0 < result["mean_ttft_ms"] <= result["mean_e2el_ms"] <= 1000 * result["duration"]
    assert result["request_throughput"] == pytest.approx(6 / result["duration"])
    assert all(len(gaps) <= 4 for gaps in result["itls"])


def test_server_counts_the_same_requests(quire_url):
    def counted():
        text = urllib.request.urlopen(quire_url + "/metrics", timeout=30).read().decode()
        return {name: float(re.search(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)[1])
                for name in ("vllm:prompt_tokens_total", "vllm:generation_tokens_total")}
    before = counted()
    result = results(quire_url, "--num-prompts", "4", "--input-len", "64", "--output-len", "3", "--request-rate", "50", "--seed", "12")
    after = counted()
    # The two requests that measure the words have one output token each.
    assert after["vllm:generation_tokens_total"] - before["vllm:generation_tokens_total"] == 4 * 3 + 2
    assert after["vllm:prompt_tokens_total"] - before["vllm:prompt_tokens_total"] >= 4 * 64
    assert result["total_input_tokens"] == 4 * 64 and result["request_rate"] == 50


def test_prompts_of_a_prefix_hit_the_cache(quire_url):
    result = results(quire_url, "--workload", "prefix", "--num-prefixes", "2", "--prefix-len", "160", "--suffix-len", "16", "--output-len", "2",
                     "--num-prompts", "8", "--max-concurrency", "1", "--seed", "13")
    assert result["completed"] == 8
    # Each of the six later requests finds at least 144 of the 160 tokens in full blocks.
    assert 6 * 144 <= result["total_cached_tokens"] <= 6 * 176


def test_traces_and_sharegpt_files_are_played(quire_url, tmp_path):
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(json.dumps({"timestamp": 100 * i, "input_length": 40, "output_length": 3, "hash_ids": [i % 2]}) + "\n" for i in range(4)))
    result = results(quire_url, "--workload", "trace", "--dataset-path", str(trace), "--save-detailed")
    assert result["input_lens"] == [40] * 4 and result["output_lens"] == [3] * 4 and result["request_rate"] is None
    assert all(start >= 0.1 * i for i, start in enumerate(result["start_times"]))
    talks = tmp_path / "talks.json"
    talks.write_text(json.dumps([{"conversations": [{"from": "human", "value": "Name three rivers of Europe."}, {"from": "gpt", "value": "Rhine. " * 9}]}]))
    result = results(quire_url, "--workload", "sharegpt", "--dataset-path", str(talks), "--num-prompts", "2", "--output-len", "4", "--save-detailed")
    assert result["completed"] == 2 and all(1 <= length <= 4 for length in result["output_lens"])


def test_files_have_the_results(quire_url, tmp_path):
    done = bench(quire_url, "--num-prompts", "3", "--input-len", "32", "--output-len", "2", "--goodput", "ttft:60000", "tpot:60000",
                 "--json", str(tmp_path / "run.json"), "--plot", str(tmp_path / "run.html"))
    assert "completed               3 " in done.stdout and "TTFT <= 60000 ms, TPOT <= 60000 ms" in done.stdout
    result = json.loads((tmp_path / "run.json").read_text())
    assert result["request_goodput"] == pytest.approx(result["request_throughput"])
    assert json.loads(data_of(tmp_path / "run.html")) == result


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers a prompt by the number of its request: an answer of two tokens, or a defect. Two requests precede the load."""
    protocol_version = "HTTP/1.1"
    number = -2
    lock = threading.Lock()

    def log_message(self, *_args):
        pass

    def do_GET(self):
        self.plain(200, {"data": [{"id": "fake"}]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with Handler.lock:
            number = Handler.number
            Handler.number += 1
        kind = number % 4 if number >= 0 else 0
        if kind == 1:
            return self.plain(429, {"error": {"message": f"{number} requests wait"}})
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.event({"choices": [{"text": " a"}]})
        if kind == 2:
            self.close_connection = True
            return None
        if kind == 3:
            time.sleep(self.server.slow_s)
        self.event({"choices": [{"text": " b", "finish_reason": "length"}]})
        self.event({"choices": [], "usage": {"prompt_tokens": len(body["prompt"].split()), "completion_tokens": 2}})
        self.chunk(b"data: [DONE]\n\n")
        self.chunk(b"")
        return None

    def event(self, value):
        self.chunk(f"data: {json.dumps(value)}\n\n".encode())

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def plain(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextlib.contextmanager
def fake_server(slow_s=0.0, tls=None):
    Handler.number = -2
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.slow_s = slow_s
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"{'https://localhost' if tls else 'http://127.0.0.1'}:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


needs_binary = pytest.mark.skipif("QUIRE_BINARY" not in os.environ, reason="QUIRE_BINARY is not set: ./dev test sets it")


@needs_binary
def test_failures_are_counted_by_reason():
    with fake_server() as url:
        result = results(url, "--num-prompts", "8", "--input-len", "20", "--max-concurrency", "1", "--save-detailed", status=1)
    assert (result["completed"], result["failed"]) == (4, 4)
    assert result["failures"] == [{"reason": "429: 1 requests wait", "count": 2}, {"reason": "the connection was closed before the end of the answer", "count": 2}]
    assert result["total_input_tokens"] == 4 * 20 and result["total_output_tokens"] == 8
    assert [bool(error) for error in result["errors"]] == [False, True, True, False] * 2
    assert result["total_cached_tokens"] is None


@needs_binary
def test_https_checks_the_certificate_of_each_connection(tmp_path, monkeypatch):
    if not shutil.which("openssl"):
        pytest.skip("no openssl to make a certificate with")
    key, certificate = tmp_path / "key.pem", tmp_path / "localhost.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
                    "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate], check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    with fake_server(tls=tls) as url:
        assert "certificate verify failed" in bench(url, "--num-prompts", "1", status=2).stderr
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        result = results(url, "--num-prompts", "4", "--input-len", "20", "--max-concurrency", "1", status=1)
        assert (result["completed"], result["failed"]) == (2, 2)
        other_name = url.replace("localhost", "127.0.0.1")
        assert "certificate verify failed" in bench(other_name, "--num-prompts", "1", status=2).stderr


@needs_binary
def test_slow_answers_fail_after_the_timeout():
    with fake_server(slow_s=5.0) as url:
        result = results(url, "--num-prompts", "4", "--input-len", "20", "--max-concurrency", "1", "--timeout", "1", status=1)
    assert {"reason": "no complete answer within 1 s (--timeout)", "count": 1} in result["failures"]


@needs_binary
def test_interrupt_prints_the_results_so_far():
    with fake_server(slow_s=60.0) as url:
        process = subprocess.Popen([os.environ["QUIRE_BINARY"], "bench", "--url", url, "--num-prompts", "8", "--input-len", "20", "--max-concurrency", "1"],
                                   stdout=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 60
        while Handler.number < 4 and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "completed               1 " in out and "429: 1 requests wait   x 1" in out
    assert "5 requests have no result" in out


@needs_binary
@pytest.mark.parametrize("flags, message", [
    (("--url", "http://127.0.0.1:9"), "--url: no server answers at http://127.0.0.1:9: Connection refused; start the server"),
    (("--url", "127.0.0.1:8000"), "--url: '127.0.0.1:8000' "),
    (("--url", "http://h", "--request-rate", "0"), "--request-rate: is 0"),
    (("--url", "http://h", "--request-rate", "-1"), "--request-rate: is -1"),
    (("--url", "http://h", "--request-rate", "nan"), "--request-rate: is nan"),
    (("--url", "http://h", "--max-concurrency", "1000000000"), "--max-concurrency: is 1000000000; use 1 to "),
    (("--url", "http://h", "--max-concurrency", "0"), "--max-concurrency: is 0; use 1 to "),
    (("--url", "http://h", "--num-prompts", "0"), "--num-prompts: is 0"),
    (("--url", "http://h", "--num-prompts", "2000000000"), "--num-prompts: is 2000000000"),
    (("--url", "http://h", "--burstiness", "0"), "--burstiness: is 0"),
    (("--url", "http://h", "--timeout", "0"), "--timeout: is 0"),
    (("--url", "http://h", "--input-len", "0"), "--input-len: is 0"),
    (("--url", "http://h", "--goodput", "itl:5"), "--goodput: 'itl:5' has an unknown name"),
    (("--url", "http://h", "--extra-body", "[]"), "--extra-body: is not a JSON object"),
    (("--url", "http://h", "--workload", "trace"), "--dataset-path: is missing"),
    (("--url", "http://h", "--dataset-path", "x"), "--dataset-path: has no effect with this workload"),
    (("--url", "http://h", "--endpoint", "/v1/embeddings"), "--endpoint: is '/v1/embeddings'"),
    (("--url", "http://h", "model.gguf"), "MODEL: has no effect with --url"),
    (("--url", "http://h", "--concurrency", "8"), "--concurrency: has no effect with --url"),
    (("model.gguf", "--request-rate", "3"), "--request-rate: has no effect without --url"),
    ((), "MODEL: is missing; give a model, or --url"),
])
def test_bad_flags_are_named_before_any_request(flags, message):
    done = subprocess.run([os.environ["QUIRE_BINARY"], "bench", *flags], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("quire: " + message), done.stderr
