"""Tests GET /v1/watch on a real model: its blocks match /metrics, and its requests are the running ones."""
import base64
import concurrent.futures
import json
import re
import time
import urllib.request

from quire_server import running
from test_explain import ask

HELD, CACHED = 0, 1


def look(url, since=0):
    return json.load(urllib.request.urlopen(f"{url}/v1/watch?since={since}", timeout=30))


def apply(blocks, told):
    """Applies changes as docs/dashboard.md describes; keeps holders, flags, hits and owner of each block."""
    data, at, block = base64.b64decode(told["blocks"]["changes"]), 0, 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        block += number()
        count, flags, holders, hits, owner, _ = (number() for _ in range(6))
        for i in range(block, block + count):
            blocks[i] = (holders, flags, hits, owner)
        block += count
    return blocks


def watch(url):
    told = look(url)
    return told, apply([(0, 0, 0, 0)] * told["blocks"]["count"], told)


def metric(url, name):
    text = urllib.request.urlopen(url + "/metrics", timeout=30).read().decode()
    return int(re.search(rf"^{name}\{{[^}}]*\}} (\d+)$", text, re.MULTILINE)[1])


def test_blocks_and_requests_match_the_server():
    with running("--num-blocks", "200", "--max-model-len", "1024", "--max-num-seqs", "2") as url:
        empty, blocks = watch(url)
        assert len(blocks) == 200 and empty["requests"] == []
        assert blocks == [(0, 0, 0, 0)] * 200
        shared = "The lighthouse keeper counted the ships that passed, and wrote each of them down. " * 6
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            answers = [pool.submit(ask, url, shared + str(i), max_tokens=150, extra_body={"ignore_eos": True}) for i in range(4)]
            seen, last = {}, empty
            while not all(answer.done() for answer in answers):
                time.sleep(0.1)
                told = look(url, last["frame"])
                if "engine" not in told:
                    continue
                assert told["since"] == last["frame"]
                blocks, last = apply(blocks, told), told
                for row in told["requests"]:
                    fields = dict(zip(told["request_fields"], row))
                    seen.setdefault(fields["name"], []).append((fields["state"], fields["waits_for"]))
            names = {answer.result().id for answer in answers}
        assert set(seen) <= names and seen
        states = [state for states in seen.values() for state, _ in states]
        assert "decode" in states
        assert {cause for states in seen.values() for state, cause in states if state == "queued"} <= {"no_slot", "next_step"}
        time.sleep(0.3)
        told = look(url, last["frame"])
        blocks = apply(blocks, told)
        assert told["requests"] == []
        assert sum(block[HELD] > 0 for block in blocks) == 0 == told["engine"]["blocks"] - told["engine"]["free_blocks"]
        assert sum(block[CACHED] & 1 for block in blocks) > 20, "the computed blocks must be cached"
        assert max(block[2] for block in blocks) >= 1, "later requests must hit blocks of the first ones"
        assert metric(url, "quire:kv_cache_blocks") == len(blocks) - 1
        time.sleep(0.3)
        assert watch(url)[1] == blocks, "a new client must see the same blocks"


def test_page_is_served():
    with running() as url:
        answer = urllib.request.urlopen(url + "/dashboard", timeout=30)
        assert answer.headers["Content-Type"].startswith("text/html")
        assert "connect-src 'self'" in answer.headers["Content-Security-Policy"]
        assert b"v1/watch" in answer.read()
