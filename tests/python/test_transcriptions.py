"""Tests transcriptions with the official openai client and a small Whisper model that the test creates."""

import openai
import pytest

from quire_server import serving
from tiny_whisper import recording, write_model


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


def test_models_list_audio_as_the_input(client):
    assert client.models.list().data[0].input_modalities == ["audio"]


def test_json_and_text_formats_have_the_same_text(client):
    answer = client.audio.transcriptions.create(model="smol", file=recording(2.0), language="en")
    text = client.audio.transcriptions.create(model="smol", file=recording(2.0), language="en", response_format="text")
    assert answer.text and answer.text == text.rstrip("\n") and answer.usage.seconds == 2


def test_timestamps_are_sorted(client):
    answer = client.audio.transcriptions.create(
        model="smol", file=recording(31.0), response_format="verbose_json", timestamp_granularities=["segment"]
    )
    assert answer.duration == 31.0 and answer.language in ("en", "de") and answer.segments
    times = [time for segment in answer.segments for time in (segment.start, segment.end)]
    assert times == sorted(times) and 0 <= times[0] and times[-1] <= 31.0
    srt = client.audio.transcriptions.create(model="smol", file=recording(1.0), language="en", response_format="srt")
    assert srt == "" or srt.startswith("1\n00:00:0")
    assert client.audio.transcriptions.create(model="smol", file=recording(1.0), language="en", response_format="vtt").startswith("WEBVTT\n\n")


def test_stream_gives_the_same_text(client):
    once = {"temperature_increment_on_fallback": 0}  # text that was already streamed is not retried
    whole = client.audio.transcriptions.create(model="smol", file=recording(2.0), language="en", extra_body=once).text
    events = list(client.audio.transcriptions.create(model="smol", file=recording(2.0), language="en", stream=True))
    assert "".join(event.delta for event in events if event.type == "transcript.text.delta").strip() == whole
    assert events[-1].type == "transcript.text.done" and events[-1].text == whole


def test_translation_returns_text(client):
    assert client.audio.translations.create(model="smol", file=recording(1.0)).text is not None


def test_errors_name_the_field(client):
    with pytest.raises(openai.BadRequestError) as error:
        client.audio.transcriptions.create(model="smol", file=("talk.wav", b"not a sound, but some bytes"))
    assert error.value.param == "file"
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(model="smol", messages=[dict(role="user", content="Hi")])
    with pytest.raises(openai.BadRequestError) as error:
        client.completions.create(model="smol", prompt="Hi")
    assert error.value.param == "model" and "audio" in error.value.message
