"""Pages of a worker's KV cache and of its host memory, for vLLM's canonical KV caches. The same for all versions of vLLM."""

import numpy as np
import torch

from quire._core import BlockCopier


def device_pages(kv_caches) -> list:
    """Returns one array per tensor, with a row of bytes per block."""
    return [cache.tensor.view(torch.int8).view(-1, cache.page_size_bytes) for cache in kv_caches.tensors]


def host_pages(region) -> list:
    """Returns the region's memory in the form that vLLM's handlers accept."""
    return [torch.from_numpy(memory.view(np.int8)) for memory in region.tensors]


def as_one_group(kv_caches):
    """Returns the caches as one group, for copies without a group: the pages of a block in all tensors are copied, for every group."""
    caches, ref = type(kv_caches), type(kv_caches.group_data_refs[0][0])
    return caches(kv_caches.tensors, [[ref(i, cache.page_size_bytes) for i, cache in enumerate(kv_caches.tensors)]])


def copier_of(kv_caches, region) -> BlockCopier:
    """Returns a copier for a KV cache in host memory."""
    device = [pages.numpy().view(np.uint8) for pages in device_pages(kv_caches)]
    host = [memory.reshape(-1, pages.shape[1]) for memory, pages in zip(region.tensors, device)]
    return BlockCopier(device, host, region.written)


def page_layout(kv_caches) -> str:
    """Returns everything in this worker on which the bytes of a page depend, besides the model."""
    shapes = [(tuple(cache.tensor.shape[1:]), str(cache.tensor.dtype), cache.page_size_bytes) for cache in kv_caches.tensors]
    device = kv_caches.tensors[0].tensor.device.type
    kind = torch.cuda.get_device_name() if device == "cuda" else torch.backends.cpu.get_cpu_capability()
    # Keys have another layout with AMX than with other instruction sets.
    amx = torch.cpu._is_amx_tile_supported() if device == "cpu" else None
    return f"{shapes} {device} {kind} {amx} {torch.__version__}"
