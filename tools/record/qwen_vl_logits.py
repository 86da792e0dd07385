"""Records the logits that transformers gives on small models of Qwen2-VL and Qwen2.5-VL, after a prompt with two images of two sizes.

Needs pillow and the packages that tiny.py names.

Weights come from tiny.py; pixels are drawn in the same way and pass through the image processor. The config and tensors of one model have
the names of published folders. The config and tensors of the other model have the names that newer versions of transformers write.
"""
import json

import numpy as np
import torch
import transformers

from . import tiny
from .tiny import VOCAB, draw, floats

TOKEN, BEGIN, END = VOCAB - 1, VOCAB - 3, VOCAB - 2
SQUARE = 8  # side of an embedding in pixels: two patches of four pixels
GRIDS = [(3, 5), (4, 2)]  # rows and columns of embeddings
PLACES = [10, 31]  # first position of the embeddings of each image
NUM_TOKENS = 60
POSITIONS = [0, 9, 10, 14, 24, 25, 30, 34, 39, 45, 59]
TEXT = dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=128, rms_norm_eps=1e-6, tie_word_embeddings=False, rope_theta=10000.0, use_sliding_window=False)
TOKENS = dict(image_token_id=TOKEN, video_token_id=BEGIN - 1, vision_start_token_id=BEGIN, vision_end_token_id=END)
CONFIGS = {
    "qwen2_5_vl": dict(model_type="qwen2_5_vl", **TEXT, **TOKENS, rope_scaling=dict(type="mrope", mrope_section=[2, 3, 3]), vision_config=dict(
        depth=3, hidden_act="silu", hidden_size=48, intermediate_size=72, num_heads=4, in_chans=3, out_hidden_size=64, patch_size=4,
        spatial_merge_size=2, spatial_patch_size=4, window_size=16, fullatt_block_indexes=[1], tokens_per_second=2,
        temporal_patch_size=2)),
    "qwen2_vl": dict(model_type="qwen2_vl", **TOKENS, text_config=dict(model_type="qwen2_vl_text", **TEXT, rope_scaling=dict(
        type="default", rope_type="default", mrope_section=[4, 2, 2])), vision_config=dict(
            depth=2, embed_dim=48, hidden_size=64, hidden_act="quick_gelu", mlp_ratio=3, num_heads=4, in_channels=3, patch_size=4,
            spatial_merge_size=2, temporal_patch_size=2)),
}
MODELS = {"qwen2_5_vl": (transformers.Qwen2_5_VLConfig, transformers.Qwen2_5_VLForConditionalGeneration),
          "qwen2_vl": (transformers.Qwen2VLConfig, transformers.Qwen2VLForConditionalGeneration)}


def pictures():
    """Returns the pixels of the images, as the image processor returns them, and the images' grids of patches."""
    shown = []
    for number, (rows, columns) in enumerate(GRIDS):
        count = rows * columns * SQUARE * SQUARE * 3
        bytes_ = (draw(f"picture {number}", count) >> np.uint64(56)).astype(np.uint8)
        shown.append(bytes_.reshape(rows * SQUARE, columns * SQUARE, 3))
    processor = transformers.Qwen2VLImageProcessor(min_pixels=64, max_pixels=65536, patch_size=4, merge_size=2)
    out = processor(shown, return_tensors="pt", input_data_format="channels_last")
    assert [tuple(int(size) for size in grid) for grid in out["image_grid_thw"]] == [(1, 2 * rows, 2 * columns) for rows, columns in GRIDS]
    return out["pixel_values"], out["image_grid_thw"]


def published(name):
    return name.replace("model.language_model.", "model.").replace("model.visual.", "visual.")


def run(name, kind):
    config_class, model_class = MODELS[name]
    config = config_class(**json.loads(json.dumps(CONFIGS[name])), pad_token_id=0, attn_implementation="eager")
    model = model_class(config).eval()
    called = published if "text_config" not in CONFIGS[name] else str
    tiny.fill(model, ((tensor, floats(called(tensor), kind, value.numel()).reshape(tuple(value.shape)))
                      for tensor, value in model.state_dict().items()))
    prompt = [int(word % (BEGIN - 1)) for word in draw("prompt", NUM_TOKENS)]
    for (rows, columns), place in zip(GRIDS, PLACES):
        prompt[place - 1:place + rows * columns + 1] = [BEGIN] + [TOKEN] * (rows * columns) + [END]
    values, grids = pictures()
    ids = torch.tensor([prompt])
    with torch.no_grad():
        positions, _ = model.model.get_rope_index(ids, image_grid_thw=grids)
        logits = tiny.finite(model(input_ids=ids, pixel_values=values, image_grid_thw=grids).logits[0, POSITIONS])
    return (dict(name=f"{name}_{kind}", type=kind, config=CONFIGS[name]), logits), prompt, positions[:, 0].T.tolist()


OUT = tiny.OUT


def main(out):
    torch.set_num_threads(1)
    done, (prompt, *others), (places, *other_places) = zip(*(run(name, kind) for name, kind in (("qwen2_5_vl", "F32"), ("qwen2_vl", "BF16"))))
    assert others == [prompt] and other_places == [places]
    record = dict(made_with=tiny.VERSIONS, prompt=prompt, positions=POSITIONS, places=PLACES, grids=GRIDS, square=SQUARE,
                  rope_positions=places)
    tiny.write_record(out, "qwen_vl_", record, map(tiny.told, done))
