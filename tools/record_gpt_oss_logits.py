#!/usr/bin/env python3
"""Records the logits that transformers gives on a small gpt-oss: sinks, windows in turns, yarn, experts with biases and limited gates.

    python3 -m venv venv && venv/bin/pip install torch==2.10.0 transformers==4.57.6 gguf==0.19.0 numpy
    venv/bin/python tools/record_gpt_oss_logits.py     # writes tests/golden/logits/{gpt_oss_cases.json,gpt_oss_logits.f32}

Weights, prompt and format are those of record_logits.py. The limit of the gates is a constant of transformers' class and of llama.cpp; a
folder may name another one, which most values here reach.
"""
import json

import numpy as np
import torch
import transformers
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

import record_logits
from record_expert_logits import KEPT
from record_logits import FLOAT_BITS, VOCAB

LIMIT = 1.5
CONFIG = dict(
    vocab_size=VOCAB, hidden_size=256, intermediate_size=128, num_hidden_layers=3, max_position_embeddings=256, num_attention_heads=4,
    num_key_value_heads=2, head_dim=64, num_local_experts=8, num_experts_per_tok=3, sliding_window=16, tie_word_embeddings=False,
    rope_scaling=dict(rope_type="yarn", factor=8.0, beta_fast=32.0, beta_slow=1.0, truncate=False, original_max_position_embeddings=32))
TYPES = {"hf": {"F32": ["gpt_oss"], "BF16": ["gpt_oss"], "MXFP4": ["gpt_oss"]}, "gguf": {kind: ["gpt_oss"] for kind in ("F32", "Q8_0", "MXFP4")}}
NAMES = {"self_attn.sinks": "attn_sinks.weight", "mlp.router.weight": "ffn_gate_inp.weight", "mlp.router.bias": "ffn_gate_inp.bias",
         "post_attention_layernorm.weight": "post_attention_norm.weight"}
record_logits.EXPONENTS.update({"self_attn.sinks": 1, "attn_sinks.weight": 1, "mlp.router.weight": 1, "ffn_gate_inp.weight": 1})


def tensor(name, kind, shape, container):
    """Biases, sinks and routers are floats in every file."""
    if kind not in FLOAT_BITS and (name.endswith(("bias", "ffn_gate_inp.weight")) or len(shape) == 1):
        kind = "F32"
    if len(shape) == 1:
        return record_logits.tensor(name, kind, shape, container)
    return record_logits.tensor(name, kind, (int(np.prod(shape[:-1])), shape[-1]), container).reshape(shape)


def blocks(name, shape):
    """As the model is published: of an expert's matrix, [experts][inputs][outputs] here, the rows are outputs, in groups of 32 inputs."""
    experts, inputs, outputs = shape
    raw = record_logits.draw(name, experts * outputs * (inputs // 32) * 3).reshape(-1, 3).view(np.uint8)[:, :17].copy()
    raw[:, 0] = 127 + record_logits.exponent_of(name) - 2 - (raw[:, 0] & 1)
    groups = (experts, outputs, inputs // 32)
    codes = torch.from_numpy(raw[:, 1:].reshape(*groups, 16).copy())
    scales = torch.from_numpy(raw[:, 0].reshape(groups).copy())
    return convert_moe_packed_tensors(codes, scales, dtype=torch.float32).numpy().reshape(shape)


def hf_tensor(name, kind, shape):
    if kind == "MXFP4" and name.endswith(("gate_up_proj", "down_proj")):
        return blocks(name, shape)
    return tensor(name, "BF16" if kind == "MXFP4" else kind, shape, "hf")


def in_turns(gate, up):
    return np.stack([gate, up], axis=-1).reshape(*gate.shape[:-1], -1)


def gguf_tensor(name, kind, value):
    """The converter parts gate from up, and turns both."""
    if not name.startswith("model.layers."):
        return tensor(record_logits.gguf_name(name, "gpt_oss"), kind, tuple(value.shape), "gguf")
    _, _, layer, rest = name.split(".", 3)

    def expert(part, end, *shape):
        return tensor(f"blk.{layer}.ffn_{part}_exps.{end}", kind, (value.shape[0], *shape), "gguf")

    if rest == "mlp.experts.gate_up_proj":
        parts = [expert(part, "weight", value.shape[2] // 2, value.shape[1]).transpose(0, 2, 1) for part in ("gate", "up")]
        return in_turns(*parts)
    if rest == "mlp.experts.gate_up_proj_bias":
        return in_turns(*(expert(part, "bias", value.shape[1] // 2) for part in ("gate", "up")))
    if rest == "mlp.experts.down_proj":
        return expert("down", "weight", value.shape[2], value.shape[1]).transpose(0, 2, 1)
    if rest == "mlp.experts.down_proj_bias":
        return expert("down", "bias", value.shape[1])
    name = f"blk.{layer}.{NAMES[rest]}" if rest in NAMES else record_logits.gguf_name(name, "gpt_oss")
    return tensor(name, kind, tuple(value.shape), "gguf")


def run(model_name, container, kind, prompt):
    config = transformers.GptOssConfig(**CONFIG, attn_implementation="eager")
    model = transformers.GptOssForCausalLM(config).eval()
    state = {}
    for name, value in model.state_dict().items():
        array = gguf_tensor(name, kind, value) if container == "gguf" else hf_tensor(name, kind, tuple(value.shape))
        state[name] = torch.from_numpy(np.ascontiguousarray(array))
    model.load_state_dict(state)
    described = json.loads(config.to_json_string(use_diff=False))
    described = {key: value for key, value in described.items() if key in KEPT}
    if container == "hf":
        described["swiglu_limit"] = LIMIT
        if kind == "MXFP4":
            described["quantization_config"] = dict(quant_method="mxfp4", modules_to_not_convert=["model.layers.*.self_attn", "lm_head"])
        for layer in model.model.layers:
            layer.mlp.experts.limit = LIMIT
    logits = record_logits.logits_of(model, prompt)
    return dict(name=f"{model_name}_{container}_{kind}", container=container, type=kind, config=described), logits


if __name__ == "__main__":
    record_logits.record_all("gpt_oss_", TYPES, run)
