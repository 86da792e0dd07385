"""Tests vLLM's connectors for NIXL, Mooncake and LMCache between two vLLM processes on CPU with quire's scheduler in both, if their
libraries exist.

`./dev oracle setup` does not install them: the tests search vLLM's environment and the folders of QUIRE_VLLM_PACKAGES, as docs/vllm.md
describes.
"""

import json
import os

import pytest
from test_vllm import PACKAGE, REPO, in_vllm, needs_vllm

PATH = ":".join(filter(None, [PACKAGE, str(REPO / "tools"), os.environ.get("QUIRE_VLLM_PACKAGES")]))


def played(tmp_path, library, *cases):
    there = in_vllm("-c", f"import {library}", PYTHONPATH=PATH, LMCACHE_TRACK_USAGE="false")
    if there.returncode != 0:
        pytest.skip(f"vLLM's Python cannot import {library}: {there.stderr.strip().splitlines()[-1]}")
    done = in_vllm(REPO / "tests/python/vllm_apart.py", tmp_path, *cases, PYTHONPATH=PATH)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    seen = {one["case"]: one for one in map(json.loads, (line for line in done.stdout.splitlines() if line.startswith('{"case"')))}
    assert list(seen) == list(cases)
    for one in seen.values():
        assert one["wrong"] == 0 and one["answers"] > 0 and one["bytes"] > 0 and one["cached_tokens"] > 0, one
        assert one["schedulers"] == ["quire.vllm.v0_19"] * 2, one
        assert set(one["held"].values()) == set(one["requests"].values()) == {0}, f"blocks are never released: {one}"
    return seen


@needs_vllm
def test_nixl_gives_the_answers_of_one_engine(tmp_path):
    """Servers that exchange blocks over NIXL give the answers of one engine, also with two cache groups, with aborted requests, and with a
    killed prefill server."""
    seen = played(tmp_path, "nixl._api", "nixl:own", "nixl-windows:own", "nixl-aborts:own", "nixl-kill:own")
    assert seen["nixl:own"]["answers"] == 68 and seen["nixl-windows:own"]["groups"] == 2, seen
    assert seen["nixl-aborts:own"]["aborted"] > 0 and seen["nixl-kill:own"]["answers"] == 68, seen


@needs_vllm
def test_mooncake_gives_the_answers_of_one_engine(tmp_path):
    """Half of the requests go to both sides at the same time, like vLLM's proxy for Mooncake."""
    assert played(tmp_path, "mooncake.engine", "mooncake:own")["mooncake:own"]["answers"] == 68


@needs_vllm
def test_lmcache_gives_the_answers_of_one_engine(tmp_path):
    assert played(tmp_path, "lmcache.integration.vllm.vllm_v1_adapter", "lmcache:own")["lmcache:own"]["answers"] == 68
