"""Tests quire pull, list and rm, and names of models, against a hub on loopback (quire_hub.py)."""
import hashlib
import os
import random
import shutil
import ssl
import subprocess
import sys
import threading
import time
import urllib.request

import openai
import pytest

from quire_hub import Hub, Repo, digest_of, git_blob_sha1, hub_of
from quire_server import free_port, started

GGUF = "org/tiny-GGUF"


def content(name, size=300_000):
    return random.Random(name).randbytes(size)


def gguf_repo(**more):
    return Repo({"README.md": b"hello", "tiny-Q8_0.gguf": content("q8"), "tiny-Q4_K_M.gguf": content("q4"), "imatrix.gguf": content("im"),
                 "mmproj-F16.gguf": content("mm")}, **more)


def folder_repo():
    files = {"config.json": b'{"a": 1}', "tokenizer.json": b"{}", "generation_config.json": b"{}", "chat_template.jinja": b"{{ messages }}",
             "model-00001-of-00002.safetensors": content("s1"), "model-00002-of-00002.safetensors": content("s2"),
             "model.safetensors.index.json": b"{}"}
    others = {"pytorch_model.bin": content("bin"), "original/consolidated.00.pth": content("pth"), "README.md": b"hello",
              "consolidated.safetensors": content("c"), "onnx/model.onnx": content("onnx")}
    return Repo({**files, **others}), files


class Quire:
    """Calls quire with a hub and an empty cache."""

    def __init__(self, hub, cache):
        self.hub, self.cache = hub, cache
        self.binary = os.environ.get("QUIRE_BINARY")
        if not self.binary:
            pytest.skip("QUIRE_BINARY is not set: ./dev test sets it")

    def environment(self, **more):
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "XDG_"))}
        return {**kept, "HF_ENDPOINT": self.hub.hub_url, "HF_HOME": str(self.cache / "hf"), "XDG_CACHE_HOME": str(self.cache / "xdg"),
                "HF_HUB_OFFLINE": "0", **more}

    def call(self, *words, **environment):
        return subprocess.run([self.binary, *words], capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL,
                              env=self.environment(**environment))

    def good(self, *words, **environment):
        done = self.call(*words, **environment)
        assert done.returncode == 0, done.stderr
        return done

    def bad(self, *words, **environment):
        done = self.call(*words, **environment)
        assert done.returncode == 2 and done.stdout == "", done
        lines = done.stderr.splitlines()
        assert lines[-1].startswith("quire: ")
        return lines[-1]

    def kill_after(self, num_bytes, *words):
        """Kills quire when it has stored the first bytes of a download."""
        self.hub.hold_after, self.hub.gate = num_bytes, threading.Event()
        with subprocess.Popen([self.binary, *words], env=self.environment(), stdin=subprocess.DEVNULL) as process:
            while not any(path.stat().st_size == num_bytes for path in self.cache.rglob("*.incomplete")):
                assert process.poll() is None, "quire ended before it was killed"
                time.sleep(0.01)
            process.kill()
        self.hub.gate.set()
        self.hub.hold_after = None

    def repo(self, name=GGUF):
        return self.cache / "hf" / "hub" / ("models--" + name.replace("/", "--"))

    def blobs(self, name=GGUF):
        folder = self.repo(name) / "blobs"
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


@pytest.fixture(name="hub")
def fixture_hub():
    with hub_of({GGUF: gguf_repo()}) as hub:
        yield hub


@pytest.fixture(name="quire")
def fixture_quire(hub, tmp_path):
    return Quire(hub, tmp_path)


def test_pull_chooses_a_quantization_and_shares_the_layout_of_huggingface_hub(hub, quire):
    done = quire.good("pull", GGUF)
    path = quire.repo() / "snapshots" / ("a" * 40) / "tiny-Q4_K_M.gguf"
    assert done.stdout.strip() == str(path)
    assert path.read_bytes() == content("q4")
    assert os.readlink(path) == f"../../blobs/{digest_of(content('q4'))}"
    assert (quire.repo() / "refs/main").read_text() == "a" * 40
    assert quire.blobs() == [digest_of(content("q4"))], "nothing else was downloaded, and no partial file is left"
    assert "Q4_K_M" in done.stderr and "also there: Q8_0" in done.stderr
    assert f"--mmproj {GGUF}:mmproj-F16.gguf" in done.stderr
    first = len(hub.downloads())
    assert f"downloading 292.97 KiB into {quire.cache}" in done.stderr
    again = quire.good("pull", GGUF)
    assert again.stdout == done.stdout and "already in" in again.stderr
    assert len(hub.downloads()) == first, "a file that is there is not downloaded again"


@pytest.mark.parametrize("name", [f"{GGUF}:q8_0", f"{GGUF}:tiny-Q8_0.gguf", f"hf://{GGUF}:Q8_0", "URL/blob/main/tiny-Q8_0.gguf"])
def test_pull_takes_the_named_quantization(hub, quire, name):
    path = quire.good("pull", name.replace("URL", f"{hub.hub_url}/{GGUF}")).stdout.strip()
    assert open(path, "rb").read() == content("q8")


def test_pull_takes_the_parts_of_a_split_model(hub, quire):
    parts = {f"Q8_0/big-Q8_0-0000{i}-of-00003.gguf": content(i) for i in (1, 2, 3)}
    hub.repos[GGUF] = Repo({**parts, "big-Q4_0.gguf": content("q4")})
    path = quire.good("pull", f"{GGUF}:Q8_0").stdout.strip()
    assert path.endswith("/Q8_0/big-Q8_0-00001-of-00003.gguf")
    for name, data in parts.items():
        assert (quire.repo() / "snapshots" / ("a" * 40) / name).read_bytes() == data


def test_pull_takes_weights_config_and_tokenizer_of_a_folder(hub, quire):
    hub.repos["org/tiny"], files = folder_repo()
    hub.page_size = 3
    path = quire.good("pull", "org/tiny").stdout.strip()
    assert sorted(os.listdir(path)) == sorted(files)
    for name, data in files.items():
        with open(os.path.join(path, name), "rb") as file:
            assert file.read() == data
    assert git_blob_sha1(b'{"a": 1}') in quire.blobs("org/tiny")


def test_huggingface_hub_and_quire_find_each_others_downloads(hub, quire, monkeypatch):
    pytest.importorskip("huggingface_hub")
    hub.repos["org/tiny"], files = folder_repo()
    for name, value in quire.environment().items():
        monkeypatch.setenv(name, value)
    code = ("import sys, huggingface_hub as h\n"
            "print(getattr(h, sys.argv[1])(*sys.argv[3:], local_files_only=sys.argv[2] == 'local'))")

    def ask(*words):
        done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip().splitlines()[-1]

    theirs = ask("snapshot_download", "remote", "org/tiny")
    assert set(files) <= set(os.listdir(theirs))
    before = len(hub.requests)
    assert quire.good("pull", "org/tiny", HF_HUB_OFFLINE="1").stdout.strip() == theirs
    assert len(hub.requests) == before
    ours = quire.good("pull", GGUF).stdout.strip()
    assert ask("hf_hub_download", "local", GGUF, "tiny-Q4_K_M.gguf") == ours


def test_the_token_is_sent_to_the_hub_and_to_no_other_host(hub, quire):
    hub.token = "hf_secret"
    assert "HF_TOKEN" in quire.bad("pull", GGUF)
    quire.good("pull", GGUF, HF_TOKEN="hf_secret")
    sent = {host: {headers.get("Authorization") for h, _, _, headers in hub.requests if h == host} for host in ("hub", "cdn")}
    assert sent == {"hub": {None, "Bearer hf_secret"}, "cdn": {None}}


def test_the_token_may_be_in_the_token_file(hub, quire):
    hub.token = "hf_secret"
    (quire.cache / "hf").mkdir()
    (quire.cache / "hf" / "token").write_text("hf_secret\n")
    quire.good("pull", GGUF)


def test_gated_repositories_name_the_remedy(hub, quire):
    hub.repos[GGUF] = gguf_repo(gated=True)
    hub.token = "hf_secret"
    without = quire.bad("pull", GGUF)
    assert "must grant access" in without and "set HF_TOKEN" in without and f"{hub.hub_url}/{GGUF}" in without
    assert "with the account of HF_TOKEN" in quire.bad("pull", GGUF, HF_TOKEN="hf_other")
    quire.good("pull", GGUF, HF_TOKEN="hf_secret")


def test_unknown_repositories_suggest_similar_names(quire):
    assert "there is no public repository" in quire.bad("pull", "org/unknown")
    assert f"the hub has {GGUF}" in quire.bad("pull", "other/tiny")
    quire.good("pull", GGUF)
    assert f"did you mean {GGUF}?" in quire.bad("pull", "org/tiny-GUF")
    assert f"downloaded models: {GGUF}:Q4_K_M" in quire.bad("serve", "somebody/elses-model")
    assert "it has Q4_K_M, Q8_0" in quire.bad("pull", f"{GGUF}:Q2_K")


def test_pull_waits_as_long_as_the_hub_asks_for(hub, quire):
    hub.too_many = ["0", "0"]
    done = quire.good("pull", GGUF)
    assert done.stderr.count("answers with status 429; trying again") >= 1
    hub.too_many = ["86400"]
    assert "asks for a pause of 86400 s" in quire.bad("pull", GGUF)


def test_pull_repeats_requests_that_fail(hub, quire):
    hub.failures = [503]
    assert "status 503; trying again" in quire.good("pull", GGUF).stderr


def test_pull_continues_after_a_cut_connection(hub, quire):
    hub.cuts = [100_000, 50_000]
    path = quire.good("pull", GGUF).stdout.strip()
    assert open(path, "rb").read() == content("q4")
    ranges = [headers.get("Range") for host, _, _, headers in hub.requests if host == "cdn"]
    assert ranges == [None, "bytes=100000-", "bytes=150000-"]


def test_the_next_call_continues_after_a_kill(hub, quire):
    quire.kill_after(1000, "pull", GGUF)
    assert quire.blobs() == [digest_of(content("q4")) + ".incomplete"]
    path = quire.good("pull", GGUF).stdout.strip()
    assert open(path, "rb").read() == content("q4")
    assert hub.requests[-1][3].get("Range") == "bytes=1000-"


@pytest.mark.parametrize("ignore_range", [False, True])
def test_pull_continues_the_partial_file_of_another_program(hub, quire, ignore_range):
    hub.ignore_range = ignore_range
    blobs = quire.repo() / "blobs"
    blobs.mkdir(parents=True)
    (blobs / (digest_of(content("q4")) + ".incomplete")).write_bytes(content("q4")[:200_000])
    path = quire.good("pull", GGUF).stdout.strip()
    assert open(path, "rb").read() == content("q4")
    assert hub.requests[-1][3].get("Range") == "bytes=200000-"


@pytest.mark.parametrize("left", [b"\0" * 1000, b"\0" * 300_000, b"\0" * 400_000])
def test_a_corrupted_partial_file_is_downloaded_again(hub, quire, left):
    blobs = quire.repo() / "blobs"
    blobs.mkdir(parents=True)
    (blobs / (digest_of(content("q4")) + ".incomplete")).write_bytes(left)
    path = quire.good("pull", GGUF).stdout.strip()
    assert open(path, "rb").read() == content("q4")


def test_a_wrong_digest_removes_the_file(hub, quire):
    hub.wrong = True
    refusal = quire.bad("pull", GGUF)
    assert "does not match its digest" in refusal and "tiny-Q4_K_M.gguf" in refusal
    assert quire.blobs() == []
    hub.wrong = False
    quire.good("pull", GGUF)


def test_redirects_may_be_relative_and_end(hub, quire):
    hub.relative_redirect = True
    quire.good("pull", GGUF)
    hub.redirect_loop = True
    assert "redirects more than 10 times" in quire.bad("pull", GGUF)


@pytest.mark.parametrize("entry, refusal", [
    (dict(path="../../evil.gguf"), "is not allowed"), (dict(path="/etc/evil.gguf"), "is not allowed"), (dict(path="a\nb.gguf"), "is not allowed"),
    (dict(path="a//b.gguf"), "is not allowed"), (dict(oid="../../evil"), "oid is not a digest"), (dict(size=1 << 60), "size"),
    (dict(size=-1), "size"), (dict(path=7), "path"), (dict(size=15 << 40), "free")])
def test_hostile_listings_are_refused_before_a_download(hub, quire, entry, refusal):
    hub.repos[GGUF] = Repo({}, listed=[dict(type="file", oid="b" * 40, size=10, path="tiny-Q4_K_M.gguf") | entry])
    assert refusal in quire.bad("pull", GGUF)
    assert hub.downloads() == [] and not list(quire.cache.rglob("evil*"))


def test_two_pulls_of_one_model_download_it_once(hub, quire):
    hub.gate = threading.Event()
    command = [quire.binary, "pull", GGUF]
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=quire.environment())
    with subprocess.Popen(command, **pipes) as first, subprocess.Popen(command, **pipes) as second:
        watched = {}

        def watch(process):
            watched[process] = []
            for line in process.stderr:
                watched[process].append(line)
                if "waiting for another process" in line:
                    hub.gate.set()
        threads = [threading.Thread(target=watch, args=(process,)) for process in (first, second)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(100)
        assert first.wait(60) == 0 and second.wait(60) == 0, watched
        assert first.stdout.read() == second.stdout.read()
    assert sum("waiting for another" in line for lines in watched.values() for line in lines) == 1
    assert len(hub.downloads()) == 1
    assert quire.blobs() == [digest_of(content("q4"))]


def test_a_new_commit_downloads_changed_files_only(hub, quire):
    hub.repos["org/tiny"], files = folder_repo()
    quire.good("pull", "org/tiny")
    before = len(hub.downloads())
    hub.repos["org/tiny"] = Repo({**hub.repos["org/tiny"].files, "model-00002-of-00002.safetensors": content("new")}, commit="b" * 40)
    path = quire.good("pull", "org/tiny").stdout.strip()
    assert path.endswith("b" * 40) and sorted(os.listdir(path)) == sorted(files)
    assert len(hub.downloads()) == before + 1


def test_offline_needs_no_hub_and_lists_downloaded_models(hub, quire):
    assert "HF_HUB_OFFLINE" in quire.bad("pull", GGUF, HF_HUB_OFFLINE="1")
    assert hub.requests == []
    path = quire.good("pull", GGUF).stdout
    before = len(hub.requests)
    assert quire.good("pull", GGUF, HF_HUB_OFFLINE="1").stdout == path
    assert f"downloaded models: {GGUF}:Q4_K_M" in quire.bad("serve", "other/model-of-size-70B", HF_HUB_OFFLINE="1")
    assert len(hub.requests) == before


def test_an_unreachable_hub_names_the_address(quire):
    refusal = quire.bad("pull", GGUF, HF_ENDPOINT=f"http://127.0.0.1:{free_port()}")
    assert "cannot be reached" in refusal and "HF_ENDPOINT" in refusal
    assert quire.bad("pull", GGUF, HF_ENDPOINT="huggingface.co").startswith("quire: HF_ENDPOINT: ")


def test_list_and_rm(hub, quire):
    assert "No models" in quire.good("list").stdout
    hub.repos["org/tiny"], _ = folder_repo()
    for name in (GGUF, f"{GGUF}:Q8_0", "org/tiny"):
        quire.good("pull", name)
    rows = [line.split() for line in quire.good("list").stdout.splitlines()[1:]]
    assert [row[0] for row in rows] == ["org/tiny", f"{GGUF}:Q4_K_M", f"{GGUF}:Q8_0"]
    assert rows[0][3] == "7" and rows[1][-1].endswith("tiny-Q4_K_M.gguf")
    assert "--yes" in quire.bad("rm", f"{GGUF}:Q8_0")
    assert "292.97 KiB freed" in quire.good("rm", f"{GGUF}:Q8_0", "--yes").stdout
    assert quire.blobs() == [digest_of(content("q4"))]
    quire.good("rm", GGUF, "--yes")
    assert not quire.repo().exists()
    assert "did you mean org/tiny?" in quire.bad("rm", "org/tinny", "--yes")
    assert len(quire.good("list").stdout.splitlines()) == 2


def test_rm_keeps_blobs_that_other_files_use(hub, quire):
    same = content("same")
    hub.repos[GGUF] = Repo({"tiny-Q8_0.gguf": same, "tiny-Q4_K_M.gguf": same})
    quire.good("pull", f"{GGUF}:Q8_0")
    path = quire.good("pull", f"{GGUF}:Q4_K_M").stdout.strip()
    quire.good("rm", f"{GGUF}:Q8_0", "--yes")
    assert open(path, "rb").read() == same


def test_an_existing_path_is_not_a_name(hub, quire, tmp_path, monkeypatch):
    (tmp_path / "org").mkdir()
    (tmp_path / "org" / "tiny-GGUF").write_bytes(b"not a model")
    monkeypatch.chdir(tmp_path)
    assert "tiny-GGUF" in quire.bad("inspect", GGUF)
    assert "no such file" in quire.bad("inspect", "org/missing.gguf")
    assert hub.requests == []


def test_urls_are_downloaded_continued_and_compared_with_their_digest(hub, quire):
    url = f"{hub.cdn_url}/cdn/{GGUF}/tiny-Q8_0.gguf"
    quire.kill_after(1000, "pull", url)
    path = quire.good("pull", f"{url}#sha256={hashlib.sha256(content('q8')).hexdigest()}").stdout.strip()
    assert path.endswith("/tiny-Q8_0.gguf") and open(path, "rb").read() == content("q8")
    assert hub.requests[-1][3]["Range"] == "bytes=1000-" and hub.requests[-1][3]["If-Range"] == f'"{digest_of(content("q8"))}"'
    before = len(hub.requests)
    assert quire.good("pull", url).stdout.strip() == path and len(hub.requests) == before
    assert url in quire.good("list").stdout
    quire.good("rm", url, "--yes")
    assert url not in quire.good("list").stdout
    assert "does not match its digest" in quire.bad("pull", f"{url}#sha256={'0' * 64}")


def test_https_checks_certificates_and_does_not_fall_back_to_http(tmp_path):
    if not shutil.which("openssl"):
        pytest.skip("no openssl to make a certificate with")
    key, certificate = tmp_path / "key.pem", tmp_path / "localhost.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
                    "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate], check=True,
                   capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    trusted = {"SSL_CERT_FILE": str(certificate)}
    with hub_of({GGUF: gguf_repo()}, hub_tls=tls, cdn_tls=tls) as hub:
        quire = Quire(hub, tmp_path)
        assert "certificate verify failed" in quire.bad("pull", GGUF)
        assert hub.requests == []
        path = quire.good("pull", GGUF, **trusted).stdout.strip()
        assert open(path, "rb").read() == content("q4")
    with hub_of({GGUF: gguf_repo()}, hub_tls=tls) as hub:
        assert "from https to http" in Quire(hub, tmp_path).bad("pull", f"{GGUF}:Q8_0", **trusted)
        assert hub.downloads() == []


def test_recommend_prints_commands_that_name_models_of_the_hub(quire):
    rows = quire.good("recommend").stdout.splitlines()[2:]
    assert rows[0].split() == ["MODEL", "FILE", "MEMORY", "TOOLS", "COMMAND"] and 2 <= len(rows) <= 6
    for row in rows[1:]:
        assert "/" in row.split("quire serve ")[1] and (" yes " in row or " no " in row)
    assert quire.hub.requests == []


def test_serve_downloads_a_model_and_answers(tmp_path, monkeypatch):
    model = os.environ.get("QUIRE_TEST_MODEL")
    if not model:
        pytest.skip("QUIRE_TEST_MODEL is not set: ./dev test sets it")
    with open(model, "rb") as file:
        repo = Repo({"SmolLM2-Q4_1.gguf": file.read()})
    with hub_of({"org/SmolLM2": repo}) as hub:
        quire = Quire(hub, tmp_path)
        for name, value in quire.environment().items():
            monkeypatch.setenv(name, value)
        for _ in range(2):
            # Without --served-model-name the server has the model's name of the hub.
            with started("--served-model-name", "org/SmolLM2", model="org/SmolLM2") as (url, process):
                client = openai.OpenAI(base_url=url + "/v1", api_key="-", max_retries=0, timeout=120)
                done = client.completions.create(model="org/SmolLM2", prompt="Once upon a time", max_tokens=4, temperature=0)
                assert done.choices[0].text
                process.terminate()
                assert process.wait(60) == 0
        assert len(hub.downloads()) == 1, "the second start finds the model"
        inspected = quire.good("inspect", "org/SmolLM2").stdout
        assert inspected.splitlines()[0].split() == ["model", "org/SmolLM2"]


def test_serve_names_a_model_of_the_hub_as_the_user_wrote_it(tmp_path):
    model = os.environ.get("QUIRE_TEST_MODEL")
    if not model:
        pytest.skip("QUIRE_TEST_MODEL is not set: ./dev test sets it")
    quire = Quire(Hub({}), tmp_path)
    quire.hub.hub_url = "http://127.0.0.1:9"  # not asked, because the model is in the cache
    snapshot = quire.repo("org/SmolLM2") / "snapshots" / ("c" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "SmolLM2-Q4_1.gguf").symlink_to(model)
    port = free_port()
    with subprocess.Popen([quire.binary, "serve", "org/SmolLM2", "--port", str(port), "--kv-cache-memory", "64MiB"], env=quire.environment(),
                          stdout=subprocess.PIPE, text=True) as process:
        try:
            assert f"quire serves org/SmolLM2 on http://127.0.0.1:{port}" in process.stdout.readline()
            assert urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10).status == 200
        finally:
            process.terminate()
            assert process.wait(60) == 0
