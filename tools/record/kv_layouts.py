"""Records how vLLM V1 (v0.19.0, get_kv_cache_configs) lays out the KV cache of well-known models: blocks, groups and tensors.

Needs vllm 0.19.0.
A case is a `model` line (the window of each layer; 0 for a layer that attends to all tokens), a `blocks` line, a `group` line for each
cache group, and a `tensor` line for each tensor (its bytes, and the layers that share it).
"""
import logging
from types import SimpleNamespace

import torch
from vllm.v1.core import kv_cache_utils as utils
from vllm.v1.kv_cache_interface import FullAttentionSpec, SlidingWindowSpec

from . import files

GIB = 1 << 30


def every(num_layers, period, window, full_at):
    """Returns the window of each layer. One layer of each `period` layers attends to all tokens."""
    return [0 if layer % period == full_at else window for layer in range(num_layers)]


# name: (KV heads, head size, window of each layer, memory, longest request)
MODELS = {
    "llama-2-70b_43GB": (8, 128, [0] * 80, 43 * 10**9, 4096),
    "smollm2-135m": (3, 64, [0] * 30, GIB, 2048),
    "gemma-3-1b": (1, 256, every(26, 6, 512, 5), GIB, 32768),
    "gemma-3-4b": (4, 256, every(34, 6, 1024, 5), 4 * GIB, 32768),
    "gemma-3-12b": (8, 256, every(48, 6, 1024, 5), 16 * GIB, 32768),
    "gemma-3-27b": (16, 128, every(62, 6, 1024, 5), 16 * GIB, 8192),
    "gemma-2-2b": (4, 256, every(26, 2, 4096, 1), 2 * GIB, 8192),
    "gemma-2-9b": (8, 256, every(42, 2, 4096, 1), 8 * GIB + 12345, 8192),
    "mistral-7b-v0.1": (8, 128, [4096] * 32, 2 * GIB, 32768),
    "gpt-oss-20b": (8, 64, every(24, 2, 128, 1), 4 * GIB, 131072),
}


def specs(heads, size, windows, block_size):
    shape = {"block_size": block_size, "num_kv_heads": heads, "head_size": size, "dtype": torch.bfloat16}
    return {str(layer): SlidingWindowSpec(**shape, sliding_window=window) if window else FullAttentionSpec(**shape)
            for layer, window in enumerate(windows)}


OUT = "kv_layouts.txt"


def main(out):
    logging.disable(logging.CRITICAL)
    lines = []
    for name, (heads, size, windows, memory, length) in MODELS.items():
        for block_size in (16, 32):
            config = SimpleNamespace(
                model_config=SimpleNamespace(max_model_len=length, original_max_model_len=length),
                parallel_config=SimpleNamespace(decode_context_parallel_size=1, prefill_context_parallel_size=1),
                scheduler_config=SimpleNamespace(max_num_batched_tokens=2048, max_num_encoder_input_tokens=0, disable_hybrid_kv_cache_manager=False),
                cache_config=SimpleNamespace(mamba_cache_mode="none", num_gpu_blocks_override=None))
            plan, = utils.get_kv_cache_configs(config, [specs(heads, size, windows, block_size)], [memory])
            lines.append(f"model {name} heads={heads} head_dim={size} block_size={block_size} memory={memory} length={length} "
                         f"windows={','.join(map(str, windows))}")
            lines.append(f"blocks {plan.num_blocks}")
            lines += [f"group {getattr(group.kv_cache_spec, 'sliding_window', None) or 0} {','.join(group.layer_names)}"
                      for group in plan.kv_cache_groups]
            lines += [f"tensor {tensor.size} {','.join(tensor.shared_by)}" for tensor in plan.kv_cache_tensors]
    files.write_lines(out, lines)
