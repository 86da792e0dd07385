#!/usr/bin/env python3
"""Records the logits that transformers gives on small models of every supported architecture and weight type.

    python3 -m venv venv && venv/bin/pip install torch==2.10.0 transformers==4.57.6 gguf==0.19.0 numpy
    venv/bin/python tools/record_logits.py [--all]    # writes tests/golden/logits/{cases.json,logits.f32}

Cases that the record has already are kept, unless --all: another processor gives other last bits.

No weights are stored: both sides make them from the tensor's name with the same integer generator (here and in
tests/runtime/model/tiny_tensors.h), bit for bit. Quantised tensors are random blocks with scales of a fixed exponent, dequantised here by
the gguf package. Where the converter permutes q and k for interleaved rotation (PERMUTED), the rows of a GGUF file are put back for
transformers.
"""

import json
import pathlib
import sys

import gguf
import numpy as np
import torch
import transformers

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "logits"
NUM_TOKENS = 40
VERSIONS = f"transformers {transformers.__version__}, torch {torch.__version__}"
POSITIONS = [0, 1, 6, 15, 16, 23, 31, 39]
VOCAB = 300
HF_TYPES = ["F32", "F16", "BF16"]
GGUF_TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q5_K", "Q6_K", "mixed", "Q2_K", "Q3_K", "IQ4_NL", "IQ4_XS"]

PERMUTED = ("llama", "mistral", "granite", "smollm3", "arcee")

SHAPE = dict(vocab_size=VOCAB, hidden_size=256, intermediate_size=256, num_hidden_layers=2, max_position_embeddings=128)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)


def longrope(pairs):
    """Factors that f32 holds exactly."""
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
    # 40 tokens are beyond the original context: the long factors.
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
    # the prompt is beyond its windows, which rotate as if nothing were scaled
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
    # the prompt is beyond its windows, and the layer without one does not rotate
    "exaone4": (transformers.Exaone4Config, transformers.Exaone4ForCausalLM,
                dict(num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, sliding_window=16)),
    "hunyuan_dense": (transformers.HunYuanDenseV1Config, transformers.HunYuanDenseV1ForCausalLM,
                      dict(num_attention_heads=4, num_key_value_heads=2, head_dim=64, tie_word_embeddings=True,
                           rope_scaling=dict(type="dynamic", alpha=1000.0, factor=1.0))),
}
# What quire serves, where transformers decides by the length of the prompt.
MAX_MODEL_LEN = {"phi3_short": 64}
ONE_TYPE = ("phi3_short", "llama_yarn", "olmo3", "seed_oss", "ernie4_5", "arcee", "glm", "glm4", "exaone4", "hunyuan_dense")
HF_ONLY = ("glm", )
# Whose norm before feed-forward has the name of that after attention.
LATE_NAMES = ("olmo2", "olmo3", "seed_oss", "glm4_moe", "exaone4")
# Exponents of a tensor's largest value, by the end of its name; -3 otherwise.
EXPONENTS = {"token_embd.weight": 0, "embed_tokens.weight": 0}
# Type -> (offset of an f16 in the block, its exponent below the tensor's, sign).
SCALES = {
    "Q8_0": [(0, -7, 0)], "Q4_0": [(0, -3, 0)], "Q4_1": [(0, -3, 0), (2, 0, 1)],
    "Q4_K": [(0, -9, 0), (2, -6, 0)], "Q5_K": [(0, -10, 0), (2, -6, 0)], "Q6_K": [(208, -12, 0)],
    "Q2_K": [(80, -5, 0), (82, -5, 0)], "Q3_K": [(108, -7, 0)], "IQ4_NL": [(0, -7, 0)], "IQ4_XS": [(0, -12, 0)],
    "IQ1_S": [(0, -4, 0)], "IQ2_XS": [(0, -8, 0)], "IQ3_S": [(0, -9, 0)], "TQ1_0": [(52, 0, 0)], "MXFP4": [],
}
# Bits of a float drawn for each type: few enough to be exact in it.
FLOAT_BITS = {"F32": 24, "F16": 11, "BF16": 8}


def fnv1a(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def draw(name, count):
    """SplitMix64, as base/random.h."""
    with np.errstate(over="ignore"):
        z = np.uint64(fnv1a(name)) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def exponent_of(name):
    return next((value for end, value in EXPONENTS.items() if name.endswith(end)), -3)


def floats(name, kind, count):
    words = draw(name, count)
    if name.endswith(("norm.weight", ".norm1.weight", ".norm2.weight", ".ln_q.weight")):
        return (1.0 + ((words >> np.uint64(59)).astype(np.int64) - 16) / 64.0).astype(np.float32)
    bits = FLOAT_BITS[kind]
    exponent = -1 if name.endswith("bias") else exponent_of(name)
    steps = (words >> np.uint64(64 - bits)).astype(np.int64) - (1 << (bits - 1))
    return np.ldexp(steps.astype(np.float64), exponent - bits + 1).astype(np.float32)


def quantised(name, kind, rows, columns):
    quant = getattr(gguf.GGMLQuantizationType, kind)
    block, size = gguf.GGML_QUANT_SIZES[quant]
    num_blocks = rows * columns // block
    words = (size + 7) // 8
    raw = draw(name, num_blocks * words).reshape(num_blocks, words).view(np.uint8)[:, :size].copy()
    if kind == "MXFP4":  # a byte for the exponent
        raw[:, 0] = 127 + exponent_of(name) - 2 - (raw[:, 0] & 1)
    for offset, below, sign in SCALES.get(kind, []):
        field = raw[:, offset:offset + 2].copy().view(np.uint16)
        field = (field & 0x3FF) | ((exponent_of(name) + below + 15) << 10) | (sign << 15)
        raw[:, offset:offset + 2] = field.astype(np.uint16).view(np.uint8)
    return gguf.dequantize(raw.reshape(rows, -1), quant).reshape(rows, columns).astype(np.float32)


def kind_of(name, kind):
    """The type of one matrix: 'mixed' is what Q4_K_M files look like."""
    if kind != "mixed":
        return kind
    if name.startswith("token_embd"):
        return "Q8_0"
    return "Q6_K" if "attn_v" in name or "ffn_down" in name or name.startswith("output") else "Q4_K"


def tensor(name, kind, shape, container):
    if len(shape) == 1:
        return floats(name, "F32" if container == "gguf" else kind, shape[0])
    kind = kind_of(name, kind)
    if kind in FLOAT_BITS:
        return floats(name, kind, shape[0] * shape[1]).reshape(shape)
    return quantised(name, kind, *shape)


GGUF_NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up",
    "post_feedforward_layernorm": "post_ffw_norm", "post_self_attn_layernorm": "post_attention_norm", "post_mlp_layernorm": "post_ffw_norm",
    "self_attn.query_layernorm": "attn_q_norm", "self_attn.key_layernorm": "attn_k_norm",
}


def gguf_name(name, model_type):
    stem, end = name.rsplit(".", 1)
    if stem.startswith("model.layers."):
        _, _, layer, rest = stem.split(".", 3)
        own = "post_attention_norm" if model_type in LATE_NAMES and rest == "post_attention_layernorm" else GGUF_NAMES[rest]
        return f"blk.{layer}.{own}.{end}"
    return f"{GGUF_NAMES[stem]}.{end}"


def unpermute(rows, heads):
    """Undoes the converter's order of rotation pairs."""
    return rows.reshape(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def rope_factors(config):
    """What convert_hf_to_gguf.py writes as rope_freqs.weight."""
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


def load(model_name, container, kind):
    """What the record says of a case, and its model."""
    config_class, model_class, options = MODELS[model_name]
    config = config_class(**SHAPE | options, attn_implementation="eager")
    model = model_class(config).eval()
    state = {}
    for name, value in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        file_name = gguf_name(name, config.model_type) if container == "gguf" else name
        array = tensor(file_name, kind, tuple(value.shape), container)
        if container == "gguf" and config.model_type in PERMUTED:
            if ".attn_q." in file_name:
                array = unpermute(array, config.num_attention_heads)
            if ".attn_k." in file_name:
                array = unpermute(array, config.num_key_value_heads)
        state[name] = torch.from_numpy(np.ascontiguousarray(array))
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and all(m == "lm_head.weight" for m in missing), (missing, unexpected)
    model.tie_weights()
    described = json.loads(config.to_json_string(use_diff=False))
    case = dict(name=f"{model_name}_{container}_{kind}", container=container, type=kind,
                config={key: value for key, value in described.items() if key in KEEP})
    scaling = getattr(config, "rope_scaling", None) or {}
    if container == "gguf" and scaling.get("rope_type") == "llama3":
        case["rope_factors"] = rope_factors(config)
    if model_name in MAX_MODEL_LEN:
        case["max_model_len"] = MAX_MODEL_LEN[model_name]
    return case, model


def run(model_name, container, kind, prompt):
    case, model = load(model_name, container, kind)
    return case, logits_of(model, prompt)


def record_all(name, types, run):
    """Every case of `types` ({container: {type: models}}) by run(model, container, type, prompt), into files whose names begin so.

    As here, cases that the record has already are kept, unless --all.
    """
    torch.set_num_threads(1)
    prompt = [int(word % VOCAB) for word in draw("prompt", NUM_TOKENS)]
    known, made_with = ({}, []) if "--all" in sys.argv[1:] else read_record(name)
    cases, records = [], []
    for container, kinds in types.items():
        for kind, models in kinds.items():
            for model_name in sorted(models):
                case, logits = known.get(f"{model_name}_{container}_{kind}") or run(model_name, container, kind, prompt)
                cases.append(case)
                records.append(logits)
                print(case["name"], "std", logits.std(), "top", logits[-1].argmax(), file=sys.stderr)
    write_record(name, "; ".join(dict.fromkeys([*made_with, VERSIONS])), prompt, cases, records)


def write_record(name, made_with, prompt, cases, records):
    OUT.mkdir(parents=True, exist_ok=True)
    record = dict(made_with=made_with, prompt=prompt, positions=POSITIONS)
    lines = ",\n".join(json.dumps(case) for case in cases)
    (OUT / f"{name}cases.json").write_text(json.dumps(record)[:-1] + ', "cases": [\n' + lines + "\n]}\n")
    np.stack(records).astype("<f4").tofile(OUT / f"{name}logits.f32")


def logits_of(model, prompt):
    with torch.no_grad():
        logits = model(torch.tensor([prompt])).logits[0, POSITIONS].numpy()
    assert logits.dtype == np.float32 and np.isfinite(logits).all()
    return logits


KEEP = ("model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
        "head_dim", "max_position_embeddings", "rms_norm_eps", "rope_theta", "rope_scaling", "attention_bias", "mlp_bias", "hidden_act",
        "tie_word_embeddings", "sliding_window", "use_sliding_window", "layer_types", "no_rope_layers", "use_bias", "attention_out_bias", "partial_rotary_factor",
        "original_max_position_embeddings", "embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling")


def read_record(name=""):
    """The cases on disk by name, each with its logits, and what made them."""
    if not (OUT / f"{name}cases.json").exists():
        return {}, []
    record = json.loads((OUT / f"{name}cases.json").read_text())
    logits = np.fromfile(OUT / f"{name}logits.f32", dtype="<f4").reshape(-1, len(POSITIONS), VOCAB)
    return {case["name"]: (case, values) for case, values in zip(record["cases"], logits)}, record["made_with"].split("; ")


def main():
    torch.set_num_threads(1)
    prompt = [int(word % VOCAB) for word in draw("prompt", NUM_TOKENS)]
    known, made_with = ({}, []) if "--all" in sys.argv[1:] else read_record()
    cases, records = [], []
    for model_name in MODELS:
        for container, kinds in (("hf", HF_TYPES), ("gguf", [] if model_name in HF_ONLY else GGUF_TYPES)):
            for kind in kinds[:1] if model_name in ONE_TYPE else kinds:
                case, logits = known.get(f"{model_name}_{container}_{kind}") or run(model_name, container, kind, prompt)
                cases.append(case)
                records.append(logits)
                print(case["name"], "std", logits.std(), "top", logits[-1].argmax(), file=sys.stderr)
    write_record("", "; ".join(dict.fromkeys([*made_with, VERSIONS])), prompt, cases, records)


if __name__ == "__main__":
    main()
