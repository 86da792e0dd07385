#!/usr/bin/env python3
"""Measures how much images disturb streams: the gaps between tokens without images and while images are encoded, in alternating turns.

The model has the shape of SmolVLM-256M and random weights. It is created if --model names a folder that does not exist. --streams clients
stream all the time. In every second turn another client sends images, one after another; each image is new. Prints the gaps of both kinds
of turn at the median and the 99th percentile, the ratio of the 99th percentiles (geometric mean over the pairs of turns, with its 95 %
interval), and the seconds to the first token after an image.
"""

import base64
import contextlib
import http.client
import json
import pathlib
import random
import statistics
import struct
import sys
import threading
import time
import zlib

import machine
from flags import interval
from good_load import percentile

MARKS = ["<|im_end|>", "<image>", "<fake_token_around_image>", "<global-img>", *(f"<row_{i}_col_{j}>" for i in range(1, 5) for j in range(1, 5))]
VOCAB, HIDDEN, INNER, LAYERS, HEADS, KV_HEADS = 49280, 576, 1536, 30, 9, 3
SEEN_WIDTH, SEEN_INNER, SEEN_LAYERS, SIDE, PATCH, SHUFFLE = 768, 3072, 12, 512, 16, 4
TEMPLATE = ("{% for m in messages %}{% for part in m['content'] %}{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}"
            "{% endfor %}{% endfor %}")  # fmt: skip


def shapes():
    yield "model.text_model.embed_tokens.weight", (VOCAB, HIDDEN)
    yield "model.text_model.norm.weight", (HIDDEN,)
    kv = HIDDEN // HEADS * KV_HEADS
    for i in range(LAYERS):
        at = f"model.text_model.layers.{i}."
        for name, shape in (("input_layernorm", (HIDDEN,)), ("post_attention_layernorm", (HIDDEN,)), ("self_attn.q_proj", (HIDDEN, HIDDEN)),
                            ("self_attn.k_proj", (kv, HIDDEN)), ("self_attn.v_proj", (kv, HIDDEN)), ("self_attn.o_proj", (HIDDEN, HIDDEN)),
                            ("mlp.gate_proj", (INNER, HIDDEN)), ("mlp.up_proj", (INNER, HIDDEN)), ("mlp.down_proj", (HIDDEN, INNER))):  # fmt: skip
            yield f"{at}{name}.weight", shape
    tower = "model.vision_model."
    yield tower + "embeddings.patch_embedding.weight", (SEEN_WIDTH, 3, PATCH, PATCH)
    yield tower + "embeddings.patch_embedding.bias", (SEEN_WIDTH,)
    yield tower + "embeddings.position_embedding.weight", ((SIDE // PATCH) ** 2, SEEN_WIDTH)
    for i in range(SEEN_LAYERS):
        at = f"{tower}encoder.layers.{i}."
        square = (SEEN_WIDTH, SEEN_WIDTH)
        for name, shape in (*((f"self_attn.{part}", square) for part in ("q_proj", "k_proj", "v_proj", "out_proj")),
                            ("mlp.fc1", (SEEN_INNER, SEEN_WIDTH)), ("mlp.fc2", (SEEN_WIDTH, SEEN_INNER)), ("layer_norm1", (SEEN_WIDTH,)),
                            ("layer_norm2", (SEEN_WIDTH,))):  # fmt: skip
            yield f"{at}{name}.weight", shape
            yield f"{at}{name}.bias", shape[:1]
    yield from ((f"{tower}post_layernorm.{end}", (SEEN_WIDTH,)) for end in ("weight", "bias"))
    yield "model.connector.modality_projection.proj.weight", (HIDDEN, SEEN_WIDTH * SHUFFLE**2)


def write_model(folder: pathlib.Path, splits: bool = True) -> None:
    """Writes the model. Without splits an image is one tile; with splits it is 17 tiles."""
    rng = random.Random(1)
    some = b"".join(struct.pack("<e", rng.gauss(0, 0.03)) for _ in range(1 << 16))
    header, at = {}, 0
    for name, shape in shapes():
        size = 2
        for length in shape:
            size *= length
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    folder.mkdir(parents=True)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, entry in header.items():
            size, begin = entry["data_offsets"][1] - entry["data_offsets"][0], 2 * rng.randrange(1 << 15)
            is_norm = "norm" in name and name.endswith("weight")
            file.write(struct.pack("<e", 1.0) * (size // 2) if is_norm else (some * (size // len(some) + 2))[begin : begin + size])

    def write(name: str, value: dict) -> None:
        (folder / name).write_text(json.dumps(value))

    decoder = dict(model_type="llama", vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=INNER, num_hidden_layers=LAYERS,
                   num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, max_position_embeddings=8192, rms_norm_eps=1e-5,
                   tie_word_embeddings=True)  # fmt: skip
    encoder = dict(hidden_size=SEEN_WIDTH, intermediate_size=SEEN_INNER, num_hidden_layers=SEEN_LAYERS, num_attention_heads=12, image_size=SIDE,
                   patch_size=PATCH)  # fmt: skip
    write("config.json", dict(model_type="smolvlm", scale_factor=SHUFFLE, image_token_id=257, text_config=decoder, vision_config=encoder))
    write("preprocessor_config.json", dict(image_processor_type="Idefics3ImageProcessor", image_mean=[0.5] * 3, image_std=[0.5] * 3, resample=1,
                                           size=dict(longest_edge=2 * SIDE), max_image_size=dict(longest_edge=SIDE),
                                           do_image_splitting=splits))  # fmt: skip
    # Bytes in GPT-2's spelling, special tokens, and rare words.
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = iter(range(256, 512))
    letters = {byte: chr(byte) if byte in plain else chr(next(other)) for byte in range(256)}
    vocab = {letters[byte]: byte for byte in range(256)}
    vocab |= {f"word{number}": number for number in range(256 + len(MARKS), VOCAB)}
    added = [dict(id=256 + i, content=mark, special=True, normalized=False, lstrip=False, rstrip=False, single_word=False)
             for i, mark in enumerate(MARKS)]  # fmt: skip
    byte_level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
    write("tokenizer.json", dict(version="1.0", added_tokens=added, normalizer=None, pre_tokenizer=byte_level, post_processor=None,
                                 decoder=byte_level, model=dict(type="BPE", vocab=vocab, merges=[])))  # fmt: skip
    write("tokenizer_config.json", dict(chat_template=TEMPLATE, eos_token="<|im_end|>"))


def picture(number: int, side: int) -> str:
    """Returns an image of soft noise, different for each number."""
    rows = b"".join(b"\0" + bytes((x * (number % 7 + 1) + y * 3 + number) % 256 for x in range(side) for _ in range(3)) for y in range(side))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    file = (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows, 1))
            + chunk(b"tEXt", b"n\0" + str(number).encode()) + chunk(b"IEND", b""))  # fmt: skip
    return "data:image/png;base64," + base64.b64encode(file).decode()


def stream(port: int, path: str, body: dict, on_event) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=3600)
    connection.request("POST", path, json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        raise RuntimeError(answer.read().decode()[:500])
    while line := answer.readline():
        if line.startswith(b"data: {"):
            on_event(time.monotonic())
    connection.close()


class Streams:
    """Clients that stream until the program ends. Gaps are added to the current list."""

    def __init__(self, port: int, count: int):
        self.port, self.gaps = port, None
        for number in range(count):
            threading.Thread(target=self._run, args=(number,), daemon=True).start()

    def _run(self, number: int) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            self._stream(number)

    def _stream(self, number: int) -> None:
        rng = random.Random(number)
        while True:
            last = None

            def on_event(now: float) -> None:
                nonlocal last
                gaps = self.gaps
                if last is not None and gaps is not None:
                    gaps.append(now - last)
                last = now

            prompt = [rng.randrange(300, VOCAB) for _ in range(32)]
            body = dict(prompt=prompt, max_tokens=rng.randrange(200, 600), temperature=0, ignore_eos=True)
            stream(self.port, "/v1/completions", body, on_event)


def show(port: int, number: int, side: int) -> float:
    content = [dict(type="image_url", image_url=dict(url=picture(number, side))), dict(type="text", text="What is it?")]
    begin, first = time.monotonic(), []
    body = dict(messages=[dict(role="user", content=content)], max_tokens=2, temperature=0, ignore_eos=True)
    stream(port, "/v1/chat/completions", body, lambda now: first.append(now))
    return first[0] - begin


def main() -> int:
    parser = machine.parser(__doc__, streams=16, pairs=6, pictures=1, side=512, turn_seconds=20)
    parser.add_argument("--flags", default="", help="additional flags for quire serve")
    arguments = parser.parse_args()
    machine.end_on_sigterm()
    print(machine.describe())
    if not pathlib.Path(arguments.model).exists():
        write_model(pathlib.Path(arguments.model))
    port = machine.free_port()
    command = [arguments.binary, "serve", arguments.model, "--port", str(port), *arguments.flags.split()]
    seen: dict = {"quiet": [], "pictures": []}
    firsts: list = []
    with machine.Server("quire", command, port) as server:
        alone = show(port, 10**6, arguments.side)
        streams = Streams(port, arguments.streams)
        time.sleep(5)
        for pair in range(arguments.pairs):
            for side in ("quiet", "pictures"):
                streams.gaps = gaps = []
                if side == "quiet":
                    time.sleep(arguments.turn_seconds)
                else:
                    firsts += [show(port, pair * arguments.pictures + i, arguments.side) for i in range(arguments.pictures)]
                streams.gaps = None
                seen[side].append(gaps)
            print(f"\rpair {pair + 1} of {arguments.pairs}", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        for side, turns in seen.items():
            both = [gap for gaps in turns for gap in gaps]
            # The maximum is not printed: a stream sends nothing while its tokens are incomplete parts of a character.
            print(f"{side}: {len(both)} gaps, p50 {1000 * percentile(both, 0.5):.1f} ms, p99 {1000 * percentile(both, 0.99):.1f}")
        ratios = [percentile(loud, 0.99) / percentile(quiet, 0.99) for quiet, loud in zip(seen["quiet"], seen["pictures"], strict=True)]
        print(f"p99 with images / without {interval(ratios)}; first token after one {statistics.median(firsts):.1f} s, alone {alone:.1f}")
        # Does not wait for the streams to end.
        server.process.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main())
