"""Records the logits that transformers gives on a small gpt-oss model.

The model has sinks, alternating windows, yarn, and experts with biases and limited gates. Weights, prompt and format come from tiny.py. The
limit of the gates is a constant in transformers and in llama.cpp, although a folder may set another limit. Most values here reach the
limit.
"""
import numpy as np
import torch
import transformers
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from . import tiny
from .expert_logits import KEPT
from .tiny import FLOAT_BITS, VOCAB

LIMIT = 1.5
CONFIG = dict(
    vocab_size=VOCAB, hidden_size=256, intermediate_size=128, num_hidden_layers=3, max_position_embeddings=256, num_attention_heads=4,
    num_key_value_heads=2, head_dim=64, num_local_experts=8, num_experts_per_tok=3, sliding_window=16, tie_word_embeddings=False,
    rope_scaling=dict(rope_type="yarn", factor=8.0, beta_fast=32.0, beta_slow=1.0, truncate=False, original_max_position_embeddings=32))
TYPES = {"hf": {"F32": ["gpt_oss"], "BF16": ["gpt_oss"], "MXFP4": ["gpt_oss"]}, "gguf": {kind: ["gpt_oss"] for kind in ("F32", "Q8_0", "MXFP4")}}
NAMES = {"self_attn.sinks": "attn_sinks.weight", "mlp.router.weight": "ffn_gate_inp.weight", "mlp.router.bias": "ffn_gate_inp.bias",
         "post_attention_layernorm.weight": "post_attention_norm.weight"}
tiny.EXPONENTS.update({"self_attn.sinks": 1, "attn_sinks.weight": 1, "mlp.router.weight": 1, "ffn_gate_inp.weight": 1})


def tensor(name, kind, shape, container):
    """Returns a tensor. Biases, sinks and routers are floats in every file."""
    if kind not in FLOAT_BITS and (name.endswith(("bias", "ffn_gate_inp.weight")) or len(shape) == 1):
        kind = "F32"
    return tiny.stacked(name, kind, shape, container)


def blocks(name, shape):
    """Draws the matrices of the experts in the MXFP4 layout of published files, [experts][outputs][inputs / 32], and returns the
    dequantised values. `shape` is [experts][inputs][outputs]."""
    experts, inputs, outputs = shape
    raw = tiny.draw(name, experts * outputs * (inputs // 32) * 3).reshape(-1, 3).view(np.uint8)[:, :17].copy()
    raw[:, 0] = 127 + tiny.exponent_of(name) - 2 - (raw[:, 0] & 1)
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
    """Returns a tensor of the folder with values from the GGUF file. The converter splits gate from up and transposes both."""
    if not name.startswith("model.layers."):
        return tensor(tiny.gguf_name(name, "gpt_oss"), kind, tuple(value.shape), "gguf")
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
    name = f"blk.{layer}.{NAMES[rest]}" if rest in NAMES else tiny.gguf_name(name, "gpt_oss")
    return tensor(name, kind, tuple(value.shape), "gguf")


def run(model_name, container, kind, prompt):
    config = transformers.GptOssConfig(**CONFIG, attn_implementation="eager")
    model = transformers.GptOssForCausalLM(config).eval()
    tiny.fill(model, ((name, gguf_tensor(name, kind, value) if container == "gguf" else hf_tensor(name, kind, tuple(value.shape)))
                      for name, value in model.state_dict().items()))
    case = tiny.case_of(model_name, container, kind, config, KEPT)
    if container == "hf":
        case["config"]["swiglu_limit"] = LIMIT
        if kind == "MXFP4":
            case["config"]["quantization_config"] = dict(quant_method="mxfp4", modules_to_not_convert=["model.layers.*.self_attn", "lm_head"])
        for layer in model.model.layers:
            layer.mlp.experts.limit = LIMIT
    return case, tiny.logits_of(model, prompt)


OUT, OPTIONS, main = tiny.recorder("gpt_oss_", TYPES, run)
