#!/usr/bin/env python3
"""Records the logits that transformers gives on small models with sliding windows: Mistral, Qwen2's mix, Gemma 2 and Gemma 3.

    python3 -m venv venv && venv/bin/pip install torch==2.10.0 transformers==4.57.6 gguf==0.19.0 numpy
    venv/bin/python tools/record_window_logits.py     # writes tests/golden/logits/{window_cases.json,window_logits.f32}

Weights, prompt and format are those of record_logits.py; windows are short enough for the prompt to leave them.
"""
import json

import numpy as np
import torch
import transformers

import record_logits
from record_logits import VOCAB, tensor, unpermute

SHAPE = dict(vocab_size=VOCAB, hidden_size=256, intermediate_size=512, max_position_embeddings=128, rms_norm_eps=1e-5)
GEMMA = dict(num_attention_heads=4, num_key_value_heads=2, head_dim=64, tie_word_embeddings=True)
MODELS = {
    "mistral_window": (transformers.MistralConfig, transformers.MistralForCausalLM,
                       dict(num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, sliding_window=13, tie_word_embeddings=False)),
    "qwen2_mix": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM,
                  dict(num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, use_sliding_window=True, sliding_window=5,
                       max_window_layers=1, tie_word_embeddings=False)),
    "gemma2": (transformers.Gemma2Config, transformers.Gemma2ForCausalLM,
               dict(**GEMMA, num_hidden_layers=3, sliding_window=11, query_pre_attn_scalar=48, attn_logit_softcapping=5.0,
                    final_logit_softcapping=30.0)),
    "gemma3": (transformers.Gemma3TextConfig, transformers.Gemma3ForCausalLM,
               dict(**GEMMA, num_hidden_layers=7, sliding_window=17, query_pre_attn_scalar=64, rope_theta=1000000.0,
                    rope_local_base_freq=10000.0, rope_scaling=dict(rope_type="linear", factor=8.0))),
}
# The converter to GGUF knows no windows of Qwen2.
TYPES = {"hf": {"F32": MODELS, "BF16": MODELS}, "gguf": {kind: MODELS.keys() - {"qwen2_mix"} for kind in ("F32", "mixed")}}
KEPT = ("model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
        "head_dim", "max_position_embeddings", "rms_norm_eps", "rope_theta", "rope_scaling", "rope_local_base_freq", "attention_bias",
        "hidden_act", "hidden_activation", "tie_word_embeddings", "sliding_window", "use_sliding_window", "max_window_layers", "layer_types",
        "query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping")
GEMMA_NAMES = {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
               "post_feedforward_layernorm": "post_ffw_norm"}


def weights_of(model, container, kind):
    config = model.config
    is_gemma = config.model_type.startswith("gemma")
    names = record_logits.GGUF_NAMES | (GEMMA_NAMES if is_gemma else {})
    for name, value in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        file_name = name
        if container == "gguf":
            stem, end = name.rsplit(".", 1)
            parts = stem.split(".", 3)
            file_name = f"blk.{parts[2]}.{names[parts[3]]}.{end}" if stem.startswith("model.layers.") else f"{names[stem]}.{end}"
        array = tensor(file_name, kind, tuple(value.shape), container)
        if container == "gguf" and config.model_type == "mistral" and (".attn_q." in file_name or ".attn_k." in file_name):
            array = unpermute(array, config.num_attention_heads if ".attn_q." in file_name else config.num_key_value_heads)
        if container == "gguf" and is_gemma and name.endswith("norm.weight"):
            array = array - 1  # the converter adds what Gemma adds when it runs
        yield name, torch.from_numpy(np.ascontiguousarray(array))


def run(model_name, container, kind, prompt):
    config_class, model_class, options = MODELS[model_name]
    if container == "gguf" and "query_pre_attn_scalar" in options:
        options = options | {"query_pre_attn_scalar": options["head_dim"]}  # GGUF has no key for it
    model = model_class(config_class(**SHAPE, **options, attn_implementation="eager")).eval()
    missing, unexpected = model.load_state_dict(dict(weights_of(model, container, kind)), strict=False)
    assert not unexpected and all(m == "lm_head.weight" for m in missing), (missing, unexpected)
    model.tie_weights()
    logits = record_logits.logits_of(model, prompt)
    config = json.loads(model.config.to_json_string(use_diff=False))
    config = {key: value for key, value in config.items() if key in KEPT}
    return dict(name=f"{model_name}_{container}_{kind}", container=container, type=kind, config=config), logits


if __name__ == "__main__":
    record_logits.record_all("window_", TYPES, run)
