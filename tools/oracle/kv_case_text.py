"""Writes digests and events of a recorded case of kv_cases.py as text."""

import struct

from vllm.distributed.kv_events import AllBlocksCleared, BlockRemoved, BlockStored

MASK = (1 << 64) - 1


def fnv(data: bytes, value: int = 0xCBF29CE484222325) -> int:
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & MASK
    return value


def block_hash(parent: int, tokens) -> int:
    return fnv(struct.pack(f"<Q{len(tokens)}i", parent, *tokens))


def hash_bytes(value: int) -> bytes:
    return struct.pack("<4Q", *((value + i) & MASK for i in range(4)))


def short(hash_: bytes) -> str:
    return "".join(hash_[at : at + 4].hex() for at in range(0, len(hash_), 32))


def event_text(event) -> str:
    if isinstance(event, AllBlocksCleared):
        return "cleared"
    if isinstance(event, BlockRemoved):
        return "removed " + short(event.block_hashes[0])
    assert isinstance(event, BlockStored)
    keys = "-"
    if event.extra_keys is not None:
        keys = "/".join("-" if k is None else "+".join(key_text(part) for part in k) for k in event.extra_keys)
    return " ".join(
        [
            "stored",
            ",".join(short(h) for h in event.block_hashes),
            short(event.parent_block_hash) if event.parent_block_hash is not None else "-",
            ",".join(map(str, event.token_ids)),
            str(event.block_size),
            str(event.lora_id) if event.lora_id is not None else "-",
            event.lora_name or "-",
            event.medium,
            keys,
        ]
    )


def key_text(part) -> str:
    if isinstance(part, tuple):
        return f"{part[0]}@{part[1]}"
    return part
