#!/usr/bin/env python3
"""Records the logits that transformers gives on small models that see (Idefics3, SmolVLM), after a prompt with two tiles of a picture.

    python3 -m venv venv && venv/bin/pip install torch==2.10.0 transformers==4.57.6 gguf==0.19.0 numpy pillow
    venv/bin/python tools/record_picture_logits.py    # writes tests/golden/logits/{picture_cases.json,picture_logits.f32}

Weights are those of record_logits.py, pixels are drawn in the same way. transformers 4.57 gives every patch but the first the position of
the one before it (fractions are a millionth short of the borders that they are compared with); its later versions, vLLM and the code that
the models were trained with do not, and neither does what is recorded here.
"""

import json

import numpy as np
import torch
import transformers
from transformers.image_transforms import normalize, rescale
from transformers.models.idefics3 import modeling_idefics3
from transformers.models.smolvlm import modeling_smolvlm

import record_logits
from record_logits import NUM_TOKENS, POSITIONS, VOCAB, draw, floats

TOKEN = VOCAB - 1
TILES, SIDE, TILE_TOKENS = 2, 16, 4
PLACES = [10, 20]  # where the embeddings of each tile begin
TEXT = dict(model_type="llama", vocab_size=VOCAB, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=128, rms_norm_eps=1e-5, tie_word_embeddings=False, rope_theta=10000.0)
VISION = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, image_size=SIDE, patch_size=4,
              hidden_act="gelu_pytorch_tanh", layer_norm_eps=1e-6, num_channels=3)
MODELS = {"idefics3": (transformers.Idefics3Config, transformers.Idefics3ForConditionalGeneration),
          "smolvlm": (transformers.SmolVLMConfig, transformers.SmolVLMForConditionalGeneration)}


def embed_in_order(self, pixel_values, patch_attention_mask):
    patches = self.patch_embedding(pixel_values).flatten(2).transpose(1, 2)
    return patches + self.position_embedding(torch.arange(self.num_positions))


modeling_idefics3.Idefics3VisionEmbeddings.forward = embed_in_order
modeling_smolvlm.SmolVLMVisionEmbeddings.forward = embed_in_order


def pixels():
    """[tile][colour][row][column], normalised as the processor does."""
    tiles = (draw("tile", TILES * SIDE * SIDE * 3) >> np.uint64(56)).astype(np.uint8).reshape(TILES, SIDE, SIDE, 3)
    shown = [normalize(rescale(tile, 1 / 255, input_data_format="channels_last"), [0.5] * 3, [0.5] * 3, input_data_format="channels_last")
             for tile in tiles]
    return torch.from_numpy(np.stack(shown).transpose(0, 3, 1, 2)[None].copy())


def run(name, kind):
    config_class, model_class = MODELS[name]
    text = transformers.LlamaConfig(**{key: value for key, value in TEXT.items() if key != "model_type"})
    config = config_class(text_config=text, vision_config=VISION, scale_factor=2, image_token_id=TOKEN, pad_token_id=0,
                          attn_implementation="eager")
    model = model_class(config).eval()
    state = {}
    for tensor, value in model.state_dict().items():
        state[tensor] = torch.from_numpy(floats(tensor, kind, value.numel()).reshape(tuple(value.shape)).copy())
    model.load_state_dict(state)
    prompt = [int(word % (VOCAB - 1)) for word in draw("prompt", NUM_TOKENS)]
    for place in PLACES:
        prompt[place:place + TILE_TOKENS] = [TOKEN] * TILE_TOKENS
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([prompt]), pixel_values=pixels()).logits[0, POSITIONS].numpy()
    assert logits.dtype == np.float32 and np.isfinite(logits).all()
    case = dict(name=f"{name}_{kind}", type=kind, config=dict(model_type=name, text_config=TEXT, vision_config=VISION, scale_factor=2,
                                                              image_token_id=TOKEN))
    return case, prompt, logits


def main():
    torch.set_num_threads(1)
    cases, records = [], []
    for name, kind in (("idefics3", "F32"), ("smolvlm", "BF16")):
        case, prompt, logits = run(name, kind)
        cases.append(case)
        records.append(logits)
        print(case["name"], "std", logits.std(), "top", logits[-1].argmax())
    record = dict(made_with=f"transformers {transformers.__version__}, torch {torch.__version__}", prompt=prompt, positions=POSITIONS,
                  places=PLACES, tile_tokens=TILE_TOKENS, tile_side=SIDE)
    lines = ",\n".join(json.dumps(case) for case in cases)
    (record_logits.OUT / "picture_cases.json").write_text(json.dumps(record)[:-1] + ', "cases": [\n' + lines + "\n]}\n")
    np.stack(records).astype("<f4").tofile(record_logits.OUT / "picture_logits.f32")


if __name__ == "__main__":
    main()
