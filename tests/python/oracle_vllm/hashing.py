"""Block hashes as vLLM 0.19.0 computes them: a digest of (parent, tokens, extra keys)."""

import hashlib
import os
import pickle
import struct

import xxhash as xxh


def _cbor_head(kind: int, value: int) -> bytes:
    for code, limit, form in ((None, 24, ""), (24, 1 << 8, ">B"), (25, 1 << 16, ">H"), (26, 1 << 32, ">I"), (27, 1 << 64, ">Q")):
        if value < limit:
            return bytes([kind << 5 | value]) if code is None else bytes([kind << 5 | code]) + struct.pack(form, value)
    raise ValueError(value)


def cbor(value) -> bytes:
    """Encodes the parts of a block hash as canonical CBOR (RFC 8949)."""
    if value is None:
        return b"\xf6"
    if isinstance(value, int):
        return _cbor_head(0, value) if value >= 0 else _cbor_head(1, -1 - value)
    if isinstance(value, bytes):
        return _cbor_head(2, len(value)) + value
    if isinstance(value, str):
        return _cbor_head(3, len(value.encode())) + value.encode()
    return _cbor_head(4, len(value)) + b"".join(map(cbor, value))


def sha256(value) -> bytes:
    return hashlib.sha256(pickle.dumps(value, protocol=5)).digest()


def sha256_cbor(value) -> bytes:
    return hashlib.sha256(cbor(value)).digest()


def xxhash(value) -> bytes:
    return xxh.xxh3_128_digest(pickle.dumps(value, protocol=5))


def xxhash_cbor(value) -> bytes:
    return xxh.xxh3_128_digest(cbor(value))


def get_hash_fn_by_name(name: str):
    return {"sha256": sha256, "sha256_cbor": sha256_cbor, "xxhash": xxhash, "xxhash_cbor": xxhash_cbor}[name]


class Root:
    """vLLM's module variable NONE_HASH."""

    value = b""


def init_none_hash(function) -> None:
    Root.value = function(os.environ["PYTHONHASHSEED"])


def maybe_convert_block_hash(value: bytes):
    if os.environ.get("VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES", "1") == "0":
        return value
    return int.from_bytes(value, "big") & ((1 << 64) - 1)


def _extra_keys(request, start: int, end: int):
    keys = [request.lora_request.lora_name] if request.lora_request else []
    for feature in request.mm_features:
        first = feature.mm_position.offset
        if first < end and first + feature.mm_position.length > start:
            keys.append((feature.identifier, first - start))
    if start == 0 and request.cache_salt:
        keys.append(request.cache_salt)
    if request.prompt_embeds is not None:
        keys.append(hashlib.sha256(request.prompt_embeds[start:end].tobytes()).digest())
    return tuple(keys) or None


def get_request_block_hasher(block_size: int, function, extra_keys=_extra_keys):
    def hasher(request) -> list:
        names = []
        start = len(request.block_hashes) * block_size
        parent = request.block_hashes[-1] if request.block_hashes else Root.value
        while start + block_size <= request.num_tokens:
            tokens = tuple(request._all_token_ids[start : start + block_size])
            parent = function((parent, tokens, extra_keys(request, start, start + block_size)))
            names.append(parent)
            start += block_size
        return names

    return hasher
