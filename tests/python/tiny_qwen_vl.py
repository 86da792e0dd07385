"""Writes a small Qwen2.5-VL as a folder and as two GGUF files with the tensor names of gguf-py. Weights are random."""

import gguf
import numpy as np
from safetensors.numpy import load_file

import tiny_mmproj
from tiny_folder import byte_level_tokenizer, draw, write_json, write_tensors

PLACE = "<|image_pad|>"
MARKS = ["<|im_start|>", "<|im_end|>", PLACE, "<|vision_start|>", "<|vision_end|>"]
WIDTH, INNER, LAYERS, VOCAB = 64, 128, 2, 256 + len(MARKS)
SEEN, SEEN_INNER, PATCH, MERGED = 48, 72, 4, 4  # sizes of the encoder
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}:"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}"
    "<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant:{% endif %}"
)
TEXT = dict(
    hidden_size=WIDTH,
    intermediate_size=INNER,
    num_hidden_layers=LAYERS,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=VOCAB,
    max_position_embeddings=2048,
    rms_norm_eps=1e-6,
)
VISION = dict(depth=2, num_heads=4, patch_size=PATCH, hidden_size=SEEN, intermediate_size=SEEN_INNER, window_size=16, fullatt_block_indexes=[1])
PROCESSOR = dict(image_processor_type="Qwen2VLImageProcessor", min_pixels=64, max_pixels=1024, patch_size=PATCH, merge_size=2, temporal_patch_size=2)
SECTIONS = [2, 3, 3]


def decoder_shapes():
    yield "lm_head.weight", (VOCAB, WIDTH)
    yield "model.embed_tokens.weight", (VOCAB, WIDTH)
    yield "model.norm.weight", (WIDTH,)
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        yield from ((at + norm + ".weight", (WIDTH,)) for norm in ("input_layernorm", "post_attention_layernorm"))
        for name, rows in (("q_proj", WIDTH), ("k_proj", WIDTH // 2), ("v_proj", WIDTH // 2)):
            yield f"{at}self_attn.{name}.weight", (rows, WIDTH)
            yield f"{at}self_attn.{name}.bias", (rows,)
        yield at + "self_attn.o_proj.weight", (WIDTH, WIDTH)
        yield from (
            (f"{at}mlp.{name}.weight", shape)
            for name, shape in (("gate_proj", (INNER, WIDTH)), ("up_proj", (INNER, WIDTH)), ("down_proj", (WIDTH, INNER)))
        )


def encoder_shapes():
    yield "visual.patch_embed.proj.weight", (SEEN, 3, 2, PATCH, PATCH)
    linear = {"merger.mlp.0": (SEEN * MERGED, SEEN * MERGED), "merger.mlp.2": (WIDTH, SEEN * MERGED)}
    for i in range(VISION["depth"]):
        at = f"blocks.{i}."
        yield from ((f"visual.{at}{norm}.weight", (SEEN,)) for norm in ("norm1", "norm2"))
        linear |= {at + "attn.qkv": (3 * SEEN, SEEN), at + "attn.proj": (SEEN, SEEN)}
        linear |= {at + "mlp.gate_proj": (SEEN_INNER, SEEN), at + "mlp.up_proj": (SEEN_INNER, SEEN), at + "mlp.down_proj": (SEEN, SEEN_INNER)}
    yield "visual.merger.ln_q.weight", (SEEN,)
    for name, shape in linear.items():
        yield f"visual.{name}.weight", shape
        yield f"visual.{name}.bias", shape[:1]


def write_model(folder):
    def values(name, count):
        is_norm = "norm" in name or "ln_q" in name
        return [1.0] * count if is_norm else draw(name, count, 0.3)

    write_tensors(folder / "model.safetensors", [*decoder_shapes(), *encoder_shapes()], values)
    scaling = dict(type="mrope", mrope_section=SECTIONS)
    write_json(
        folder / "config.json",
        dict(
            **TEXT,
            model_type="qwen2_5_vl",
            image_token_id=256 + MARKS.index(PLACE),
            rope_scaling=scaling,
            rope_theta=1e4,
            tie_word_embeddings=False,
            vision_config=VISION | dict(out_hidden_size=WIDTH),
        ),
    )
    write_json(folder / "preprocessor_config.json", PROCESSOR)
    write_json(folder / "tokenizer.json", byte_level_tokenizer(MARKS))
    write_json(folder / "tokenizer_config.json", dict(chat_template=TEMPLATE, eos_token="<|im_end|>"))


def of_gguf(name, values):
    """Splits tensors like the converter: queries, keys and values are separate, and each frame has its convolution."""
    if name == "visual.patch_embed.proj.weight":
        for frame, end in enumerate(("", ".1")):
            yield gguf.TENSOR_NAMES[gguf.MODEL_TENSOR.V_ENC_EMBD_PATCH] + ".weight" + end, np.ascontiguousarray(values[:, :, frame])
        return
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, max(VISION["depth"], 3))  # the map must include mm.2
    parts = zip("qkv", np.split(values, 3)) if ".qkv." in name else [("qkv", values)]
    for part, own in parts:
        yield names.get_name(name.replace("qkv", part), try_suffixes=(".weight", ".bias")), own


def write_mmproj(path, tensors):
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type(gguf.VisionProjectorType.QWEN25VL)
    writer.add_vision_projection_dim(WIDTH)
    writer.add_vision_image_size(560)
    writer.add_vision_patch_size(PATCH)
    writer.add_vision_embedding_length(SEEN)
    writer.add_vision_feed_forward_length(SEEN_INNER)
    writer.add_vision_block_count(VISION["depth"])
    writer.add_vision_head_count(VISION["num_heads"])
    writer.add_vision_image_mean([0.48145466, 0.4578275, 0.40821073])
    writer.add_vision_image_std([0.26862954, 0.26130258, 0.27577711])
    writer.add_vision_attention_layernorm_eps(TEXT["rms_norm_eps"])
    writer.add_vision_use_silu(True)
    writer.add_vision_n_wa_pattern(VISION["fullatt_block_indexes"][0] + 1)
    writer.add_uint32("clip.vision.window_size", VISION["window_size"])
    writer.add_uint32("clip.vision.image_min_pixels", PROCESSOR["min_pixels"])
    writer.add_uint32("clip.vision.image_max_pixels", PROCESSOR["max_pixels"])
    for name, values in tensors.items():
        for own_name, own in of_gguf(name, values):
            writer.add_tensor(own_name, own)
    return writer


def write_two_files(folder, model_path, mmproj_path):
    tensors = load_file(folder / "model.safetensors")
    seeing = {name: values for name, values in tensors.items() if name.startswith("visual.")}
    decoder = {name: values for name, values in tensors.items() if name not in seeing}
    writer = tiny_mmproj.write_decoder(model_path, decoder, TEXT, byte_level_tokenizer(MARKS), TEMPLATE, gguf.MODEL_ARCH.QWEN2VL)
    writer.add_rope_dimension_sections([*SECTIONS, 0])
    writer.add_rope_freq_base(1e4)
    for each in (writer, write_mmproj(mmproj_path, seeing)):
        tiny_mmproj.finish(each)
