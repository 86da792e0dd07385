#!/usr/bin/env python3
"""Records what transformers' WhisperFeatureExtractor makes of sounds, for tests/sound/log_mel_test.cpp.

    venv/bin/python tools/record_log_mel.py    # with torch and transformers as in record_logits.py; writes tests/golden/log_mel.f32

Both sides make the sounds from a name with the same integer generator (record_logits.py, tests/sound/toy_sound.h), bit for bit.
"""

import pathlib

import numpy as np
import transformers
from record_logits import draw

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "log_mel.f32"
# name, samples, bands
CASES = [("short", 11_237, 80), ("whole", 480_000, 80), ("wide", 480_000, 128), ("few", 100, 128)]
FRAMES = [0, 1, 2, 35, 69, 70, 71, 72, 1500, 2997, 2998, 2999]


def sound(name, count):
    """Noise that swells and fades, in steps that floats hold exactly."""
    steps = (draw(name, count) >> np.uint64(48)).astype(np.int64) - (1 << 15)
    loudness = (np.arange(count, dtype=np.int64) // 64) % 257
    return np.ldexp((steps * loudness).astype(np.float64), -25).astype(np.float32)


def main():
    parts = []
    for name, count, bands in CASES:
        extractor = transformers.WhisperFeatureExtractor(feature_size=bands)
        features = extractor(sound(name, count), sampling_rate=16_000, return_tensors="np")["input_features"][0]
        assert features.shape == (bands, 3000)
        parts.append(features[:, FRAMES].T.astype("<f4"))
    OUT.write_bytes(b"".join(part.tobytes() for part in parts))


if __name__ == "__main__":
    main()
