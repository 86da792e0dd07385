"""Computes a 32-byte fingerprint of everything except tokens on which the bytes of a block depend. Blocks with another fingerprint are not
read.
"""

import hashlib
import json
import os
from pathlib import Path

import vllm

WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
WHOLE_BYTES = 64 << 20  # files up to this size are read completely
SAMPLES, SAMPLE_BYTES = 64, 256 << 10  # number and size of the samples of larger files


def _digest_file(path: Path) -> str:
    size, digest = path.stat().st_size, hashlib.sha256()
    with open(path, "rb") as file:
        if size <= WHOLE_BYTES:
            digest.update(file.read())
        else:
            for i in range(SAMPLES):
                file.seek((size - SAMPLE_BYTES) * i // (SAMPLES - 1))
                digest.update(file.read(SAMPLE_BYTES))
    return f"{path.name} {size} {digest.hexdigest()}"


def _weights(model: str, revision: str | None) -> list[Path]:
    path = Path(model)
    if path.is_file():
        return [path]
    if not path.is_dir():
        from huggingface_hub import snapshot_download

        try:
            path = Path(snapshot_download(model, revision=revision, local_files_only=True))
        except Exception:  # its errors have many types; the caller reports missing files
            return []
    return sorted(file for file in path.rglob("*") if file.suffix in WEIGHTS and file.is_file())


def weights_digest(vllm_config, model_id: str | None) -> str:
    """Returns a digest of samples of the weight files, or the value of the option disk_model_id."""
    if model_id:
        return f"id {model_id}"
    model_config = vllm_config.model_config
    if vllm_config.load_config.load_format == "dummy":
        return "dummy"
    files = _weights(model_config.model, model_config.revision)
    if not files:
        raise ValueError(
            f"disk_path: the weights of {model_config.model} are not in files that can be identified; "
            "set disk_model_id (a different value for different weights), or leave out disk_path"
        )
    return "\n".join(_digest_file(file) for file in files)


def configuration(vllm_config, blocks: list, model_id: str | None) -> str:
    """Returns a digest of the configuration. blocks: the sizes on which keys and bytes of a block depend."""
    model, parallel = vllm_config.model_config, vllm_config.parallel_config
    parts = {
        "vllm": vllm.__version__,
        "weights": weights_digest(vllm_config, model_id),
        "config": {key: value for key, value in model.hf_config.to_dict().items() if key not in ("_name_or_path", "transformers_version")},
        "dtype": [str(model.dtype), str(vllm_config.cache_config.cache_dtype), str(model.quantization)],
        "blocks": blocks,
        "hash": vllm_config.cache_config.prefix_caching_hash_algo,
        "ranks": [parallel.tensor_parallel_size, parallel.pipeline_parallel_size, parallel.world_size],
        "kv_layout": os.environ.get("VLLM_KV_CACHE_LAYOUT"),
        "draft": str(getattr(vllm_config.speculative_config, "model", None)),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def combined(parts: list[str]) -> bytes:
    return hashlib.sha256(json.dumps(parts).encode()).digest()
