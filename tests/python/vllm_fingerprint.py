"""Tests quire.vllm's fingerprints of configurations and weights with stand-ins for vLLM.

usage: vllm_fingerprint.py VERSION CASE...
"""

import os
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

from vllm_connector_halves import raises
from vllm_connector_pair import vllm_config

from quire.vllm import _fingerprint as fingerprint


def fingerprints():
    """A fingerprint depends on everything that the bytes of a block depend on, and on the contents of the weights' files."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "sub").mkdir()
        (path / "config.json").write_text("{}")
        raises(f"disk_path: the weights of {folder} are not in files that can be identified; set disk_model_id",
               lambda: fingerprint.weights_digest(with_model(folder), None))  # fmt: skip
        (path / "sub/b.safetensors").write_bytes(b"weights")
        (path / "a.gguf").write_bytes(b"more")
        text = fingerprint.weights_digest(with_model(folder), None)
        assert [line.split()[:2] for line in text.splitlines()] == [["a.gguf", "4"], ["b.safetensors", "7"]]
        (path / "config.json").write_text("{ }")
        assert fingerprint.weights_digest(with_model(folder), None) == text
        (path / "a.gguf").write_bytes(b"mode")
        assert fingerprint.weights_digest(with_model(folder), None) != text
        assert fingerprint.weights_digest(with_model(path / "a.gguf"), None).startswith("a.gguf 4 ")
        assert fingerprint.weights_digest(with_model(folder), "mine") == "id mine"
        dummy = with_model(folder)
        dummy.load_config.load_format = "dummy"
        assert fingerprint.weights_digest(dummy, None) == "dummy" and fingerprint.weights_digest(dummy, "mine") == "id mine"
        # A large file is read by samples, up to its last byte.
        fingerprint.WHOLE_BYTES, fingerprint.SAMPLES, fingerprint.SAMPLE_BYTES = 999, 4, 50
        data = bytearray(1000)
        digests = []
        for at in (None, 0, 49, 316, 365, 633, 950, 999, 50, 315, 366, 949):  # samples begin at 0, 316, 633 and 950
            changed = bytearray(data)
            if at is not None:
                changed[at] = 1
            (path / "a.gguf").write_bytes(changed)
            digests.append(fingerprint.weights_digest(with_model(path / "a.gguf"), None))
        assert len(set(digests[:8])) == 8 and set(digests[8:]) == {digests[0]}, "bytes between samples are not read"
        (path / "a.gguf").write_bytes(bytes(999))
        whole = fingerprint.weights_digest(with_model(path / "a.gguf"), None)
        (path / "a.gguf").write_bytes(bytes(100) + b"1" + bytes(898))
        assert fingerprint.weights_digest(with_model(path / "a.gguf"), None) != whole
    fake = SimpleNamespace(snapshot_download=lambda model, revision, local_files_only: {("there", "r", True): folder}[model, revision, local_files_only])
    sys.modules["huggingface_hub"] = fake
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "m.bin").write_bytes(b"1")
        assert fingerprint.weights_digest(with_model("there", "r"), None).startswith("m.bin 1 ")
        raises("the weights of missing are not in files", lambda: fingerprint.weights_digest(with_model("missing", "r"), None))

    def digest(change=None, blocks=(16, 1), model_id="m"):
        config = with_model("m")
        if change:
            change(config)
        return fingerprint.configuration(config, list(blocks), model_id)

    def set_(part, name, value):
        return lambda config: setattr(getattr(config, part), name, value)

    changes = [
        set_("model_config", "dtype", "bfloat16"), set_("model_config", "quantization", "fp8"), set_("cache_config", "cache_dtype", "fp8"),
        set_("cache_config", "prefix_caching_hash_algo", "sha256_cbor"), set_("parallel_config", "tensor_parallel_size", 2),
        set_("parallel_config", "pipeline_parallel_size", 2), set_("parallel_config", "world_size", 2),
        set_("model_config", "hf_config", SimpleNamespace(to_dict=lambda: {"hidden_size": 9})),
        lambda config: setattr(config, "speculative_config", SimpleNamespace(model="draft")),
    ]  # fmt: skip
    all_ = [digest(), digest(blocks=(16, 2)), digest(model_id="n"), *map(digest, changes)]
    os.environ["VLLM_KV_CACHE_LAYOUT"] = "HND"
    all_.append(digest())
    del os.environ["VLLM_KV_CACHE_LAYOUT"]
    assert len(set(all_)) == len(all_) and digest() == all_[0]
    moved = set_("model_config", "hf_config", SimpleNamespace(to_dict=lambda: {"hidden_size": 8, "_name_or_path": "elsewhere", "transformers_version": "9"}))
    assert digest(moved) == all_[0], "where the model lies does not matter"
    assert len(fingerprint.combined(["a", "b"])) == 32 and fingerprint.combined(["a", "b"]) != fingerprint.combined(["ab"])


def with_model(model, revision=None):
    config = vllm_config({})
    config.model_config.model, config.model_config.revision, config.load_config.load_format = str(model), revision, "auto"
    return config


if __name__ == "__main__":
    for case in sys.argv[1:]:
        globals()[case]()
        print(f"{case}: ok", flush=True)
