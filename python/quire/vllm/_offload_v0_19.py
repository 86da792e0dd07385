"""quire.vllm.offload for vLLM 0.19.0: a CPUOffloadingSpec with the decisions of the native ledger, and a folder below host memory.

With `eviction_policy` lru or arc, the decisions are vLLM's own. `arc_paper` and `s3fifo` are additional policies, and "module:Class" is a
user's quire.connectors.EvictionPolicy. vLLM calls the manager on its engine's thread and the handlers in its workers. The manager does not
wait for the disk: blocks that it reports as loadable are in host memory.
"""

import atexit
import os
from collections import defaultdict
from collections.abc import Iterable

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import OffloadingConnectorStats
from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector
from vllm.platforms import current_platform
from vllm.v1.kv_offload.abstract import OffloadingEvent, OffloadingManager, PrepareStoreOutput
from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec
from vllm.v1.kv_offload.mediums import CPULoadStoreSpec, GPULoadStoreSpec

from quire._core import OffloadManager, TieredOffload
from quire.vllm._fingerprint import combined, configuration
from quire.vllm._host_region import HostRegion
from quire.vllm._offload_copies import NumberedSpec, device_handlers, host_handlers
from quire.vllm._offload_pages import page_layout
from quire.vllm._offload_checks import DiskProblemLogger, check_disk_options, check_hash_algorithm, logger, opened_or_none, policy_of

KEY_BYTES = 32


class CPUOffloadingManager(OffloadingManager):
    """Has the arguments of vLLM's class with this name, and of its FilterReusedOffloadingManager."""

    def __init__(self, block_size, num_blocks, cache_policy="lru", enable_events=False, store_threshold=0, max_tracker_size=64_000):
        self.block_size, self.medium = block_size, CPULoadStoreSpec.medium()
        self.native = OffloadManager(num_blocks, policy_of(cache_policy), store_threshold, max_tracker_size, enable_events)
        self._is_short = None  # whether hashes have fewer than 32 bytes; known after the first hash

    def _names(self, hashes: Iterable[bytes]) -> list[bytes]:
        """Returns the core's keys for vLLM's hashes. A key has 32 bytes, like vLLM's default hash; shorter hashes are padded, with their
        length in the last byte."""
        names = list(hashes)
        if self._is_short is None and names:
            self._is_short = len(names[0]) < KEY_BYTES
        return [name.ljust(KEY_BYTES - 1, b"\0") + bytes([len(name)]) for name in names] if self._is_short else names

    def hashes(self, names):
        return [name[: name[-1]] for name in names] if self._is_short else names

    def lookup(self, block_hashes):
        return self.native.lookup(self._names(block_hashes))

    def prepare_load(self, block_hashes):
        names = self._names(block_hashes)
        self.native.use(names)  # vLLM's only indication that a request was admitted; lru and arc use touches instead
        return CPULoadStoreSpec(self.native.prepare_load(names))

    def touch(self, block_hashes):
        self.native.touch(self._names(block_hashes))

    def complete_load(self, block_hashes):
        self.native.complete_load(self._names(block_hashes))

    def prepare_store(self, block_hashes):
        store = self.native.prepare_store(self._names(block_hashes))
        if store is None:
            return None
        names, slots, evicted = store
        return PrepareStoreOutput(
            block_hashes_to_store=self.hashes(names), store_spec=CPULoadStoreSpec(slots), block_hashes_evicted=self.hashes(evicted)
        )

    def complete_store(self, block_hashes, success=True):
        self.native.complete_store(self._names(block_hashes), success)

    def take_events(self):
        for names, removed in self.native.take_events():
            yield OffloadingEvent(block_hashes=self.hashes(names), block_size=self.block_size, medium=self.medium, removed=removed)


class TieredOffloadingManager(CPUOffloadingManager):
    """A manager with a folder below host memory. `native`: a TieredOffload."""

    def __init__(self, block_size, native):
        self.block_size, self.medium, self.native = block_size, CPULoadStoreSpec.medium(), native
        self._is_short = None
        self._reporter = DiskProblemLogger()

    def prepare_store(self, block_hashes):
        store = self.native.prepare_store(self._names(block_hashes))
        if store is None:
            return None
        names, slots, numbers, evicted = store
        return PrepareStoreOutput(
            block_hashes_to_store=self.hashes(names), store_spec=NumberedSpec(slots, numbers), block_hashes_evicted=self.hashes(evicted)
        )

    def take_events(self):
        self._reporter.report(self.native)
        yield from super().take_events()


class QuireOffloadingSpec(CPUOffloadingSpec):
    """vLLM's CPU tier with quire's manager, on GPUs and on CPUs, and a folder below host memory."""

    def __init__(self, vllm_config, kv_cache_config):
        super().__init__(vllm_config, kv_cache_config)
        self.disk_path = self.extra_config.get("disk_path")
        self._own_handlers = None
        if self.disk_path is not None:
            check_disk_options(self.extra_config, self.num_blocks, self.eviction_policy)
            check_hash_algorithm(vllm_config)

    def get_manager(self):
        if self._manager is None:
            self._manager = self._tiered_manager() if self.disk_path is not None else None
        if self._manager is None:
            self._manager = CPUOffloadingManager(num_blocks=self.num_blocks, **self._manager_options())
        return self._manager

    def _manager_options(self):
        events = self.vllm_config.kv_events_config
        return {
            "block_size": self.gpu_block_size[0] * self.block_size_factor,
            "cache_policy": self.eviction_policy,
            "enable_events": events is not None and events.enable_kv_cache_events,
            "store_threshold": int(self.extra_config.get("store_threshold", 0)),
            "max_tracker_size": int(self.extra_config.get("max_tracker_size", 64_000)),
        }

    def _tiered_manager(self):
        """Returns a manager with a folder, or None if the folder cannot be used: the engine then runs without it."""
        # Without this variable, vLLM chooses a new random root of all block hashes in each process. vLLM reads the variable once, later in
        # this process.
        os.environ.setdefault("PYTHONHASHSEED", "0")
        engine, world = self.vllm_config.kv_transfer_config.engine_id, self.vllm_config.parallel_config.world_size
        regions = [HostRegion.attach(engine, rank) for rank in range(world)]
        for rank in range(world):
            HostRegion.forget(engine, rank)
        options = self._manager_options()
        native = opened_or_none(
            lambda: TieredOffload(
                num_slots=min(region.num_slots for region in regions),
                pages=[tensor for region in regions for tensor in region.tensors],
                written=[region.written for region in regions],
                folder=self._folder(),
                budget_bytes=self.extra_config["disk_bytes_to_use"],
                fingerprint=self._fingerprint([region.layout for region in regions]),
                policy=options["cache_policy"],
                store_threshold=options["store_threshold"],
                max_tracked_keys=options["max_tracker_size"],
                enable_events=options["enable_events"],
            )
        )
        if native is None:
            return None
        atexit.register(native.close)
        stats = native.stats()
        logger.info("KV blocks on disk: %d slots in %s, host memory for %d blocks", stats["num_places"], self._folder(), self.num_blocks)
        return TieredOffloadingManager(options["block_size"], native)

    def _fingerprint(self, layouts):
        blocks = [list(self.gpu_block_size), self.block_size_factor, self.hash_block_size]
        return combined([configuration(self.vllm_config, blocks, self.extra_config.get("disk_model_id")), *layouts])

    def _folder(self):
        """Returns the folder. Each engine of a data-parallel deployment has a separate folder."""
        parallel = self.vllm_config.parallel_config
        return os.path.join(self.disk_path, f"dp{parallel.data_parallel_rank}") if parallel.data_parallel_size > 1 else self.disk_path

    def region(self, kv_caches) -> HostRegion:
        """Creates this worker's part of the tier."""
        return HostRegion.create(
            self.vllm_config.kv_transfer_config.engine_id,
            self.vllm_config.parallel_config.rank,
            self.num_blocks,
            [cache.page_size_bytes * self.block_size_factor for cache in kv_caches.tensors],
            page_layout(kv_caches),
            is_shared=self.disk_path is not None,
        )

    def get_handlers(self, kv_caches):
        if self.disk_path is None and current_platform.is_cuda_alike():
            yield from super().get_handlers(kv_caches)
            return
        if self._own_handlers is None:
            make = device_handlers if current_platform.is_cuda_alike() else host_handlers
            self._own_handlers = make(kv_caches, self.region(kv_caches), self.block_size_factor)
        to_host, to_device = self._own_handlers
        yield GPULoadStoreSpec, CPULoadStoreSpec, to_host
        yield CPULoadStoreSpec, GPULoadStoreSpec, to_device


class QuireOffloadingConnector(OffloadingConnector):
    """vLLM's connector, extended by metrics of the disk, because vLLM's class reports only the workers' statistics."""

    _last_stats = None

    def get_kv_connector_stats(self):
        manager = self.connector_scheduler.manager if self.connector_scheduler is not None else None
        if not isinstance(manager, TieredOffloadingManager):
            return super().get_kv_connector_stats()
        now, told = manager.native.stats(), self._last_stats or defaultdict(int)
        self._last_stats = now
        stats = OffloadingConnectorStats()
        for size, seconds, kind in [("bytes_read", "reading_s", ("DISK", "CPU")), ("bytes_written", "", ("CPU", "DISK"))]:
            if now[size] > told[size]:
                stats.record_transfer(now[size] - told[size], now[seconds] - told[seconds] if seconds else 0.0, kind)
        return None if stats.is_empty() else stats
