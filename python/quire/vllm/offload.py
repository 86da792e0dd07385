"""vLLM 0.19.0's CPU offloading with quire's books: which blocks the tier holds and who goes, decided by the compiled ledger.

    vllm serve MODEL --kv-transfer-config '{"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config":
      {"spec_name": "QuireOffloadingSpec", "spec_module_path": "quire.vllm.offload", "cpu_bytes_to_use": 8000000000}}'

The decisions of `eviction_policy` lru and arc are vLLM's own; `arc_paper` and `s3fifo` are further ones, and "module:Class" is a
quire.connectors.EvictionPolicy of your own.
"""

import importlib
from collections.abc import Iterable

from vllm.v1.kv_offload.abstract import OffloadingEvent, OffloadingManager, PrepareStoreOutput
from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec
from vllm.v1.kv_offload.mediums import CPULoadStoreSpec

from quire._core import OffloadManager

NAME_BYTES = 32


class CPUOffloadingManager(OffloadingManager):
    """The arguments of vLLM's class of this name, and those of its FilterReusedOffloadingManager."""

    def __init__(self, block_size, num_blocks, cache_policy="lru", enable_events=False, store_threshold=0, max_tracker_size=64_000):
        self.block_size, self.medium = block_size, CPULoadStoreSpec.medium()
        if ":" in cache_policy:
            module, _, name = cache_policy.partition(":")
            cache_policy = getattr(importlib.import_module(module), name)()
        self.native = OffloadManager(num_blocks, cache_policy, store_threshold, max_tracker_size, enable_events)
        self._is_short = None  # the hashes: known with the first one

    def _names(self, hashes: Iterable[bytes]) -> list[bytes]:
        """The core's names have 32 bytes, as vLLM's default hash has. Shorter hashes are filled up, and their length put behind them."""
        names = list(hashes)
        if self._is_short is None and names:
            self._is_short = len(names[0]) < NAME_BYTES
        return [name.ljust(NAME_BYTES - 1, b"\0") + bytes([len(name)]) for name in names] if self._is_short else names

    def hashes(self, names):
        return [name[: name[-1]] for name in names] if self._is_short else names

    def lookup(self, block_hashes):
        return self.native.lookup(self._names(block_hashes))

    def prepare_load(self, block_hashes):
        names = self._names(block_hashes)
        self.native.use(names)  # all that vLLM tells of an admission; lru and arc go by touches
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


class QuireOffloadingSpec(CPUOffloadingSpec):
    """vLLM's CPU tier, whose manager is quire's; the copies are vLLM's."""

    def get_manager(self):
        if self._manager is None:
            events = self.vllm_config.kv_events_config
            self._manager = CPUOffloadingManager(
                block_size=self.gpu_block_size[0] * self.block_size_factor,
                num_blocks=self.num_blocks,
                cache_policy=self.eviction_policy,
                enable_events=events is not None and events.enable_kv_cache_events,
                store_threshold=int(self.extra_config.get("store_threshold", 0)),
                max_tracker_size=int(self.extra_config.get("max_tracker_size", 64_000)),
            )
        return self._manager
