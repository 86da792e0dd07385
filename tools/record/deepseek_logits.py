"""Records the logits that transformers gives on small DeepSeek models and on models with the same router.

The models have latent attention, and their first layers are dense. Weights, prompt and format come from tiny.py. With yarn, queries are
multiplied by a factor. transformers omits the factor for V2, unlike the model's authors and vLLM, so only V3 is recorded with this factor.
"""
import numpy as np
import transformers

from . import tiny
from .expert_logits import KEPT, PARTS, run_experts
from .tiny import FLOAT_BITS, LATE_NAMES, VOCAB

SHAPE = dict(vocab_size=VOCAB, hidden_size=256, intermediate_size=128, moe_intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=4, max_position_embeddings=256, kv_lora_rank=64, qk_rope_head_dim=32, qk_nope_head_dim=64, v_head_dim=32,
             first_k_dense_replace=1, num_experts_per_tok=3, tie_word_embeddings=False)
PLAIN = {key: value for key, value in SHAPE.items() if "_rank" not in key and "qk_" not in key and key != "v_head_dim"}
PLAIN |= dict(num_key_value_heads=2, head_dim=64, n_routed_experts=12, n_shared_experts=1, norm_topk_prob=True)
YARN = dict(rope_type="yarn", factor=8.0, beta_fast=32.0, beta_slow=1.0, original_max_position_embeddings=32)
MODELS = {
    "deepseek_v2_lite": (transformers.DeepseekV2Config, transformers.DeepseekV2ForCausalLM,
                         dict(q_lora_rank=None, n_routed_experts=8, n_shared_experts=2, topk_method="greedy")),
    "deepseek_v2": (transformers.DeepseekV2Config, transformers.DeepseekV2ForCausalLM,
                    dict(q_lora_rank=96, n_routed_experts=12, n_shared_experts=1, topk_method="group_limited_greedy", n_group=4, topk_group=2,
                         routed_scaling_factor=3.0, rope_scaling=YARN)),
    "deepseek_v3": (transformers.DeepseekV3Config, transformers.DeepseekV3ForCausalLM,
                    dict(q_lora_rank=96, n_routed_experts=12, n_shared_experts=1, n_group=4, topk_group=2, routed_scaling_factor=2.5,
                         rope_scaling=YARN | dict(mscale=1.0, mscale_all_dim=1.0))),
    "glm4_moe": (transformers.Glm4MoeConfig, transformers.Glm4MoeForCausalLM,
                 dict(partial_rotary_factor=0.5, attention_bias=True, use_qk_norm=True, n_group=4, topk_group=2, routed_scaling_factor=2.5)),
    "dots1": (transformers.Dots1Config, transformers.Dots1ForCausalLM, dict(attention_bias=False, routed_scaling_factor=2.5)),
}
# llama.cpp cannot represent yarn that rotates but does not multiply queries by the factor.
GGUF_MODELS = MODELS.keys() - {"deepseek_v2"}
TYPES = {"hf": {"F32": MODELS, "BF16": MODELS}, "gguf": {kind: GGUF_MODELS for kind in ("F32", "Q8_0", "Q4_1")}}
KEEP = KEPT + ("kv_lora_rank", "q_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "first_k_dense_replace", "n_routed_experts",
               "n_shared_experts", "n_group", "topk_group", "topk_method", "routed_scaling_factor", "rope_interleave", "use_qk_norm")
NAMES = tiny.GGUF_NAMES | {
    "self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm", "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa", "self_attn.kv_a_layernorm": "attn_kv_a_norm", "mlp.gate": "ffn_gate_inp",
    "mlp.shared_experts.gate_proj": "ffn_gate_shexp", "mlp.shared_experts.up_proj": "ffn_up_shexp",
    "mlp.shared_experts.down_proj": "ffn_down_shexp",
}


def tensor(name, kind, shape, container):
    if name.endswith("e_score_correction_bias") or (name.endswith(("ffn_gate_inp.weight", "mlp.gate.weight")) and kind not in FLOAT_BITS):
        kind = "F32"  # published folders store e_score_correction_bias in F32
    return tiny.stacked(name, kind, shape, container)


def gguf_tensor(name, kind, config, value):
    """Returns a tensor of the folder with values from the tensors of the GGUF file. In the GGUF file one part of all experts is one tensor,
    and kv_b is split into keys (transposed) and values."""
    stem, end = name.rsplit(".", 1)
    if not stem.startswith("model.layers."):
        return tensor(f"{NAMES[stem]}.{end}", kind, tuple(value.shape), "gguf")
    _, _, layer, rest = stem.split(".", 3)
    if ".experts." in rest:
        number, part = rest.split(".experts.")[1].split(".")
        return tensor(f"blk.{layer}.ffn_{PARTS[part]}_exps.weight", kind, (config.n_routed_experts, *value.shape), "gguf")[int(number)]
    if end == "e_score_correction_bias":
        return tensor(f"blk.{layer}.exp_probs_b.bias", kind, tuple(value.shape), "gguf")
    if rest == "self_attn.kv_b_proj":
        heads, rank = config.num_attention_heads, config.kv_lora_rank
        keys = tensor(f"blk.{layer}.attn_k_b.weight", kind, (heads, rank, config.qk_nope_head_dim), "gguf").transpose(0, 2, 1)
        values = tensor(f"blk.{layer}.attn_v_b.weight", kind, (heads, config.v_head_dim, rank), "gguf")
        return np.concatenate([keys, values], axis=1).reshape(value.shape)
    own = "post_attention_norm" if config.model_type in LATE_NAMES and rest == "post_attention_layernorm" else NAMES[rest]
    return tensor(f"blk.{layer}.{own}.{end}", kind, tuple(value.shape), "gguf")


def run(model_name, container, kind, prompt):
    config_class, model_class, options = MODELS[model_name]
    config = config_class(**(SHAPE if "deepseek" in model_name else PLAIN) | options, attn_implementation="eager")
    return run_experts(model_name, container, kind, prompt, config, model_class, (tensor, gguf_tensor), KEEP)


OUT, OPTIONS, main = tiny.recorder("deepseek_", TYPES, run)
