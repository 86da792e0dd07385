"""quire.vllm.offload for vLLM 0.32.0: a CPUOffloadingSpec with the decisions of the native ledger, and a folder below host memory.

vLLM calls the manager on its engine's thread and the worker in its workers. The manager does not wait for the disk: blocks that it reports
as a HIT are in host memory. The spec does not get vLLM's whole configuration, but a worker can read it, so worker 0 writes a digest of the
configuration into the header of its memory.
"""

import atexit
import os
from collections import defaultdict

import numpy as np
from vllm.config import get_current_vllm_config
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import OffloadingConnectorStats
from vllm.platforms import current_platform
from vllm.v1.kv_offload.base import (
    LookupResult,
    Medium,
    OffloadingCounterMetadata,
    OffloadingEvent,
    OffloadingManager,
    OffloadingWorker,
    PrepareStoreOutput,
    RequestOffloadingContext,
    TransferResult,
)
from vllm.v1.kv_offload.cpu.common import CPULoadStoreSpec
from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec

from quire._core import OffloadManager, TieredOffload, mark_written
from quire.vllm._fingerprint import combined, configuration
from quire.vllm._host_region import HostRegion
from quire.vllm._offload_pages import copier_of, device_pages, host_pages, page_layout
from quire.vllm._offload_checks import DiskProblemLogger, check_disk_options, check_hash_algorithm, logger, opened_or_none, policy_of

GROUP_BYTES = 4  # after the hash, in vLLM's keys
COUNTERS = {
    "vllm:kv_offload_disk_read_bytes": ("bytes_read", "Total number of bytes of KV blocks read from disk to host memory."),
    "vllm:kv_offload_disk_written_bytes": ("bytes_written", "Total number of bytes of KV blocks written from host memory to disk."),
    "vllm:kv_offload_disk_refused_blocks": ("num_refused", "Total number of KV blocks on disk that failed verification."),
    "vllm:kv_offload_disk_failed_blocks": ("num_failed", "Total number of KV blocks that the disk failed to read or to write."),
    "vllm:kv_offload_disk_dropped_blocks": ("num_dropped", "Total number of KV blocks that were evicted from host memory before they were written to disk."),
}


class NumberedSpec(CPULoadStoreSpec):
    """The slots to store to, and the number that is written for each slot when its block is stored."""

    def __init__(self, slots, numbers):
        super().__init__(slots)
        self.numbers = numbers


class EmptyTiers:
    """Replaces tiers that could not be opened again: contains no blocks and stores none."""

    def lookup(self, names):
        return 0

    def prepare_store(self, names):
        return None

    def take_events(self):
        return []

    def stats(self):
        return defaultdict(int)

    def touch(self, names):
        pass

    close = complete_load = complete_store = lambda self, *args: None


class LedgerOffloadingManager(OffloadingManager):
    """A manager with the core's ledger. native: an OffloadManager or a TieredOffload. make() creates a new one when all blocks must be
    dropped."""

    def __init__(self, native, make):
        self.native, self._make = native, make
        self._group, self._hash_bytes = None, 0  # known after the first key

    def _names(self, keys):
        keys = list(keys)
        if self._group is None and keys:
            self._group, self._hash_bytes = keys[0][-GROUP_BYTES:], len(keys[0]) - GROUP_BYTES
        return [key[:-GROUP_BYTES] for key in keys]

    def _keys(self, names):
        return [name[: self._hash_bytes] + self._group for name in names]

    def on_new_request(self, req_context):
        return RequestOffloadingContext()

    def lookup(self, key, req_context):
        found = self.native.lookup(self._names([key]))
        return LookupResult.RETRY if found is None else LookupResult.HIT if found else LookupResult.MISS

    def prepare_load(self, keys, req_context):
        names = self._names(keys)
        self.native.use(names)
        return CPULoadStoreSpec(self.native.prepare_load(names))

    def touch(self, keys, req_context):
        self.native.touch(self._names(keys))

    def complete_load(self, keys, req_context):
        self.native.complete_load(self._names(keys))

    def prepare_store(self, keys, req_context):
        store = self.native.prepare_store(self._names(keys))
        if store is None:
            return None
        names, slots, *numbers, evicted = store
        target = NumberedSpec(slots, *numbers) if numbers else CPULoadStoreSpec(slots)
        return PrepareStoreOutput(keys_to_store=self._keys(names), store_spec=target, evicted_keys=self._keys(evicted))

    def complete_store(self, keys, req_context, success=True):
        self.native.complete_store(self._names(keys), success)

    def take_events(self):
        for names, removed in self.native.take_events():
            yield OffloadingEvent(keys=self._keys(names), medium=Medium.CPU, removed=removed)

    def reset_cache(self):
        self.native = self._make()


class TieredOffloadingManager(LedgerOffloadingManager):
    """A manager with a folder below host memory. A reset also empties the folder."""

    def __init__(self, native, make):
        super().__init__(native, make)
        self._last_stats, self._reporter = {}, DiskProblemLogger()
        atexit.register(self.shutdown)

    def take_events(self):
        self._reporter.report(self.native)
        yield from super().take_events()

    def get_stats(self):
        stats, now = OffloadingConnectorStats(), self.native.stats()
        for name, (key, _) in COUNTERS.items():
            if now[key] > self._last_stats.get(key, 0):
                stats.increase_counter(name, now[key] - self._last_stats.get(key, 0))
        self._last_stats = now
        return stats

    def reset_cache(self):
        """Empties the tier. Also deletes the blocks on disk, because the weights may have changed."""
        self.native.close()
        self._last_stats = {}
        self.native = opened_or_none(self._make) or EmptyTiers()

    def shutdown(self):
        self.native.close()


class HostCopyWorker(OffloadingWorker):
    """Copies blocks of a KV cache in host memory with a native thread, without the GIL."""

    def __init__(self, copier, blocks_per_chunk):
        self.copier, self.blocks_per_chunk = copier, blocks_per_chunk

    def _submit(self, job_id, to_host, device, host):
        pages = (host.block_ids[:, None].astype(np.int64) * self.blocks_per_chunk + np.arange(self.blocks_per_chunk)).ravel()
        first = device.block_indices[0] % self.blocks_per_chunk
        pages = pages[first : first + len(device.block_ids)]
        is_numbered = isinstance(host, NumberedSpec)
        slots, numbers = (host.block_ids.tolist(), host.numbers) if is_numbered else ([], [])
        self.copier.submit(job_id, to_host, device.block_ids.tolist(), pages.tolist(), slots, numbers)
        return True

    def submit_store(self, job_id, src_spec, dst_spec):
        return self._submit(job_id, True, src_spec, dst_spec)

    def submit_load(self, job_id, src_spec, dst_spec):
        return self._submit(job_id, False, dst_spec, src_spec)

    def get_finished(self):
        return [
            TransferResult(job_id=job, success=True, transfer_size=size, transfer_time=seconds)
            for job, size, seconds in self.copier.take_over(True) + self.copier.take_over(False)
        ]

    def wait(self, job_ids):
        self.copier.wait(list(job_ids))


class DeviceCopyWorker(OffloadingWorker):
    """Copies blocks of a KV cache on a device with vLLM's handlers, and reports the copies that have ended."""

    def __init__(self, kv_caches, region, blocks_per_chunk):
        from vllm.v1.kv_offload.cpu.gpu_worker import SingleDirectionOffloadingHandler
        from vllm.v1.kv_offload.cpu.host_register import host_register

        common = {
            "blocks_per_chunk": blocks_per_chunk,
            "layer_refs_per_group": kv_caches.group_data_refs,
            # Without pinned memory, copies are correct but slower.
            "host_memory_is_pinned": host_register(region.address, region.num_bytes),
        }
        self._written, self._written_numbers = region.written, {}
        self._is_pinned_at = region.address if common["host_memory_is_pinned"] else None
        self.stores, self.loads = (
            SingleDirectionOffloadingHandler(gpu_tensors=device_pages(kv_caches), cpu_tensors=host_pages(region), gpu_to_cpu=gpu_to_cpu, **common)
            for gpu_to_cpu in (True, False)
        )

    def submit_store(self, job_id, src_spec, dst_spec):
        if isinstance(dst_spec, NumberedSpec):
            self._written_numbers[job_id] = (dst_spec.block_ids.tolist(), dst_spec.numbers)
        return self.stores.transfer_async(job_id, src_spec, dst_spec)

    def submit_load(self, job_id, src_spec, dst_spec):
        return self.loads.transfer_async(job_id, src_spec, dst_spec)

    def take_stores(self):
        stored = self.stores.get_finished()
        for result in stored:
            if result.job_id in self._written_numbers:
                mark_written(self._written, *self._written_numbers.pop(result.job_id))
        return stored

    def get_finished(self):
        return self.take_stores() + self.loads.get_finished()

    def wait(self, job_ids):
        self.stores.wait(job_ids)
        self.loads.wait(job_ids)

    def shutdown(self):
        from vllm.v1.kv_offload.cpu.host_register import host_unregister

        self.stores.shutdown()
        self.loads.shutdown()
        if self._is_pinned_at is not None:
            host_unregister(self._is_pinned_at)
            self._is_pinned_at = None


class QuireOffloadingSpec(CPUOffloadingSpec):
    """Replaces the manager of vLLM's CPU offloading tier by quire's. Also works on vLLM's CPU backend. With `disk_path`, a disk tier in this
    folder extends host memory."""

    @classmethod
    def build_metric_definitions(cls, extra_config):
        return super().build_metric_definitions(extra_config) | {
            name: OffloadingCounterMetadata(documentation=text) for name, (_, text) in COUNTERS.items()
        }

    def __init__(self, config):
        super().__init__(config)
        self.disk_path = self.extra_config.get("disk_path")
        self.check_supported()
        if self.disk_path is not None:
            check_disk_options(self.extra_config, self.num_chunks, self.eviction_policy)

    def check_supported(self) -> None:
        if current_platform.is_xpu():
            raise ValueError("spec_name: QuireOffloadingSpec is not tested on Intel GPUs; use TieringOffloadingSpec")
        if len(self.config.groups) != 1:
            raise ValueError(
                "spec_name: QuireOffloadingSpec does not support several KV cache groups under this vLLM; set --disable-hybrid-kv-cache-manager, "
                "or use quire.vllm.Connector"
            )
        if int(self.extra_config.get("store_threshold", 0)) >= 2:
            raise ValueError("store_threshold: QuireOffloadingSpec does not support it under this vLLM; leave it out")
        for name in ("canonical_layout", "cache_policy_module_path"):
            if self.extra_config.get(name):
                raise ValueError(f"{name}: QuireOffloadingSpec does not support it; leave it out")

    def full_vllm_config(self):
        return get_current_vllm_config()

    def _uses_shared_region(self):
        return False  # every worker has separate memory and writes all of it

    def get_manager(self):
        if self._manager is None:
            self._manager = self._tiered_manager() if self.disk_path is not None else None
        if self._manager is None:
            self._manager = LedgerOffloadingManager(self._ledger(), self._ledger)
        return self._manager

    def _ledger(self) -> OffloadManager:
        extra = self.extra_config
        threshold, tracked = int(extra.get("store_threshold", 0)), int(extra.get("max_tracker_size", 64_000))
        return OffloadManager(self.num_chunks, policy_of(self.eviction_policy), threshold, tracked, self.kv_events_config.enable_kv_cache_events)

    def _tiered_manager(self) -> TieredOffloadingManager | None:
        """Returns a manager with a folder, or None if the folder cannot be used: the engine then runs without it."""
        world, engine = self.config.parallel.world_size, self.config.engine_id
        regions = [HostRegion.attach(engine, rank) for rank in range(world)]
        for rank in range(world):
            HostRegion.forget(engine, rank)
        native = opened_or_none(lambda: self._open(regions))
        if native is None:
            return None
        logger.info("KV blocks on disk: %d slots in %s", native.stats()["num_places"], self._folder())
        return TieredOffloadingManager(native, lambda: self._open_empty(regions))

    def _open(self, regions):
        return TieredOffload(
            num_slots=min(region.num_slots for region in regions),
            pages=[tensor for region in regions for tensor in region.tensors],
            written=[region.written for region in regions],
            folder=self._folder(),
            budget_bytes=self.extra_config["disk_bytes_to_use"],
            fingerprint=combined([region.layout for region in regions]),
            policy=self.eviction_policy,
            store_threshold=int(self.extra_config.get("store_threshold", 0)),
            max_tracked_keys=int(self.extra_config.get("max_tracker_size", 64_000)),
            enable_events=self.kv_events_config.enable_kv_cache_events,
        )

    def _open_empty(self, regions):
        for name in ("quire-table", "quire-blocks"):
            if os.path.exists(os.path.join(self._folder(), name)):
                os.unlink(os.path.join(self._folder(), name))
        return self._open(regions)

    def _folder(self):
        """Returns the folder. Each engine of a data-parallel deployment has a separate folder."""
        parallel = self.config.parallel
        return os.path.join(self.disk_path, f"dp{parallel.data_parallel_index}") if parallel.data_parallel_size > 1 else self.disk_path

    def region(self, kv_caches) -> HostRegion:
        """Creates this worker's part of the tier."""
        has_disk = self.disk_path is not None
        return HostRegion.create(
            self.config.engine_id,
            self.config.parallel.rank,
            self.num_chunks,
            [cache.page_size_bytes * self.blocks_per_chunk for cache in kv_caches.tensors],
            self._layout(kv_caches) if has_disk else "",
            is_shared=has_disk,
        )

    def _layout(self, kv_caches) -> str:
        vllm_config = self.full_vllm_config()
        check_hash_algorithm(vllm_config)
        parts = [page_layout(kv_caches), str(self.config.kv_cache_layout)]
        if self.config.parallel.rank == 0:
            blocks = [list(self.tokens_per_block), self.blocks_per_chunk, self.tokens_per_hash]
            parts.append(configuration(vllm_config, blocks, self.extra_config.get("disk_model_id")))
        return " ".join(parts)

    def get_worker(self, kv_caches):
        if self._worker is None:
            region = self.region(kv_caches)
            if current_platform.is_cuda_alike():
                self._worker = DeviceCopyWorker(kv_caches, region, self.blocks_per_chunk)
            else:
                self._worker = HostCopyWorker(copier_of(kv_caches, region), self.blocks_per_chunk)
        return self._worker
