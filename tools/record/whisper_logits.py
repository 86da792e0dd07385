"""Records the logits that transformers gives on small Whisper models.

Weights and format come from tiny.py. Features are drawn as F32 from the name "features" (tests/runtime/model/tiny_whisper.h).
"""
import json

import numpy as np
import torch
import transformers

from . import tiny
from .tiny import VOCAB

SHAPE = dict(
    vocab_size=VOCAB,
    max_source_positions=50,
    max_target_positions=64,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    decoder_start_token_id=1,
    dropout=0.0,
    suppress_tokens=None,
    begin_suppress_tokens=None,
)
MODELS = {
    "whisper": dict(
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        num_mel_bins=80,
    ),
    # Several segments of 512 positions, and an encoder and a decoder of different sizes.
    "whisper_long": dict(
        d_model=96,
        encoder_layers=1,
        decoder_layers=3,
        encoder_attention_heads=2,
        decoder_attention_heads=6,
        encoder_ffn_dim=96,
        decoder_ffn_dim=160,
        num_mel_bins=128,
        max_source_positions=700,
    ),
}
TYPES = ["F32", "F16", "BF16"]
KEPT = [
    "model_type",
    "vocab_size",
    "d_model",
    "encoder_layers",
    "decoder_layers",
    "encoder_attention_heads",
    "decoder_attention_heads",
    "encoder_ffn_dim",
    "decoder_ffn_dim",
    "num_mel_bins",
    "max_source_positions",
    "max_target_positions",
    "activation_function",
    "scale_embedding",
]
PROMPT = [(37 * i * i + 11 * i + 5) % VOCAB for i in range(24)]
POSITIONS = [0, 1, 7, 15, 16, 22, 23]


def run(config, kind):
    model = transformers.WhisperForConditionalGeneration(config).eval()
    state = {}
    for name, value in model.state_dict().items():
        if name == "proj_out.weight":
            continue
        count = int(np.prod(value.shape))
        state[name] = torch.from_numpy(tiny.floats(name, kind, count).reshape(tuple(value.shape)))
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and missing == ["proj_out.weight"], (missing, unexpected)
    model.tie_weights()
    features = tiny.floats("features", "F32", 2 * config.max_source_positions * config.num_mel_bins)
    # Rows are frames in the drawn features; transformers requires a row for each band.
    rows = torch.from_numpy(features.reshape(2 * config.max_source_positions, config.num_mel_bins).T.copy())[None]
    with torch.no_grad():
        logits = model(input_features=rows, decoder_input_ids=torch.tensor([PROMPT])).logits[0]
    return logits[POSITIONS].float().numpy()


OUT = tiny.OUT


def main(out):
    cases, parts = [], []
    for name, options in MODELS.items():
        config = transformers.WhisperConfig(**SHAPE | options, attn_implementation="eager")
        described = config.to_dict()
        for kind in TYPES:
            parts.append(run(config, kind).astype("<f4"))
            cases.append(dict(name=name, container="hf", type=kind, config={key: described[key] for key in KEPT}))
    (out / "whisper_cases.json").write_text(
        json.dumps(dict(prompt=PROMPT, positions=POSITIONS, cases=cases), indent=1) + "\n", encoding="utf-8"
    )
    (out / "whisper_logits.f32").write_bytes(b"".join(part.tobytes() for part in parts))
