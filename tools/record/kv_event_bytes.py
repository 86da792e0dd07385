"""Records the bytes that msgspec writes for KV cache events, which are declared as in vLLM 0.19.0 and 0.32.0 (distributed/kv_events.py).

Checks that the declarations of each version read the events back unchanged. tests/engine/publish compares quire's bytes with the record.

Needs msgspec. With --vllm, the module also writes the events with vLLM's classes and checks that the bytes are equal.
"""
import ast
from typing import Any

import msgspec

from . import files

Hash = bytes | int


class EventBatch(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    ts: float
    events: list[Any]
    data_parallel_rank: int | None = None


class V0_19_0:
    """Declares events as arrays whose first value is the tag."""

    class KVCacheEvent(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
        pass

    class BlockStored(KVCacheEvent, tag="BlockStored"):
        block_hashes: list[Hash]
        parent_block_hash: Hash | None
        token_ids: list[int]
        block_size: int
        lora_id: int | None
        medium: str | None
        lora_name: str | None
        extra_keys: list[tuple[Any, ...] | None] | None = None

    class BlockRemoved(KVCacheEvent, tag="BlockRemoved"):
        block_hashes: list[Hash]
        medium: str | None

    class AllBlocksCleared(KVCacheEvent, tag="AllBlocksCleared"):
        pass


class V0_32_0:
    """Declares events as maps with the tag in the field "type"."""

    class KVCacheEvent(msgspec.Struct, omit_defaults=True, gc=False):
        pass

    class BlockStored(KVCacheEvent, tag="BlockStored"):
        block_hashes: list[Hash]
        parent_block_hash: Hash | None
        token_ids: list[int]
        block_size: int
        lora_id: int | None
        medium: str | None
        lora_name: str | None
        extra_keys: list[tuple[Any, ...] | None] | None = None
        group_idx: int | None = None
        kv_cache_spec_kind: str | None = None
        kv_cache_spec_sliding_window: int | None = None
        locality: str | None = None
        ownership: str | None = None
        session_id: str | None = None

    class BlockRemoved(KVCacheEvent, tag="BlockRemoved"):
        block_hashes: list[Hash]
        medium: str | None
        group_idx: int | None = None
        locality: str | None = None
        ownership: str | None = None

    class AllBlocksCleared(KVCacheEvent, tag="AllBlocksCleared"):
        pass


def declared_in(path):
    """Returns the event classes of vLLM's file. Does not import the rest of vLLM."""
    wanted = {"EventBatch", "KVCacheEvent", "BlockStored", "BlockRemoved", "AllBlocksCleared", "KVEventBatch"}
    with open(path) as file:
        tree = ast.parse(file.read())
    tree.body = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name in wanted]
    names = {"msgspec": msgspec, "Any": Any, "ExternalBlockHash": Hash}
    exec(compile(tree, path, "exec"), names)
    return type("Own", (), {name: names[name] for name in wanted})


def hash_of(number, as_integers):
    name = bytes((number * 37 + i * 11) % 256 for i in range(32))
    return int.from_bytes(name[-8:], "big") if as_integers else name


TOKENS = [0, 1, 127, 128, 255, 256, 65535, 65536, 2**31 - 1, -1, -32, -33, -128, -129, -32768, -32769]
KEYS = ("adapter", ("image" * 20, -5), ("x", 70000), "salt", bytes(range(32)))


def batches(events, as_integers, stored, removed):
    """Yields batches of events. `stored` and `removed` return the fields that only some versions have, for a cache group."""

    def h(number):
        return hash_of(number, as_integers)

    yield [events.BlockStored([h(1)], None, TOKENS, 16, None, "GPU", None, [None], *stored(0))]
    yield [events.BlockStored([h(2), h(3)], h(1), TOKENS * 2, 16, 7, "CPU", "adapter", [KEYS, None], *stored(1))]
    gone = [events.BlockRemoved([h(4)], "GPU", *removed(0)), events.BlockRemoved([h(5)], events.DISK, *removed(1))]
    yield [*gone, events.AllBlocksCleared()]
    # Events of tiers have neither tokens nor a parent block.
    if removed(0):
        yield [events.BlockStored([h(6), h(7)], None, [], 0, None, events.DISK, None, None, 1)]


def record(events, stored, removed):
    decoder = msgspec.msgpack.Decoder(list[events.BlockStored | events.BlockRemoved | events.AllBlocksCleared])
    encode = msgspec.msgpack.encode
    times = (1.5, 1764000000.25, 2.0, 3.0)
    told = [(time, told, 0) for as_integers in (True, False) for time, told in zip(times, batches(events, as_integers, stored, removed))]
    if not removed(0):  # a count of tokens above 16 bits; in the record of one version only, because both write it alike
        hashes = [hash_of(i, True) for i in range(20)]
        told.append((0.0, [events.BlockStored(hashes, hashes[0], [0] * 70000, 3500, None, "GPU", None)], 3))
    for time, what, rank in told:
        assert encode(decoder.decode(encode(what))) == encode(what), "the events that are read equal the events that were written"
        yield encode(EventBatch(time, what, rank)).hex()


OUT = "kv_event_bytes.txt"
OPTIONS = {"vllm": (None, "path of distributed/kv_events.py of vLLM 0.32.0")}


def main(out, vllm):
    groups = [("full_attention", None), ("sliding_window", 128)]
    V0_19_0.DISK, V0_32_0.DISK = "DISK", "STORAGE"

    def newer(events):
        return list(record(events, lambda group: (group, *groups[group]), lambda group: (group,)))

    lines = newer(V0_32_0)
    if vllm is not None:
        own = declared_in(vllm)
        own.DISK = "STORAGE"
        assert newer(own) == lines, "the classes of vLLM make different bytes"
        batch = msgspec.msgpack.Decoder(own.KVEventBatch)
        assert all(msgspec.msgpack.encode(batch.decode(bytes.fromhex(line))).hex() == line for line in lines)
    files.write_lines(out, [*record(V0_19_0, lambda group: (), lambda group: ()), *lines])
