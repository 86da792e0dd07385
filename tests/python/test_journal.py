"""Tests `quire serve --journal` and `quire replay`: a served run replays with the same decisions, and damage is reported."""
import concurrent.futures
import contextlib
import json
import os
import re
import struct
import subprocess
import urllib.error
import urllib.request

import openai

from quire_server import running

TINY = ("--num-blocks", "60", "--max-model-len", "512", "--max-num-seqs", "6", "--kv-dram", "32MiB", "--kv-swap", "16MiB")


def ask(url, number):
    client = openai.OpenAI(base_url=url + "/v1", api_key="-", max_retries=0, timeout=120)
    client.completions.create(model="smol", prompt=f"Chapter {number % 5}. All about rivers, bridges and maps. " * 8, max_tokens=30)


def save(url):
    # urllib sends a form's content type by default. Web pages may send that type too, so the server refuses it.
    request = urllib.request.Request(url + "/v1/journal/save", b"", {"Content-Type": "application/json"}, method="POST")
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


def replay(*arguments):
    return subprocess.run([os.environ["QUIRE_BINARY"], "replay", *map(str, arguments)], capture_output=True, text=True)


def test_served_run_replays_identically_and_damage_is_reported(tmp_path):
    folder = tmp_path / "journals"
    with running(*TINY, "--journal", str(folder)) as url:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: ask(url, number), range(30)))
        text = urllib.request.urlopen(url + "/metrics", timeout=30).read().decode()
        assert float(re.search(r"^quire:journal_bytes_total(?:\{.*\})? (\S+)$", text, re.MULTILINE)[1]) > 1000
        assert float(re.search(r"^quire:journal_ended(?:\{.*\})? (\S+)$", text, re.MULTILINE)[1]) == 0
    [path] = folder.glob("quire-*.qj")
    done = replay(path, "--json")
    told = json.loads(done.stdout)
    assert done.returncode == 0 and told["identical"] and told["end"] == "stopped" and told["damage"] is None, told
    assert told["requests"] == 30 and told["tokens"] > 100 and told["decisions"] > 2 * told["steps"]
    plain = replay(path)
    assert f"100 % of {told['decisions']} decisions identical" in plain.stdout and plain.stderr == ""

    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) * 3 // 4] ^= 4
    other = tmp_path / "damaged.qj"
    other.write_bytes(damaged)
    done = replay(other)
    assert done.returncode == 0
    assert re.search(r"valid up to step \d+; the frame at byte \d+ fails its checksum", done.stdout), done.stdout


def bytes_in(folder):
    """Returns the size of a folder whose files change; a file that disappears meanwhile counts as empty."""
    total = 0
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def test_run_continues_in_files_within_its_budget(tmp_path):
    folder = tmp_path / "journals"
    with running(*TINY, "--journal", str(folder), "--journal-max-bytes", "128KiB") as url:
        for _ in range(6):
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                list(pool.map(lambda number: ask(url, number), range(30)))
            # the folder may exceed the budget for a moment, while one file is removed and another created
            assert bytes_in(folder) <= 2**17 + 2**15
    paths = sorted(folder.iterdir())
    assert len(paths) > 2 and sum(path.stat().st_size for path in paths) <= 2**17
    for path in paths:
        told = json.loads(replay(path, "--json").stdout)
        assert told["identical"] and told["damage"] is None and told["states"] == 0 and told["steps"] > 0, told
    done = replay(*paths, "--json")
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0 and [one["states"] for one in told[1:]] == [1] * (len(paths) - 1), done.stdout
    assert [one["first_step"] for one in told[1:]] == [one["first_step"] + one["steps"] for one in told[:-1]]
    text = replay(paths[1]).stdout
    assert "where the next file continues" in text and f"starts at step {told[1]['first_step']} with" in text, text


def test_last_minutes_are_saved_while_serving(tmp_path):
    with running(*TINY, "--journal-save", str(tmp_path)) as url:
        with concurrent.futures.ThreadPoolExecutor(9) as pool:
            answers = [pool.submit(ask, url, number) for number in range(30)]
            saved = [save(url)]
            for answer in answers:
                answer.result()
        saved.append(save(url))
        text = urllib.request.urlopen(url + "/metrics", timeout=30).read().decode()
        assert 0 < float(re.search(r"^quire:journal_memory_bytes(?:\{.*\})? (\S+)$", text, re.MULTILINE)[1]) <= 2**25
    for one in saved:
        assert os.path.getsize(one["path"]) == one["bytes"] and os.path.dirname(one["path"]) == str(tmp_path)
        told = json.loads(replay(one["path"], "--json").stdout)
        assert told["identical"] and told["end"] == "saved" and told["steps"] == one["steps"], told
    assert saved[1]["steps"] > saved[0]["steps"] and saved[1]["seconds"] > saved[0]["seconds"] >= 0
    assert json.loads(replay(saved[1]["path"], "--json").stdout)["requests"] == 30

    with running(*TINY) as url:
        try:
            save(url)
        except urllib.error.HTTPError as error:
            assert error.code == 400 and "--journal-save DIR" in error.read().decode()
        else:
            raise AssertionError("there is no folder to save it in")


def forms_of(tokens):
    """Returns the encodings of the tokens: in calls (each token twice, in groups of seven bits), and in states."""
    calls = bytearray()
    for token in tokens:
        value = 2 * token
        while value >= 128:
            calls.append(value & 127 | 128)
            value >>= 7
        calls.append(value)
    return bytes(calls), struct.pack(f"<{len(tokens)}i", *tokens)


def test_journal_without_tokens_replays_identically_and_has_no_text(tmp_path):
    says = "The treasure of Captain Brackwater lies seven paces north of the crooked lighthouse, under a stone. " * 4
    tokens, files = [], {}
    for kind, flags in (("with", ()), ("without", ("--no-journal-tokens",))):
        folder = tmp_path / kind
        with running(*TINY, "--journal", str(folder), "--journal-max-bytes", "128KiB", *flags) as url:
            body = json.dumps({"prompt": says, "add_special_tokens": False}).encode()
            with urllib.request.urlopen(urllib.request.Request(url + "/tokenize", body, {"Content-Type": "application/json"}), timeout=60) as got:
                tokens = json.load(got)["tokens"]
            client = openai.OpenAI(base_url=url + "/v1", api_key="-", max_retries=0, timeout=120)
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                answers = [pool.submit(ask, url, number) for number in range(40)]
                answers += [pool.submit(client.completions.create, model="smol", prompt=says, max_tokens=20) for _ in range(8)]
                for answer in answers:
                    answer.result()
            save(url)
        files[kind] = sorted(folder.iterdir())
        done = replay(*(path for path in files[kind] if not path.name.startswith("saved")), "--json")
        assert done.returncode == 0 and all(json.loads(line)["identical"] for line in done.stdout.splitlines()), done
        [saved] = [path for path in files[kind] if path.name.startswith("saved")]
        assert json.loads(replay(saved, "--json").stdout)["identical"]
    some = forms_of(tokens[10:16])
    assert len(tokens) > 60 and any(form in path.read_bytes() for path in files["with"] for form in some)
    assert not any(form in path.read_bytes() for path in files["without"] for form in forms_of(tokens[10:13]))


def test_files_that_are_no_journals_are_refused(tmp_path):
    (tmp_path / "text").write_text("text")
    for path, word in ((tmp_path / "none", "cannot be read"), (tmp_path / "text", "is not a journal"), (tmp_path, "cannot be read")):
        done = replay(path)
        assert done.returncode == 2 and word in done.stderr and done.stderr.count("\n") == 1, done.stderr
