"""Records the logits that transformers gives on small models that only its version 5 has: LFM2 with experts, and Nemotron-H.

Needs transformers==5.20.2 and the other packages that tiny.py names.

Weights, prompt and format come from state_logits.py. Tensors have the names of published folders, in which each expert has separate
tensors.
"""
import numpy as np
import transformers

from . import state_logits, tiny
from .state_logits import draw
from .tiny import VOCAB

SHAPE = dict(vocab_size=VOCAB, hidden_size=256, max_position_embeddings=128, num_attention_heads=4, num_key_value_heads=2,
             pad_token_id=0)
# time_step_min is too small to have an effect, because the scan kernels of other libraries do not support a minimum step.
NEMOTRON = dict(head_dim=64, intermediate_size=512, mamba_num_heads=8, mamba_head_dim=48, n_groups=2, ssm_state_size=32, time_step_min=1e-30)
MODELS = {
    "lfm2_moe": (transformers.Lfm2MoeConfig, transformers.Lfm2MoeForCausalLM,
                 dict(num_hidden_layers=4, intermediate_size=512, moe_intermediate_size=256, num_experts=6, num_experts_per_tok=3,
                      num_dense_layers=1, norm_topk_prob=True, use_expert_bias=True, routed_scaling_factor=1.0,
                      layer_types=["conv", "full_attention", "conv", "conv"])),
    "lfm2_moe_plain": (transformers.Lfm2MoeConfig, transformers.Lfm2MoeForCausalLM,
                       dict(num_hidden_layers=3, intermediate_size=512, moe_intermediate_size=256, num_experts=6, num_experts_per_tok=3,
                            num_dense_layers=0, norm_topk_prob=False, use_expert_bias=False, routed_scaling_factor=0.5,
                            layer_types=["conv", "conv", "full_attention"])),
    "nemotron_h": (transformers.NemotronHConfig, transformers.NemotronHForCausalLM,
                   NEMOTRON | dict(hybrid_override_pattern="M-MM*-M*")),
    "nemotron_h_moe": (transformers.NemotronHConfig, transformers.NemotronHForCausalLM,
                       NEMOTRON | dict(hybrid_override_pattern="MEM*EM-ME", n_routed_experts=8, num_experts_per_tok=3,
                                       moe_intermediate_size=256, moe_shared_expert_intermediate_size=384, routed_scaling_factor=2.5)),
}
HF_ONLY = {"lfm2_moe_plain"}
GGUF = MODELS.keys() - HF_ONLY
# GGUF F32 without LFM2: with keys and values of 16 bits, the weights drawn for this file make the routers choose other experts.
TYPES = {"hf": {"F32": MODELS, "BF16": MODELS}, "gguf": {"F32": GGUF - {"lfm2_moe"}, "Q8_0": GGUF}}
KEPT = state_logits.KEPT + ("num_dense_layers", "use_expert_bias", "routed_scaling_factor", "layers_block_type", "mamba_num_heads",
                                   "mamba_head_dim", "n_groups", "ssm_state_size", "conv_kernel", "use_conv_bias", "n_routed_experts",
                                   "n_shared_experts", "moe_shared_expert_intermediate_size", "n_group", "topk_group", "mlp_hidden_act",
                                   "layer_norm_epsilon", "use_bias", "theta")
LFM2 = state_logits.LFM2_NAMES | {"feed_forward.gate": "ffn_gate_inp"}
NEMOTRON_NAMES = {
    "backbone.embeddings": "token_embd", "backbone.norm_f": "output_norm", "lm_head": "output", "norm": "attn_norm", "mixer.q_proj": "attn_q",
    "mixer.k_proj": "attn_k", "mixer.v_proj": "attn_v", "mixer.o_proj": "attn_output", "mixer.up_proj": "ffn_up", "mixer.down_proj": "ffn_down",
    "mixer.gate": "ffn_gate_inp", "mixer.shared_experts.up_proj": "ffn_up_shexp", "mixer.shared_experts.down_proj": "ffn_down_shexp",
    "mixer.in_proj": "ssm_in", "mixer.conv1d": "ssm_conv1d", "mixer.out_proj": "ssm_out", "mixer.norm": "ssm_norm",
}
WHOLE = {"feed_forward.expert_bias": "exp_probs_b.bias", "mixer.gate.e_score_correction_bias": "exp_probs_b.bias",
         "mixer.dt_bias": "ssm_dt.bias", "mixer.A_log": "ssm_a", "mixer.D": "ssm_d"}
# Name of a stacked tensor of all experts -> its parts, one below the other: (name of the part of one expert in a folder, name of the part
# of all experts in a GGUF file).
STACKS = {"experts.gate_up_proj": (("w1", "ffn_gate_exps"), ("w3", "ffn_up_exps")), "experts.down_proj": (("w2", "ffn_down_exps"), )}
PLAIN_STACKS = {"experts.up_proj": (("up_proj", "ffn_up_exps"), ), "experts.down_proj": (("down_proj", "ffn_down_exps"), )}
tiny.EXPONENTS.update({"feed_forward.gate.weight": 1, "mixer.gate.weight": 1})
FLOAT_ENDS = ("expert_bias", "e_score_correction_bias", "exp_probs_b.bias")


def own(name, container, kind, shape):
    return draw(name, container, "F32" if name.endswith(FLOAT_ENDS) else kind, shape)


def values(name, config, container, kind, shape):
    is_lfm2 = config.model_type == "lfm2_moe"
    if not is_lfm2 and name.startswith("model."):
        name = name.replace("model", "backbone", 1)
    names, stacks = (LFM2, STACKS) if is_lfm2 else (NEMOTRON_NAMES, PLAIN_STACKS)
    _, layer, rest = name.split(".", 3)[1:] if ".layers." in name else (None, None, name)
    for end, parts in stacks.items():
        if not rest.endswith(end):
            continue
        count, size = shape[0], (shape[1] // len(parts), shape[2])
        if container == "gguf":
            return np.concatenate([own(f"blk.{layer}.{part}.weight", container, kind, (count, *size)) for _, part in parts], axis=1)
        stem = name.removesuffix(end)
        return np.stack([np.concatenate([own(f"{stem}experts.{i}.{part}.weight", container, kind, size) for part, _ in parts])
                         for i in range(count)])
    if container == "hf":
        return own(name, container, kind, shape)
    if layer is None:
        stem, end = name.rsplit(".", 1)
        return own(f"{names[stem]}.{end}", container, kind, shape)
    if rest in WHOLE:
        array = own(f"blk.{layer}.{WHOLE[rest]}", container, kind, shape)
        return np.log(np.abs(array) + 2.0 ** -10) if rest == "mixer.A_log" else array
    stem, end = rest.rsplit(".", 1)
    return own(f"blk.{layer}.{names[stem]}.{end}", container, kind, shape)


def run(model_name, container, kind, prompt):
    config_class, model_class, options = MODELS[model_name]
    config = config_class(**SHAPE | options, attn_implementation="eager")
    model = model_class(config).eval()
    tiny.fill(model, ((name, values(name, config, container, kind, tuple(value.shape)).astype(np.float32))
                      for name, value in tiny.tensors_of(model)))
    case = tiny.case_of(model_name, container, kind, config, KEPT)
    case["config"].setdefault("num_hidden_layers", len(case["config"].get("layers_block_type", [])))
    return case, tiny.logits_of(model, prompt)


OUT, OPTIONS, main = tiny.recorder("newer_", TYPES, run)
