"""Records the logits that transformers gives on small mixtures of experts (MoE).

The models are Mixtral, Qwen2-MoE, Qwen3-MoE, OLMoE, Granite-MoE, ERNIE 4.5 and HunYuan. Weights, prompt and format come from tiny.py. The
weights of routers are large floats in every file, so that two experts rarely have nearly equal scores.
"""
import numpy as np
import transformers

from . import tiny
from .tiny import FLOAT_BITS, VOCAB

SHAPE = dict(vocab_size=VOCAB, hidden_size=256, num_hidden_layers=2, max_position_embeddings=128, num_attention_heads=4,
             num_key_value_heads=2, tie_word_embeddings=False)
MODELS = {
    "mixtral": (transformers.MixtralConfig, transformers.MixtralForCausalLM,
                dict(intermediate_size=256, num_local_experts=8, num_experts_per_tok=2)),
    "qwen2_moe": (transformers.Qwen2MoeConfig, transformers.Qwen2MoeForCausalLM,
                  dict(intermediate_size=512, moe_intermediate_size=256, shared_expert_intermediate_size=512, num_experts=6,
                       num_experts_per_tok=3, num_key_value_heads=4)),
    "qwen3_moe": (transformers.Qwen3MoeConfig, transformers.Qwen3MoeForCausalLM,
                  dict(intermediate_size=512, moe_intermediate_size=256, num_experts=16, num_experts_per_tok=4, norm_topk_prob=True,
                       head_dim=64)),
    # Dense layers between MoE layers; no converter writes GGUF files of such models.
    "qwen3_moe_mix": (transformers.Qwen3MoeConfig, transformers.Qwen3MoeForCausalLM,
                      dict(num_hidden_layers=4, intermediate_size=512, moe_intermediate_size=256, num_experts=5, num_experts_per_tok=2,
                           head_dim=64, decoder_sparse_step=2, mlp_only_layers=[3])),
    "olmoe": (transformers.OlmoeConfig, transformers.OlmoeForCausalLM,
              dict(intermediate_size=256, num_experts=8, num_experts_per_tok=3, num_key_value_heads=4, pad_token_id=0, bos_token_id=1,
                   eos_token_id=2)),
    "granitemoe": (transformers.GraniteMoeConfig, transformers.GraniteMoeForCausalLM,
                   dict(intermediate_size=256, num_local_experts=8, num_experts_per_tok=3, embedding_multiplier=0.3,
                        residual_multiplier=1.7, attention_multiplier=0.07, logits_scaling=8.0)),
    "granitemoeshared": (transformers.GraniteMoeSharedConfig, transformers.GraniteMoeSharedForCausalLM,
                         dict(intermediate_size=256, shared_intermediate_size=512, num_local_experts=8, num_experts_per_tok=3,
                              embedding_multiplier=0.3, residual_multiplier=1.7, attention_multiplier=0.07, logits_scaling=8.0)),
    "ernie4_5_moe": (transformers.Ernie4_5_MoeConfig, transformers.Ernie4_5_MoeForCausalLM,
                     dict(num_hidden_layers=3, intermediate_size=512, moe_intermediate_size=256, moe_num_experts=8, moe_k=3,
                          moe_num_shared_experts=2)),
    # Dense and MoE layers alternate.
    "ernie4_5_moe_mix": (transformers.Ernie4_5_MoeConfig, transformers.Ernie4_5_MoeForCausalLM,
                         dict(num_hidden_layers=4, intermediate_size=512, moe_intermediate_size=256, moe_num_experts=8, moe_k=3,
                              moe_num_shared_experts=0, moe_layer_interval=2)),
    "hunyuan_moe": (transformers.HunYuanMoEV1Config, transformers.HunYuanMoEV1ForCausalLM,
                    dict(intermediate_size=256, num_experts=6, moe_topk=[2, 2], head_dim=64)),
}
FEW = ("granitemoeshared", "ernie4_5_moe", "ernie4_5_moe_mix", "hunyuan_moe")
MANY = MODELS.keys() - set(FEW)
GGUF = MODELS.keys() - {"qwen3_moe_mix"}
TYPES = {"hf": {"F32": MODELS, "BF16": MANY}, "gguf": {"F32": GGUF, "Q8_0": GGUF & MANY, "mixed": GGUF & MANY}}
PERMUTED = ("mixtral", "granitemoe", "granitemoeshared")
KEPT = tiny.KEEP + ("num_local_experts", "num_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob",
                             "shared_expert_intermediate_size", "decoder_sparse_step", "mlp_only_layers", "qkv_bias", "clip_qkv",
                             "shared_intermediate_size", "moe_num_experts", "moe_k", "moe_num_shared_experts", "moe_layer_interval",
                             "moe_layer_start_index", "moe_topk")
ROUTERS = ("ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight", "mlp.gate.weight", "shared_expert_gate.weight", "block_sparse_moe.gate.weight",
           "router.layer.weight", "mlp.gate.wg.weight")
FLOATS = ROUTERS + ("e_score_correction_bias", "exp_probs_b.bias")
GGUF_NAMES = tiny.GGUF_NAMES | {
    "mlp.gate": "ffn_gate_inp", "block_sparse_moe.gate": "ffn_gate_inp", "block_sparse_moe.router.layer": "ffn_gate_inp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp", "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp", "mlp.gate.wg": "ffn_gate_inp",
} | {f"mlp.{shared}.{part}_proj": f"ffn_{part}_shexp" for shared in ("shared_experts", "shared_mlp") for part in ("gate", "up", "down")}
PARTS = {"gate_proj": "gate", "up_proj": "up", "down_proj": "down", "w1": "gate", "w3": "up", "w2": "down"}
tiny.EXPONENTS.update(dict.fromkeys(ROUTERS, 1))


def tensor(name, kind, shape, container):
    if (name.endswith(ROUTERS) and kind not in FLOAT_BITS) or name.endswith(FLOATS[-2:]):
        kind = "F32"
    return tiny.stacked(name, kind, shape, container)


def gguf_tensor(name, kind, config, value):
    """Returns a tensor of the folder with values from the GGUF file. GGUF stacks one part of all experts in one tensor; `name` is the part
    of one expert or of all experts."""
    stem, end = name.rsplit(".", 1)
    if not stem.startswith("model.layers."):
        return tensor(f"{GGUF_NAMES[stem]}.{end}", kind, tuple(value.shape), "gguf")
    _, _, layer, rest = stem.split(".", 3)
    experts = next(getattr(config, key) for key in ("num_local_experts", "moe_num_experts", "num_experts") if hasattr(config, key))
    if end == "e_score_correction_bias":
        return tensor(f"blk.{layer}.exp_probs_b.bias", kind, (experts, ), "gguf").reshape(value.shape)
    if rest == "shared_mlp.input_linear":
        half = (value.shape[0] // 2, value.shape[1])
        return np.concatenate([tensor(f"blk.{layer}.ffn_{part}_shexp.weight", kind, half, "gguf") for part in ("gate", "up")])
    if rest == "shared_mlp.output_linear":
        return tensor(f"blk.{layer}.ffn_down_shexp.weight", kind, tuple(value.shape), "gguf")
    if ".experts." in rest:
        number, part = rest.split(".experts.")[1].split(".")
        return tensor(f"blk.{layer}.ffn_{PARTS[part]}_exps.weight", kind, (experts, *value.shape), "gguf")[int(number)]
    if rest.endswith("input_linear"):
        half = (experts, value.shape[1] // 2, value.shape[2])
        return np.concatenate([tensor(f"blk.{layer}.ffn_{part}_exps.weight", kind, half, "gguf") for part in ("gate", "up")], axis=1)
    if rest.endswith("output_linear"):
        return tensor(f"blk.{layer}.ffn_down_exps.weight", kind, tuple(value.shape), "gguf")
    name = f"blk.{layer}.{GGUF_NAMES[rest]}.{end}"
    if name.endswith("ffn_gate_inp_shexp.weight"):
        return tensor(name, kind, (value.shape[1],), "gguf").reshape(1, -1)
    array = tensor(name, kind, tuple(value.shape), "gguf")
    return tiny.unpermute_heads(array, name, config) if config.model_type in PERMUTED else array


def run_experts(model_name, container, kind, prompt, config, model_class, makers, kept):
    """Returns a case and its logits. `makers` are two functions: the first makes a tensor from its name in a folder, the second from its
    name in a GGUF file."""
    of_name, of_gguf = makers
    model = model_class(config).eval()
    tiny.fill(model, ((name, of_gguf(name, kind, config, value) if container == "gguf" else of_name(name, kind, tuple(value.shape), container))
                      for name, value in model.state_dict().items()))
    return tiny.case_of(model_name, container, kind, config, kept), tiny.logits_of(model, prompt)


def run(model_name, container, kind, prompt):
    config_class, model_class, options = MODELS[model_name]
    config = config_class(**SHAPE | options, attn_implementation="eager")
    if container == "gguf" and model_name in ("mixtral", "qwen3_moe", "granitemoe"):
        config.norm_topk_prob = True  # GGUF has no key for this field
    return run_experts(model_name, container, kind, prompt, config, model_class, (tensor, gguf_tensor), KEPT)


OUT, OPTIONS, main = tiny.recorder("expert_", TYPES, run)
