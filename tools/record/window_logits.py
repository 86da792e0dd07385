"""Records the logits that transformers gives on small models with sliding windows: Mistral, Qwen2 (mixed layers), Gemma 2 and Gemma 3.

Weights, prompt and format come from tiny.py. Windows are shorter than the prompt.
"""
import transformers

from . import tiny
from .tiny import VOCAB, tensor

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
# The converter to GGUF does not support the windows of Qwen2.
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
    names = tiny.GGUF_NAMES | (GEMMA_NAMES if is_gemma else {})
    for name, value in tiny.tensors_of(model):
        file_name = name
        if container == "gguf":
            stem, end = name.rsplit(".", 1)
            parts = stem.split(".", 3)
            file_name = f"blk.{parts[2]}.{names[parts[3]]}.{end}" if stem.startswith("model.layers.") else f"{names[stem]}.{end}"
        array = tensor(file_name, kind, tuple(value.shape), container)
        if container == "gguf" and config.model_type == "mistral":
            array = tiny.unpermute_heads(array, file_name, config)
        if container == "gguf" and is_gemma and name.endswith("norm.weight"):
            array = array - 1  # transformers adds 1 to the weight of a norm of Gemma; the converter has added the 1
        yield name, array


def run(model_name, container, kind, prompt):
    config_class, model_class, options = MODELS[model_name]
    if container == "gguf" and "query_pre_attn_scalar" in options:
        options = options | {"query_pre_attn_scalar": options["head_dim"]}  # GGUF has no key for this field
    model = model_class(config_class(**SHAPE, **options, attn_implementation="eager")).eval()
    tiny.fill(model, weights_of(model, container, kind))
    return tiny.case_of(model_name, container, kind, model.config, KEPT), tiny.logits_of(model, prompt)


OUT, OPTIONS, main = tiny.recorder("window_", TYPES, run)
