"""Records the logits that transformers gives on small models in which some layers have states.

The models are LFM2, Granite 4, Bamba, Falcon-H1 and Qwen3-Next. Weights, prompt and format come from tiny.py. Weights of convolutions and
the scalars of each head are floats in every file.
"""
import numpy as np
import transformers

from . import expert_logits, tiny
from .tiny import VOCAB

SHAPE = dict(vocab_size=VOCAB, hidden_size=256, num_hidden_layers=4, max_position_embeddings=128, num_attention_heads=4,
             num_key_value_heads=2)
MAMBA = dict(mamba_n_heads=8, mamba_n_groups=2, mamba_d_state=32, mamba_expand=2)
GRANITE = dict(mamba_n_groups=1, embedding_multiplier=0.3, residual_multiplier=1.7, attention_multiplier=0.07, logits_scaling=8.0,
               tie_word_embeddings=False)
MODELS = {
    "lfm2": (transformers.Lfm2Config, transformers.Lfm2ForCausalLM,
             dict(intermediate_size=700, block_multiple_of=256, layer_types=["conv", "full_attention", "conv", "conv"])),
    # Layers with states are between attention layers, and the convolution is longer.
    "lfm2_bias": (transformers.Lfm2Config, transformers.Lfm2ForCausalLM,
                  dict(intermediate_size=256, block_auto_adjust_ff_dim=False, conv_bias=True, conv_L_cache=5, norm_eps=1e-6,
                       layer_types=["full_attention", "conv", "conv", "full_attention"])),
    "granite4": (transformers.GraniteMoeHybridConfig, transformers.GraniteMoeHybridForCausalLM,
                 dict(**MAMBA | GRANITE, intermediate_size=256, shared_intermediate_size=512, num_local_experts=0, num_experts_per_tok=0,
                      layer_types=["mamba", "attention", "mamba", "mamba"])),
    "granite4_moe": (transformers.GraniteMoeHybridConfig, transformers.GraniteMoeHybridForCausalLM,
                     dict(**MAMBA | GRANITE, intermediate_size=256, shared_intermediate_size=512, num_local_experts=6, num_experts_per_tok=3,
                          layer_types=["attention", "mamba", "attention", "mamba"])),
    "bamba": (transformers.BambaConfig, transformers.BambaForCausalLM,
              dict(**MAMBA, intermediate_size=256, attn_layer_indices=[1], tie_word_embeddings=False)),
    "falcon_h1": (transformers.FalconH1Config, transformers.FalconH1ForCausalLM,
                  dict(**MAMBA | dict(mamba_n_groups=1), mamba_d_ssm=384, mamba_d_head=48, intermediate_size=256, head_dim=64,
                       tie_word_embeddings=False, embedding_multiplier=5.6, lm_head_multiplier=0.04, key_multiplier=0.4,
                       attention_in_multiplier=0.9, attention_out_multiplier=0.7, ssm_in_multiplier=1.25, ssm_out_multiplier=0.3,
                       ssm_multipliers=[0.35, 0.25, 0.18, 0.5, 0.35], mlp_multipliers=[0.9, 0.2])),
    "falcon_h1_norm": (transformers.FalconH1Config, transformers.FalconH1ForCausalLM,
                       dict(**MAMBA, mamba_d_ssm=512, intermediate_size=256, head_dim=64, mamba_rms_norm=True, mamba_norm_before_gate=True,
                            mamba_proj_bias=True, projectors_bias=True, num_hidden_layers=2, tie_word_embeddings=False)),
    "qwen3_next": (transformers.Qwen3NextConfig, transformers.Qwen3NextForCausalLM,
                   dict(linear_num_value_heads=4, linear_num_key_heads=2, linear_value_head_dim=48, linear_key_head_dim=32, head_dim=64,
                        intermediate_size=512, moe_intermediate_size=128, shared_expert_intermediate_size=256, num_experts=5,
                        num_experts_per_tok=3, layer_types=["linear_attention", "linear_attention", "full_attention", "linear_attention"],
                        tie_word_embeddings=False)),
    "falcon_h1_gated": (transformers.FalconH1Config, transformers.FalconH1ForCausalLM,
                        dict(**MAMBA, mamba_d_ssm=512, intermediate_size=256, head_dim=64, mamba_rms_norm=True,
                             mamba_norm_before_gate=False, num_hidden_layers=2, tie_word_embeddings=False)),
}
# Models with fields that have no GGUF key. The converter multiplies the weights by these fields, or refuses the model.
HF_ONLY = {"bamba", "falcon_h1", "falcon_h1_norm"}
GGUF = MODELS.keys() - HF_ONLY
TYPES = {"hf": {"F32": MODELS, "BF16": MODELS}, "gguf": {"F32": GGUF, "Q8_0": GGUF, "mixed": GGUF - {"qwen3_next"}}}
KEPT = tiny.KEEP + ("norm_eps", "conv_bias", "conv_L_cache", "block_multiple_of", "block_ffn_dim_multiplier",
                             "block_auto_adjust_ff_dim", "mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv",
                             "mamba_expand", "mamba_conv_bias", "mamba_proj_bias", "mamba_d_ssm", "mamba_rms_norm", "mamba_norm_before_gate",
                             "projectors_bias", "attn_layer_indices", "num_local_experts", "num_experts_per_tok", "shared_intermediate_size",
                             "position_embedding_type", "embedding_multiplier", "lm_head_multiplier", "key_multiplier",
                             "attention_in_multiplier", "attention_out_multiplier", "ssm_in_multiplier", "ssm_out_multiplier",
                             "ssm_multipliers", "mlp_multipliers", "linear_num_value_heads", "linear_num_key_heads",
                             "linear_value_head_dim", "linear_key_head_dim", "linear_conv_kernel_dim", "moe_intermediate_size",
                             "shared_expert_intermediate_size", "num_experts", "norm_topk_prob", "decoder_sparse_step", "mlp_only_layers")
LFM2_NAMES = {
    "model.embed_tokens": "token_embd", "model.embedding_norm": "token_embd_norm", "operator_norm": "attn_norm", "ffn_norm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.out_proj": "attn_output",
    "self_attn.q_layernorm": "attn_q_norm", "self_attn.k_layernorm": "attn_k_norm", "feed_forward.w1": "ffn_gate",
    "feed_forward.w3": "ffn_up", "feed_forward.w2": "ffn_down", "conv.in_proj": "shortconv.in_proj", "conv.conv": "shortconv.conv",
    "conv.out_proj": "shortconv.out_proj",
}
MAMBA_NAMES = tiny.GGUF_NAMES | {
    "model.final_layernorm": "output_norm", "pre_ff_layernorm": "ffn_norm", "feed_forward.gate_proj": "ffn_gate",
    "feed_forward.up_proj": "ffn_up", "feed_forward.down_proj": "ffn_down", "mamba.in_proj": "ssm_in", "mamba.conv1d": "ssm_conv1d",
    "mamba.out_proj": "ssm_out", "mamba.norm": "ssm_norm", "block_sparse_moe.router.layer": "ffn_gate_inp",
}
HEAD_NAMES = {"mamba.dt_bias": "ssm_dt.bias", "mamba.A_log": "ssm_a", "mamba.D": "ssm_d"}
NAMES = {"lfm2": LFM2_NAMES, "granitemoehybrid": MAMBA_NAMES, "bamba": MAMBA_NAMES, "falcon_h1": MAMBA_NAMES}
PERMUTED = ("granitemoehybrid", )
FLOATS = ("conv.weight", "conv1d.weight", "ffn_gate_inp.weight")
tiny.EXPONENTS.update({"ffn_gate_inp.weight": 1, "router.layer.weight": 1, "ssm_a": 1, "mlp.gate.weight": 1,
                                "shared_expert_gate.weight": 1})


def gguf_name(name, config):
    if not name.startswith("model.layers."):
        stem, end = name.rsplit(".", 1)
        return f"{NAMES[config.model_type][stem]}.{end}"
    _, _, layer, rest = name.split(".", 3)
    if rest in HEAD_NAMES:
        return f"blk.{layer}.{HEAD_NAMES[rest]}"
    stem, end = rest.rsplit(".", 1)
    return f"blk.{layer}.{NAMES[config.model_type][stem]}.{end}"


def draw(file_name, container, kind, shape):
    if file_name.endswith(FLOATS) and kind not in tiny.FLOAT_BITS:
        kind = "F32"
    if file_name.endswith("conv1d.weight") and container == "gguf":
        kind = "F32"
    if file_name.endswith("shortconv.conv.weight"):
        kind = "F32"
    return tiny.stacked(file_name, kind, shape, container)


def halves(layer, part, container, kind, shape):
    """Returns gate and up stacked, for each expert. A GGUF file stores them separately."""
    half = (*shape[:-2], shape[-2] // 2, shape[-1])
    return np.concatenate([draw(f"blk.{layer}.ffn_{name}{part}.weight", container, kind, half) for name in ("gate", "up")], axis=-2)


def next_values(name, config, kind, value):
    """Returns a tensor of Qwen3-Next for transformers, with values from the GGUF file. The converter splits the input of the convolution
    from the gate, and reorders both by head."""
    shape = tuple(value.shape)
    layer, rest = name.split(".", 3)[2:] if name.startswith("model.layers.") else (None, "")
    if rest.startswith("linear_attn."):
        own = {"dt_bias": "ssm_dt.bias", "A_log": "ssm_a", "norm.weight": "ssm_norm.weight", "out_proj.weight": "ssm_out.weight",
               "in_proj_ba.weight": "ssm_ba.weight", "conv1d.weight": "ssm_conv1d.weight"}.get(rest.removeprefix("linear_attn."))
        if own is not None:
            array = draw(f"blk.{layer}.{own}", "gguf", kind, shape)
            return np.log(np.abs(array) + 2.0 ** -10) if own == "ssm_a" else array
        heads, keys = config.linear_num_key_heads, config.linear_key_head_dim
        width = config.linear_num_value_heads * config.linear_value_head_dim
        qkv = draw(f"blk.{layer}.attn_qkv.weight", "gguf", kind, (2 * heads * keys + width, shape[1]))
        parts = [*np.split(qkv, [heads * keys, 2 * heads * keys]), draw(f"blk.{layer}.attn_gate.weight", "gguf", kind, (width, shape[1]))]
        return np.concatenate([part.reshape(heads, -1, shape[1]) for part in parts], axis=1).reshape(shape)
    if rest == "post_attention_layernorm.weight":
        array = draw(f"blk.{layer}.post_attention_norm.weight", "gguf", kind, shape)
    else:
        array = expert_logits.gguf_tensor(name, kind, config, value)
    return array - 1.0 if name.endswith("norm.weight") else array


def values(name, config, container, kind, value):
    shape = tuple(value.shape)
    if container == "hf":
        return draw(name, container, kind, shape)
    if config.model_type == "qwen3_next":
        return next_values(name, config, kind, value)
    layer, rest = name.split(".", 3)[2:] if name.startswith("model.layers.") else (None, "")
    shared = "_shexp" if getattr(config, "num_local_experts", 0) else ""
    if rest.endswith("input_linear.weight"):
        return halves(layer, shared if rest.startswith("shared_mlp") else "_exps", container, kind, shape)
    if rest.endswith("output_linear.weight"):
        return draw(f"blk.{layer}.ffn_down{shared if rest.startswith('shared_mlp') else '_exps'}.weight", container, kind, shape)
    file_name = gguf_name(name, config)
    array = draw(file_name, container, kind, shape)
    if file_name.endswith("ssm_a"):
        # the file stores -exp(A_log); both sides draw values below 0
        return np.log(np.abs(array) + 2.0 ** -10)
    return tiny.unpermute_heads(array, file_name, config) if config.model_type in PERMUTED else array


def load(model_name, container, kind):
    config_class, model_class, options = MODELS[model_name]
    config = config_class(**SHAPE | options, attn_implementation="eager")
    model = model_class(config).eval()
    tiny.fill(model, ((name, values(name, config, container, kind, value).astype(np.float32)) for name, value in tiny.tensors_of(model)))
    return tiny.case_of(model_name, container, kind, config, KEPT), model


def run(model_name, container, kind, prompt):
    case, model = load(model_name, container, kind)
    return case, tiny.logits_of(model, prompt)


OUT, OPTIONS, main = tiny.recorder("state_", TYPES, run)
