"""KV cache events, as a router reads them: over ZeroMQ, decoded by structs that are declared as vLLM 0.19.0 and 0.32.0 declare them."""
import collections
import contextlib
import json
import os
import random
import re
import subprocess
import time
import urllib.request

import msgspec
import pytest
import zmq

from quire_server import free_port, running
from windowed_model import write_windowed

Hash = bytes | int


class Event(msgspec.Struct, array_like=True, tag=True):
    pass


class BlockStored(Event):
    block_hashes: list[Hash]
    parent_block_hash: Hash | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[tuple | None] | None = None


class BlockRemoved(Event):
    block_hashes: list[Hash]
    medium: str | None


class AllBlocksCleared(Event):
    pass


class Batch(msgspec.Struct, array_like=True):
    ts: float
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]
    data_parallel_rank: int | None = None


# Nothing is left over: what is not declared here is refused.
class NewEvent(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    pass


class NewBlockStored(NewEvent, tag="BlockStored"):
    block_hashes: list[Hash]
    parent_block_hash: Hash | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[tuple | None] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None
    locality: str | None = None
    ownership: str | None = None
    session_id: str | None = None


class NewBlockRemoved(NewEvent, tag="BlockRemoved"):
    block_hashes: list[Hash]
    medium: str | None
    group_idx: int | None = None
    locality: str | None = None
    ownership: str | None = None


class NewAllBlocksCleared(NewEvent, tag="AllBlocksCleared"):
    pass


class NewBatch(msgspec.Struct, array_like=True):
    ts: float
    events: list[NewBlockStored | NewBlockRemoved | NewAllBlocksCleared]
    data_parallel_rank: int | None = None


END = (-1).to_bytes(8, "big", signed=True)
FORMATS = {"0.19.0": msgspec.msgpack.Decoder(Batch), "0.32.0": msgspec.msgpack.Decoder(NewBatch)}


class Router:
    """Mirrors what a server's cache holds."""

    def __init__(self, context, port, replay_port, topic=b"kv", format="0.19.0"):
        self.decode, self.topic, self.disk = FORMATS[format].decode, topic, "DISK" if format == "0.19.0" else "STORAGE"
        self.groups = {}
        self.held, self.next, self.context, self.replay_port = collections.Counter(), 0, context, replay_port
        self.below = {"CPU": collections.Counter(), self.disk: collections.Counter()}
        self.num_asked, self.num_cleared = 0, 0
        self.socket = context.socket(zmq.SUB)
        self.socket.setsockopt(zmq.SUBSCRIBE, topic)
        self.socket.connect(f"tcp://127.0.0.1:{port}")
        time.sleep(0.2)  # a subscription takes effect when the publisher has heard of it

    def take(self, number, payload):
        if number < self.next:
            return
        assert number == self.next, "what was missed has been asked for"
        self.next += 1
        for event in self.decode(payload).events:
            if getattr(event, "medium", "GPU") != "GPU":
                if isinstance(event, BlockStored | NewBlockStored):
                    assert (event.token_ids, event.parent_block_hash, event.extra_keys) == ([], None, None)
                    self.below[event.medium].update(event.block_hashes)
                else:
                    self.below[event.medium].subtract(event.block_hashes)
            elif isinstance(event, AllBlocksCleared | NewAllBlocksCleared):
                self.held.clear()
                self.num_cleared += 1
            elif isinstance(event, BlockStored | NewBlockStored):
                if isinstance(event, NewBlockStored):
                    self.groups[event.group_idx] = (event.kv_cache_spec_kind, event.kv_cache_spec_sliding_window)
                assert len(event.token_ids) == len(event.block_hashes) * event.block_size
                assert event.parent_block_hash is None or self.held[event.parent_block_hash] > 0, "a parent is there before its child"
                self.held.update(event.block_hashes)
            else:
                self.held.subtract(event.block_hashes)
                assert all(self.held[h] >= 0 for h in event.block_hashes), "what goes was there"

    def ask(self):
        self.num_asked += 1
        with contextlib.closing(self.context.socket(zmq.DEALER)) as asker:
            asker.connect(f"tcp://127.0.0.1:{self.replay_port}")
            asker.send_multipart([b"", self.next.to_bytes(8, "big")])
            while True:
                assert asker.poll(20_000), "the end of a replay comes"
                _, *topic, number, payload = asker.recv_multipart()
                if number == END:
                    assert topic in ([], [b""])
                    return
                assert topic == ([] if self.disk == "DISK" else [self.topic]), "replays of newer ones name the topic"
                self.take(int.from_bytes(number, "big"), payload)

    def read(self, wait_ms=300):
        while self.socket.poll(wait_ms):
            topic, number, payload = self.socket.recv_multipart()
            if int.from_bytes(number, "big") > self.next:
                self.ask()
            self.take(int.from_bytes(number, "big"), payload)

    def num_held(self):
        return sum(self.held.values())

    def close(self):
        self.socket.close(0)


def complete(url, prompt):
    request = urllib.request.Request(url + "/v1/completions", data=json.dumps({"prompt": prompt, "max_tokens": 4}).encode(),
                                     headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as response:
        return json.load(response)


def metric(url, name):
    with urllib.request.urlopen(url + "/metrics", timeout=60) as response:
        return float(re.search(rf"^{name}\{{.*\}} (.*)$", response.read().decode(), re.MULTILINE)[1])


@pytest.fixture
def context():
    with zmq.Context() as made:
        yield made


@contextlib.contextmanager
def publishing(*flags, **more):
    ports = free_port(), free_port()
    config = {"enable_kv_cache_events": True, "endpoint": f"tcp://*:{ports[0]}", "replay_endpoint": f"tcp://*:{ports[1]}", "topic": "kv", **more}
    with running("--num-blocks", "60", "--kv-events-config", json.dumps(config), *flags) as url:
        yield url, *ports


@pytest.mark.parametrize("format", FORMATS)
def test_whoever_comes_when_ends_with_the_blocks_that_are_held(context, format):
    rng = random.Random(7)
    openings = [" ".join(rng.choice("red green blue nine ten".split()) for _ in range(60)) for _ in range(6)]
    with publishing(format=format) as (url, port, replay_port):
        first, late = Router(context, port, replay_port, format=format), []
        for run in range(30):
            for _ in range(rng.randint(1, 4)):
                complete(url, rng.choice(openings) + " " + " ".join(str(rng.randint(0, 99)) for _ in range(rng.randint(0, 60))))
            if run % 10 == 5:
                urllib.request.urlopen(urllib.request.Request(url + "/reset_prefix_cache", method="POST"), timeout=60).close()
            if run % 6 == 3:
                late.append(Router(context, port, replay_port, format=format))
        complete(url, "and one more, of which all have heard, so that none thinks that it is up to date when it is not")
        for router in [first, *late]:
            router.read()
            assert router.num_held() == metric(url, "quire:kv_cache_named_blocks")
            assert router.num_cleared == 3
        assert first.held == late[-1].held and first.num_held() > 20
        assert first.num_asked == 0 and all(router.num_asked == 1 for router in late)
        assert metric(url, "quire:kv_event_batches_total") == first.next
        assert metric(url, "quire:kv_event_batches_dropped_total") == 0
        assert first.groups == ({} if format == "0.19.0" else {0: ("full_attention", None)})
        for router in [first, *late]:
            router.close()


@pytest.mark.parametrize("algorithm, format", [("canonical", "0.19.0"), ("xxhash", "0.32.0")])
def test_tiers_tell_of_their_blocks_too(context, tmp_path, algorithm, format):
    rng = random.Random(8)
    with publishing("--kv-dram", "8MiB", "--kv-disk", str(tmp_path), "--kv-disk-budget", "64MiB", "--kv-policy", "exact",
                    "--prefix-caching-hash-algo", algorithm, format=format) as (url, port, replay_port):
        router = Router(context, port, replay_port, format=format)
        for _ in range(12):
            complete(url, " ".join(rng.choice("red green blue nine ten".split()) for _ in range(200)))
            router.read(wait_ms=50)
        router.read(wait_ms=1000)
        with urllib.request.urlopen(url + "/v1/cache", timeout=60) as response:
            used = {tier["tier"]: tier["used_places"] for tier in json.load(response)["tiers"]}
        assert used["dram"] > 10 and used["disk"] > used["dram"], "more was stored than memory holds"
        for name, medium in (("dram", "CPU"), ("disk", router.disk)):
            assert set(router.below[medium].values()) <= {0, 1}
            assert sum(router.below[medium].values()) == used[name]
        assert set(+router.held) & set(+router.below[router.disk]), "a block has one name wherever it lies"
        router.close()


def test_newer_readers_are_told_of_cache_groups(context, tmp_path, monkeypatch):
    path = tmp_path / "windowed.gguf"
    write_windowed(os.environ.get("QUIRE_TEST_MODEL") or pytest.skip("QUIRE_TEST_MODEL is not set: ./dev test sets it"), path, 64, 2)
    monkeypatch.setenv("QUIRE_TEST_MODEL", str(path))
    with publishing(format="0.32.0") as (url, port, replay_port):
        router = Router(context, port, replay_port, format="0.32.0")
        complete(url, "one two three four " * 20)
        router.read()
        assert sorted(router.groups) == list(range(len(router.groups)))
        assert set(router.groups.values()) == {("full_attention", None), ("sliding_window", 64)}
        router.close()


def test_hashes_can_be_whole_and_a_topic_is_heard_alone(context):
    with publishing(use_int_block_hashes=False) as (url, port, replay_port):
        router, other = Router(context, port, replay_port), Router(context, port, replay_port, topic=b"x")
        complete(url, "word " * 100)
        router.read()
        assert router.num_held() >= 6 and all(isinstance(h, bytes) and len(h) == 32 for h in router.held)
        other.read()
        assert other.next == 0
        router.close()
        other.close()


def test_who_never_reads_and_who_asks_nonsense_disturb_nobody(context):
    with publishing(hwm=2, buffer_steps=5) as (url, port, replay_port):
        deaf, router = Router(context, port, replay_port), Router(context, port, replay_port)
        strange = context.socket(zmq.DEALER)
        strange.connect(f"tcp://127.0.0.1:{replay_port}")
        for question in ([b""], [b"", b"short"], [b"x", bytes(8)], [b"", bytes(8), b"more"], [bytes(100_000)]):
            strange.send_multipart(question)
        for i in range(20):
            complete(url, f"{i} " * 50)
            router.read(wait_ms=50)
        router.read()
        assert router.next == metric(url, "quire:kv_event_batches_total") > 10
        # Asked from the start, what is kept comes: five batches.
        strange.send_multipart([b"", bytes(8)])
        numbers = []
        while not numbers or numbers[-1] != END:
            assert strange.poll(20_000)
            numbers.append(strange.recv_multipart()[1])
        assert [int.from_bytes(n, "big") for n in numbers[:-1]] == list(range(router.next - 5, router.next))
        for socket in (strange, deaf.socket, router.socket):
            socket.close(0)


@pytest.mark.parametrize("config, told", [
    ("[]", "is no JSON object"), ('{"enable": true}', "enable: is not known"), ('{"hwm": "many"}', 'hwm: is "many"; give a number'),
    ('{"enable_kv_cache_events": true, "publisher": "kafka"}', "publisher: is 'kafka'"),
    ('{"enable_kv_cache_events": true, "endpoint": "nowhere"}', "endpoint: 'nowhere' cannot be connected to"),
    ('{"enable_kv_cache_events": true, "max_queue_size": 0}', "max_queue_size: is 0"),
    ('{"enable_kv_cache_events": true, "format": "0.20.0"}', "format: is '0.20.0'"),
])  # fmt: skip
def test_what_is_wrong_is_named(config, told):
    done = subprocess.run([os.environ["QUIRE_BINARY"], "serve", os.environ["QUIRE_TEST_MODEL"], "--kv-events-config", config],
                          capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0 and told in done.stderr, done.stderr
