#!/usr/bin/env python3
"""Measures how fast Python hashes a block of 16 tokens, as vLLM V1 does. Prints MODE=NANOSECONDS for hash_bench."""
import hashlib
import pickle
import random
import statistics
import time

import cbor2
import xxhash

MODES = {
    "sha256": lambda value: hashlib.sha256(pickle.dumps(value, protocol=5)).digest(),
    "sha256_cbor": lambda value: hashlib.sha256(cbor2.dumps(value, canonical=True)).digest(),
    "xxhash": lambda value: xxhash.xxh3_128_digest(pickle.dumps(value, protocol=5)),
    "xxhash_cbor": lambda value: xxhash.xxh3_128_digest(cbor2.dumps(value, canonical=True)),
}
BLOCK, COUNT, ROUNDS = 16, 2048, 11


def nanoseconds_per_block(function, tokens):
    parent = bytes(32)
    start = time.perf_counter_ns()
    for begin in range(0, len(tokens), BLOCK):
        parent = function((parent, tuple(tokens[begin:begin + BLOCK]), None))
    return (time.perf_counter_ns() - start) / COUNT


def main():
    draw = random.Random(1)
    tokens = [draw.randrange(128256) for _ in range(COUNT * BLOCK)]
    print(" ".join(f"{name}={statistics.median(nanoseconds_per_block(function, tokens) for _ in range(ROUNDS)):.0f}"
                   for name, function in MODES.items()))


if __name__ == "__main__":
    main()
