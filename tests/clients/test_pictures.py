"""Tests litellm and langchain-openai with images, adapters and audio, on small models that the tests create."""

import json
import urllib.request

import litellm
import pytest
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI


@pytest.fixture(scope="module")
def vision_url(tmp_path_factory):
    """The URL of a server whose model supports images and has the adapter `sea`."""
    import tiny_vision

    with tiny_vision.served(tmp_path_factory.mktemp("pictures")) as address:
        yield address


@pytest.fixture(scope="module")
def audio_url(tmp_path_factory):
    import tiny_whisper
    from quire_server import serving

    folder = tmp_path_factory.mktemp("whisper")
    tiny_whisper.write_model(folder)
    with serving(folder) as address:
        yield address


def content_of(number):
    import tiny_vision

    return tiny_vision.chat_content(number)


def post(url, body, kind="application/json"):
    request = urllib.request.Request(url, body, {"Content-Type": kind})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def over_http(url, model, number):
    body = {"model": model, "messages": [{"role": "user", "content": content_of(number)}], "max_tokens": 8, "temperature": 0}
    return post(url + "/v1/chat/completions", json.dumps(body).encode())["choices"][0]["message"]["content"]


# Each function returns the text, the number of prompt tokens and the number of cached tokens.
def by_litellm(url, model, number):
    answer = litellm.completion(
        model="openai/" + model,
        api_base=url + "/v1",
        api_key="none",
        temperature=0,
        max_tokens=8,
        messages=[{"role": "user", "content": content_of(number)}],
    )
    return answer.choices[0].message.content, answer.usage.prompt_tokens, answer.usage.prompt_tokens_details.cached_tokens


def by_langchain(url, model, number):
    chat = ChatOpenAI(base_url=url + "/v1", api_key="none", model=model, max_tokens=8, temperature=0, max_retries=0)
    answer = chat.invoke([HumanMessage(content_of(number))])
    usage = answer.usage_metadata
    return answer.content, usage["input_tokens"], usage["input_token_details"]["cache_read"]


ASKERS = [(("litellm", "completion, {}"), by_litellm, 1), (("langchain-openai", "invoke, {}"), by_langchain, 3)]


def rows(what):
    return [((client, call.format(what)), ask, number) for (client, call), ask, number in ASKERS]


@pytest.mark.parametrize("row, ask, number", rows("a picture"))
def test_image_changes_the_answer_and_is_cached(row, ask, number, vision_url):
    import tiny_vision

    words, tokens, _ = ask(vision_url, "smol", None)
    first, with_picture, cached = ask(vision_url, "smol", number)
    assert with_picture == tokens + tiny_vision.PICTURE_TOKENS
    assert cached < 16 and first == over_http(vision_url, "smol", number) != words
    again, _, cached = ask(vision_url, "smol", number)
    assert again == first and cached == (with_picture - 1) // 16 * 16
    shown, _, cached = ask(vision_url, "smol", number + 1)
    assert cached < 16 and shown != first


@pytest.mark.parametrize("row, ask, number", rows("a picture to an adapter"))
def test_adapter_answers_as_over_http(row, ask, number, vision_url):
    adapted = ask(vision_url, "sea", number)[0]
    assert adapted == over_http(vision_url, "sea", number) != ask(vision_url, "smol", number)[0]


@pytest.mark.row("langchain-openai", "stream, a picture")
def test_stream_with_an_image_gives_the_same_text(vision_url):
    chat = ChatOpenAI(base_url=vision_url + "/v1", api_key="none", model="smol", max_tokens=8, temperature=0)
    told = "".join(chunk.content for chunk in chat.stream([HumanMessage(content_of(5))]))
    assert told == over_http(vision_url, "smol", 5)


@pytest.mark.row("langchain-openai", "image content block")
def test_image_content_block_gives_the_same_text(vision_url):
    import tiny_vision

    chat = ChatOpenAI(base_url=vision_url + "/v1", api_key="none", model="smol", max_tokens=8, temperature=0)
    block = {"type": "image", "base64": tiny_vision.png_base64(6), "mime_type": "image/png"}
    answer = chat.invoke([HumanMessage(content_blocks=[block, {"type": "text", "text": tiny_vision.QUESTION}])])
    assert answer.content == over_http(vision_url, "smol", 6)


@pytest.mark.row("litellm", "transcription")
def test_transcription_gives_the_same_text(audio_url):
    import tiny_whisper

    name, file = tiny_whisper.recording(2.0)
    asked = {"model": "openai/smol", "api_base": audio_url + "/v1", "api_key": "none"}
    answer = litellm.transcription(file=(name, file), language="en", **asked)  # litellm requests verbose_json because it needs the duration
    form = (
        b"".join(
            b'--x\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n' % part
            for part in [(b"file", b'; filename="talk.wav"', file), (b"language", b"", b"en"), (b"response_format", b"", b"verbose_json")]
        )
        + b"--x--\r\n"
    )
    assert answer.text and answer.text == post(audio_url + "/v1/audio/transcriptions", form, "multipart/form-data; boundary=x")["text"]
    whole = litellm.transcription(file=(name, file), response_format="verbose_json", **asked)
    assert whole.duration == 2.0 and whole.segments
