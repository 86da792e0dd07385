"""Records the logits that transformers gives on small models with the quantised matrices of Hugging Face folders.

Needs compressed-tensors==0.12.2 and the packages that tiny.py names.

The tensors of a quantised matrix are drawn from their names, as in tiny.py, with the kinds and shapes in the list `tensors` of a case.
tests/runtime/model/tiny_quantised.h draws the same tensors. They are dequantised by the rules of the programs that write these files:
AutoGPTQ and GPTQModel (zero points minus 1, subtracted in whole words), AutoAWQ, the package compressed-tensors, DeepSeek's
fp8_cast_bf16.py, and transformers.integrations.mxfp4. Scales are converted to f32 first, because quire rounds each weight only once.
"""
import numpy as np
import torch
import transformers
from compressed_tensors.compressors.quantized_compressors.nvfp4_quantized import unpack_fp4_from_uint8
from compressed_tensors.compressors.quantized_compressors.pack_quantized import unpack_from_int32
from compressed_tensors.quantization.lifecycle.forward import dequantize
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from . import logits, tiny
from .tiny import SHAPE, draw

LLAMA = dict(num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False, rms_norm_eps=1e-5)
MODELS = {
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM, LLAMA),
    "qwen2": (
        transformers.Qwen2Config,
        transformers.Qwen2ForCausalLM,
        dict(num_attention_heads=8, num_key_value_heads=2, tie_word_embeddings=True, rope_theta=1000000.0),
    ),
    "qwen3": (
        transformers.Qwen3Config,
        transformers.Qwen3ForCausalLM,
        dict(num_attention_heads=4, num_key_value_heads=2, head_dim=128, tie_word_embeddings=False, rope_theta=1000000.0),
    ),
    # 320 columns are not a multiple of 128.
    "qwen3_320": (
        transformers.Qwen3Config,
        transformers.Qwen3ForCausalLM,
        dict(num_attention_heads=4, num_key_value_heads=2, head_dim=64, intermediate_size=320, tie_word_embeddings=False),
    ),
    "phi3": (
        transformers.Phi3Config,
        transformers.Phi3ForCausalLM,
        dict(num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False, pad_token_id=0),
    ),
    "qwen3_moe": (
        transformers.Qwen3MoeConfig,
        transformers.Qwen3MoeForCausalLM,
        dict(
            intermediate_size=256,
            moe_intermediate_size=128,
            num_experts=4,
            num_experts_per_tok=2,
            norm_topk_prob=True,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=64,
            tie_word_embeddings=False,
        ),
    ),
}
KEPT = tiny.KEEP + (
    "num_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "norm_topk_prob",
    "decoder_sparse_step",
    "mlp_only_layers",
)
SCALE_BITS = {"F32": (23, 127, np.uint32), "BF16": (7, 127, np.uint16), "F16": (10, 15, np.uint16)}
ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # AWQ's order: half-byte i of a word is column ORDER[i] of eight columns


def part(end, kind, dtype, shape, **more):
    """Returns the spec of one tensor of each quantised matrix. A size "r/8" is the number of rows divided by 8, rounded up ("c/8": of
    columns). See raw() for the kinds."""
    return dict(end=end, kind=kind, dtype=dtype, shape=shape, **more)


def scales(end, dtype, shape, exponent):
    return part(end, "scale", dtype, shape, exponent=exponent)


def gptq(bits, group, sym=True, v2=False, order=None, scale="F16"):
    per_word = 32 // bits
    config = dict(quant_method="gptq", bits=bits, group_size=group, sym=sym, desc_act=order is not None)
    if v2:
        config["checkpoint_format"] = "gptq_v2"
    rows = "1/1" if group == -1 else f"c/{group}"
    middle = int(("7" if bits == 4 else "7f") * per_word, 16)
    zeros = dict(kind="constant", word=middle) if sym else dict(kind="words")
    tensors = [
        part("qweight", "words", "I32", [f"c/{per_word}", "r/1"]),
        part("qzeros", dtype="I32", shape=[rows, f"r/{per_word}"], **zeros),
        scales("scales", scale, [rows, "r/1"], -3 - bits - (0 if sym else 1)),
    ]
    if order is not None:
        tensors.append(part("g_idx", "groups", "I32", ["c/1"], group=group, shared=order == "shared"))
    return config, tensors


def awq(group):
    return (
        dict(quant_method="awq", bits=4, group_size=group, version="gemm", zero_point=True),
        [
            part("qweight", "words", "I32", ["c/1", "r/8"]),
            part("qzeros", "words", "I32", [f"c/{group}", "r/8"]),
            scales("scales", "F16", [f"c/{group}", "r/1"], -8),
        ],
    )


def compressed(form, weights, tensors, **more):
    weights = dict(num_bits=4, type="int", symmetric=True, dynamic=False) | weights
    group = dict(targets=["Linear"], weights=weights, input_activations=more.pop("inputs", None), output_activations=None)
    config = dict(
        quant_method="compressed-tensors",
        format=form,
        quantization_status="compressed",
        ignore=["lm_head"],
        config_groups=dict(group_0=group),
        kv_cache_scheme=None,
        **more,
    )
    return config, tensors


def packed(bits, group, scale, zeros=None, order=None):
    per_word = 32 // bits
    groups = "1/1" if group is None else f"c/{group}"
    weights = dict(num_bits=bits, symmetric=zeros is None, strategy="channel" if group is None else "group", group_size=group)
    tensors = [
        part("weight_packed", "words", "I32", ["r/1", f"c/{per_word}"]),
        scales("weight_scale", scale, ["r/1", groups], -3 - bits),
        part("weight_shape", "shape", "I64", ["2/1"]),
    ]
    if zeros == "I32":
        tensors.append(part("weight_zero_point", "words", "I32", [f"r/{per_word}", groups]))
    if zeros == "I8":
        tensors.append(part("weight_zero_point", "small", "I8", ["r/1", groups]))
    if order is not None:
        tensors.append(part("weight_g_idx", "groups", "I32", ["c/1"], group=group, shared=order == "shared"))
        weights["actorder"] = "group"
    return compressed("pack-quantized", weights, tensors)


def whole(kind, dtype, scale_shape, strategy, scale, exponent, end="weight_scale"):
    inputs = dict(num_bits=8, type="int" if dtype == "I8" else "float", symmetric=True, strategy="token", dynamic=True)
    return compressed(
        "int-quantized" if dtype == "I8" else "float-quantized",
        dict(num_bits=8, type="int" if dtype == "I8" else "float", strategy=strategy),
        [part("weight", kind, dtype, ["r/1", "c/1"]), scales(end, scale, scale_shape, exponent)],
        inputs=inputs,
    )


def fp8_blocks(scale):
    return (
        dict(quant_method="fp8", activation_scheme="dynamic", weight_block_size=[128, 128], modules_to_not_convert=["lm_head"]),
        [part("weight", "e4m3", "F8_E4M3", ["r/1", "c/1"]), scales("weight_scale_inv", scale, ["r/128", "c/128"], -12)],
    )


def fp4(form, scale):
    weights = dict(num_bits=4, type="float", strategy="tensor_group" if form == "nvfp4" else "group", group_size=16 if form == "nvfp4" else 32)
    tensors = [part("weight_packed", "bytes", "U8", ["r/1", "c/2"]), scale]
    if form == "nvfp4":
        tensors.append(scales("weight_global_scale", "F32", ["1/1"], 12))
    return compressed(f"{form}-pack-quantized", weights, tensors)


# (name, type that selects the error bounds, model, (quantization_config, tensors), modules that are not quantised)
CASES = [
    ("gptq4_128", "GPTQ4", "llama", gptq(4, 128), ()),
    ("gptq4_asym_32", "GPTQ4", "qwen2", gptq(4, 32, sym=False), ()),
    ("gptq4_v2_64", "GPTQ4", "qwen3", gptq(4, 64, sym=False, v2=True), ()),
    ("gptq4_row", "GPTQ4", "llama", gptq(4, -1), ("layers.1.mlp",)),
    ("gptq4_16", "GPTQ4", "llama", gptq(4, 16, sym=False), ()),
    ("gptq4_fused", "GPTQ4", "phi3", gptq(4, 64, sym=False), ()),
    ("gptq4_experts", "GPTQ4 MoE", "qwen3_moe", gptq(4, 32), (".gate.",)),
    ("gptq4_order", "GPTQ4", "llama", gptq(4, 32, order="shared"), ()),
    ("gptq4_orders", "GPTQ4", "qwen3", gptq(4, 64, sym=False, v2=True, order="own"), ()),
    ("gptq4_experts_order", "GPTQ4 MoE", "qwen3_moe", gptq(4, 32, order="shared"), (".gate.",)),
    ("gptq8_128", "GPTQ8", "qwen2", gptq(8, 128), ()),
    ("gptq8_asym_32", "GPTQ8", "llama", gptq(8, 32, sym=False), ()),
    ("awq_128", "AWQ", "qwen2", awq(128), ()),
    ("awq_64", "AWQ", "llama", awq(64), ("layers.0.self_attn", "layers.1.mlp.down_proj")),
    ("packed4_128", "INT4", "llama", packed(4, 128, "BF16"), ()),
    ("packed4_row", "INT4", "qwen3", packed(4, None, "F32"), ()),
    ("packed4_asym_32", "INT4", "qwen2", packed(4, 32, "F16", zeros="I32"), ()),
    ("packed4_zeros_64", "INT4", "llama", packed(4, 64, "BF16", zeros="I8"), ()),
    ("packed4_order", "INT4", "qwen3", packed(4, 32, "BF16", order="shared"), ()),
    ("packed4_fused", "INT4", "phi3", packed(4, 32, "BF16", zeros="I32"), ()),
    ("packed8_64", "INT8", "qwen3", packed(8, 64, "BF16"), ()),
    ("w8a8_row", "INT8", "llama", whole("bytes", "I8", ["r/1", "1/1"], "channel", "BF16", -10), ()),
    ("w8a8_tensor", "INT8", "qwen2", whole("bytes", "I8", ["1/1"], "tensor", "F32", -10), ()),
    ("nvfp4", "FP4", "llama", fp4("nvfp4", part("weight_scale", "e4m3", "F8_E4M3", ["r/1", "c/16"])), ()),
    ("mxfp4", "FP4", "qwen3", fp4("mxfp4", part("weight_scale", "powers", "U8", ["r/1", "c/32"])), ()),
    ("fp8_tensor", "FP8", "llama", whole("e4m3", "F8_E4M3", ["1/1"], "tensor", "F32", -12), ()),
    ("fp8_row", "FP8", "qwen2", whole("e4m3", "F8_E4M3", ["r/1", "1/1"], "channel", "BF16", -12), ()),
    ("fp8_blocks", "FP8", "qwen3_320", fp8_blocks("F32"), ()),
    ("fp8_fused", "FP8", "phi3", fp8_blocks("F32"), ()),
    ("fp8_tensor_fused", "FP8", "phi3", whole("e4m3", "F8_E4M3", ["1/1"], "tensor", "F32", -12), ()),
    ("fp8_blocks_bf16", "FP8", "qwen3", fp8_blocks("BF16"), ("layers.0.mlp.down_proj",)),
]


# GGUF types that logits.py does not record; one model is recorded with each type.
GGUF_TYPES = ("IQ1_S", "IQ2_XS", "IQ3_S", "TQ1_0", "MXFP4")


def size_of(text, rows, columns):
    name, divisor = text.split("/")
    return -(-{"r": rows, "c": columns}.get(name) // int(divisor)) if name in "rc" else int(name)


def raw(name, spec, rows, columns):
    """Returns a tensor as the file stores it."""
    shape = [size_of(text, rows, columns) for text in spec["shape"]]
    count = int(np.prod(shape))
    kind = spec["kind"]
    if kind == "shape":
        return np.array([rows, columns], dtype=np.int64)
    if kind == "constant":
        return np.full(shape, spec["word"], dtype=np.uint32)
    if kind == "groups":  # the group of each column; columns are sorted by drawn values and divided into groups
        stem, layer_part = name.rsplit(".", 2)[0], name.rsplit(".", 2)[1]
        shared = dict.fromkeys(("q_proj", "k_proj", "v_proj"), "qkv") | dict.fromkeys(("gate_proj", "up_proj"), "gate_up")
        words = draw(f"{stem}.{shared.get(layer_part, layer_part)}.order" if spec["shared"] else name, count)
        groups = np.empty(count, dtype=np.int32)
        groups[np.argsort(words, kind="stable")] = np.arange(count) // spec["group"]
        return groups
    words = draw(name, count)
    if kind == "words":
        return (words >> np.uint64(32)).astype(np.uint32).reshape(shape)
    if kind in ("bytes", "e4m3"):
        values = (words >> np.uint64(56)).astype(np.uint8)
        if kind == "e4m3":
            values[(values & 0x7F) == 0x7F] ^= 0x40
        return values.reshape(shape)
    if kind == "powers":  # 2^-8 to 2^-5
        return (words >> np.uint64(62)).astype(np.uint8).reshape(shape) + np.uint8(119)
    if kind == "small":  # signed 4-bit zero points
        return ((words >> np.uint64(60)).astype(np.int8) - 8).reshape(shape)
    bits, bias, word = SCALE_BITS[spec["dtype"]]
    mantissa = words & np.uint64((1 << bits) - 1)
    return (mantissa | np.uint64((spec["exponent"] + bias) << bits)).astype(word).reshape(shape)


def to_float(values, dtype):
    if dtype == "F16":
        return values.view(np.float16).astype(np.float32)
    return values.view(np.float32) if dtype == "F32" else (values.astype(np.uint32) << 16).view(np.float32)


def unpack(words, bits, axis, order=None):
    """Unpacks integers from words along an axis. The first integer is in the least significant bits."""
    per_word = 32 // bits
    fields = np.stack([(words >> np.uint32(bits * i)) & np.uint32((1 << bits) - 1) for i in range(per_word)], axis=axis + 1)
    if order is not None:
        fields = np.take(fields, np.argsort(order), axis=axis + 1)
    shape = list(words.shape)
    shape[axis] *= per_word
    return fields.reshape(shape).astype(np.float32)


def by_columns(config, parts, columns):
    """Dequantises GPTQ and AWQ matrices: w[k][n] = (code - zero) * scale."""
    bits, group = config["bits"], config["group_size"]
    order = ORDER if config["quant_method"] == "awq" else None
    zeros = parts["qzeros"]
    if order is None and config.get("checkpoint_format") != "gptq_v2":
        with np.errstate(over="ignore"):
            zeros = zeros + np.uint32(0x11111111 if bits == 4 else 0x01010101)
    codes = unpack(parts["qweight"], bits, 0 if order is None else 1, order)
    zeros = unpack(zeros, bits, 1, order)
    group_of = parts.get("g_idx", np.arange(columns) // (columns if group == -1 else group))
    return ((codes - zeros[group_of]) * parts["scales"][group_of]).T


def by_rows(config, parts, rows, columns):
    """Dequantises the matrices of compressed-tensors."""
    weights = config["config_groups"]["group_0"]["weights"]
    if "weight" in parts and weights["type"] == "float":
        return (torch.from_numpy(parts["weight"]).view(torch.float8_e4m3fn).float() * torch.from_numpy(parts["weight_scale"])).bfloat16()
    scale = torch.from_numpy(parts["weight_scale"])
    if weights["type"] == "float" and weights["group_size"] == 16:
        codes = unpack_fp4_from_uint8(torch.from_numpy(parts["weight_packed"]), rows, columns, dtype=torch.float32)
        return dequantize(codes, scale.view(torch.float8_e4m3fn), dtype=torch.float32, global_scale=torch.from_numpy(parts["weight_global_scale"]))
    if weights["type"] == "float":
        blocks = torch.from_numpy(parts["weight_packed"]).reshape(1, rows, columns // 32, 16)
        return convert_moe_packed_tensors(blocks, scale[None], dtype=torch.float32).reshape(columns, rows).T
    if "weight" in parts:
        return dequantize(torch.from_numpy(parts["weight"]).view(torch.int8), scale)
    bits = weights["num_bits"]
    codes = unpack_from_int32(torch.from_numpy(parts["weight_packed"].view(np.int32)), bits, torch.Size((rows, columns)))
    zeros = parts.get("weight_zero_point")
    if zeros is not None and zeros.dtype == np.uint32:
        zeros = unpack_from_int32(torch.from_numpy(zeros.view(np.int32)), bits, torch.Size((rows, scale.shape[1])), packed_dim=0)
    elif zeros is not None:
        zeros = torch.from_numpy(zeros)
    groups = parts.get("weight_g_idx")
    return dequantize(codes, scale, zeros, g_idx=None if groups is None else torch.from_numpy(groups))


def fp8_cast_bf16(weight, scale):
    wide = np.repeat(np.repeat(scale, 128, axis=0), 128, axis=1)[: weight.shape[0], : weight.shape[1]]
    return (torch.from_numpy(weight).view(torch.float8_e4m3fn).float() * torch.from_numpy(wide)).bfloat16()


def quantised(module, config, specs, rows, columns):
    parts = {}
    for spec in specs:
        values = raw(f"{module}.{spec['end']}", spec, rows, columns)
        parts[spec["end"]] = to_float(values, spec["dtype"]) if spec["kind"] == "scale" else values
    if config["quant_method"] in ("gptq", "awq"):
        return torch.from_numpy(np.ascontiguousarray(by_columns(config, parts, columns)))
    if config["quant_method"] == "fp8":
        return fp8_cast_bf16(parts["weight"], parts["weight_scale_inv"]).float()
    return by_rows(config, parts, rows, columns).float()


def run(name, kind, model_name, scheme, left, prompt):
    config_class, model_class, options = MODELS[model_name]
    config = config_class(**SHAPE | options, attn_implementation="eager")
    model = model_class(config).eval()
    quantization, specs = scheme
    state = {}
    for tensor, value in tiny.tensors_of(model):
        if tensor.endswith("proj.weight") and not any(end in tensor for end in left):
            state[tensor] = quantised(tensor.removesuffix(".weight"), quantization, specs, *value.shape)
        else:
            state[tensor] = tiny.floats(tensor, "BF16", value.numel()).reshape(value.shape)
        assert state[tensor].shape == value.shape, tensor
    tiny.fill(model, state.items())
    described = tiny.described(config, KEPT) | dict(quantization_config=quantization)
    case = dict(name=name, container="quantised", type=kind, config=described, tensors=specs, left=list(left))
    return case, tiny.logits_of(model, prompt)


OUT, OPTIONS = tiny.OUT, tiny.OPTIONS


def run_any(*arguments):
    """Runs a case of CASES, or a model without quantised matrices in a type of GGUF_TYPES."""
    return (run if len(arguments) == 6 else logits.run)(*arguments)


def main(out, all_cases):
    tiny.EXPONENTS["mlp.gate.weight"] = 1  # larger router weights, as in expert_logits.py
    cases = {one[0]: one for one in CASES} | {f"llama_gguf_{kind}": ("llama", "gguf", kind) for kind in GGUF_TYPES}
    tiny.record_all(out, "quantised_", cases, run_any, all_cases)
