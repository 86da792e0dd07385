"""Records random blocks of every supported tensor type and the values that the function dequantize of the PyPI package gguf returns.

Needs numpy and gguf (the types up to IQ4_XS in TYPES were recorded with gguf 0.17.1, the others with 0.19.0). Each file TYPE.bin has, in
little-endian order: u32 rows, u32 columns, u32 bytes per row; the bytes of the rows; rows * columns f32 values.
"""
import gguf
import numpy as np

TYPES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K",
         "Q2_K", "Q3_K", "IQ4_NL", "IQ4_XS", "Q8_K", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S",
         "TQ1_0", "TQ2_0", "MXFP4", "NVFP4"]
# Byte offsets of the f16 scales in a block. The scales are set separately, because random bits would sometimes be NaN.
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
          "Q2_K": [80, 82], "Q3_K": [108], "IQ4_NL": [0], "IQ4_XS": [0], "IQ1_S": [0], "IQ2_XXS": [0], "IQ2_XS": [0],
          "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0], "TQ1_0": [52], "TQ2_0": [64]}
ROWS, COLUMNS = 4, 512
OUT = "dequant"


def random_rows(name, random):
    qtype = gguf.GGMLQuantizationType[name]
    block_columns, block_bytes = gguf.GGML_QUANT_SIZES[qtype]
    blocks = random.integers(0, 256, (ROWS, COLUMNS // block_columns, block_bytes), dtype=np.uint8)
    if name == "F32":
        return random.standard_normal((ROWS, COLUMNS)).astype(np.float32).view(np.uint8)
    if name == "F16":
        values = random.standard_normal((ROWS, COLUMNS)).astype(np.float16)
        values[0, :6] = [0.0, -0.0, 6e-8, -6e-8, 65504.0, 6.1e-5]
        return values.view(np.uint8)
    if name == "BF16":
        return (random.standard_normal((ROWS, COLUMNS)).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    if name == "Q8_K":  # the scale is an f32
        blocks[:, :, :4] = (random.standard_normal(blocks.shape[:2]) * 0.1).astype(np.float32).view(np.uint8).reshape(*blocks.shape[:2], 4)
    if name == "IQ1_M":  # the last half-byte has the sign and the highest bits of the scale
        blocks[:, :, 55] = blocks[:, :, 55] & 0xAF
    if name == "MXFP4":  # the scales are powers of two
        blocks[:, :, 0] = random.integers(110, 140, blocks.shape[:2])
        blocks[0, :4, 0] = [0, 1, 2, 250]
    for offset in HALVES.get(name, []):
        halves = (random.standard_normal(blocks.shape[:2]) * 0.1).astype(np.float16)
        blocks[:, :, offset:offset + 2] = halves.view(np.uint8).reshape(*blocks.shape[:2], 2)
    return blocks.reshape(ROWS, -1)


def dequantise(rows, name):
    if name == "F32":
        return rows.view(np.float32)
    if name == "Q8_K":  # the package cannot dequantise it: an f32 scale, 256 bytes, then sums that are not needed here
        blocks = rows.reshape(-1, 292)
        return blocks[:, :4].copy().view(np.float32) * blocks[:, 4:260].view(np.int8)
    return gguf.dequantize(rows, gguf.GGMLQuantizationType[name])


def main(out):
    out.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(20240601)
    for name in TYPES:
        rows = np.ascontiguousarray(random_rows(name, random))
        floats = dequantise(rows, name)
        floats = np.ascontiguousarray(floats, dtype="<f4").reshape(ROWS, COLUMNS)
        header = np.array([ROWS, COLUMNS, rows.shape[1]], dtype="<u4")
        (out / f"{name}.bin").write_bytes(header.tobytes() + rows.tobytes() + floats.tobytes())
