"""Records how transformers reads an explicit null in config.json: like a missing key, like another value, or as an error.

Needs torch==2.10.0 and transformers==4.57.6.

Covers each key that quire reads and that the config class of a family knows. A small model of the family is built with the key set to null.
Parameters are drawn from their names, so two models are equal if their logits are equal. The record has one of these values for each key:
    "absent"         the logits equal the logits of a model without the key
    {"value": V}     the logits equal the logits of a model with V, one of a few simple values
    "off"            the logits equal the logits of a model without the feature: no window, no cap
    "error"          the model cannot be made or run
"""
import inspect
import json
import re
import zlib

import torch
import transformers

from .files import ROOT

SOURCES = ROOT / "src/runtime/model/config"
TOKENS = torch.tensor([[(7 * i) % 97 for i in range(24)]])
# Windows are shorter than the prompt, so that they change the logits.
SHAPE = {"num_hidden_layers": 4, "hidden_size": 64, "intermediate_size": 96, "vocab_size": 100, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 128, "pad_token_id": 0}
EXPERTS = {"moe_intermediate_size": 32, "num_experts_per_tok": 2}
LATENT = {"kv_lora_rank": 16, "q_lora_rank": 24, "qk_rope_head_dim": 16, "qk_nope_head_dim": 16, "v_head_dim": 16,
          "n_routed_experts": 8, "n_group": 2, "topk_group": 1, "n_shared_experts": 1, "first_k_dense_replace": 1,
          "num_key_value_heads": 4}
MAMBA = {"mamba_d_conv": 4, "mamba_d_state": 16, "mamba_n_heads": 8, "mamba_n_groups": 1, "mamba_d_head": 16, "mamba_expand": 2}
# The default rope of gpt-oss.
GPT_OSS_ROPE = {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                "original_max_position_embeddings": 4096}
FAMILIES = {
    "llama": {}, "mistral": {"sliding_window": 8}, "qwen2": {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 2},
    "qwen3": {"head_dim": 16, "sliding_window": 8, "use_sliding_window": True, "max_window_layers": 2}, "phi3": {"sliding_window": 8},
    "granite": {"attention_multiplier": 0.25}, "smollm3": {}, "olmo2": {}, "olmo3": {"sliding_window": 8},
    "seed_oss": {"head_dim": 32}, "ernie4_5": {"head_dim": 32}, "arcee": {}, "glm": {"head_dim": 16}, "glm4": {"head_dim": 16},
    "exaone4": {"sliding_window": 8}, "hunyuan_v1_dense": {"head_dim": 16}, "ministral": {"head_dim": 16, "sliding_window": 8},
    "gemma2": {"head_dim": 16, "sliding_window": 8}, "gemma3_text": {"head_dim": 16, "sliding_window": 8},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8},
    "qwen2_moe": EXPERTS | {"num_experts": 4, "shared_expert_intermediate_size": 32},
    "qwen3_moe": EXPERTS | {"num_experts": 4, "head_dim": 16}, "olmoe": {"num_experts": 4, "num_experts_per_tok": 2},
    "granitemoe": {"num_local_experts": 4, "num_experts_per_tok": 2, "attention_multiplier": 0.25},
    "granitemoeshared": {"num_local_experts": 4, "num_experts_per_tok": 2, "attention_multiplier": 0.25, "shared_intermediate_size": 32},
    "ernie4_5_moe": {"moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 32}, "hunyuan_v1_moe": {"num_experts": 4, "moe_topk": 1, "head_dim": 16},
    "gpt_oss": {"rope_scaling": GPT_OSS_ROPE, "num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16, "sliding_window": 8},
    "deepseek_v2": LATENT | EXPERTS, "deepseek_v3": LATENT | EXPERTS,
    "glm4_moe": EXPERTS | {"n_routed_experts": 4, "head_dim": 16}, "dots1": EXPERTS | {"n_routed_experts": 4, "n_shared_experts": 1, "sliding_window": 8,
                                                                                     "max_window_layers": 1, "n_group": 1, "topk_group": 1},
    "lfm2": {"layer_types": ["conv", "full_attention", "conv", "full_attention"], "block_multiple_of": 32},
    "granitemoehybrid": MAMBA | {"num_local_experts": 4, "layer_types": ["mamba", "attention"] * 2, "shared_intermediate_size": 32,
                                 "attention_multiplier": 0.25},
    "bamba": MAMBA | {"attn_layer_indices": [1, 3]},
    "falcon_h1": MAMBA | {"mamba_d_ssm": 128, "mamba_d_head": 16, "head_dim": 16},
    "qwen3_next": EXPERTS | {"num_experts": 4, "shared_expert_intermediate_size": 32, "head_dim": 16, "linear_num_value_heads": 4,
                             "linear_num_key_heads": 2, "linear_key_head_dim": 16, "linear_value_head_dim": 16},
}
LONG = 8192  # for keys of window sizes: no window of this size ends within the prompt
CANDIDATES = [False, True, 0, 1, 4, 16, 64, 0.0, 1.0, "silu", [], ["full_attention"] * 4]


def keys_read():
    text = "\n".join(path.read_text() for path in sorted(SOURCES.glob("*.cpp")))
    return set(re.findall(r'"([a-z][A-Za-z0-9_]+)"', text))


def make(kind, fields):
    config_class = transformers.CONFIG_MAPPING[kind]
    config = config_class.from_dict(dict(fields))
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval().float()
    done = set()
    for name, parameter in model.named_parameters():
        if parameter.data_ptr() in done:
            continue
        done.add(parameter.data_ptr())
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        parameter.data = torch.randn(parameter.shape, generator=generator) * (0.02 if parameter.dim() > 2 else 0.2)
    with torch.no_grad():
        return model(TOKENS, use_cache=False).logits[0]


def try_to_make(kind, fields):
    try:
        logits = make(kind, fields)
    except Exception as error:  # noqa: BLE001
        return None, f"{type(error).__name__}: {error}"
    return (logits, "") if torch.isfinite(logits).all() else (None, "no numbers")


def same(a, b):
    return a is not None and b is not None and a.shape == b.shape and torch.equal(a, b)


def meaning(kind, base, key):
    without = {k: v for k, v in base.items() if k != key}
    null, why = try_to_make(kind, without | {key: None})
    if null is None:
        return "error", why
    if same(null, try_to_make(kind, without)[0]):
        return "absent", ""
    if key.endswith("softcapping") or same(null, try_to_make(kind, without | {key: LONG})[0]):
        return "off", ""
    for value in CANDIDATES:
        if same(null, try_to_make(kind, without | {key: value})[0]):
            return {"value": value}, ""
    return "unknown", ""


OUT = "config_nulls.json"
OPTIONS = {"families": (",".join(FAMILIES), "families, separated by commas")}


def main(out, families):
    rows = []
    keys = keys_read()
    for kind in families.split(","):
        base = SHAPE | FAMILIES[kind]
        logits, why = try_to_make(kind, base)
        if logits is None:
            raise SystemExit(f"{kind}: {why}")
        signature = set(inspect.signature(transformers.CONFIG_MAPPING[kind].__init__).parameters)
        for key in sorted((signature | {"tie_word_embeddings"}) & keys):
            null, why = meaning(kind, base, key)
            rows.append({"model_type": kind, "key": key, "null": null})
            print(kind, key, null, why[:90], flush=True)
    body = ",\n".join(json.dumps(row) for row in rows)
    shapes = ",\n".join(f"{json.dumps(kind)}: {json.dumps(SHAPE | FAMILIES[kind])}" for kind in FAMILIES)
    out.write_text(f'{{"transformers": "{transformers.__version__}",\n"shapes": {{\n{shapes}}},\n"rows": [\n{body}]}}\n')
