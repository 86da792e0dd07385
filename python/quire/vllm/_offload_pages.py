"""Pages of a worker's KV cache beside those of its host memory, for vLLM's canonical KV caches (all versions alike)."""

import numpy as np
import torch

from quire._core import BlockCopier


def copier_of(kv_caches, region) -> BlockCopier:
    """Where the KV cache is host memory."""
    device, host = [], []
    for cache, memory in zip(kv_caches.tensors, region.tensors):
        page = cache.page_size_bytes
        device.append(cache.tensor.view(torch.int8).view(-1, page).numpy().view(np.uint8))
        host.append(memory.reshape(-1, page))
    return BlockCopier(device, host, region.written)


def page_layout(kv_caches) -> str:
    """What the bytes of a page depend on, beside the model, in this worker."""
    shapes = [(tuple(cache.tensor.shape[1:]), str(cache.tensor.dtype), cache.page_size_bytes) for cache in kv_caches.tensors]
    device = kv_caches.tensors[0].tensor.device.type
    kind = torch.cuda.get_device_name() if device == "cuda" else torch.backends.cpu.get_cpu_capability()
    # AMX and the others lay keys out in different ways.
    amx = torch.cpu._is_amx_tile_supported() if device == "cpu" else None
    return f"{shapes} {device} {kind} {amx} {torch.__version__}"
