"""Helpers of the tests of quire.vllm.offload with stand-ins for vLLM: specs, keys, caches, and the log. Importing it installs the stand-ins for the
version that the command line gives.
"""

import logging

from vllm_connector_halves import IS_NEWER
from vllm_connector_pair import NUM_BLOCKS, PAGE, kv_config, vllm_config

import numpy as np
import quire
import torch
from quire.vllm import _offload_checks as checks
from quire.vllm import offload

if IS_NEWER:
    from oracle_vllm.offload_newer import Config
    from vllm.distributed.kv_transfer.kv_connector.v1.offloading.config import build_offloading_config
    from vllm.v1.kv_offload.base import CanonicalKVCacheRef, CanonicalKVCaches, CanonicalKVCacheTensor
else:
    from vllm.v1.kv_offload.spec import CanonicalKVCacheRef, CanonicalKVCaches, CanonicalKVCacheTensor


class Log(logging.Handler):
    """Collects what quire.vllm logs."""

    def __init__(self):
        super().__init__()
        self.texts = []
        checks.logger.handlers, checks.logger.propagate = [self], False
        checks.logger.setLevel(logging.INFO)

    def emit(self, record):
        self.texts.append(record.getMessage())

    def take(self):
        texts, self.texts = self.texts, []
        return texts


def names(*numbers, size=32):
    return [bytes([number]) * size for number in numbers]


def keys(*numbers, size=32, group=0):
    return [name + group.to_bytes(4, "big") for name in names(*numbers, size=size)]


def caches_of(*arrays, device="cpu"):
    tensors = [CanonicalKVCacheTensor(torch.Tensor(array, device=device), array.nbytes // len(array)) for array in arrays]
    return CanonicalKVCaches(tensors, [[CanonicalKVCacheRef(i, one.page_size_bytes) for i, one in enumerate(tensors)]])


def put_older(manager, *hashes):
    output = manager.prepare_store(list(hashes))
    manager.complete_store(output.block_hashes_to_store)
    return output.block_hashes_to_store, output.store_spec.block_ids.tolist(), output.block_hashes_evicted


def put_newer(manager, *given):
    output = manager.prepare_store(list(given), None)
    manager.complete_store(output.keys_to_store, None)
    return output.keys_to_store, output.store_spec.block_ids.tolist(), output.evicted_keys


def spec_of(world=1, rank=0, windows=(0,), slots=6, change=None, events=False, **extra):
    extra = {"cpu_bytes_to_use": slots * (4096 if IS_NEWER else 2 * PAGE * world), **extra}
    config = vllm_config(extra, world, rank, events)
    if change:
        change(config)
    if IS_NEWER:
        Config.current = config
        spec = offload.QuireOffloadingSpec(build_offloading_config(config, kv_config(windows)))
        spec.disk_config = config
        return spec
    return offload.QuireOffloadingSpec(config, kv_config(windows))


def caches():
    return [np.arange(NUM_BLOCKS * PAGE, dtype=np.uint8).reshape(NUM_BLOCKS, PAGE) + i for i in range(2)]


class Oldest(quire.connectors.EvictionPolicy):
    def __init__(self):
        self.slots = []

    def insert(self, slot, key):
        self.slots.append(slot)

    def evict(self, count, evictable, incoming):
        return [slot for slot in self.slots if slot in evictable][:count]


def spec_engine(spec):
    return spec.config.engine_id if IS_NEWER else spec.vllm_config.kv_transfer_config.engine_id
