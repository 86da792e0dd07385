"""Makes small models whose weights are drawn from the names of their tensors, and records their logits.

No weights are stored. Both sides make the same weights, bit for bit: an integer generator draws them from the name of the tensor (here and
in tests/runtime/model/tiny_tensors.h). Quantised tensors are random blocks with scales of a fixed exponent; this module dequantises them
with the gguf package.

The modules that use tiny.py need torch==2.10.0, transformers==4.57.6, gguf==0.19.0 and numpy, if they name no other versions. Each of them
writes PREFIXcases.json and PREFIXlogits.f32. Cases that are already in the record are kept, because the last bits of logits depend on the
processor. --all-cases records all cases again.
"""
import json
import sys

import gguf
import numpy as np
import torch
import transformers

from . import files

OUT = "logits"
OPTIONS = {"all_cases": (False, "record every case again, even if the record has it")}
NUM_TOKENS = 40
VERSIONS = files.versions(transformers, torch)
POSITIONS = [0, 1, 6, 15, 16, 23, 31, 39]
VOCAB = 300
SHAPE = dict(vocab_size=VOCAB, hidden_size=256, intermediate_size=256, num_hidden_layers=2, max_position_embeddings=128)
# Models whose post_attention_layernorm is called post_attention_norm in GGUF files. Files of other models call this norm ffn_norm.
LATE_NAMES = ("olmo2", "olmo3", "seed_oss", "glm4_moe", "exaone4")
# End of a tensor's name -> exponent of the largest value of the tensor. The exponent is -3 for other names.
EXPONENTS = {"token_embd.weight": 0, "embed_tokens.weight": 0}
# Type -> (byte offset of an f16 in the block, its exponent relative to the exponent of the tensor, its sign).
SCALES = {
    "Q8_0": [(0, -7, 0)], "Q4_0": [(0, -3, 0)], "Q4_1": [(0, -3, 0), (2, 0, 1)],
    "Q4_K": [(0, -9, 0), (2, -6, 0)], "Q5_K": [(0, -10, 0), (2, -6, 0)], "Q6_K": [(208, -12, 0)],
    "Q2_K": [(80, -5, 0), (82, -5, 0)], "Q3_K": [(108, -7, 0)], "IQ4_NL": [(0, -7, 0)], "IQ4_XS": [(0, -12, 0)],
    "IQ1_S": [(0, -4, 0)], "IQ2_XS": [(0, -8, 0)], "IQ3_S": [(0, -9, 0)], "TQ1_0": [(52, 0, 0)], "MXFP4": [],
}
# Number of random bits of a float for each type, small enough that the type represents the float exactly.
FLOAT_BITS = {"F32": 24, "F16": 11, "BF16": 8}


def fnv1a(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def draw(name, count):
    """Returns `count` numbers of SplitMix64, as base/random.h does, with a hash of the name as the seed."""
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
    if kind == "MXFP4":  # the scale is a byte with an exponent
        raw[:, 0] = 127 + exponent_of(name) - 2 - (raw[:, 0] & 1)
    for offset, below, sign in SCALES.get(kind, []):
        field = raw[:, offset:offset + 2].copy().view(np.uint16)
        field = (field & 0x3FF) | ((exponent_of(name) + below + 15) << 10) | (sign << 15)
        raw[:, offset:offset + 2] = field.astype(np.uint16).view(np.uint8)
    return gguf.dequantize(raw.reshape(rows, -1), quant).reshape(rows, columns).astype(np.float32)


def kind_of(name, kind):
    """Returns the type of a matrix. The kind 'mixed' is the layout of Q4_K_M files."""
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
    """Undoes the converter's reordering of the rows for rotation pairs."""
    return rows.reshape(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def unpermute_heads(array, file_name, config):
    """Returns the rows of q and k in the order of transformers, and other tensors unchanged."""
    if ".attn_q." in file_name:
        return unpermute(array, config.num_attention_heads)
    return unpermute(array, config.num_key_value_heads) if ".attn_k." in file_name else array


def stacked(name, kind, shape, container):
    """Returns a tensor with any number of axes. GGUF files and folders store its rows one after the other."""
    flat = shape if len(shape) == 1 else (int(np.prod(shape[:-1])), shape[-1])
    return tensor(name, kind, flat, container).reshape(shape)


KEEP = ("model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
        "head_dim", "max_position_embeddings", "rms_norm_eps", "rope_theta", "rope_scaling", "attention_bias", "mlp_bias", "hidden_act",
        "tie_word_embeddings", "sliding_window", "use_sliding_window", "layer_types", "no_rope_layers", "use_bias", "attention_out_bias", "partial_rotary_factor",
        "original_max_position_embeddings", "embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling")


def prompt():
    return [int(word % VOCAB) for word in draw("prompt", NUM_TOKENS)]


def fill(model, values):
    """Loads the arrays of `values`, (name, array), into the model. An output matrix that shares the embedding has no array."""
    state = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in values}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and all(name == "lm_head.weight" for name in missing), (missing, unexpected)
    model.tie_weights()
    return model


def tensors_of(model):
    """Yields the names and values of the tensors that a file of the model has."""
    for name, value in model.state_dict().items():
        if name != "lm_head.weight" or not model.config.tie_word_embeddings:
            yield name, value


def described(config, keep):
    return {key: value for key, value in json.loads(config.to_json_string(use_diff=False)).items() if key in keep}


def case_of(model_name, container, kind, config, keep):
    return dict(name=f"{model_name}_{container}_{kind}", container=container, type=kind, config=described(config, keep))


def finite(logits):
    logits = logits.numpy()
    assert logits.dtype == np.float32 and np.isfinite(logits).all()
    return logits


def logits_of(model, prompt):
    with torch.no_grad():
        return finite(model(torch.tensor([prompt])).logits[0, POSITIONS])


def recorder(prefix, types, run):
    """Returns OUT, OPTIONS and main of a module that records every case of `types` with the function `run`. `types` is {container: {type:
    models}}."""

    def main(out, all_cases):
        cases = [(model_name, container, kind) for container, kinds in types.items() for kind, models in kinds.items()
                 for model_name in sorted(models)]
        record_all(out, prefix, {"_".join(case): case for case in cases}, run, all_cases)

    return OUT, OPTIONS, main


def record_all(out, prefix, cases, run, all_cases=True, made_with=VERSIONS):
    """Writes a record. `cases` is {name: arguments}. For each case, run(*arguments, prompt) returns the entry in the record and its logits."""
    torch.set_num_threads(1)
    known, before = ({}, []) if all_cases else read_record(out, prefix)
    done = [known.get(name) or told(run(*arguments, prompt())) for name, arguments in cases.items()]
    record = dict(made_with="; ".join(dict.fromkeys([*before, made_with])), prompt=prompt(), positions=POSITIONS)
    write_record(out, prefix, record, done)


def told(result):
    case, logits = result
    print(case["name"], "std", logits.std(), "top", logits[-1].argmax(), file=sys.stderr)
    return result


def write_record(out, prefix, record, done):
    cases, logits = zip(*done)
    out.mkdir(parents=True, exist_ok=True)
    files.write_cases(out / f"{prefix}cases.json", record, cases)
    np.stack(logits).astype("<f4").tofile(out / f"{prefix}logits.f32")


def read_record(out, prefix):
    """Returns {name: (case, logits)} of the record on disk, and the versions of the packages that made it."""
    if not (out / f"{prefix}cases.json").exists():
        return {}, []
    record = json.loads((out / f"{prefix}cases.json").read_text())
    logits = np.fromfile(out / f"{prefix}logits.f32", dtype="<f4").reshape(-1, len(POSITIONS), VOCAB)
    return {case["name"]: (case, values) for case, values in zip(record["cases"], logits)}, record["made_with"].split("; ")
