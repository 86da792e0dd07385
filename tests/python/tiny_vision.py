"""Writes a small SmolVLM, a LoRA adapter of its decoder, and images. Weights are random, so answers have no meaning."""

import base64
import random
import struct
import zlib

from quire_server import serving
from tiny_folder import byte_level_tokenizer, draw, write_json, write_tensors

PLACE, AROUND = "<image>", "<fake_token_around_image>"
MARKS = ["<|im_start|>", "<|im_end|>", PLACE, AROUND, "<global-img>", *(f"<row_{i}_col_{j}>" for i in range(1, 5) for j in range(1, 5))]
WIDTH, INNER, LAYERS, VOCAB = 64, 128, 2, 256 + len(MARKS)
SIDE, PATCH, SHUFFLE = 16, 4, 2
TILE_TOKENS = (SIDE // PATCH // SHUFFLE) ** 2
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}:{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}{% endfor %}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant:{% endif %}"
)
PROJECTIONS = {
    "self_attn.q_proj": (WIDTH, WIDTH),
    "self_attn.k_proj": (WIDTH // 2, WIDTH),
    "self_attn.v_proj": (WIDTH // 2, WIDTH),
    "self_attn.o_proj": (WIDTH, WIDTH),
    "mlp.gate_proj": (INNER, WIDTH),
    "mlp.up_proj": (INNER, WIDTH),
    "mlp.down_proj": (WIDTH, INNER),
}


def decoder_shapes():
    yield "lm_head.weight", (VOCAB, WIDTH)
    yield "model.text_model.embed_tokens.weight", (VOCAB, WIDTH)
    yield "model.text_model.norm.weight", (WIDTH,)
    for i in range(LAYERS):
        at = f"model.text_model.layers.{i}."
        yield from ((at + norm + ".weight", (WIDTH,)) for norm in ("input_layernorm", "post_attention_layernorm"))
        yield from ((at + name + ".weight", shape) for name, shape in PROJECTIONS.items())


def encoder_shapes():
    tower = "model.vision_model."
    yield tower + "embeddings.patch_embedding.weight", (WIDTH, 3, PATCH, PATCH)
    yield tower + "embeddings.patch_embedding.bias", (WIDTH,)
    yield tower + "embeddings.position_embedding.weight", ((SIDE // PATCH) ** 2, WIDTH)
    modules = [(f"self_attn.{part}", (WIDTH, WIDTH)) for part in ("q_proj", "k_proj", "v_proj", "out_proj")]
    for i in range(LAYERS):
        at = f"{tower}encoder.layers.{i}."
        for name, shape in [*modules, ("mlp.fc1", (INNER, WIDTH)), ("mlp.fc2", (WIDTH, INNER)), ("layer_norm1", (WIDTH,)), ("layer_norm2", (WIDTH,))]:
            yield at + name + ".weight", shape
            yield at + name + ".bias", shape[:1]
    yield from ((tower + "post_layernorm." + end, (WIDTH,)) for end in ("weight", "bias"))
    yield "model.connector.modality_projection.proj.weight", (WIDTH, WIDTH * SHUFFLE**2)


def write_model(folder):
    def values(name, count):
        return [1.0] * count if "norm" in name and name.endswith("weight") else draw(name, count, 0.3)

    write_tensors(folder / "model.safetensors", [*decoder_shapes(), *encoder_shapes()], values)
    text = dict(
        model_type="llama",
        vocab_size=VOCAB,
        hidden_size=WIDTH,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
    )
    vision = dict(hidden_size=WIDTH, intermediate_size=INNER, num_hidden_layers=LAYERS, num_attention_heads=4, image_size=SIDE, patch_size=PATCH)
    write_json(
        folder / "config.json",
        dict(model_type="smolvlm", scale_factor=SHUFFLE, image_token_id=256 + MARKS.index(PLACE), text_config=text, vision_config=vision),
    )
    write_json(
        folder / "preprocessor_config.json",
        dict(
            image_processor_type="Idefics3ImageProcessor",
            image_mean=[0.5] * 3,
            image_std=[0.5] * 3,
            resample=1,
            size=dict(longest_edge=2 * SIDE),
            max_image_size=dict(longest_edge=SIDE),
        ),
    )
    write_json(folder / "tokenizer.json", byte_level_tokenizer(MARKS))
    write_json(folder / "tokenizer_config.json", dict(chat_template=TEMPLATE, eos_token="<|im_end|>"))


def write_adapter(folder, rank=4):
    """Writes an adapter like PEFT, for all linear layers of the decoder."""
    shapes = []
    for i in range(LAYERS):
        for name, (rows, columns) in PROJECTIONS.items():
            at = f"base_model.model.model.text_model.layers.{i}.{name}.lora_"
            shapes += [(at + "A.weight", (rank, columns)), (at + "B.weight", (rows, rank))]
    folder.mkdir()
    write_tensors(folder / "adapter_model.safetensors", shapes, lambda name, count: draw(name, count, 0.3))
    write_json(folder / "adapter_config.json", dict(peft_type="LORA", r=rank, lora_alpha=4 * rank))


def png(number, side=32):
    """Returns a square of noise as a PNG file, different for each number."""
    noise = random.Random(number)
    rows = b"".join(b"\0" + noise.randbytes(3 * side) for _ in range(side))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def png_base64(number):
    return base64.b64encode(png(number)).decode()


def data_url(number):
    return "data:image/png;base64," + png_base64(number)


# One image of `png` adds two rows of two tiles, each after two special tokens and with line feeds, and the whole image between three
# special tokens.
PICTURE_TOKENS = 4 * (TILE_TOKENS + 2) + 3 + (TILE_TOKENS + 3)


QUESTION = "What is it?"


def chat_content(number):
    """Returns the content of a chat message: the image of this number, if any, and the question."""
    shown = [] if number is None else [{"type": "image_url", "image_url": {"url": data_url(number)}}]
    return [*shown, {"type": "text", "text": QUESTION}]


def served(folder):
    """Returns a context that yields the URL of a server with this model, created in `folder`, and the adapter `sea`."""
    (folder / "model").mkdir()
    write_model(folder / "model")
    write_adapter(folder / "sea")
    return serving(folder / "model", "--enable-lora", "--lora-modules", f"sea={folder}/sea")
