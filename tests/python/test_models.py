"""Tests `quire serve --models`: one port for several models, each in a process that a request starts."""
import concurrent.futures
import http.client
import json
import os
import pathlib
import re
import signal

import pytest

from models_server import models_file, serving, until


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(models_file(tmp_path_factory.mktemp("models"))) as running:
        yield running


@pytest.fixture
def single(tmp_path):
    """A server that keeps one model loaded."""
    with serving(models_file(tmp_path, "max-loaded: 1"), "--kv-disk", str(tmp_path / "kv"), "--kv-disk-budget", "256MiB",
                 "--kv-policy", "exact") as running:
        yield running


def test_models_load_when_a_request_names_them(tmp_path):
    with serving(models_file(tmp_path)) as server:
        assert server.states() == {"one": "unloaded", "uno": "unloaded", "two": "unloaded", "gpt-4o": "unloaded"}
        assert server.children() == []
        assert server.complete("two")[2]["model"] == "two"
        assert server.states()["two"] == "loaded" and server.states()["one"] == "unloaded"
        assert server.metric("quire:model_loads_total", "two") == 1 and server.metric("quire:model_loads_total", "one") == 0
        assert server.metric("quire:model_load_seconds_total", "two") > 0
        assert [row["model"] for row in server.get("/running")["running"]] == ["two"]


def test_aliases_and_patterns_choose_the_model(server):
    for requested, model in (("one", "one"), ("uno", "one"), ("claude-sonnet-4", "one"), ("gpt-4o", "two"), ("gpt-5", "two"), (None, "one")):
        status, _, answer = server.complete(requested)
        assert (status, answer.get("model")) == (200, model), answer


def test_an_unknown_model_gets_404_with_the_names(server):
    status, _, answer = server.complete("onne")
    assert status == 404 and answer["error"]["code"] == "model_not_found" and answer["error"]["param"] == "model"
    assert "did you mean 'one'? use 'one', 'two'" in answer["error"]["message"]
    status, _, text = server.ask("/v1/messages", {"model": "nix", "max_tokens": 4, "messages": [{"role": "user", "content": "x"}]})
    assert status == 404 and json.loads(text)["type"] == "error", "the error has Anthropic's form"
    status, _, text = server.ask("/api/chat", {"model": "nix", "messages": []})
    assert status == 404 and isinstance(json.loads(text)["error"], str), "the error has Ollama's form"


def test_flags_of_a_model_replace_common_flags(server):
    cards = {card["id"]: card for card in server.get("/v1/models")["data"]}
    assert cards["one"]["max_model_len"] == 1024 and cards["two"]["max_model_len"] == 512
    assert cards["one"]["aliases"] == ["uno", "claude-*"]
    assert server.get("/v1/models/claude-x")["root"] == "one"
    server.complete("two")
    assert json.loads(server.ask("/upstream/two/v1/models")[2])["data"][0]["max_model_len"] == 512


def test_errors_of_a_model_pass_unchanged(server):
    status, _, answer = server.complete("one", max_tokens=100_000)
    assert status == 400 and answer["error"]["code"] == "context_length_exceeded"
    status, _, text = server.ask("/v1/messages", {"model": "one", "messages": []})
    assert status == 400 and json.loads(text)["type"] == "error" and json.loads(text)["error"]["message"].count("max_tokens") >= 1
    status, _, text = server.ask("/v1/no-such-route", {"model": "one"})
    assert status == 404 and "there is no route" in text


def test_a_stream_arrives_in_parts(server):
    server.complete("one")
    connection, response = server.stream("one", 400)
    assert response.status == 200 and response.headers["Content-Type"].startswith("text/event-stream")
    assert response.readline().startswith(b"data: ")
    assert server.metric("quire:model_requests_running", "one") == 1, "the first event arrives before the last token"
    rest = response.read().decode()
    connection.close()
    assert rest.count("data: ") >= 100 and rest.rstrip().endswith("data: [DONE]")
    status, headers, text = server.ask("/api/generate", {"model": "one", "prompt": "Once", "options": {"num_predict": 3}})
    assert status == 200 and headers["Content-Type"] == "application/x-ndjson" and json.loads(text.splitlines()[-1])["done"]


def test_a_disconnect_aborts_the_request(server):
    server.complete("one")
    connection, response = server.stream("one", 900)
    response.readline()
    connection.sock.close()
    response.close()
    connection.close()

    def is_idle():
        text = server.ask("/upstream/one/metrics")[2]
        return re.search(r"^vllm:num_requests_running\{[^}]*\} (\S+)$", text, re.MULTILINE)[1] == "0"
    until(is_idle, "the model's server must abort the request")
    until(lambda: server.metric("quire:model_requests_running", "one") == 0, "the hold must end")
    text = server.ask("/upstream/one/metrics")[2]
    assert re.search(r'finished_reason="abort"[^}]*\} [1-9]', text), "the request must not run to its end"


def test_concurrent_first_requests_load_once(tmp_path):
    with serving(models_file(tmp_path)) as server, concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: server.complete("one"), range(16)))
        assert [status for status, _, _ in answers] == [200] * 16
        assert server.metric("quire:model_loads_total", "one") == 1 and len(server.children()) == 1


def test_the_least_recently_used_model_is_unloaded_for_another(single):
    assert single.complete("one")[0] == 200
    before = single.children()
    assert single.complete("two")[0] == 200
    assert single.states()["one"] == "unloaded" and single.states()["two"] == "loaded"
    assert len(single.children()) == 1 and single.children() != before
    assert single.metric("quire:model_unloads_total", "one") == 1


def test_kv_blocks_on_disk_outlive_a_swap(single, tmp_path):
    prompt = " ".join(f"word {i}" for i in range(90))
    status, _, first = single.complete("one", prompt=prompt)
    assert status == 200 and first["usage"]["prompt_tokens"] > 270
    assert single.complete("two", prompt=prompt)[0] == 200
    again = single.complete("one", prompt=prompt)[2]
    assert again["choices"] == first["choices"]
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 250, again["usage"]
    assert sorted(path.name for path in (tmp_path / "kv").iterdir()) == ["one", "two"]


def test_a_busy_model_is_not_unloaded(single):
    single.complete("one")
    connection, response = single.stream("one", 300)
    response.readline()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        other = pool.submit(single.complete, "two")
        assert json.loads(single.ask("/unload?model=one", method="POST")[2]) == {"unloaded": [], "busy": ["one"]}
        rest = response.read().decode()
        assert rest.rstrip().endswith("data: [DONE]"), "the running request ends normally"
        connection.close()
        assert other.result()[0] == 200, "the waiting request is answered afterwards"


def test_a_killed_process_is_started_again(tmp_path):
    with serving(models_file(tmp_path)) as server:
        server.complete("one")
        (first,) = server.children()
        server.complete("two")
        connection, response = server.stream("one", 900)
        response.readline()
        os.kill(first, signal.SIGKILL)
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            response.read()
        connection.close()
        until(lambda: server.states()["one"] == "unloaded", "the end of the process is noticed")
        assert server.states()["two"] == "loaded" and server.complete("two")[0] == 200, "the other model is not affected"
        assert server.metric("quire:model_crashes_total", "one") == 1
        assert server.complete("one")[0] == 200
        assert first not in server.children() and server.metric("quire:model_loads_total", "one") == 2


def test_a_process_that_is_killed_before_its_answer_gives_an_error(server):
    server.complete("two")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answer = pool.submit(server.complete, "two", max_tokens=400, ignore_eos=True)
        until(lambda: re.search(r"^vllm:num_requests_running\{[^}]*\} 1", server.ask("/upstream/two/metrics")[2], re.MULTILINE),
              "the request must run")
        os.kill(server.process_of("two"), signal.SIGKILL)
        status, headers, body = answer.result()
    assert status == 503 and headers["Retry-After"] and "'two' did not answer: its process ended" in body["error"]["message"]
    until(lambda: server.metric("quire:model_crashes_total", "two") == 1, "the end of the process is noticed")
    assert server.complete("two")[0] == 200


def test_the_error_of_a_failed_load_reaches_the_client(tmp_path):
    path = models_file(tmp_path)
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + b"\xff" * 100)
    path.write_text(path.read_text() + f"  - name: broken\n    model: {tmp_path}/broken.gguf\n")
    with serving(path) as server:
        status, headers, answer = server.complete("broken")
        assert status == 503 and int(headers["Retry-After"]) >= 1
        assert "'broken' could not be loaded: " in answer["error"]["message"] and "broken.gguf" in answer["error"]["message"]
        assert server.metric("quire:model_load_failures_total", "broken") == 1
        assert server.complete("broken")[2]["error"]["message"] == answer["error"]["message"], "the next attempt waits"
        assert server.metric("quire:model_load_failures_total", "broken") == 1
        assert server.complete("one")[0] == 200


def test_a_model_that_never_fits_is_refused(tmp_path):
    with serving(models_file(tmp_path), "--models-memory", "100MiB") as server:
        status, _, answer = server.complete("one")
        assert status == 503 and "needs about" in answer["error"]["message"] and "--models-memory" in answer["error"]["message"]


def test_ollamas_clients_see_all_models(server):
    assert [row["name"] for row in server.get("/api/tags")["models"]] == ["one:latest", "uno:latest", "two:latest", "gpt-4o:latest"]
    status, _, text = server.ask("/api/chat", {"model": "two:latest", "messages": [{"role": "user", "content": "Hi"}], "stream": False,
                                               "options": {"num_predict": 3}, "keep_alive": "1h"})
    assert status == 200 and json.loads(text)["model"] == "two:latest", text
    loaded = {row["name"]: row for row in server.get("/api/ps")["models"]}
    assert loaded["two:latest"]["details"]["family"] == "llama" and loaded["two:latest"]["size"] > 0
    assert json.loads(server.ask("/api/show", {"model": "two"})[2])["capabilities"][0] == "completion"
    assert "version" in server.get("/api/version")
    server.ask("/unload?model=one", method="POST")
    until(lambda: server.states()["one"] == "unloaded", "the model is unloaded")
    shown = json.loads(server.ask("/api/show", {"model": "one"})[2])
    assert shown["details"]["family"] == "llama" and shown["model_info"]["llama.context_length"] == 1024
    assert server.states()["one"] == "unloaded", "a client that shows all models loads none"
    status, _, text = server.ask("/api/generate", {"model": "two", "keep_alive": 0, "stream": False})
    assert status == 200 and json.loads(text)["done_reason"] == "unload"
    until(lambda: server.states()["two"] == "unloaded", "keep_alive 0 unloads the model")
    status, _, text = server.ask("/api/generate", {"model": "two", "keep_alive": 0, "stream": False})
    assert json.loads(text)["done_reason"] == "unload" and server.states()["two"] == "unloaded", "an unloaded model stays unloaded"


def test_keep_alive_0_computes_what_the_request_asks_for(server):
    server.ask("/unload?model=two", method="POST")
    until(lambda: server.states()["two"] == "unloaded", "the model is unloaded")
    status, _, text = server.ask("/api/embed", {"model": "two", "input": ["x"], "keep_alive": 0})
    assert status == 200 and len(json.loads(text)["embeddings"]) == 1, text
    until(lambda: server.states()["two"] == "unloaded", "keep_alive 0 unloads the model afterwards")


def test_an_operator_can_unload(server):
    server.complete("one")
    status, _, text = server.ask("/unload?model=one", method="POST")
    assert status == 200 and json.loads(text) == {"unloaded": ["one"], "busy": []}
    assert json.loads(server.ask("/unload?model=one", method="POST")[2])["unloaded"] == [], "it is already unloading or unloaded"
    until(lambda: server.states()["one"] == "unloaded", "the model is unloaded")
    assert server.ask("/unload?model=nix", method="POST")[0] == 404


def test_reads_do_not_load_a_model(server):
    server.ask("/unload?model=one", method="POST")
    until(lambda: server.states()["one"] == "unloaded", "the model is unloaded")
    status, headers, text = server.ask("/upstream/one/metrics")
    assert status == 503 and "'one' is not loaded" in text and headers["Retry-After"]
    assert server.states()["one"] == "unloaded"
    assert server.ask("/")[0] == 200 and server.ask("/health")[0] == 200 and server.ask("/metrics")[0] == 200


def test_a_path_without_a_slash_after_the_name_is_redirected(server):
    server.complete("one")
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("GET", "/upstream/one?a=b")
    answer = connection.getresponse()
    assert (answer.status, answer.headers["Location"]) == (308, "/upstream/one/?a=b")
    connection.close()


def test_routes_of_the_server_refuse_other_methods(server):
    status, headers, text = server.ask("/unload?model=one")
    assert status == 405 and headers["Allow"] == "POST" and "'/unload' does not support GET" in json.loads(text)["error"]["message"]
    assert server.ask("/v1/models", {})[0] == 405


def test_errors_of_a_path_of_one_model_have_the_form_of_its_api(server):
    server.ask("/unload?model=one", method="POST")
    until(lambda: server.states()["one"] == "unloaded", "the model is unloaded")
    assert json.loads(server.ask("/upstream/one/v1/messages")[2])["type"] == "error"


def test_only_local_clients_operate_a_model(server):
    server.complete("one")
    assert server.ask("/upstream/one/reset_prefix_cache", method="POST")[0] == 200
    for headers in ({"X-Forwarded-For": "192.0.2.1"}, {"Host": "localhost"}, {"Origin": f"http://127.0.0.1:{server.port}"}):
        status, _, text = server.ask("/upstream/one/reset_prefix_cache", headers=headers, method="POST")
        assert status == 403, (headers, text)
    assert server.ask("/unload?model=one", headers={"X-Forwarded-For": "192.0.2.1"}, method="POST")[0] == 403


def test_idle_models_are_unloaded(tmp_path):
    with serving(models_file(tmp_path, "idle-seconds: 1")) as server:
        server.complete("one")
        until(lambda: server.states()["one"] == "unloaded", "an idle model is unloaded")
        assert server.children() == []


def test_keys_are_checked_at_the_front_and_by_the_models(tmp_path):
    with serving(models_file(tmp_path), env={"QUIRE_API_KEY": "secret"}) as server:
        for path in ("/v1/completions", "/v1/no-such-route"):
            assert server.ask(path, {"model": "one", "prompt": "x"})[0] == 401
        assert server.ask("/v1/models")[0] == 401 and server.ask("/metrics")[0] == 401 and server.ask("/health")[0] == 200
        assert server.children() == [], "a client without a key loads nothing"
        for path in ("/upstream/one/", "/upstream/none/"):
            status, _, text = server.ask(path)
            assert status == 401 and "two" not in text, "a client without a key sees no names"
        key = {"Authorization": "Bearer secret"}
        assert server.ask("/v1/completions", {"model": "one", "prompt": "x", "max_tokens": 1}, key)[0] == 200
        assert server.ask("/upstream/one/metrics", headers=key)[0] == 200 and server.ask("/upstream/one/metrics")[0] == 401
        (child,) = server.children()
        command = pathlib.Path(f"/proc/{child}/cmdline").read_bytes()
        assert b"secret" not in command and b"--served-model-name=one" in command


def test_secrets_are_no_arguments_of_the_models(tmp_path):
    path = models_file(tmp_path)
    config = tmp_path / "config.yaml"
    config.write_text('tenant-key: ["alice=alices-key", "bob=bobs-key"]\n')
    config.chmod(0o600)
    store = "redis://user:store-secret@127.0.0.1:1/0"
    with serving(path, "--config", str(config), env={"QUIRE_API_KEY": "servers-key", "QUIRE_KV_REMOTE": store}) as server:
        body = {"model": "one", "prompt": "x", "max_tokens": 1}
        for key, status in (("alices-key", 200), ("bobs-key", 200), ("servers-key", 200), ("no-key", 401)):
            assert server.ask("/v1/completions", body, {"Authorization": f"Bearer {key}"})[0] == status, key
        assert server.ask("/upstream/one/metrics", headers={"Authorization": "Bearer bobs-key"})[0] == 403, "tenants do not operate"
        command, variables = (pathlib.Path(f"/proc/{server.process_of('one')}/{name}").read_text() for name in ("cmdline", "environ"))
        for secret in ("alices-key", "bobs-key", "servers-key", "store-secret"):
            assert secret not in command and secret in variables, secret


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_the_server(tmp_path, stop):
    with serving(models_file(tmp_path)) as server:
        server.complete("one")
        server.complete("two")
        pids = server.children()
        assert len(pids) == 2
        server.process.send_signal(stop)
        server.process.wait(60)
        until(lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in pids), "the models' processes end")


def test_a_running_request_ends_before_the_server(tmp_path):
    with serving(models_file(tmp_path)) as server:
        server.complete("one")
        connection, response = server.stream("one", 300)
        response.readline()
        server.process.terminate()
        assert response.read().decode().rstrip().endswith("data: [DONE]")
        connection.close()
        assert server.process.wait(60) == 0
