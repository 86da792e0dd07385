"""Tests what `quire serve --models` reads at start: a folder or a file of models, and the flags of the command line."""
import os
import subprocess

import pytest

from models_server import SMALL, models_file, needs_model, serving


def test_a_folder_lists_its_models(tmp_path):
    needs_model()
    for name in ("b", "a"):
        (tmp_path / f"{name}.gguf").symlink_to(os.environ["QUIRE_TEST_MODEL"])
    with serving(tmp_path) as server:
        assert list(server.states()) == ["a", "b"]
        assert server.complete(None)[2]["model"] == "a"


@pytest.mark.parametrize("change, problem", [
    (("name: two", "name: one"), "model 'one' has the name 'one' twice"),
    (("aliases: [gpt-4o", "aliases: [uno"), "the models 'one' and 'two' both have the name 'uno'"),
    (("two.gguf", "none.gguf"), "line 6: model 'two': '{folder}/none.gguf' does not exist; correct 'model'"),
    (("max-model-len: 512", "max-model-length: 512"), "line 10: 'max-model-length' is not a flag of quire serve; did you mean 'max-model-len'?"),
    (("max-model-len: 512", "max-model-len: many"), "--max-model-len: 'many' is not a whole number"),
    (("max-model-len: 512", "port: 80"), "line 10: 'port' is not a flag of one model; give it on the command line"),
    (("max-model-len: 512", "tenant-keys-file: keys"), "line 10: 'tenant-keys-file' is not a flag of one model"),
    (("max-model-len: 512", "help: true"), "line 10: 'help' is not a flag of quire serve; quire serve --help lists the flags"),
    (("max-model-len: 512", "chat-template: /none"), "line 6: model 'two': --chat-template: '/none' cannot be read or is empty"),
    (("max-model-len: 512", "speculative-model: /none"), "line 6: model 'two': /none"),
    (("max-model-len: 512", "kv-cache-memory: auto"), "--kv-cache-memory auto would take the memory of the other models; give a size"),
])
def test_errors_of_the_file_are_reported_at_start(tmp_path, change, problem):
    path = models_file(tmp_path)
    assert change[0] in path.read_text()
    path.write_text(path.read_text().replace(*change))
    run = subprocess.run([os.environ["QUIRE_BINARY"], "serve", "--models", str(path), "--port", "0"], capture_output=True, text=True,
                         timeout=60, check=False)
    assert run.returncode == 2 and run.stderr.startswith("quire: --models: "), run.stderr
    assert problem.format(folder=tmp_path) in run.stderr


def test_models_that_would_share_a_folder_are_refused(tmp_path):
    path = models_file(tmp_path)
    path.write_text(path.read_text().replace("name: one", "name: a/b").replace("name: two", "name: a_b"))
    run = subprocess.run([os.environ["QUIRE_BINARY"], "serve", "--models", str(path), "--kv-disk", str(tmp_path), *SMALL], timeout=60,
                         capture_output=True, text=True, check=False)
    assert run.returncode == 2 and f"the models 'a/b' and 'a_b' both have --kv-disk={tmp_path}/a_b; set another" in run.stderr, run.stderr


@pytest.mark.parametrize("flags, problem", [
    (["model.gguf"], "MODEL: cannot be combined with --models"),
    (["--served-model-name", "x"], "--served-model-name: cannot apply to all models of --models; name the models in the file"),
    (["--kv-events-config", "{}"], "--kv-events-config: cannot apply to all models of --models"),
])
def test_flags_that_concern_one_model_are_refused(tmp_path, flags, problem):
    path = models_file(tmp_path)
    run = subprocess.run([os.environ["QUIRE_BINARY"], "serve", "--models", str(path), *flags], capture_output=True, text=True, timeout=60,
                         check=False)
    assert run.returncode == 2 and problem in run.stderr
