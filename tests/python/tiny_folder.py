"""Shared parts of the folders of small generated models: tensors whose values depend on their names, and a tokenizer of bytes."""

import json
import math
import random
import struct


def draw(name, count, width=0.125):
    """Returns numbers between -width and width that depend on the name."""
    numbers = random.Random(name)
    return [numbers.uniform(-width, width) for _ in range(count)]


def write_tensors(path, shapes, values):
    """Writes a safetensors file of F32; `values` returns a tensor's values for its name and their number."""
    header, data = {}, bytearray()
    for name, shape in shapes:
        begin = len(data)
        data += struct.pack(f"<{math.prod(shape)}f", *values(name, math.prod(shape)))
        header[name] = dict(dtype="F32", shape=shape, data_offsets=[begin, len(data)])
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_json(path, value):
    path.write_text(json.dumps(value))


def byte_pieces():
    """Returns GPT-2's letters for bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def special_tokens(marks):
    """Returns special tokens with ids after the bytes."""
    return [
        dict(id=256 + i, content=mark, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True) for i, mark in enumerate(marks)
    ]


def byte_level_tokenizer(marks, post_processor=None):
    return dict(
        version="1.0",
        truncation=None,
        padding=None,
        added_tokens=special_tokens(marks),
        normalizer=None,
        post_processor=post_processor,
        pre_tokenizer=dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True),
        decoder=dict(type="ByteLevel", add_prefix_space=True, trim_offsets=True, use_regex=True),
        model=dict(
            type="BPE",
            dropout=None,
            unk_token=None,
            continuing_subword_prefix=None,
            end_of_word_suffix=None,
            fuse_unk=False,
            byte_fallback=False,
            vocab={piece: i for i, piece in enumerate(byte_pieces())},
            merges=[],
        ),
    )
