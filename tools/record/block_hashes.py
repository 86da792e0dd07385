"""Records the block hashes that vLLM V1 (v0.19.0) computes. Uses Python's pickle, cbor2 and xxhash.

Needs cbor2 and xxhash (recorded with CPython 3.11, cbor2 6.2.1, xxhash 4.1.0). This module computes the hashes by vLLM's rule. If vllm can
be imported, vLLM also hashes each case, and the results must be equal.

Each line is a case with these fields, each written as key=value:
    algorithm  name of vLLM's hash function
    seed       hex of PYTHONHASHSEED, from which NONE_HASH is computed
    root       hex of NONE_HASH; if empty, NONE_HASH is computed from the seed
    block      block size in tokens
    lora       name of the adapter, as hex or hex*count; empty without an adapter
    salt       cache salt, as hex or hex*count; empty without a salt
    embeds     prompt embeddings: bytes per token:hex; 0: without embeddings
    items      multimodal items: identifier in hex@offset+length, separated by commas
    tokens     one of: numbers separated by commas; number*count; seed:count:bound of SplitMix64 (bound 0 allows all signed 32-bit numbers)
    steps      number of tokens known at each call of the hasher; a call after the first hash searches from the last item only
    hashes     the hashes of the full blocks, in hex
"""
import hashlib
import pickle
import random
import sys
from types import SimpleNamespace

import cbor2
import xxhash

from . import files

ENCODERS = {"sha256": lambda value: pickle.dumps(value, protocol=5), "sha256_cbor": lambda value: cbor2.dumps(value, canonical=True)}
ENCODERS |= {"xxhash": ENCODERS["sha256"], "xxhash_cbor": ENCODERS["sha256_cbor"]}


def digest(algorithm, value):
    encoded = ENCODERS[algorithm](value)
    return xxhash.xxh3_128_digest(encoded) if algorithm.startswith("xxhash") else hashlib.sha256(encoded).digest()


def splitmix(seed):
    mask = (1 << 64) - 1
    while True:
        seed = (seed + 0x9E3779B97F4A7C15) & mask
        z = ((seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        yield z ^ (z >> 31)


def tokens_of(text):
    if ":" not in text:
        token, _, count = text.partition("*")
        return [int(token)] * int(count) if count else [int(token) for token in text.split(",")]
    seed, count, bound = map(int, text.split(":"))
    numbers = splitmix(seed)
    draw = (lambda: next(numbers) % bound) if bound else (lambda: ((next(numbers) + (1 << 31)) & 0xFFFFFFFF) - (1 << 31))
    return [draw() for _ in range(count)]


def bytes_of(text):
    unit, _, count = text.partition("*")
    return bytes.fromhex(unit) * int(count or 1)


def text_of(text):
    """Returns a new string object. The hash depends on the identity of objects, because pickle writes an object only once. (CPython still
    shares strings of one Latin-1 character.)"""
    return bytes_of(text).decode()


def items_of(case):
    for item in filter(None, case["items"].split(",")):
        identifier, place = item.split("@")
        yield text_of(identifier), *map(int, place.split("+"))


def extra_keys(case, items, start, end, first):
    """Mirrors vLLM's generate_block_hash_extra_keys: returns the extra keys of a block and the index of the item to continue with."""
    keys = [text_of(case["lora"])] if case["lora"] else []
    index = first % len(items) if items else 0
    if items and sum(items[-1][1:]) > start:
        while index < len(items):
            identifier, offset, length = items[index]
            if end <= offset:
                break
            if start < offset + length:
                keys.append((identifier, offset - start))
                if end < offset + length:
                    break
            index += 1
        first = index
    if start == 0 and case["salt"]:
        keys.append(text_of(case["salt"]))
    row, data = case["embeds"].split(":")
    if int(row):
        keys.append(hashlib.sha256(bytes_of(data)[start * int(row):end * int(row)]).digest())
    return tuple(keys) or None, first


def hashes_of(case):
    tokens, size, hashes = tokens_of(case["tokens"]), int(case["block"]), []
    items = list(items_of(case))
    root = bytes.fromhex(case["root"]) if case["root"] else digest(case["algorithm"], text_of(case["seed"]))
    for known in map(int, case["steps"].split(",")):
        item = -1 if hashes else 0
        while (len(hashes) + 1) * size <= known:
            start = len(hashes) * size
            keys, item = extra_keys(case, items, start, start + size, item)
            parent = hashes[-1] if hashes else root
            hashes.append(digest(case["algorithm"], (parent, tuple(tokens[start:start + size]), keys)))
    return hashes


def hashes_of_vllm(case, utils, hashing):
    """Returns the hashes that vLLM's functions compute for an object with the fields of vLLM's request."""
    import torch

    function = getattr(hashing, case["algorithm"])
    utils.NONE_HASH = bytes.fromhex(case["root"]) if case["root"] else function(text_of(case["seed"]))
    row, data = case["embeds"].split(":")
    embeds = torch.tensor(list(bytes_of(data)), dtype=torch.uint8).reshape(-1, int(row)) if int(row) else None
    features = [SimpleNamespace(identifier=identifier, mm_position=SimpleNamespace(offset=offset, length=length))
                for identifier, offset, length in items_of(case)]
    request = SimpleNamespace(block_hashes=[], all_token_ids=tokens_of(case["tokens"]), mm_features=features, num_tokens=0,
                              lora_request=SimpleNamespace(lora_name=text_of(case["lora"])) if case["lora"] else None,
                              cache_salt=text_of(case["salt"]) if case["salt"] else None, prompt_embeds=embeds,
                              _prompt_embeds_per_block_hashes={})
    hasher = utils.get_request_block_hasher(int(case["block"]), function)
    for known in map(int, case["steps"].split(",")):
        request.num_tokens = known
        request.block_hashes += hasher(request)
    return request.block_hashes


def make_case(**given):
    case = {"algorithm": "sha256", "seed": "30", "root": "", "block": "16", "lora": "", "salt": "", "embeds": "0:", "items": "", "tokens": "",
            "steps": ""}
    case |= given
    case["steps"] = case["steps"] or str(len(tokens_of(case["tokens"])))
    return case


def plain_cases():
    for size in (1, 2, 3, 4, 5, 16, 64):
        yield {"block": str(size), "tokens": f"{size}:{4 * size + 1}:{1 << 17}"}
    yield {"tokens": "0,1,23,24,255,256,65535,65536,2147483647,-1,-24,-25,-256,-257,-65536,-2147483648"}
    yield {"tokens": "5:64:0", "seed": ""}
    yield {"tokens": "6:64:300", "seed": "c3a9" * 200}
    yield {"tokens": "7:64:50000", "root": bytes(range(32)).hex(), "seed": ""}


def frame_cases():
    """Yields cases around 64 KiB of pickled data. Pickle splits longer data into several frames."""
    yield {"tokens": "8:28000:0", "block": "14000"}
    for size in (13089, 13090, 13091, 13092, 13093, 13094, 13095, 13096, 13097, 13098, 13099, 13100):
        yield {"tokens": f"100000*{size}", "block": str(size)}
    yield {"tokens": "9:32:9", "salt": "73*70000", "lora": "6c*66000", "items": "69*65536@3+4,6a*65535@9+2"}


def extra_cases():
    yield {"tokens": "10:48:1000", "lora": "6d792d6c6f7261"}
    yield {"tokens": "11:48:1000", "salt": "74656e616e74", "steps": "20,40,48"}
    yield {"tokens": "12:48:1000", "salt": "61", "lora": "61"}
    yield {"tokens": "13:48:1000", "salt": "c3bf", "lora": "c3bf", "items": "61@0+4,61@6+3,c3bf@20+2"}
    yield {"tokens": "14:48:1000", "salt": "c480", "lora": "c480"}
    yield {"tokens": "15:80:1000", "items": "61622d31@5+30,61622d32@40+3,61622d33@43+30"}
    yield {"tokens": "16:80:1000", "items": "61622d31@5+30,61622d32@40+3,61622d33@43+30", "steps": "16,33,48,70,80"}
    yield {"tokens": "17:48:1000", "items": "6161@0+100,6262@10+4", "lora": "78797a"}
    yield {"tokens": "18:48:1000", "items": "6161@0+18,6262@2+4,6363@19+5"}
    yield {"tokens": "19:48:1000", "embeds": "4:" + bytes(range(160)).hex()}
    yield {"tokens": "20:64:1000", "embeds": "2:" + bytes(range(50)).hex(), "lora": "6c6f7261", "salt": "73616c74", "items": "6d6d@0+17"}
    yield {"tokens": "21:64:1000", "items": "6d6d*150@3+7,6d6e*125@40+3", "lora": "6c*255", "salt": "73*256"}


def random_cases(count):
    draw = random.Random(2024)
    for index in range(count):
        size = draw.choice([1, 2, 3, 7, 8, 16, 32])
        num_tokens = draw.randrange(1, 6 * size + 2)
        items, offset = [], 0
        while draw.random() < 0.7 and len(items) < 12:
            offset += draw.randrange(0, size + 3)
            length = draw.randrange(1, 2 * size + 2)
            items.append(f"{draw.randbytes(draw.randrange(1, 33)).hex().encode().hex()}@{offset}+{length}")
            offset += length
        steps = sorted(draw.randrange(num_tokens + 1) for _ in range(draw.randrange(3))) + [num_tokens]
        yield {"block": str(size), "tokens": f"{index}:{num_tokens}:{draw.choice([0, 20, 300, 70000])}", "items": ",".join(items),
               "lora": draw.choice(["", "", "6c6f7261", "c3a9c3a8"]), "salt": draw.choice(["", "", "7331", "e282ac*90"]),
               "steps": ",".join(map(str, steps)), "embeds": draw.choice(["0:"] * 4 + [f"3:{draw.randbytes(3 * (num_tokens // 2)).hex()}"])}


OUT = "block_hashes.txt"


def main(out):
    contents = [*plain_cases(), *frame_cases(), *extra_cases(), *random_cases(60)]
    cases = [make_case(algorithm=algorithm, **content) for content in contents for algorithm in ENCODERS]
    for case in cases:
        case["hashes"] = ",".join(value.hex() for value in hashes_of(case))
    try:
        from vllm.utils import hashing
        from vllm.v1.core import kv_cache_utils as utils
    except ImportError:
        print("vllm is not installed: the hashes are computed by this module alone")
    else:
        wrong = [case for case in cases if case["hashes"] != ",".join(value.hex() for value in hashes_of_vllm(case, utils, hashing))]
        if wrong:
            sys.exit(f"{len(wrong)} of {len(cases)} cases differ from vLLM; the first is {wrong[0]}")
        print(f"vLLM computes the same hashes in all {len(cases)} cases")
    files.write_lines(out, [" ".join(f"{key}={value}" for key, value in case.items()) for case in cases])
