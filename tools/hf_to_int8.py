"""Converts the linear layers of a Hugging Face folder to int8 in the format of compressed-tensors, for vLLM.

    python hf_to_int8.py FROM TO

Weights are rounded per output channel here; vLLM rounds activations per token. Embeddings and norms do not change. Needs torch and
safetensors.
"""

import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

QUANTIZATION = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "quantization_status": "compressed",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False},
            "input_activations": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True},
        }
    },
}


def quantized(tensors: dict) -> dict:
    result = {}
    for name, tensor in tensors.items():
        if not name.endswith("_proj.weight"):
            result[name] = tensor
            continue
        scale = (tensor.float().abs().amax(dim=1, keepdim=True) / 127).clamp(min=1e-8)
        result[name] = (tensor.float() / scale).round().to(torch.int8)
        result[name + "_scale"] = scale
    return result


def main(source: str, target: str) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.safetensors"))
    save_file(quantized(load_file(Path(source) / "model.safetensors")), Path(target) / "model.safetensors", {"format": "pt"})
    config = Path(target) / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"quantization_config": QUANTIZATION}, indent=2))


if __name__ == "__main__":
    main(*sys.argv[1:3])
