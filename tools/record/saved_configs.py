"""Records the config.json that a version of transformers writes for a small model of each family.

Keys and names differ between versions 4 and 5 of transformers. Needs torch==2.10.0 and transformers==4.57.6; run the module again with
transformers 5.24.0. `{major}` in the path is the major version.
"""
import json
import pathlib
import tempfile

import transformers

from .config_nulls import EXPERTS, FAMILIES, SHAPE

OUT = "saved_configs_{major}.json"
TOWER = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 32, "patch_size": 8}
PIXTRAL = TOWER | {"model_type": "pixtral", "head_dim": 16}
NEMOTRON = {"head_dim": 16, "mamba_num_heads": 4, "mamba_head_dim": 32, "n_groups": 2, "ssm_state_size": 16}
SECTIONS = {"mrope_section": [2, 3, 3]}
QWEN_VL = SHAPE | {"rope_scaling": SECTIONS | {"type": "mrope"}, "rope_parameters": SECTIONS | {"rope_type": "default", "rope_theta": 1e6},
                   "image_token_id": 90}
IMAGE = {"image_token_id": 90, "image_token_index": 90}


BASE = {"rope_theta": 25000.0}  # set explicitly, because the defaults of the versions differ


def rope(**scaling):
    """Returns the rope parameters in the formats of both versions."""
    return {"rope_scaling": scaling, "rope_parameters": scaling | {"rope_theta": 10000.0}}


def text(kind, **more):
    return SHAPE | {"model_type": kind} | more


def cases():
    made = {kind: (kind, SHAPE | BASE | fields) for kind, fields in FAMILIES.items()}
    made |= {
        "nemotron_h": ("nemotron_h", SHAPE | NEMOTRON | {"hybrid_override_pattern": "M-M*"}),
        "nemotron_h_moe": ("nemotron_h", SHAPE | NEMOTRON | EXPERTS | {
            "hybrid_override_pattern": "MEM*", "n_routed_experts": 4, "moe_shared_expert_intermediate_size": 48}),
        "qwen3_yarn": ("qwen3", SHAPE | FAMILIES["qwen3"] | rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)),
        "llama_l3": ("llama", SHAPE | rope(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                           original_max_position_embeddings=32)),
        "llama_tied": ("llama", SHAPE | {"tie_word_embeddings": True}),
        "gemma2_apart": ("gemma2", SHAPE | FAMILIES["gemma2"] | {"tie_word_embeddings": False}),
        "llava": ("llava", IMAGE | {"text_config": text("llama"), "vision_config": TOWER | {"model_type": "clip_vision_model"}}),
        "llava_siglip": ("llava", IMAGE | {"text_config": text("qwen2"), "vision_config": TOWER | {"model_type": "siglip_vision_model"},
                                           "vision_feature_select_strategy": "full"}),
        "gemma3": ("gemma3", IMAGE | {"text_config": text("gemma3_text", head_dim=16, sliding_window=64), "mm_tokens_per_image": 4,
                                      "vision_config": TOWER | {"model_type": "siglip_vision_model"}}),
        "mistral3": ("mistral3", IMAGE | {"text_config": text("mistral", head_dim=16), "vision_config": PIXTRAL}),
        "idefics3": ("idefics3", IMAGE | {"text_config": text("llama"), "vision_config": TOWER | {"model_type": "idefics3_vision"}}),
        "smolvlm": ("smolvlm", IMAGE | {"text_config": text("llama", tie_word_embeddings=True), "tie_word_embeddings": True,
                                        "vision_config": TOWER | {"model_type": "smolvlm_vision"}}),
        "qwen2_vl": ("qwen2_vl", QWEN_VL | {"vision_config": {"depth": 2, "embed_dim": 64, "hidden_size": 64, "num_heads": 4, "mlp_ratio": 2,
                                                              "patch_size": 8}}),
        "qwen2_5_vl": ("qwen2_5_vl", QWEN_VL | {"vision_config": {"depth": 2, "hidden_size": 64, "out_hidden_size": 64, "num_heads": 4,
                                                                  "intermediate_size": 96, "patch_size": 8, "window_size": 32,
                                                                  "fullatt_block_indexes": [1]}}),
        "whisper": ("whisper", {"d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
                                "decoder_attention_heads": 4, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96, "vocab_size": 100,
                                "num_mel_bins": 16, "max_source_positions": 32, "max_target_positions": 32, "pad_token_id": 0}),
    }
    return made


def main(out):
    major = transformers.__version__.split(".")[0]
    saved = {}
    for name, (kind, fields) in cases().items():
        if kind not in transformers.CONFIG_MAPPING:
            print(f"{name}: version {major} has no {kind}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            transformers.CONFIG_MAPPING[kind].from_dict(json.loads(json.dumps(fields))).save_pretrained(folder)
            saved[name] = json.loads(pathlib.Path(folder, "config.json").read_text())
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(config)}" for name, config in saved.items())
    pathlib.Path(str(out).replace("{major}", major)).write_text(f"{{\n{rows}}}\n")
    print(f"{len(saved)} configs of transformers {transformers.__version__}")
