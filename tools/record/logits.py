"""Records the logits that transformers gives on small models of every supported architecture and weight type (see tiny.py).

The converter reorders the rows of q and k for interleaved rotation in the models of PERMUTED. This module restores the order for
transformers.
"""
import numpy as np
import transformers

from . import tiny

HF_TYPES = ["F32", "F16", "BF16"]
GGUF_TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q5_K", "Q6_K", "mixed", "Q2_K", "Q3_K", "IQ4_NL", "IQ4_XS"]

PERMUTED = ("llama", "mistral", "granite", "smollm3", "arcee")

LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)


def longrope(pairs):
    """Returns factors that f32 represents exactly."""
    return dict(type="longrope", short_factor=[1 + i / 64 for i in range(pairs)], long_factor=[2 + i / 4 for i in range(pairs)])


MODELS = {
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM,
              dict(num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False, rms_norm_eps=1e-5)),
    "llama_scaled": (transformers.LlamaConfig, transformers.LlamaForCausalLM,
                     dict(num_attention_heads=4, num_key_value_heads=4, tie_word_embeddings=True, rope_theta=500000.0,
                          rope_scaling=LLAMA3, attention_bias=True, mlp_bias=True)),
    "llama_linear": (transformers.LlamaConfig, transformers.LlamaForCausalLM,
                     dict(num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True,
                          rope_scaling=dict(rope_type="linear", factor=4.0))),
    "llama_yarn": (transformers.LlamaConfig, transformers.LlamaForCausalLM,
                   dict(num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True, rope_scaling=dict(
                       rope_type="yarn", factor=4.0, original_max_position_embeddings=32))),
    "mistral": (transformers.MistralConfig, transformers.MistralForCausalLM,
                dict(num_attention_heads=8, num_key_value_heads=1, head_dim=64, sliding_window=64, tie_word_embeddings=False)),
    "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM,
              dict(num_attention_heads=8, num_key_value_heads=2, tie_word_embeddings=True, rope_theta=1000000.0)),
    "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM,
              dict(num_attention_heads=4, num_key_value_heads=2, head_dim=128, tie_word_embeddings=False, rope_theta=1000000.0)),
    # The prompt of 40 tokens is longer than the original context, so the long factors apply.
    "phi3": (transformers.Phi3Config, transformers.Phi3ForCausalLM,
             dict(num_attention_heads=4, num_key_value_heads=2, partial_rotary_factor=0.75, tie_word_embeddings=False,
                  original_max_position_embeddings=32, rope_scaling=longrope(24), pad_token_id=0)),
    "phi3_short": (transformers.Phi3Config, transformers.Phi3ForCausalLM,
                   dict(num_attention_heads=4, num_key_value_heads=4, tie_word_embeddings=True, original_max_position_embeddings=64,
                        rope_scaling=longrope(32), pad_token_id=0)),
    "granite": (transformers.GraniteConfig, transformers.GraniteForCausalLM,
                dict(num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False, embedding_multiplier=0.3,
                     residual_multiplier=1.7, attention_multiplier=0.07, logits_scaling=8.0, attention_bias=True, mlp_bias=True)),
    "smollm3": (transformers.SmolLM3Config, transformers.SmolLM3ForCausalLM,
                dict(num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False, pad_token_id=0)),
    "olmo2": (transformers.Olmo2Config, transformers.Olmo2ForCausalLM,
              dict(num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False, rope_theta=500000.0)),
    # The prompt is longer than the windows. Layers with a window rotate without scaling.
    "olmo3": (transformers.Olmo3Config, transformers.Olmo3ForCausalLM,
              dict(num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False, sliding_window=16,
                   rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32))),
    "seed_oss": (transformers.SeedOssConfig, transformers.SeedOssForCausalLM,
                 dict(num_attention_heads=4, num_key_value_heads=2, head_dim=128, tie_word_embeddings=False)),
    "ernie4_5": (transformers.Ernie4_5Config, transformers.Ernie4_5ForCausalLM,
                 dict(num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True, use_bias=True)),
    "arcee": (transformers.ArceeConfig, transformers.ArceeForCausalLM,
              dict(num_attention_heads=4, num_key_value_heads=2, head_dim=64, mlp_bias=True)),
    "glm": (transformers.GlmConfig, transformers.GlmForCausalLM,
            dict(num_attention_heads=4, num_key_value_heads=2, head_dim=64, attention_bias=True, pad_token_id=0)),
    "glm4": (transformers.Glm4Config, transformers.Glm4ForCausalLM,
             dict(num_attention_heads=4, num_key_value_heads=2, head_dim=64, attention_bias=True, pad_token_id=0)),
    # The prompt is longer than the windows. The layer without a window does not rotate.
    "exaone4": (transformers.Exaone4Config, transformers.Exaone4ForCausalLM,
                dict(num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, sliding_window=16)),
    "hunyuan_dense": (transformers.HunYuanDenseV1Config, transformers.HunYuanDenseV1ForCausalLM,
                      dict(num_attention_heads=4, num_key_value_heads=2, head_dim=64, tie_word_embeddings=True,
                           rope_scaling=dict(type="dynamic", alpha=1000.0, factor=1.0))),
}
# The context length that quire serves decides between short and long factors. In transformers, the length of the prompt decides.
MAX_MODEL_LEN = {"phi3_short": 64}
ONE_TYPE = ("phi3_short", "llama_yarn", "olmo3", "seed_oss", "ernie4_5", "arcee", "glm", "glm4", "exaone4", "hunyuan_dense")
HF_ONLY = ("glm", )


def rope_factors(config):
    """Returns the values that convert_hf_to_gguf.py writes as rope_freqs.weight."""
    scaling = config.rope_scaling
    dim = config.hidden_size // config.num_attention_heads
    factors = []
    for i in range(0, dim, 2):
        wavelength = 2 * np.pi * config.rope_theta ** (i / dim)
        low = scaling["original_max_position_embeddings"] / scaling["low_freq_factor"]
        high = scaling["original_max_position_embeddings"] / scaling["high_freq_factor"]
        smooth = (scaling["original_max_position_embeddings"] / wavelength - scaling["low_freq_factor"]) / (
            scaling["high_freq_factor"] - scaling["low_freq_factor"])
        factors.append(1.0 if wavelength < high else scaling["factor"] if wavelength > low
                       else 1 / ((1 - smooth) / scaling["factor"] + smooth))
    return [float(np.float32(f)) for f in factors]


def values(model, container, kind):
    config = model.config
    for name, value in tiny.tensors_of(model):
        file_name = tiny.gguf_name(name, config.model_type) if container == "gguf" else name
        array = tiny.tensor(file_name, kind, tuple(value.shape), container)
        yield name, tiny.unpermute_heads(array, file_name, config) if container == "gguf" and config.model_type in PERMUTED else array


def load(model_name, container, kind):
    """Returns a case of the record, and its model."""
    config_class, model_class, options = MODELS[model_name]
    config = config_class(**tiny.SHAPE | options, attn_implementation="eager")
    model = model_class(config).eval()
    tiny.fill(model, values(model, container, kind))
    case = tiny.case_of(model_name, container, kind, config, tiny.KEEP)
    scaling = getattr(config, "rope_scaling", None) or {}
    if container == "gguf" and scaling.get("rope_type") == "llama3":
        case["rope_factors"] = rope_factors(config)
    if model_name in MAX_MODEL_LEN:
        case["max_model_len"] = MAX_MODEL_LEN[model_name]
    return case, model


def run(model_name, container, kind, prompt):
    case, model = load(model_name, container, kind)
    return case, tiny.logits_of(model, prompt)


OUT, OPTIONS = tiny.OUT, tiny.OPTIONS


def main(out, all_cases):
    cases = [(model_name, container, kind) for model_name in MODELS
             for container, kinds in (("hf", HF_TYPES), ("gguf", [] if model_name in HF_ONLY else GGUF_TYPES))
             for kind in (kinds[:1] if model_name in ONE_TYPE else kinds)]
    tiny.record_all(out, "", {"_".join(case): case for case in cases}, run, all_cases)
