"""Tests an operator's calls to a running server, and fields that need a flag."""
import json
import os
import re
import subprocess
import threading
import time
import urllib.error
import urllib.request

import pytest

from quire_server import running


def call(url, body=None, method="POST", headers=None):
    data = json.dumps(body).encode() if body is not None else (b"" if method == "POST" else None)
    request = urllib.request.Request(url, data=data, method=method, headers={"Content-Type": "application/json", **(headers or {})})
    try:
        with urllib.request.urlopen(request, timeout=120) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def complete(url, **fields):
    status, answer = call(url + "/v1/completions", {"prompt": "One, two, three,", "max_tokens": 8, "temperature": 0, **fields})
    assert status == 200, answer
    return answer["choices"][0]["text"]


def wait_until_running(url):
    for _ in range(1000):
        with urllib.request.urlopen(url + "/metrics", timeout=60) as response:
            if re.search(r"^vllm:num_requests_running(\{.*\})? 1$", response.read().decode(), re.MULTILINE):
                return
        time.sleep(0.02)
    raise AssertionError("the request never ran")


def total(url, name):
    """Returns the value in /metrics, or None if the name does not exist."""
    with urllib.request.urlopen(url + "/metrics", timeout=60) as response:
        found = re.search(rf"^{name}\{{.*\}} (.*)$", response.read().decode(), re.MULTILINE)
    return float(found[1]) if found else None


@pytest.fixture(scope="module", params=["--async-scheduling", "--no-async-scheduling"])
def url(request):
    with running(request.param) as base:
        yield base


def test_pause_keep_resumes_requests(url):
    plain = complete(url, max_tokens=200, ignore_eos=True)
    answers = []
    client = threading.Thread(target=lambda: answers.append(complete(url, max_tokens=200, ignore_eos=True)))
    client.start()
    time.sleep(0.2)
    assert call(url + "/pause?mode=keep") == (200, {"status": "paused"})
    assert call(url + "/is_paused", method="GET") == (200, {"is_paused": True})
    late = threading.Thread(target=lambda: answers.append(complete(url)))
    late.start()
    time.sleep(0.3)
    had_ended = len(answers)
    assert call(url + "/resume") == (200, {"status": "resumed"})
    assert call(url + "/is_paused", method="GET") == (200, {"is_paused": False})
    client.join(60)
    late.join(60)
    assert had_ended <= 1 and len(answers) == 2
    assert plain in answers and complete(url) in answers


def test_pause_abort_ends_requests_and_wait_finishes_them(url):
    for mode, reason, max_tokens in [("abort", "abort", 8000), ("wait", "length", 600)]:
        answers = []
        body = {"prompt": "Count:", "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
        client = threading.Thread(target=lambda: answers.append(call(url + "/v1/completions", body)))
        client.start()
        wait_until_running(url)
        assert call(url + f"/pause?mode={mode}&clear_cache=false") == (200, {"status": "paused"})
        client.join(60)
        assert answers[0][1]["choices"][0]["finish_reason"] == reason
        assert call(url + "/resume")[0] == 200


def test_reset_clears_the_prefix_cache(url):
    prompt = {"prompt": "a river runs through it " * 20, "max_tokens": 1}
    cached = lambda: call(url + "/v1/completions", prompt)[1]["usage"]["prompt_tokens_details"]["cached_tokens"]
    cached()
    assert cached() > 0
    assert call(url + "/reset_prefix_cache") == (200, {"reset": True})
    assert cached() == 0


def test_block_metrics_exist_only_with_their_flags(url):
    names = ["vllm:kv_block_lifetime_seconds_count", "vllm:kv_block_idle_before_evict_seconds_count", "quire:common_prefix_blocks_count"]
    assert [total(url, name) for name in names] == [None, None, None]
    with running("--num-blocks", "24", "--kv-cache-metrics", "--kv-cache-metrics-sample", "1", "--count-common-prefix") as other:
        for prompt in ("One", "Two", "Three"):
            complete(other, prompt=prompt, n=2, temperature=1, max_tokens=120, ignore_eos=True)
        assert all(total(other, name) > 0 for name in names)
        assert total(other, "vllm:kv_block_reuse_gap_seconds_count") is not None


def test_metrics_sample_requires_cache_metrics():
    done = subprocess.run([os.environ["QUIRE_BINARY"], "serve", "model.gguf", "--kv-cache-metrics-sample", "0.5"], capture_output=True, text=True,
                          timeout=60, check=False)
    assert done.returncode != 0 and "--kv-cache-metrics-sample requires --kv-cache-metrics" in done.stderr


def test_misspelt_fields_and_remote_clients_are_refused(url):
    status, answer = call(url + "/pause?mod=keep")
    assert status == 400 and answer["error"]["param"] == "mod" and "'mode'" in answer["error"]["message"]
    assert call(url + "/pause", headers={"Origin": "http://example.com"})[0] == 403
    assert call(url + "/pause", headers={"X-Forwarded-For": "192.0.2.1"})[0] == 403
    assert call(url + "/is_paused", method="GET")[1] == {"is_paused": False}


def test_priority_requires_its_policy(url):
    status, answer = call(url + "/v1/completions", {"prompt": "a", "priority": 1})
    assert status == 400 and answer["error"]["param"] == "priority" and "--scheduling-policy priority" in answer["error"]["message"]
    with running("--scheduling-policy", "priority") as other:
        assert complete(other, priority=-5) == complete(other)
