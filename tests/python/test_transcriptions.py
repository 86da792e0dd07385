"""The official openai client transcribes sound, with a small Whisper model that is made here: its weights are drawn, so that what it writes means
nothing, and is the same each time."""

import io
import json
import math
import struct
import wave

import openai
import pytest

from quire_server import serving

MARKS = ["<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|translate|>", "<|transcribe|>", "<|startofprev|>", "<|notimestamps|>"]
WIDTH, MELS, VOCAB = 64, 80, 256 + len(MARKS) + 1501


def byte_pieces():
    """GPT-2's letters for bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def draw(name, count):
    """Numbers between -1/8 and 1/8 that depend on the name."""
    state = int.from_bytes(name.encode(), "little") % (1 << 61)
    values = []
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        values.append(((state >> 40) / (1 << 24) - 0.5) / 4)
    return values


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
    header, data = {}, bytearray()
    for name, shape in shapes():
        values = [1.0] * WIDTH if name.endswith("norm.weight") else draw(name, math.prod(shape))
        begin = len(data)
        data += struct.pack(f"<{len(values)}f", *values)
        header[name] = dict(dtype="F32", shape=shape, data_offsets=[begin, len(data)])
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
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
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps(dict(is_multilingual=True, suppress_tokens=[65], begin_suppress_tokens=[220, 256])))
    added = [
        dict(id=256 + i, content=mark, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True) for i, mark in enumerate(MARKS)
    ]
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
    tokenizer = dict(
        version="1.0",
        truncation=None,
        padding=None,
        added_tokens=added,
        normalizer=None,
        post_processor=framed,
        pre_tokenizer=dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True),
        decoder=dict(type="ByteLevel", add_prefix_space=True, trim_offsets=True, use_regex=True),
        model=dict(
            type="BPE",
            dropout=None,
            unk_token=None,
            continuing_subword_prefix=None,
            end_of_word_suffix=None,
            fuse_unk=False,
            byte_fallback=False,
            vocab={piece: i for i, piece in enumerate(byte_pieces())},
            merges=[],
        ),
    )
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))


def recording(seconds, rate=8000):
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        count = int(seconds * rate)
        file.writeframes(struct.pack(f"<{count}h", *(int(9000 * math.sin(i * i / 4e6)) for i in range(count))))
    return "talk.wav", out.getvalue()


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whisper")
    write_model(folder)
    with serving(folder) as url:
        client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=120)
        try:
            client.audio.transcriptions.create(model="smol", file=recording(0.1), language="en")
        except openai.BadRequestError as error:
            if "libsndfile" in str(error):
                pytest.skip("this build reads no sound")
            raise
        yield client


def test_json_and_text_are_the_same(client):
    answer = client.audio.transcriptions.create(model="smol", file=recording(2.0), language="en")
    text = client.audio.transcriptions.create(model="smol", file=recording(2.0), language="en", response_format="text")
    assert answer.text and answer.text == text.rstrip("\n") and answer.usage.seconds == 2


def test_times_follow_each_other(client):
    answer = client.audio.transcriptions.create(
        model="smol", file=recording(31.0), response_format="verbose_json", timestamp_granularities=["segment"]
    )
    assert answer.duration == 31.0 and answer.language in ("en", "de") and answer.segments
    times = [time for segment in answer.segments for time in (segment.start, segment.end)]
    assert times == sorted(times) and 0 <= times[0] and times[-1] <= 31.0
    srt = client.audio.transcriptions.create(model="smol", file=recording(1.0), language="en", response_format="srt")
    assert srt == "" or srt.startswith("1\n00:00:0")
    assert client.audio.transcriptions.create(model="smol", file=recording(1.0), language="en", response_format="vtt").startswith("WEBVTT\n\n")


def test_a_stream_tells_the_same_text(client):
    whole = client.audio.transcriptions.create(model="smol", file=recording(2.0), language="en").text
    events = list(client.audio.transcriptions.create(model="smol", file=recording(2.0), language="en", stream=True))
    assert "".join(event.delta for event in events if event.type == "transcript.text.delta").strip() == whole
    assert events[-1].type == "transcript.text.done" and events[-1].text == whole


def test_translations(client):
    assert client.audio.translations.create(model="smol", file=recording(1.0)).text is not None


def test_errors_name_the_field(client):
    with pytest.raises(openai.BadRequestError) as error:
        client.audio.transcriptions.create(model="smol", file=("talk.wav", b"not a sound, but some bytes"))
    assert error.value.param == "file"
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(model="smol", messages=[dict(role="user", content="Hi")])
    with pytest.raises(openai.BadRequestError) as error:
        client.completions.create(model="smol", prompt="Hi")
    assert error.value.param == "model" and "sound" in error.value.message
