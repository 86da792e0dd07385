"""Records the features that WhisperFeatureExtractor of transformers computes, for tests/audio/log_mel_test.cpp.

Both sides make the same audio, bit for bit: an integer generator draws it from a name (tiny.py, tests/audio/toy_audio.h).
"""
import numpy as np
import transformers

from .tiny import draw

OUT = "log_mel.f32"
# name, number of samples, number of mel bands
CASES = [("short", 11_237, 80), ("whole", 480_000, 80), ("wide", 480_000, 128), ("few", 100, 128)]
FRAMES = [0, 1, 2, 35, 69, 70, 71, 72, 1500, 2997, 2998, 2999]


def sound(name, count):
    """Returns noise whose volume rises and falls. An f32 represents each sample exactly."""
    steps = (draw(name, count) >> np.uint64(48)).astype(np.int64) - (1 << 15)
    loudness = (np.arange(count, dtype=np.int64) // 64) % 257
    return np.ldexp((steps * loudness).astype(np.float64), -25).astype(np.float32)


def main(out):
    parts = []
    for name, count, bands in CASES:
        extractor = transformers.WhisperFeatureExtractor(feature_size=bands)
        features = extractor(sound(name, count), sampling_rate=16_000, return_tensors="np")["input_features"][0]
        assert features.shape == (bands, 3000)
        parts.append(features[:, FRAMES].T.astype("<f4"))
    out.write_bytes(b"".join(part.tobytes() for part in parts))
