"""Creates the model folders that vLLM's tests name, with the configuration files that the tests read. The tests need no weights."""

import json
import pathlib

NAMES = ("facebook/opt-125m", "facebook/opt-350m")
CONFIG = {
    "architectures": ["OPTForCausalLM"], "model_type": "opt", "hidden_size": 768, "ffn_dim": 3072, "word_embed_proj_dim": 768,
    "num_hidden_layers": 12, "num_attention_heads": 12, "max_position_embeddings": 2048, "vocab_size": 50272, "torch_dtype": "float16",
    "do_layer_norm_before": True, "bos_token_id": 2, "eos_token_id": 2, "pad_token_id": 1,
}  # fmt: skip
SPECIAL = ("<unk>", "<pad>", "</s>")


def _tokenizer() -> dict:
    words = [*SPECIAL, *(f"t{i}" for i in range(len(SPECIAL), 64))]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None, "decoder": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "added_tokens": [{"id": i, "content": word, "special": True, **flags} for i, word in enumerate(SPECIAL)],
        "model": {"type": "WordLevel", "vocab": {word: i for i, word in enumerate(words)}, "unk_token": "<unk>"},
    }  # fmt: skip


def make(folder: pathlib.Path) -> None:
    """Creates the folders under `folder`, which must be the working directory of the tests: vLLM first looks for a local folder with the
    name of the model."""
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "</s>", "eos_token": "</s>"}
    for at in (folder / name for name in NAMES):
        at.mkdir(parents=True, exist_ok=True)
        for name, value in (("config.json", CONFIG), ("tokenizer.json", _tokenizer()), ("tokenizer_config.json", names)):
            (at / name).write_text(json.dumps(value), encoding="utf-8")
