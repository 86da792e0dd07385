"""Writes a small Whisper model. Its weights are random, so its text has no meaning but is reproducible."""

import io
import math
import struct
import wave

from tiny_folder import byte_level_tokenizer, draw, write_json, write_tensors

MARKS = ["<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|translate|>", "<|transcribe|>", "<|startofprev|>", "<|notimestamps|>"]
WIDTH, MELS, VOCAB = 64, 80, 256 + len(MARKS) + 1501


def layer_shapes(prefix, looks_across):
    norms = ["self_attn_layer_norm", "final_layer_norm"] + ["encoder_attn_layer_norm"] * looks_across
    yield from ((f"{prefix}.{norm}.{end}", (WIDTH,)) for norm in norms for end in ("weight", "bias"))
    for module in ["self_attn"] + ["encoder_attn"] * looks_across:
        yield from ((f"{prefix}.{module}.{part}_proj.weight", (WIDTH, WIDTH)) for part in ("q", "k", "v", "out"))
        yield from ((f"{prefix}.{module}.{part}_proj.bias", (WIDTH,)) for part in ("q", "v", "out"))
    for part in ("fc1", "fc2"):
        yield f"{prefix}.{part}.weight", (WIDTH, WIDTH)
        yield f"{prefix}.{part}.bias", (WIDTH,)


def shapes():
    yield "model.encoder.conv1.weight", (WIDTH, MELS, 3)
    yield "model.encoder.conv2.weight", (WIDTH, WIDTH, 3)
    yield from ((f"model.encoder.conv{i}.bias", (WIDTH,)) for i in (1, 2))
    yield "model.encoder.embed_positions.weight", (1500, WIDTH)
    yield "model.decoder.embed_tokens.weight", (VOCAB, WIDTH)
    yield "model.decoder.embed_positions.weight", (64, WIDTH)
    yield from layer_shapes("model.encoder.layers.0", False)
    yield from layer_shapes("model.decoder.layers.0", True)
    yield from ((f"model.{half}.layer_norm.{end}", (WIDTH,)) for half in ("encoder", "decoder") for end in ("weight", "bias"))


def write_model(folder):
    write_tensors(folder / "model.safetensors", shapes(), lambda name, count: [1.0] * WIDTH if name.endswith("norm.weight") else draw(name, count))
    config = dict(
        model_type="whisper",
        vocab_size=VOCAB,
        d_model=WIDTH,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=WIDTH,
        decoder_ffn_dim=WIDTH,
        num_mel_bins=MELS,
        max_source_positions=1500,
        max_target_positions=64,
        eos_token_id=256,
    )
    write_json(folder / "config.json", config)
    write_json(folder / "generation_config.json", dict(is_multilingual=True, suppress_tokens=[65], begin_suppress_tokens=[220, 256]))
    template = [
        dict(SpecialToken=dict(id=MARKS[1], type_id=0)),
        dict(SpecialToken=dict(id=MARKS[7], type_id=0)),
        dict(Sequence=dict(id="A", type_id=0)),
        dict(SpecialToken=dict(id=MARKS[0], type_id=0)),
    ]
    framed = dict(
        type="TemplateProcessing",
        single=template,
        pair=[],
        special_tokens={MARKS[i]: dict(id=MARKS[i], ids=[256 + i], tokens=[MARKS[i]]) for i in (0, 1, 7)},
    )
    write_json(folder / "tokenizer.json", byte_level_tokenizer(MARKS, framed))


def recording(seconds, rate=8000):
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        count = int(seconds * rate)
        file.writeframes(struct.pack(f"<{count}h", *(int(9000 * math.sin(i * i / 4e6)) for i in range(count))))
    return "talk.wav", out.getvalue()
