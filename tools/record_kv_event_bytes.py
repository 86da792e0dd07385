"""Records what msgspec makes of KV cache events that are declared as vLLM 0.19.0 declares them (distributed/kv_events.py: structs as arrays,
tagged, defaults omitted where they may be). tests/engine/publish compares ours.

Usage: python tools/record_kv_event_bytes.py > tests/golden/kv_event_bytes.txt   (needs msgspec)
"""
from typing import Any

import msgspec


class EventBatch(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    ts: float
    events: list[Any]
    data_parallel_rank: int | None = None


class KVCacheEvent(msgspec.Struct, array_like=True, omit_defaults=True, gc=False, tag=True):
    pass


class BlockStored(KVCacheEvent):
    block_hashes: list[bytes | int]
    parent_block_hash: bytes | int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[tuple[Any, ...] | None] | None = None


class BlockRemoved(KVCacheEvent):
    block_hashes: list[bytes | int]
    medium: str | None


class AllBlocksCleared(KVCacheEvent):
    pass


def hash_of(number, as_integers):
    name = bytes((number * 37 + i * 11) % 256 for i in range(32))
    return int.from_bytes(name[-8:], "big") if as_integers else name


def batches(as_integers):
    def h(number):
        return hash_of(number, as_integers)

    tokens = [0, 1, 127, 128, 255, 256, 65535, 65536, 2**31 - 1, -1, -32, -33, -128, -129, -32768, -32769]
    keys = ("adapter", ("image" * 20, -5), ("x", 70000), "salt", bytes(range(32)))
    yield EventBatch(1.5, [BlockStored([h(1)], None, tokens, 16, None, "GPU", None, [None])], 0)
    yield EventBatch(1764000000.25, [BlockStored([h(2), h(3)], h(1), tokens * 2, 16, 7, "CPU", "adapter", [keys, None])], 0)
    yield EventBatch(2.0, [BlockRemoved([h(4)], "GPU"), BlockRemoved([h(5)], "DISK"), AllBlocksCleared()], 0)


if __name__ == "__main__":
    for as_integers in (True, False):
        for batch in batches(as_integers):
            print(msgspec.msgpack.encode(batch).hex())
    # More tokens than 16 bits count.
    long = BlockStored([hash_of(i, True) for i in range(20)], hash_of(0, True), [0] * 70000, 3500, None, "GPU", None, None)
    print(msgspec.msgpack.encode(EventBatch(0.0, [long], 3)).hex())
