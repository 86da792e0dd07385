"""Tests KV cache events as a router reads them: over ZeroMQ, decoded by structs that are declared as in vLLM 0.19.0 and 0.32.0."""
import collections
import contextlib
import json
import os
import random
import re
import socket
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


# Fields that are not declared here are refused.
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


def subscribe(socket, endpoint):
    """Connects and waits until the publisher has probably read the subscription, which it receives after the handshake."""
    monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
    socket.connect(endpoint)
    assert monitor.poll(60_000), "the publisher must accept the connection"
    socket.disable_monitor()
    time.sleep(0.3)


class Router:
    """Mirrors the contents of a server's cache."""

    def __init__(self, context, port, replay_port, topic=b"kv", format="0.19.0"):
        self.decode, self.topic, self.disk = FORMATS[format].decode, topic, "DISK" if format == "0.19.0" else "STORAGE"
        self.groups = {}
        self.held, self.next, self.context, self.replay_port = collections.Counter(), 0, context, replay_port
        self.below = {"CPU": collections.Counter(), self.disk: collections.Counter()}
        self.num_asked, self.num_cleared = 0, 0
        self.socket = context.socket(zmq.SUB)
        self.socket.setsockopt(zmq.SUBSCRIBE, topic)
        subscribe(self.socket, f"tcp://127.0.0.1:{port}")

    def take(self, number, payload):
        if number < self.next:
            return
        assert number == self.next, "missed batches must have been replayed"
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
                assert event.parent_block_hash is None or self.held[event.parent_block_hash] > 0, "a parent must be stored before its child"
                self.held.update(event.block_hashes)
            else:
                self.held.subtract(event.block_hashes)
                assert all(self.held[h] >= 0 for h in event.block_hashes), "a removed block must have been stored"

    def ask(self):
        self.num_asked += 1
        with contextlib.closing(self.context.socket(zmq.DEALER)) as asker:
            asker.connect(f"tcp://127.0.0.1:{self.replay_port}")
            asker.send_multipart([b"", self.next.to_bytes(8, "big")])
            while True:
                assert asker.poll(20_000), "the replay must end"
                _, *topic, number, payload = asker.recv_multipart()
                if number == END:
                    assert topic in ([], [b""])
                    return
                assert topic == ([] if self.disk == "DISK" else [self.topic]), "replays of newer versions name the topic"
                self.take(int.from_bytes(number, "big"), payload)

    def read(self, wait_ms=300):
        while self.socket.poll(wait_ms):
            topic, number, payload = self.socket.recv_multipart()
            if int.from_bytes(number, "big") > self.next:
                self.ask()
            self.take(int.from_bytes(number, "big"), payload)

    def read_until(self, met):
        """Reads until `met` holds. A busy server may publish late."""
        deadline = time.monotonic() + 60
        self.read()
        while not met() and time.monotonic() < deadline:
            self.read()

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


def used_slots(url):
    """The number of used slots by tier."""
    with urllib.request.urlopen(url + "/v1/cache", timeout=60) as response:
        return {tier["tier"]: tier["used_slots"] for tier in json.load(response)["tiers"]}


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
def test_early_and_late_subscribers_end_with_the_cached_blocks(context, format):
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
            router.read_until(lambda: router.num_held() == metric(url, "quire:kv_cache_cached_blocks"))
            assert router.num_held() == metric(url, "quire:kv_cache_cached_blocks")
            assert router.num_cleared == 3
        assert first.held == late[-1].held and first.num_held() > 20
        assert first.num_asked == 0 and all(router.num_asked == 1 for router in late)
        assert metric(url, "quire:kv_event_batches_total") == first.next
        assert metric(url, "quire:kv_event_batches_dropped_total") == 0
        assert first.groups == ({} if format == "0.19.0" else {0: ("full_attention", None)})
        for router in [first, *late]:
            router.close()


@pytest.mark.parametrize("algorithm, format", [("canonical", "0.19.0"), ("xxhash", "0.32.0")])
def test_tiers_publish_their_blocks_too(context, tmp_path, algorithm, format):
    rng = random.Random(8)
    with publishing("--kv-dram", "8MiB", "--kv-disk", str(tmp_path), "--kv-disk-budget", "64MiB", "--kv-policy", "exact",
                    "--prefix-caching-hash-algo", algorithm, format=format) as (url, port, replay_port):
        router = Router(context, port, replay_port, format=format)
        for _ in range(12):
            complete(url, " ".join(rng.choice("red green blue nine ten".split()) for _ in range(200)))
            router.read(wait_ms=50)
        media = {"dram": "CPU", "disk": router.disk}
        router.read_until(lambda: {name: sum(router.below[medium].values()) for name, medium in media.items()} == used_slots(url))
        used = used_slots(url)
        assert used["dram"] > 10 and used["disk"] > used["dram"], "the disk must have more blocks than memory"
        for name, medium in media.items():
            assert set(router.below[medium].values()) <= {0, 1}
            assert sum(router.below[medium].values()) == used[name]
        assert set(+router.held) & set(+router.below[router.disk]), "a block must have the same hash in every tier"
        router.close()


def test_newer_format_has_cache_groups(context, tmp_path, monkeypatch):
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


def test_hashes_can_be_whole_and_topics_are_separate(context):
    with publishing(use_int_block_hashes=False) as (url, port, replay_port):
        router, other = Router(context, port, replay_port), Router(context, port, replay_port, topic=b"x")
        complete(url, "word " * 100)
        router.read_until(lambda: router.num_held() >= 6)
        assert router.num_held() >= 6 and all(isinstance(h, bytes) and len(h) == 32 for h in router.held)
        other.read()
        assert other.next == 0
        router.close()
        other.close()


def test_idle_readers_and_invalid_questions_disturb_no_other_client(context):
    with publishing(hwm=2, buffer_steps=5) as (url, port, replay_port):
        deaf, router = Router(context, port, replay_port), Router(context, port, replay_port)
        strange = context.socket(zmq.DEALER)
        strange.connect(f"tcp://127.0.0.1:{replay_port}")
        for question in ([b""], [b"", b"short"], [b"x", bytes(8)], [b"", bytes(8), b"more"], [bytes(100_000)]):
            strange.send_multipart(question)
        for i in range(20):
            complete(url, f"{i} " * 50)
            router.read(wait_ms=50)
        router.read_until(lambda: router.next == metric(url, "quire:kv_event_batches_total"))
        assert router.next == metric(url, "quire:kv_event_batches_total") > 10
        # A replay from the start returns the five kept batches.
        strange.send_multipart([b"", bytes(8)])
        numbers = []
        while not numbers or numbers[-1] != END:
            assert strange.poll(20_000)
            numbers.append(strange.recv_multipart()[1])
        assert [int.from_bytes(n, "big") for n in numbers[:-1]] == list(range(router.next - 5, router.next))
        for socket in (strange, deaf.socket, router.socket):
            socket.close(0)


@pytest.mark.parametrize("config, told", [
    ("[]", "is not a JSON object"), ('{"enable": true}', "enable: is not a known field"), ('{"hwm": "many"}', 'hwm: has the invalid value "many"; use a number'),
    ('{"enable_kv_cache_events": true, "publisher": "kafka"}', "publisher: is 'kafka'"),
    ('{"enable_kv_cache_events": true, "endpoint": "nowhere"}', "endpoint: 'nowhere' cannot be bound"),
    ('{"enable_kv_cache_events": true, "max_queue_size": 0}', "max_queue_size: 0 is out of range"),
    ('{"enable_kv_cache_events": true, "format": "0.20.0"}', "format: is '0.20.0'"),
])  # fmt: skip
def test_invalid_config_is_named(config, told):
    done = subprocess.run([os.environ["QUIRE_BINARY"], "serve", os.environ["QUIRE_TEST_MODEL"], "--kv-events-config", config],
                          capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0 and told in done.stderr, done.stderr


def local_addresses():
    """Returns one address of this machine other than loopback, if there is one."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # nothing is sent
        return [probe.getsockname()[0]]
    return []


def receives_events(context, endpoint, url):
    subscriber = context.socket(zmq.SUB)
    subscriber.setsockopt(zmq.SUBSCRIBE, b"")
    subscriber.setsockopt(zmq.IPV6, 1)
    subscribe(subscriber, endpoint)
    complete(url, "word " * 100)
    heard = subscriber.poll(60_000)
    subscriber.close(0)
    return bool(heard)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.2", "[::1]", "0.0.0.0", *local_addresses()])
def test_binds_every_address_of_this_machine(context, capfd, host):
    port = free_port()
    config = {"enable_kv_cache_events": True, "endpoint": f"tcp://{host}:{port}"}
    with running("--num-blocks", "60", "--kv-events-config", json.dumps(config)) as url:
        assert receives_events(context, f"tcp://{host.replace('0.0.0.0', '127.0.0.1')}:{port}", url)
        assert metric(url, "quire:kv_event_batches_total") > 0
        assert metric(url, "quire:kv_event_batches_unsubscribed_total") == 0
    assert "how=bound" in capfd.readouterr().err


def test_connects_to_a_bound_router_only_when_configured(context, capfd):
    router = context.socket(zmq.SUB)
    router.setsockopt(zmq.SUBSCRIBE, b"")
    port = router.bind_to_random_port("tcp://127.0.0.1")
    config = {"enable_kv_cache_events": True, "endpoint": f">tcp://127.0.0.1:{port}"}
    with running("--num-blocks", "60", "--kv-events-config", json.dumps(config)) as url:
        # A SUB socket that has bound subscribes while it is polled, and earlier messages are lost.
        for number in range(20):
            complete(url, f"word {number} " * 50)
            if heard := router.poll(500):
                break
        assert heard
    assert "how=connected" in capfd.readouterr().err
    binary, model = os.environ["QUIRE_BINARY"], os.environ["QUIRE_TEST_MODEL"]
    config["endpoint"] = config["endpoint"][1:]
    told = subprocess.run([binary, "serve", model, "--port", "0", "--kv-events-config", json.dumps(config)], capture_output=True, text=True,
                          timeout=60, check=False)
    assert told.returncode == 2 and "'>'" in told.stderr, "the address is in use, and the endpoint does not say to connect"
    router.close(0)


def test_batches_without_a_subscriber_are_not_counted_as_sent(context):
    port = free_port()
    config = {"enable_kv_cache_events": True, "endpoint": f"tcp://127.0.0.1:{port}", "topic": "kv"}
    with running("--num-blocks", "60", "--kv-events-config", json.dumps(config)) as url:
        other = context.socket(zmq.SUB)
        other.setsockopt(zmq.SUBSCRIBE, b"another topic")
        subscribe(other, f"tcp://127.0.0.1:{port}")
        complete(url, "word " * 100)
        deadline = time.monotonic() + 60
        while metric(url, "quire:kv_event_batches_unsubscribed_total") == 0 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert metric(url, "quire:kv_event_batches_unsubscribed_total") > 0
        assert metric(url, "quire:kv_event_batches_total") == 0
        other.close(0)


@pytest.mark.parametrize("query", ["", "?reset_running_requests=true"])
def test_idle_server_publishes_a_reset_immediately(context, query):
    with publishing() as (url, port, replay_port):
        router = Router(context, port, replay_port)
        complete(url, "word " * 100)
        router.read()
        assert router.num_held() > 0
        for cleared in range(1, 9):  # also several resets in a row
            urllib.request.urlopen(urllib.request.Request(url + "/reset_prefix_cache" + query, method="POST"), timeout=60).close()
            deadline = time.monotonic() + 60
            while router.num_cleared < cleared and time.monotonic() < deadline:
                router.read(wait_ms=20)
            assert router.num_cleared == cleared, "the event must arrive without another request"
        assert router.num_held() == 0
        router.close()


def test_offloading_connector_publishes_its_blocks(context):
    with publishing("--kv-connector", "OffloadingConnector,cpu_bytes_to_use=20000000") as (url, port, replay_port):
        router = Router(context, port, replay_port)
        for i in range(4):
            complete(url, f"{i} " + "red green blue " * 40)
        router.read_until(lambda: sum(router.below["CPU"].values()) == used_slots(url)["OffloadingConnector"])
        assert sum(router.below["CPU"].values()) == used_slots(url)["OffloadingConnector"] > 5
        router.close()
