"""Tests tenants of `quire serve`: keys from a file and a flag, and a secret from the environment."""
import os
import subprocess

import openai
import pytest

from quire_server import running

PROMPT = "What one tenant has sent is nobody else's business, neither word by word nor as a whole. " * 3


def cached(url, key):
    client = openai.OpenAI(base_url=url + "/v1", api_key=key, max_retries=0, timeout=120)
    return client.completions.create(model="smol", prompt=PROMPT, max_tokens=1).usage.prompt_tokens_details.cached_tokens


@pytest.mark.parametrize("secret", ["", "long and random"])
def test_tenants_share_prefixes_only_without_a_secret(tmp_path, monkeypatch, secret):
    monkeypatch.setenv("QUIRE_TENANT_SECRET", secret)
    keys = tmp_path / "keys"
    keys.write_text("# who\na=key-1\na=key-2\n")
    with running("--tenant-keys-file", str(keys), "--tenant-key", "b=key-3", "--api-key", "own") as url:
        assert cached(url, "key-1") == 0
        assert cached(url, "key-2") > 0
        for key in ("key-3", "own"):
            assert (cached(url, key) > 0) == (secret == "")
        with pytest.raises(openai.AuthenticationError):
            cached(url, "key-4")


@pytest.mark.parametrize("flags, message", [
    (["--tenant-keys-file", "KEYS"], "--tenant-keys-file: line 2 has no '='"),
    (["--tenant-keys-file", "/nowhere"], "--tenant-keys-file: '/nowhere' cannot be read: No such file or directory"),
    (["--tenant-key", "hush"], "--tenant-key: has no '='"),
    (["--tenant-key", "a=hush", "--tenant-key", "b=hush"], "tenant_keys: entry 2 gives 'b' a key that 'a' already has")])
def test_invalid_keys_are_refused_before_the_model_is_read(tmp_path, flags, message):
    binary = os.environ.get("QUIRE_BINARY")
    if not binary:
        pytest.skip("QUIRE_BINARY is not set: ./dev test sets it")
    (tmp_path / "KEYS").write_text("a=1\nhush\n")
    done = subprocess.run([binary, "serve", "no-model.gguf", *flags], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert message in done.stderr
    assert "hush" not in done.stderr + done.stdout
