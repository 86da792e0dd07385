"""vLLM on CPU with its own server, in bf16: of the weights at hand it has nothing faster here. As its log asks for, with Intel's OpenMP and
tcmalloc preloaded."""

import os
from pathlib import Path

from .contestant import CACHE, HOME, Contestant, Unavailable, installed_version


def contestants(arguments) -> list:
    home = Path(os.environ.get("QUIRE_ORACLE_VENV", CACHE / "oracle")).resolve()
    folder = HOME / "models" / Path(arguments.model).stem
    if not (folder / "config.json").exists():
        raise Unavailable(f"it reads no GGUF; convert it: {home}/bin/python tools/gguf_to_hf.py {arguments.model} {folder}")

    def command(port, workload, clients):
        return [home / "bin/python", "-m", "vllm.entrypoints.openai.api_server", "--model", folder, "--port", str(port), "--dtype", "bfloat16",
                "--max-model-len", "4096", "--max-num-seqs", "64", "--max-num-batched-tokens", "2048", "--enable-prefix-caching",
                "--uvicorn-log-level", "warning"]  # fmt: skip

    environment = {
        "LD_PRELOAD": f"libtcmalloc_minimal.so.4:{home}/lib/libiomp5.so",
        "VLLM_CPU_KVCACHE_SPACE": "4",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    about = f"vLLM {installed_version(home, 'vllm_cpu')} on CPU, torch {installed_version(home, 'torch')}, bf16, tcmalloc and libiomp5 preloaded"
    return [Contestant("vLLM bf16", about, command, environment=environment)]
