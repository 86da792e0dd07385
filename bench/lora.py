#!/usr/bin/env python3
"""Measures the cost of LoRA adapters: one server gets the same prompts with this many adapters and without adapters, in alternating turns.

Prints output tokens per second of --clients clients (medians), and the geometric mean of the paired ratios with / without with its 95 %
interval. The adapters cover all linear layers; their values are random, because only the shape affects the speed. Every answer has
--output-tokens tokens.
"""

import json
import pathlib
import random
import struct
import sys
import tempfile

import machine
from turns import compare, tokens_per_second

GGUF_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


def read_shape(path: str) -> dict:
    """Returns the numbers in a GGUF file's header, by their names without the architecture."""
    with open(path, "rb") as file:

        def take(form: str):
            return struct.unpack("<" + form, file.read(struct.calcsize("<" + form)))[0]

        def value(kind: int):
            if kind == 8:
                return file.read(take("Q"))
            if kind == 9:
                of, count = take("I"), take("Q")
                return [value(of) for _ in range(count)]
            return take(GGUF_FORMATS[kind])

        assert file.read(4) == b"GGUF" and take("I") == 3
        take("Q")
        header = {}
        for _ in range(take("Q")):
            key = file.read(take("Q")).decode()
            header[key.split(".", 1)[-1]] = value(take("I"))
    return header


def write_adapter(folder: pathlib.Path, shape: dict, rank: int, rng: random.Random, scale: float) -> None:
    """Writes a folder in PEFT's format for a model of this shape. `scale` determines how much the adapter changes an answer."""
    hidden, inner = shape["embedding_length"], shape["feed_forward_length"]
    heads, kv_heads = shape["attention.head_count"], shape["attention.head_count_kv"]
    head = shape.get("attention.key_length", hidden // heads)
    modules = {"self_attn.q_proj": (hidden, heads * head), "self_attn.k_proj": (hidden, kv_heads * head), "self_attn.v_proj": (hidden, kv_heads * head),
               "self_attn.o_proj": (heads * head, hidden), "mlp.gate_proj": (hidden, inner), "mlp.up_proj": (hidden, inner),
               "mlp.down_proj": (inner, hidden)}  # fmt: skip
    some = b"".join(struct.pack("<e", rng.gauss(0, 0.02)) for _ in range(1 << 16))
    header, data = {}, bytearray()
    for layer in range(shape["block_count"]):
        for module, (inputs, outputs) in modules.items():
            for half, rows, columns in (("A", rank, inputs), ("B", outputs, rank)):
                size, begin = 2 * rows * columns, 2 * rng.randrange(1 << 15)
                data += (some * (size // len(some) + 2))[begin : begin + size]
                header[f"base_model.model.model.layers.{layer}.{module}.lora_{half}.weight"] = {
                    "dtype": "F16", "shape": [rows, columns], "data_offsets": [len(data) - size, len(data)]}  # fmt: skip
    text = json.dumps(header).encode()
    folder.mkdir()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": rank, "lora_alpha": scale * rank}))


def main() -> int:
    parser = machine.parser(__doc__, clients=32, adapters=8, rank=16, pairs=8, prompt_tokens=128, output_tokens=64)
    arguments = parser.parse_args()
    machine.end_on_sigterm()
    print(machine.describe())
    rng = random.Random(1)
    names = [f"adapter-{i}" for i in range(arguments.adapters)]
    with tempfile.TemporaryDirectory() as scratch:
        shape = read_shape(arguments.model)
        for name in names:
            write_adapter(pathlib.Path(scratch) / name, shape, arguments.rank, rng, 1.0)
        port = machine.free_port()
        command = [arguments.binary, "serve", arguments.model, "--port", str(port), "--served-model-name", "base", "--enable-lora",
                   "--max-loras", str(arguments.adapters), "--max-lora-rank", str(arguments.rank),
                   "--lora-modules", *[f"{name}={scratch}/{name}" for name in names]]  # fmt: skip
        sides = {"without": ["base"], "with": names}

        def turn(side: str, pair: int) -> float:
            prompts = random.Random(pair)
            bodies = [{"prompt": [prompts.randrange(1000, 40000) for _ in range(arguments.prompt_tokens)], "max_tokens": arguments.output_tokens,
                       "temperature": 0, "ignore_eos": True, "cache_salt": f"{side}-{pair}", "model": sides[side][i % len(sides[side])]}
                      for i in range(2 * arguments.clients)]  # fmt: skip
            return tokens_per_second(port, bodies, arguments.clients)

        with machine.Server("quire", command, port):
            _, line = compare("adapters", arguments.pairs, turn)
    print(f"{arguments.clients} clients, {arguments.adapters} adapters of rank {arguments.rank}, {arguments.pairs} pairs: {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
