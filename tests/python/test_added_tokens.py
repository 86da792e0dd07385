"""Compares added tokens of tokenizer.json with Hugging Face `tokenizers`: raw and normalized tokens, in every kind of pipeline that quire
reads.
"""
import json
import os
import pathlib
import random
import subprocess

import pytest
import tokenizers

MARK = "▁"
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
PREPEND = {"type": "Prepend", "prepend": MARK}
NFC = {"type": "NFC"}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def sequence(*normalizers):
    return {"type": "Sequence", "normalizers": list(normalizers)}


def metaspace(scheme):
    return {"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": False}


PIPELINES = {
    "bytes": (None, BYTE_LEVEL), "bytes_prefix": (None, BYTE_LEVEL | {"add_prefix_space": True}), "bytes_nfc": (NFC, BYTE_LEVEL),
    "gemma": (REPLACE, None), "llama": (sequence(PREPEND, REPLACE), None), "gemma_nfc": (sequence(NFC, REPLACE), None),
    "always": (None, metaspace("always")), "first": (None, metaspace("first")), "never": (None, metaspace("never")),
}
# Some tokens are parts of others, composed or decomposed, with spaces and with the mark that stands for a space.
CONTENTS = ["<a>", "<a", "a><", "qéq", "qe\u0301q", "é", MARK * 2, MARK, MARK + "b", "  ", " b", "b c", "b", "cat", "<sp>", MARK + "<b>",
            "e\u0301", "x" + MARK + "y", "\n\n", "x y"]
PIECES = CONTENTS + ["a", "b", "c", " ", "  ", MARK, "q", "e\u0301q", "é", "\n", ">", "<", "猫", "x", "y", "!"]


def alphabet():
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) for byte in printable] + [chr(256 + i) for i in range(len(others))]


def model_of(is_bytes, rng):
    first = alphabet() if is_bytes else ["<unk>"] + [f"<0x{byte:02X}>" for byte in range(256)] + list("abcdexyqt<>!") + [MARK, "é", "\n"]
    space = "Ġ" if is_bytes else MARK
    merges = [[space, "b"], ["c", "a"], ["ca", "t"], [space, space], ["x", "y"], ["<", "a"], [space, "a"]]
    rng.shuffle(merges)
    merges.sort(key=lambda pair: len(pair[0]) > 1)
    tokens = list(dict.fromkeys(first + [left + right for left, right in merges]))
    return {"type": "BPE", "dropout": None, "unk_token": None if is_bytes else "<unk>", "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": not is_bytes, "ignore_merges": False,
            "vocab": {token: i for i, token in enumerate(tokens)}, "merges": merges}


def tokenizer_json(normalizer, pre_tokenizer, rng):
    model = model_of(pre_tokenizer is not None and pre_tokenizer["type"] == "ByteLevel", rng)
    added, next_id = [], len(model["vocab"])
    contents = rng.sample(CONTENTS, 9)
    # tokenizers returns both tokens or panics when a token lies within the whitespace that another token strips.
    may_strip = all(content.strip() == content for content in contents)
    for content in contents:
        known = model["vocab"].get(content)
        flags = {"single_word": rng.random() < 0.2, **{name: may_strip and rng.random() < 0.3 for name in ("lstrip", "rstrip")}}
        # quire never merges text into a special token, even if the vocabulary allows it.
        added.append({"id": next_id if known is None else known, "content": content, "normalized": rng.random() < 0.5,
                      "special": known is None and rng.random() < 0.3, **flags})
        next_id += known is None
    added.sort(key=lambda token: token["id"])
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": normalizer,
            "pre_tokenizer": pre_tokenizer, "post_processor": None, "decoder": None, "model": model}


@pytest.mark.parametrize("kind", PIPELINES)
def test_finds_added_tokens_where_tokenizers_does(kind, tmp_path):
    tool = os.environ.get("QUIRE_TOKENIZE_TOOL")
    if not tool or not pathlib.Path(tool).exists():
        pytest.skip("QUIRE_TOKENIZE_TOOL names no tool")
    rng = random.Random(kind)
    for round_number in range(12):
        text = json.dumps(tokenizer_json(*PIPELINES[kind], rng))
        (tmp_path / "tokenizer.json").write_text(text, encoding="utf-8")
        texts = ["".join(rng.choices(PIECES, k=rng.randint(1, 9))) for _ in range(400)]
        lines = "".join(json.dumps(one) + "\n" for one in texts)
        done = subprocess.run([tool, str(tmp_path), "--parse-special"], input=lines, capture_output=True, text=True, check=True)
        reference = tokenizers.Tokenizer.from_str(text)
        for one, line in zip(texts, done.stdout.splitlines(), strict=True):
            expected = reference.encode(one, add_special_tokens=False).ids
            assert json.loads(line) == expected, (round_number, one, json.loads(text)["added_tokens"])
