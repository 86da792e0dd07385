"""Tests images through the official clients of openai and anthropic, on a small model that the test creates and an adapter of it."""

import contextlib
import http.server
import json
import shutil
import ssl
import subprocess
import threading
import urllib.error
import urllib.request

import anthropic
import openai
import pytest

import tiny_mmproj
import tiny_qwen_vl
import tiny_vision
from quire_server import serving, started
from test_kv_disk import wait_until_stored
from tiny_vision import QUESTION, chat_content


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with tiny_vision.served(tmp_path_factory.mktemp("pictures")) as address:
        try:
            in_chat(address, "smol", 1)
        except openai.BadRequestError as error:
            if "does not support images" in str(error):
                pytest.skip("this build does not support images")
            raise
        yield address


def test_models_list_images_as_an_input(url):
    assert json.load(urllib.request.urlopen(url + "/v1/models"))["data"][0]["input_modalities"] == ["text", "image"]


def client_of(url):
    return openai.OpenAI(base_url=url + "/v1", api_key="-", max_retries=0, timeout=120)


# Each function returns the text, the number of prompt tokens and the number of cached tokens.
def in_chat(url, model, number):
    messages = [{"role": "user", "content": chat_content(number)}]
    answer = client_of(url).chat.completions.create(model=model, messages=messages, max_tokens=8, temperature=0)
    return answer.choices[0].message.content, answer.usage.prompt_tokens, answer.usage.prompt_tokens_details.cached_tokens


def in_response(url, model, number):
    shown = [] if number is None else [{"type": "input_image", "image_url": tiny_vision.data_url(number), "detail": "auto"}]
    content = [*shown, {"type": "input_text", "text": QUESTION}]
    answer = client_of(url).responses.create(model=model, input=[{"role": "user", "content": content}], max_output_tokens=8, temperature=0)
    return answer.output_text, answer.usage.input_tokens, answer.usage.input_tokens_details.cached_tokens


def in_message(url, model, number):
    source = {"type": "base64", "media_type": "image/png", "data": None if number is None else tiny_vision.png_base64(number)}
    content = [*([] if number is None else [{"type": "image", "source": source}]), {"type": "text", "text": QUESTION}]
    answer = anthropic.Anthropic(base_url=url, api_key="-", max_retries=0).messages.create(
        model=model, max_tokens=8, extra_body={"temperature": 0}, messages=[{"role": "user", "content": content}]
    )
    cached = answer.usage.cache_read_input_tokens or 0
    return answer.content[0].text, answer.usage.input_tokens + cached, cached


def over_http(url, model, number):
    body = {"model": model, "messages": [{"role": "user", "content": chat_content(number)}], "max_tokens": 8, "temperature": 0}
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]


@pytest.mark.parametrize("place, ask", [(0, in_chat), (1, in_response), (2, in_message)])
def test_image_changes_the_answer_and_is_cached(url, place, ask):
    one, other = 20 + 2 * place, 21 + 2 * place  # these images are new to the server
    words, tokens, _ = ask(url, "smol", None)
    first, with_picture, cached = ask(url, "smol", one)
    assert with_picture == tokens + tiny_vision.PICTURE_TOKENS
    assert cached < 16 and first == over_http(url, "smol", one) != words
    again, _, cached = ask(url, "smol", one)
    assert again == first and cached == (with_picture - 1) // 16 * 16
    # The other image has as many tokens but other blocks, because block hashes include the digest of the file.
    shown, tokens, cached = ask(url, "smol", other)
    assert tokens == with_picture and cached < 16 and shown != first


@pytest.mark.parametrize("ask", (in_chat, in_response, in_message))
def test_adapter_supports_images(url, ask):
    base, adapted = ask(url, "smol", 9), ask(url, "sea", 9)
    assert adapted[0] == over_http(url, "sea", 9) != base[0] and adapted[1] == base[1]
    assert adapted[0] != ask(url, "sea", 8)[0]


def in_ollama(url, path, **body):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def test_ollamas_api_supports_images(url):
    shown, settings = {"images": [tiny_vision.png_base64(7)]}, {"stream": False, "options": {"temperature": 0, "num_predict": 8}}
    for model in ("smol", "sea"):
        chat = in_ollama(url, "/api/chat", model=model + ":latest", messages=[{"role": "user", "content": QUESTION, **shown}], **settings)
        answer = in_ollama(url, "/api/generate", model=model, prompt=QUESTION, **shown, **settings)
        assert chat["message"]["content"] == answer["response"] == over_http(url, model, 7)
    assert "vision" in in_ollama(url, "/api/show", model="smol")["capabilities"]
    with pytest.raises(urllib.error.HTTPError) as error:
        in_ollama(url, "/api/chat", model="smol", messages=[{"role": "user", "content": QUESTION, "images": ["AAAA"]}])
    assert json.load(error.value)["error"].startswith("messages[0].images[0]: ")


def test_images_of_earlier_turns_stay_cached(url):
    messages = [{"role": "user", "content": chat_content(3)}]
    client = client_of(url)
    first = client.chat.completions.create(model="smol", messages=messages, max_tokens=8, temperature=0)
    messages += [{"role": "assistant", "content": first.choices[0].message.content}, {"role": "user", "content": chat_content(4)}]
    second = client.chat.completions.create(model="smol", messages=messages, max_tokens=8, temperature=0)
    assert second.usage.prompt_tokens > first.usage.prompt_tokens + tiny_vision.PICTURE_TOKENS
    assert second.usage.prompt_tokens_details.cached_tokens >= first.usage.prompt_tokens // 16 * 16


def test_stream_gives_the_same_answer(url):
    chunks = client_of(url).chat.completions.create(
        model="smol", messages=[{"role": "user", "content": chat_content(5)}], max_tokens=8, temperature=0, stream=True
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == over_http(url, "smol", 5)


def test_errors_name_the_part(url):
    content = [{"type": "text", "text": QUESTION}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]
    with pytest.raises(openai.BadRequestError) as error:
        client_of(url).chat.completions.create(model="smol", messages=[{"role": "user", "content": content}])
    assert error.value.param == "messages[0].content[1]"
    with pytest.raises(anthropic.BadRequestError, match=r"messages\[0\].content\[0\]"):
        source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
        anthropic.Anthropic(base_url=url, api_key="-", max_retries=0).messages.create(
            model="smol", max_tokens=4, messages=[{"role": "user", "content": [{"type": "image", "source": source}]}]
        )


@contextlib.contextmanager
def picture_host(folder):
    """Yields the port of a TLS host with one image and a self-signed certificate, localhost.pem."""
    if not shutil.which("openssl"):
        pytest.skip("no openssl to make a certificate with")
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", *names]
    subprocess.run([*made, "-keyout", folder / "key.pem", "-out", folder / "localhost.pem"], check=True, capture_output=True)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", str(len(tiny_vision.png(7))))
            self.end_headers()
            self.wfile.write(tiny_vision.png(7))

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "localhost.pem", folder / "key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()


def test_image_is_fetched_only_with_a_valid_certificate(tmp_path, monkeypatch):
    (tmp_path / "model").mkdir()
    tiny_vision.write_model(tmp_path / "model")

    def ask(url, picture):
        content = [{"type": "image_url", "image_url": {"url": picture}}, {"type": "text", "text": QUESTION}]
        return client_of(url).chat.completions.create(model="smol", messages=[{"role": "user", "content": content}], max_tokens=8, temperature=0)

    with picture_host(tmp_path) as port:
        address = f"https://localhost:{port}/cat.png"
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "localhost.pem"))
        with serving(tmp_path / "model", "--allowed-media-domains", "example.org,localhost,127.0.0.1") as url:
            try:
                sent = ask(url, tiny_vision.data_url(7))
            except openai.BadRequestError as error:
                if "does not support images" in str(error):
                    pytest.skip("this build does not support images")
                raise
            fetched = ask(url, address)
            assert fetched.choices[0].message.content == sent.choices[0].message.content
            assert fetched.usage.prompt_tokens_details.cached_tokens > 16, "the same bytes must hit, whatever their source"
            with pytest.raises(openai.BadRequestError, match="certificate verify failed"):  # the certificate has another name
                ask(url, address.replace("localhost", "127.0.0.1"))
        monkeypatch.delenv("SSL_CERT_FILE")
        with serving(tmp_path / "model", "--allowed-media-domains", "localhost") as url:
            with pytest.raises(openai.BadRequestError, match="certificate verify failed"):
                ask(url, address)


def as_folder_and_files(tmp_path, write_model, write_two_files):
    """Returns a model's folder and the two files made from it."""
    folder, model, mmproj = tmp_path / "model", tmp_path / "model.gguf", tmp_path / "mmproj.gguf"
    folder.mkdir()
    write_model(folder)
    write_two_files(folder, model, mmproj)
    return folder, model, mmproj


def test_two_gguf_files_answer_like_their_folder(url, tmp_path):
    _, model, mmproj = as_folder_and_files(tmp_path, tiny_vision.write_model, tiny_mmproj.write_two_files)
    with serving(model, "--mmproj", str(mmproj)) as of_files:
        for number in (1, 2, None):
            assert in_chat(of_files, "smol", number)[:2] == in_chat(url, "smol", number)[:2]


def test_two_gguf_files_of_qwen_answer_like_their_folder(url, tmp_path):
    folder, model, mmproj = as_folder_and_files(tmp_path, tiny_qwen_vl.write_model, tiny_qwen_vl.write_two_files)
    answers = []
    for flags in ((folder,), (model, "--mmproj", str(mmproj))):
        with serving(*flags) as address:
            answers.append([in_chat(address, "smol", number)[:2] for number in (1, 2, None)])
    assert answers[0] == answers[1]
    assert answers[0][0][1] == answers[0][2][1] + 2 + 16, "special tokens and patches of the image"
    with serving(model) as address:  # without the image encoder
        assert in_chat(address, "smol", None)[:2] == answers[0][2]


def test_images_hit_on_disk_after_a_kill_and_others_do_not(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    tiny_vision.write_model(folder)
    flags = ("--kv-disk", str(tmp_path / "kv"), "--kv-disk-budget", "64MiB", "--kv-policy", "exact")
    with started(*flags, model=folder) as (address, process):
        asked = {number: in_chat(address, "smol", number) for number in (1, 2)}
        wait_until_stored(address, sum(tokens // 16 for _, tokens, _ in asked.values()))
        process.kill()
        process.wait()
    with started(*flags, model=folder) as (address, _):
        for number in (1, 2):
            text, _, cached = in_chat(address, "smol", number)
            assert text == asked[number][0] and cached >= tiny_vision.PICTURE_TOKENS // 16 * 16
        assert in_chat(address, "smol", 3)[2] < 16, "another image must not hit"
