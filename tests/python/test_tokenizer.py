"""Compares quire's ids with Hugging Face `tokenizers`: 10,000 texts for the default model and for each kind of tokenizer.json."""
import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import compare_tokenizers  # noqa: E402

NUM_TEXTS = 10000
KINDS = compare_tokenizers.kinds(os.environ.get("QUIRE_TEST_MODEL"), os.environ.get("QUIRE_TEST_VOCABS", ""))


@pytest.fixture(scope="module")
def tool():
    path = os.environ.get("QUIRE_TOKENIZE_TOOL")
    if not path or not pathlib.Path(path).exists():
        pytest.skip("QUIRE_TOKENIZE_TOOL names no tool")
    return path


@pytest.fixture(scope="module")
def texts():
    return compare_tokenizers.build_texts(NUM_TEXTS)


def describe(mismatches):
    return "\n".join(f"{text[:120]!r}\n  quire      {mine}\n  tokenizers {theirs}" for text, mine, theirs in mismatches[:3])


@pytest.mark.parametrize("kind", KINDS)
def test_ids_and_texts_match_tokenizers(kind, tool, texts, tmp_path):
    if not KINDS[kind].exists():
        pytest.skip("QUIRE_TEST_MODEL and QUIRE_TEST_VOCABS name no such file")
    from_gguf, from_json, decoded = compare_tokenizers.compare(tool, KINDS[kind], texts, tmp_path)
    assert not from_gguf, f"{len(from_gguf)} differ from GGUF:\n{describe(from_gguf)}"
    assert not from_json, f"{len(from_json)} differ from tokenizer.json:\n{describe(from_json)}"
    assert not decoded, f"{len(decoded)} decode otherwise:\n{describe(decoded)}"


def test_texts_cover_difficult_characters(texts):
    joined = "".join(texts)
    assert len(texts) == NUM_TEXTS
    assert all(sample in joined for sample in ("\u200d", "\r\n", "\u00a0", "<|im_start|>", "e\u0301", "人人", "\x00", "\U00010330"))
