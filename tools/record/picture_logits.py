"""Records the logits that transformers gives on small models with images (Idefics3, SmolVLM, LLaVA, Gemma 3), after a prompt with two tiles.

Needs pillow and the packages that tiny.py names.

Weights come from tiny.py, and pixels are drawn in the same way. transformers 4.57 assigns the position of the previous patch to every patch
except the first, because of rounding. Later versions of transformers, vLLM and the code that trained the models use the correct positions.
The record uses the correct positions too.
"""
import numpy as np
import torch
import transformers
from transformers.image_transforms import normalize, rescale
from transformers.models.idefics3 import modeling_idefics3
from transformers.models.smolvlm import modeling_smolvlm

from . import tiny
from .tiny import NUM_TOKENS, POSITIONS, VOCAB, draw, floats

TOKEN = VOCAB - 1
TILES, SIDE, TILE_TOKENS = 2, 16, 4
PLACES = [10, 20]  # first position of the embeddings of each tile
TEXT = dict(model_type="llama", vocab_size=VOCAB, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=128, rms_norm_eps=1e-5, tie_word_embeddings=False, rope_theta=10000.0)
VISION = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, image_size=SIDE, patch_size=4,
              hidden_act="gelu_pytorch_tanh", layer_norm_eps=1e-6, num_channels=3)
MODELS = {"idefics3": (transformers.Idefics3Config, transformers.Idefics3ForConditionalGeneration),
          "smolvlm": (transformers.SmolVLMConfig, transformers.SmolVLMForConditionalGeneration)}
CLIP_MEAN, CLIP_DEVIATION = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
LLAVA_PLACES = [3, 21]
CLIP = dict(model_type="clip_vision_model", hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, image_size=16,
            patch_size=4)
# The last two rows and columns of pixels belong to no patch, because 18 is not a multiple of 4.
SIGLIP = dict(model_type="siglip_vision_model", hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
              image_size=18, patch_size=4)
# name: (type of the weights, vision tower, decoder, further fields of the config)
LLAVA = {
    "llava_clip": ("F32", CLIP, dict(TEXT), {}),
    "llava_siglip": ("BF16", SIGLIP, dict(TEXT, model_type="qwen2"), dict(vision_feature_layer=-1, vision_feature_select_strategy="full")),
    "llava_full": ("F16", CLIP, dict(TEXT, model_type="mistral"), dict(vision_feature_layer=1, vision_feature_select_strategy="full",
                                                                       multimodal_projector_bias=False)),
}


# The four tokens of an image attend to each other. The window is only two tokens longer than an image.
GEMMA_TEXT = dict(model_type="gemma3_text", vocab_size=VOCAB, hidden_size=64, intermediate_size=128, num_hidden_layers=4,
                  num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=128, rms_norm_eps=1e-6,
                  sliding_window=6, layer_types=["sliding_attention", "full_attention"] * 2, query_pre_attn_scalar=16,
                  rope_theta=10000.0, rope_local_base_freq=5000.0)


def embed_in_order(self, pixel_values, patch_attention_mask):
    patches = self.patch_embedding(pixel_values).flatten(2).transpose(1, 2)
    return patches + self.position_embedding(torch.arange(self.num_positions))


modeling_idefics3.Idefics3VisionEmbeddings.forward = embed_in_order
modeling_smolvlm.SmolVLMVisionEmbeddings.forward = embed_in_order


def pixels(side=SIDE, mean=(0.5, 0.5, 0.5), deviation=(0.5, 0.5, 0.5)):
    """Returns the pixels as [tile][colour][row][column], normalised as by the image processor."""
    tiles = (draw("tile", TILES * side * side * 3) >> np.uint64(56)).astype(np.uint8).reshape(TILES, side, side, 3)
    shown = [normalize(rescale(tile, 1 / 255, input_data_format="channels_last"), list(mean), list(deviation),
                       input_data_format="channels_last") for tile in tiles]
    return torch.from_numpy(np.stack(shown).transpose(0, 3, 1, 2).copy())


def fill(model, kind):
    state = {}
    is_tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    for tensor, value in model.state_dict().items():
        if is_tied and tensor == "lm_head.weight":
            continue
        if value.dtype == torch.float32:
            state[tensor] = torch.from_numpy(floats(tensor, kind, value.numel()).reshape(tuple(value.shape)).copy())
    model.load_state_dict(state, strict=False)
    return model


def prompt_with(places, tile_tokens):
    prompt = [int(word % (VOCAB - 1)) for word in draw("prompt", NUM_TOKENS)]
    for place in places:
        prompt[place:place + tile_tokens] = [TOKEN] * tile_tokens
    return prompt


def logits_of(model, prompt, shown, **more):
    with torch.no_grad():
        return tiny.finite(model(input_ids=torch.tensor([prompt]), pixel_values=shown, **more).logits[0, POSITIONS])


def run(name, kind):
    config_class, model_class = MODELS[name]
    text = transformers.LlamaConfig(**{key: value for key, value in TEXT.items() if key != "model_type"})
    config = config_class(text_config=text, vision_config=VISION, scale_factor=2, image_token_id=TOKEN, pad_token_id=0,
                          attn_implementation="eager")
    model = fill(model_class(config).eval(), kind)
    prompt = prompt_with(PLACES, TILE_TOKENS)
    logits = logits_of(model, prompt, pixels()[None])
    case = dict(name=f"{name}_{kind}", type=kind, config=dict(model_type=name, text_config=TEXT, vision_config=VISION, scale_factor=2,
                                                              image_token_id=TOKEN))
    return case, logits


def run_llava(name):
    kind, tower, text, more = LLAVA[name]
    config = transformers.LlavaConfig(text_config=dict(text), vision_config=dict(tower), image_token_index=TOKEN, pad_token_id=0,
                                      attn_implementation="eager", **more)
    model = fill(transformers.LlavaForConditionalGeneration(config).eval(), kind)
    is_clip = tower is CLIP
    tile_tokens = (tower["image_size"] // 4)**2 + (1 if is_clip and "vision_feature_select_strategy" in more else 0)
    prompt = prompt_with(LLAVA_PLACES, tile_tokens)
    shown = pixels(tower["image_size"], CLIP_MEAN, CLIP_DEVIATION) if is_clip else pixels(tower["image_size"])
    case = dict(name=f"{name}_{kind}", type=kind, prompt=prompt, places=LLAVA_PLACES, tile_tokens=tile_tokens,
                tile_side=tower["image_size"], config=dict(model_type="llava", text_config=text, vision_config=tower,
                                                           image_token_index=TOKEN, **more))
    return case, logits_of(model, prompt, shown)


def run_gemma3(kind):
    tower = dict(VISION, model_type="siglip_vision_model")
    config = transformers.Gemma3Config(text_config=dict(GEMMA_TEXT), vision_config=dict(tower), mm_tokens_per_image=TILE_TOKENS,
                                       image_token_index=TOKEN, pad_token_id=0, attn_implementation="eager")
    model = fill(transformers.Gemma3ForConditionalGeneration(config).eval(), kind)
    prompt = prompt_with(PLACES, TILE_TOKENS)
    logits = logits_of(model, prompt, pixels(), token_type_ids=torch.tensor([[int(token == TOKEN) for token in prompt]]))
    case = dict(name=f"gemma3_{kind}", type=kind, prompt=prompt, places=PLACES, tile_tokens=TILE_TOKENS, tile_side=SIDE,
                config=dict(model_type="gemma3", text_config=GEMMA_TEXT, vision_config=tower, mm_tokens_per_image=TILE_TOKENS,
                            image_token_index=TOKEN))
    return case, logits


OUT = tiny.OUT


def main(out):
    torch.set_num_threads(1)
    done = [run("idefics3", "F32"), run("smolvlm", "BF16"), *map(run_llava, LLAVA), run_gemma3("F32")]
    record = dict(made_with=tiny.VERSIONS, prompt=prompt_with(PLACES, TILE_TOKENS), positions=POSITIONS, places=PLACES, tile_tokens=TILE_TOKENS,
                  tile_side=SIDE)
    tiny.write_record(out, "picture_", record, map(tiny.told, done))
