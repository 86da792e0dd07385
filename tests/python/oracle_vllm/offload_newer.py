"""vLLM 0.32.0's classes for KV offloading, with the same names, fields and arguments."""

import enum
import mmap

import numpy as np

from . import offload, values
from .offload import members as members_of_older
from .values import record

OffloadingGroupConfig = record("OffloadingGroupConfig", "tokens_per_block", "layer_names", "group_id")
OffloadingCacheConfig = record("OffloadingCacheConfig", "tokens_per_hash", "blocks_per_chunk")
OffloadingParallelConfig = record("OffloadingParallelConfig", "rank", "world_size", "data_parallel_index", "data_parallel_size")
OffloadingConfig = record(
    "OffloadingConfig", "groups", "worker_kv_bytes_per_block", "enable_kv_cache_events", "extra_config", "engine_id", "cache", "parallel",
    kv_cache_layout=None,
)  # fmt: skip
OffloadingKVEventsConfig = record("OffloadingKVEventsConfig", "enable_kv_cache_events", "self_describing_kv_events")
OffloadingCounterMetadata = record("OffloadingCounterMetadata", "documentation", labelnames=tuple)
OffloadingGaugeMetadata = record("OffloadingGaugeMetadata", "documentation", labelnames=tuple)
PrepareStoreOutput = record("PrepareStoreOutput", "keys_to_store", "store_spec", "evicted_keys")
OffloadingEvent = record("OffloadingEvent", "keys", "medium", "removed", locality=None, ownership=None, removal_expected=False)
TransferResult = record("TransferResult", "job_id", "success", transfer_size=None, transfer_time=None)
CanonicalKVCacheRef = record("CanonicalKVCacheRef", "tensor_idx", "page_size_bytes", mapping=None)
KVConnectorTransferResults = record("KVConnectorTransferResults", finished_sending=set, finished_recving=set, failed_recving=set)


class Medium(enum.Enum):
    CPU = "CPU"
    STORAGE = "STORAGE"


class LookupResult(enum.Enum):
    MISS, HIT, HIT_PENDING, RETRY = range(1, 5)


class OffloadPolicy(enum.Enum):
    CHUNK_LEVEL = "chunk_level"
    REQUEST_LEVEL = "request_level"


RequestOffloadingContext = record("RequestOffloadingContext", policy=OffloadPolicy.CHUNK_LEVEL)


class CacheHitSource(str, enum.Enum):
    DEVICE = "device"
    HOST = "host"
    P2P = "p2p"
    DISK = "disk"
    EXTERNAL_UNSPECIFIED = "external_unspecified"


class BlockIDsLoadStoreSpec(offload.LoadStoreSpec):
    def __init__(self, block_ids):
        self.block_ids = np.array(block_ids, dtype=np.int32)


class GPULoadStoreSpec(BlockIDsLoadStoreSpec):
    def __init__(self, block_ids, group_sizes, block_indices):
        super().__init__(block_ids)
        assert sum(group_sizes) == len(block_ids) and len(block_indices) == len(group_sizes)
        self.group_sizes, self.block_indices = group_sizes, block_indices


class CPULoadStoreSpec(BlockIDsLoadStoreSpec):
    pass


class OffloadingManager(offload.OffloadingManager):
    def shutdown(self):
        return None


class OffloadingWorker:
    def shutdown(self):
        return None


class SingleDirectionOffloadingHandler(offload.SingleDirectionOffloadingHandler):
    def __init__(self, gpu_tensors, cpu_tensors, blocks_per_chunk, layer_refs_per_group, gpu_to_cpu, canonical_layout=False,
                 host_memory_is_pinned=True):  # fmt: skip
        self._prepare(gpu_tensors, cpu_tensors, blocks_per_chunk, gpu_to_cpu)
        self.num_groups, self.host_memory_is_pinned, self.is_shut_down = len(layer_refs_per_group), host_memory_is_pinned, False

    def transfer_async(self, job_id, src_spec, dst_spec) -> bool:
        return self._queue(job_id, *((src_spec, dst_spec) if self.gpu_to_cpu else (dst_spec, src_spec)))

    def _skipped(self, device, host) -> int:
        assert len(device.group_sizes) == len(device.block_indices) == self.num_groups
        return device.block_indices[0] % self._factor

    def _result(self, job_id, size):
        return TransferResult(job_id, True, size, 0.5)

    def shutdown(self) -> None:
        self.is_shut_down = True


class HostRegister:
    """Registered memory: address -> bytes. Tests set `works`."""

    works, registered = True, {}

    @classmethod
    def host_register(cls, ptr: int, num_bytes: int) -> bool:
        if cls.works:
            cls.registered[ptr] = num_bytes
        return cls.works

    @classmethod
    def host_unregister(cls, ptr: int) -> None:
        del cls.registered[ptr]


class CPUOffloadingSpec:
    @classmethod
    def build_metric_definitions(cls, extra_config) -> dict:
        return {"vllm:kv_offload_cpu_cache_usage_perc": OffloadingGaugeMetadata("Usage")}

    def __init__(self, config):
        self.config, self.extra_config = config, config.extra_config
        self.replicated_layout = False
        self.kv_events_config = OffloadingKVEventsConfig(config.enable_kv_cache_events, bool(self.extra_config.get("self_describing_kv_events")))
        self.tokens_per_block = tuple(group.tokens_per_block for group in config.groups)
        self.tokens_per_hash, self.blocks_per_chunk = config.cache.tokens_per_hash, config.cache.blocks_per_chunk
        chunk = config.worker_kv_bytes_per_block * config.parallel.world_size * self.blocks_per_chunk
        aligned = -(-chunk // mmap.PAGESIZE) * mmap.PAGESIZE
        self.num_chunks = int(self.extra_config["cpu_bytes_to_use"]) // aligned if aligned else 0
        self._manager = self._worker = None
        self.eviction_policy = self.extra_config.get("eviction_policy", "lru")


def build_offloading_config(vllm_config, kv_cache_config):
    transfer, parallel = vllm_config.kv_transfer_config, vllm_config.parallel_config
    groups = [OffloadingGroupConfig(one.kv_cache_spec.block_size, tuple(one.layer_names), i) for i, one in enumerate(kv_cache_config.kv_cache_groups)]
    tokens = groups[0].tokens_per_block
    return OffloadingConfig(
        groups=tuple(groups),
        worker_kv_bytes_per_block=sum(tensor.size for tensor in kv_cache_config.kv_cache_tensors) // kv_cache_config.num_blocks,
        enable_kv_cache_events=vllm_config.kv_events_config is not None and vllm_config.kv_events_config.enable_kv_cache_events,
        extra_config=transfer.kv_connector_extra_config,
        engine_id=transfer.engine_id,
        cache=OffloadingCacheConfig(tokens, int(transfer.kv_connector_extra_config.get("block_size", tokens)) // tokens),
        parallel=OffloadingParallelConfig(parallel.rank, parallel.world_size, parallel.data_parallel_index, parallel.data_parallel_size),
        kv_cache_layout=vllm_config.cache_config.kv_cache_layout,
    )


class OffloadingConnectorWorker:
    def __init__(self, spec, vllm_config, kv_cache_config):
        self.spec, self.vllm_config, self.kv_cache_config = spec, vllm_config, kv_cache_config

    def register_kv_caches(self, kv_caches):
        self._init_worker(offload._caches_of(self.kv_cache_config, kv_caches, CanonicalKVCacheRef))


class OffloadingConnectorStats(offload.KVConnectorStats):
    """{"types": {name: kind}, "data": {name: {label values: value}}}"""

    def __post_init__(self):
        if "data" not in self.data:
            self.data = {"types": {}, "data": {}}

    @property
    def _values(self) -> dict:
        return self.data["data"]

    def is_empty(self) -> bool:
        return not self._values

    def increase_counter(self, counter_name, counter_increase_value=1, labelvalues=()) -> None:
        self._add("counter", counter_name, labelvalues, counter_increase_value)

    def observe_histogram(self, histogram_name, histogram_value, labelvalues=()) -> None:
        self._add("histogram", histogram_name, labelvalues, [histogram_value])

    def _add(self, kind, name, labels, value) -> None:
        assert self.data["types"].setdefault(name, kind) == kind
        by_labels = self._values.setdefault(name, {})
        by_labels[labels] = by_labels[labels] + value if labels in by_labels else value

    def aggregate(self, other):
        for name, by_labels in other._values.items():
            for labels, value in by_labels.items():
                self._add(other.data["types"][name], name, labels, value)
        return self

    def reduce(self) -> dict:
        totals = {}
        for name, by_labels in self._values.items():
            for value in by_labels.values():
                if isinstance(value, list):
                    totals |= {f"{name}_count": len(value), f"{name}_sum": sum(value)}
                else:
                    totals[name] = value
        return totals


class OffloadPromMetrics(offload.KVConnectorPromMetrics):
    def __init__(self, vllm_config, metric_types, labelnames, per_engine_labelvalues):
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        names = [f"vllm:kv_offload_{way}_{what}" for way in ("load", "store") for what in ("bytes", "time", "size")]
        self._offloading_metric_metadata = {name: OffloadingCounterMetadata(name) for name in names}
        self._offloading_metric_defs = {name: self._create_metric(name, one) for name, one in self._offloading_metric_metadata.items()}
        names = [*labelnames, "transfer_type"]
        self._old_bytes = self._counter_cls(name="vllm:kv_offload_total_bytes", documentation="Bytes", labelnames=names)

    def _create_metric(self, name, metadata):
        kind = self._histogram_cls if name.endswith("_size") else self._counter_cls
        return kind(name=name, documentation=metadata.documentation, labelnames=[*self._labelnames, *metadata.labelnames])

    def observe(self, transfer_stats_data, engine_idx=0):
        for name, by_labels in transfer_stats_data["data"].items():
            for labels, value in by_labels.items():
                metric = self._offloading_metric_defs[name].labels(*self.per_engine_labelvalues[engine_idx], *labels)
                for one in value if isinstance(value, list) else (value,):
                    (metric.observe if isinstance(value, list) else metric.inc)(one)
                if name in ("vllm:kv_offload_load_bytes", "vllm:kv_offload_store_bytes"):
                    kind = "CPU_to_GPU" if "load" in name else "GPU_to_CPU"
                    self._old_bytes.labels(*self.per_engine_labelvalues[engine_idx], kind).inc(value)


RSWASpec = values.spec("RSWASpec", bases=(values.FullAttentionSpec,), **values.FULL, rswa_window=0)
HiddenStateCacheSpec = values.spec("HiddenStateCacheSpec", bases=(values.MLAAttentionSpec,), **values.FULL, cache_dtype_str=None)


def iter_layer_specs(spec):
    return spec.kv_cache_specs.values() if isinstance(spec, offload.UniformTypeKVCacheSpecs) else (spec,)


class Config:
    """vLLM's whole configuration, as a worker reads it. Tests set `current`."""

    current = None

    @classmethod
    def get_current_vllm_config(cls):
        assert cls.current is not None, "Current vLLM config is not set"
        return cls.current


def members(names: str) -> dict:
    return {name: globals()[name] for name in names.split()}


def modules() -> dict:
    connectors, kv = "vllm.distributed.kv_transfer.kv_connector.v1", "vllm.v1.kv_offload"
    base = members(
        "LookupResult Medium OffloadingCounterMetadata OffloadingGaugeMetadata OffloadingEvent OffloadingManager OffloadingWorker "
        "PrepareStoreOutput RequestOffloadingContext OffloadPolicy TransferResult BlockIDsLoadStoreSpec GPULoadStoreSpec CanonicalKVCacheRef"
    )
    return {
        f"{connectors}.offloading.metrics": members("OffloadingConnectorStats OffloadPromMetrics"),
        f"{connectors}.offloading.worker": members("OffloadingConnectorWorker"),
        f"{connectors}.offloading.config": members("build_offloading_config"),
        f"{kv}.base": base | members_of_older("LoadStoreSpec CanonicalKVCaches CanonicalKVCacheTensor"),
        f"{kv}.cpu.common": members("CPULoadStoreSpec"),
        f"{kv}.cpu.spec": members("CPUOffloadingSpec"),
        f"{kv}.cpu.gpu_worker": members("SingleDirectionOffloadingHandler"),
        f"{kv}.cpu.host_register": {"host_register": HostRegister.host_register, "host_unregister": HostRegister.host_unregister},
        "vllm.config": {"get_current_vllm_config": Config.get_current_vllm_config},
        "vllm.v1.metrics.cache_hit_source": members("CacheHitSource"),
        "vllm.platforms": {"current_platform": offload.Platform()},
    }
