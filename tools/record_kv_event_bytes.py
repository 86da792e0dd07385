"""Records what msgspec makes of KV cache events that are declared as vLLM 0.19.0 and 0.32.0 declare them (distributed/kv_events.py), and
checks that each version's own declarations read them back as they were. tests/engine/publish compares ours.

Usage: python tools/record_kv_event_bytes.py [--vllm FILE] > tests/golden/kv_event_bytes.txt   (needs msgspec)

--vllm: the distributed/kv_events.py of vLLM 0.32.0. Its own classes then take the place of those here and make the same bytes, or this ends
with an error.
"""
import argparse
import ast
from typing import Any

import msgspec

Hash = bytes | int


class EventBatch(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    ts: float
    events: list[Any]
    data_parallel_rank: int | None = None


class V0_19_0:
    """Events as arrays, with their tag as the first value."""

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
    """Events as maps, with their tag as "type"."""

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
    """The events of vLLM's own file, without the rest of vLLM, which it imports."""
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
    """`stored`, `removed`: what the version tells besides, by group."""

    def h(number):
        return hash_of(number, as_integers)

    yield [events.BlockStored([h(1)], None, TOKENS, 16, None, "GPU", None, [None], *stored(0))]
    yield [events.BlockStored([h(2), h(3)], h(1), TOKENS * 2, 16, 7, "CPU", "adapter", [KEYS, None], *stored(1))]
    gone = [events.BlockRemoved([h(4)], "GPU", *removed(0)), events.BlockRemoved([h(5)], events.DISK, *removed(1))]
    yield [*gone, events.AllBlocksCleared()]
    # Of tiers neither tokens nor parents are told.
    if removed(0):
        yield [events.BlockStored([h(6), h(7)], None, [], 0, None, events.DISK, None, None, 1)]


def record(events, stored, removed):
    decoder = msgspec.msgpack.Decoder(list[events.BlockStored | events.BlockRemoved | events.AllBlocksCleared])
    encode = msgspec.msgpack.encode
    times = (1.5, 1764000000.25, 2.0, 3.0)
    told = [(time, told, 0) for as_integers in (True, False) for time, told in zip(times, batches(events, as_integers, stored, removed))]
    if not removed(0):  # more tokens than 16 bits count; of one version, as both write them alike
        hashes = [hash_of(i, True) for i in range(20)]
        told.append((0.0, [events.BlockStored(hashes, hashes[0], [0] * 70000, 3500, None, "GPU", None)], 3))
    for time, what, rank in told:
        assert encode(decoder.decode(encode(what))) == encode(what), "what is read is what was written"
        yield encode(EventBatch(time, what, rank)).hex()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm", help="the distributed/kv_events.py of vLLM 0.32.0")
    path = parser.parse_args().vllm
    groups = [("full_attention", None), ("sliding_window", 128)]
    V0_19_0.DISK, V0_32_0.DISK = "DISK", "STORAGE"

    def newer(events):
        return list(record(events, lambda group: (group, *groups[group]), lambda group: (group,)))

    lines = newer(V0_32_0)
    if path is not None:
        own = declared_in(path)
        own.DISK = "STORAGE"
        assert newer(own) == lines, "vLLM's own classes make other bytes"
        batch = msgspec.msgpack.Decoder(own.KVEventBatch)
        assert all(msgspec.msgpack.encode(batch.decode(bytes.fromhex(line))).hex() == line for line in lines)
    print(*record(V0_19_0, lambda group: (), lambda group: ()), *lines, sep="\n")
