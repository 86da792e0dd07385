"""vLLM's classes for KV connectors and KV offloading, with the same names, fields and arguments: the parts of 0.19.0, and the parts that
both versions have. Differences of 0.32.0: offload_newer.py.
"""

import dataclasses
import enum
from types import SimpleNamespace

import numpy as np

from . import tensors, values
from .values import record


class Role(enum.Enum):
    SCHEDULER = 0
    WORKER = 1


class Platform:
    """vLLM's current_platform. Tests set `kind`."""

    kind = "cpu"

    def is_cuda_alike(self) -> bool:
        return self.kind == "cuda"

    def is_xpu(self) -> bool:
        return self.kind == "xpu"


class SupportsHMA:
    pass


class KVConnectorBase_V1:
    def __init__(self, vllm_config, role, kv_cache_config=None):
        self._connector_metadata = None
        self._vllm_config, self._role, self._kv_cache_config = vllm_config, role, kv_cache_config
        self._kv_transfer_config = vllm_config.kv_transfer_config

    @property
    def role(self):
        return self._role

    @property
    def prefer_cross_layer_blocks(self) -> bool:
        return False

    def bind_connector_metadata(self, connector_metadata) -> None:
        self._connector_metadata = connector_metadata

    def clear_connector_metadata(self) -> None:
        self._connector_metadata = None

    def shutdown(self):
        return None


# The metrics.


class KVConnectorStats:
    def __init__(self, data=None):
        self.data = data or {}
        self.__post_init__()

    def __post_init__(self):
        pass

    def to_dict(self):  # vLLM 0.32.0
        return self.data


class OffloadingConnectorStats(KVConnectorStats):
    """0.19.0: {"CPU_to_GPU": [{"op_size", "op_time"}, ...]} after the data was sent to another process."""

    def is_empty(self) -> bool:
        return not self.data

    def record_transfer(self, num_bytes, time, transfer_type):
        self.data.setdefault("_to_".join(transfer_type), []).append(SimpleNamespace(op_size=num_bytes, op_time=time))

    def aggregate(self, other):
        for kind, transfers in other.data.items():
            self.data[kind] = self.data.get(kind, []) + transfers
        return self

    def reduce(self) -> dict:
        totals = {}
        for kind, transfers in self.data.items():
            for name, field in (("bytes", "op_size"), ("time", "op_time")):
                totals[f"{kind}_total_{name}"] = sum(one[field] for one in transfers)
        return totals


class KVConnectorPromMetrics:
    """`metric_types`: a class for each of the names Gauge, Counter and Histogram (of prometheus_client in vLLM)."""

    def __init__(self, vllm_config, metric_types, labelnames, per_engine_labelvalues):
        by_name = {kind if isinstance(kind, str) else kind.__name__: made for kind, made in metric_types.items()}
        self._gauge_cls, self._counter_cls, self._histogram_cls = (by_name[name] for name in ("Gauge", "Counter", "Histogram"))
        self._labelnames, self.per_engine_labelvalues = labelnames, per_engine_labelvalues


class OffloadPromMetrics(KVConnectorPromMetrics):
    def __init__(self, vllm_config, metric_types, labelnames, per_engine_labelvalues):
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        names = [*labelnames, "transfer_type"]
        self._bytes = self._counter_cls(name="vllm:kv_offload_total_bytes", documentation="Bytes", labelnames=names)
        self._time = self._counter_cls(name="vllm:kv_offload_total_time", documentation="Time", labelnames=names)
        self._size = self._histogram_cls(name="vllm:kv_offload_size", documentation="Sizes", labelnames=names)

    def observe(self, transfer_stats_data, engine_idx=0):
        for kind, transfers in transfer_stats_data.items():
            labels = [*self.per_engine_labelvalues[engine_idx], kind]
            for one in transfers:
                self._bytes.labels(*labels).inc(one["op_size"])
                self._time.labels(*labels).inc(one["op_time"])
                self._size.labels(*labels).observe(one["op_size"])


# Specs of loads and stores.


class LoadStoreSpec:
    pass


class BlockIDsLoadStoreSpec(LoadStoreSpec):
    integer = np.int64

    def __init__(self, block_ids):
        self.block_ids = np.array(block_ids, dtype=self.integer)


class GPULoadStoreSpec(BlockIDsLoadStoreSpec):
    def __init__(self, block_ids, group_sizes, block_indices=None):
        super().__init__(block_ids)
        assert sum(group_sizes) == len(block_ids)
        assert block_indices is None or len(block_indices) == len(group_sizes)
        self.group_sizes, self.block_indices = group_sizes, block_indices

    @staticmethod
    def medium() -> str:
        return "GPU"


class CPULoadStoreSpec(BlockIDsLoadStoreSpec):
    @staticmethod
    def medium() -> str:
        return "CPU"


class OffloadingManager:
    pass


class OffloadingHandler:
    pass


PrepareStoreOutput = record("PrepareStoreOutput", "block_hashes_to_store", "store_spec", "block_hashes_evicted")
OffloadingEvent = record("OffloadingEvent", "block_hashes", "block_size", "medium", "removed")
TransferResult = record("TransferResult", "job_id", "success", transfer_size=None, transfer_time=None, transfer_type=None)
CanonicalKVCacheTensor = record("CanonicalKVCacheTensor", "tensor", "page_size_bytes")
CanonicalKVCacheRef = record("CanonicalKVCacheRef", "tensor_idx", "page_size_bytes")
CanonicalKVCaches = record("CanonicalKVCaches", "tensors", "group_data_refs")
KVCacheTensor = record("KVCacheTensor", "size", "shared_by")


def copied_rows(numbers, factor: int, skipped: int, count: int) -> list:
    """Returns the pages of slots that have `factor` pages each."""
    return [number * factor + part for number in numbers.tolist() for part in range(factor)][skipped : skipped + count]


class SingleDirectionOffloadingHandler(OffloadingHandler):
    """vLLM's copies on a device. Here they are made by wait() or get_finished(), one after the other."""

    def __init__(self, gpu_tensors, cpu_tensors, block_size_factor, kv_cache_groups_data_refs, gpu_to_cpu):
        assert len(kv_cache_groups_data_refs) == 1
        self._prepare(gpu_tensors, cpu_tensors, block_size_factor, gpu_to_cpu)
        self.transfer_type = ("GPU", "CPU") if gpu_to_cpu else ("CPU", "GPU")

    def _prepare(self, gpu_tensors, cpu_tensors, factor, gpu_to_cpu):
        assert len(gpu_tensors) == len(cpu_tensors) > 0
        for device, host in zip(gpu_tensors, cpu_tensors):
            assert device.array.dtype == host.array.dtype == np.int8 and len(device.shape) == len(host.shape) == 2
            assert device.device.type != "cpu" and host.device.type == "cpu"
            assert host.shape[1] == device.shape[1] * factor
        self._device = [tensor.array for tensor in gpu_tensors]
        self._host = [tensor.array.reshape(-1, device.shape[1]) for tensor, device in zip(cpu_tensors, self._device)]
        self._factor, self.gpu_to_cpu = factor, gpu_to_cpu
        self._queued, self._ended, self._stream_pool, self.waited = [], [], [], []

    def _skipped(self, device, host) -> int:
        return -len(device.block_ids) % self._factor

    def transfer_async(self, job_id, transfer_spec) -> bool:
        source, target = transfer_spec
        return self._queue(job_id, *((source, target) if self.gpu_to_cpu else (target, source)))

    def _queue(self, job_id, device, host) -> bool:
        rows = copied_rows(host.block_ids, self._factor, self._skipped(device, host), len(device.block_ids))
        assert len(rows) == len(device.block_ids)
        self._queued.append((job_id, device.block_ids.tolist(), rows))
        return True

    def _copy(self) -> None:
        for job_id, pages, rows in self._queued:
            for device, host in zip(self._device, self._host):
                if self.gpu_to_cpu:
                    host[rows] = device[pages]
                else:
                    device[pages] = host[rows]
            self._ended.append(self._result(job_id, len(pages) * sum(device.shape[1] for device in self._device)))
        self._queued.clear()

    def _result(self, job_id, size):
        return TransferResult(job_id, True, size, 0.5, self.transfer_type)

    def get_finished(self) -> list:
        self._copy()
        ended, self._ended = self._ended, []
        return ended

    def wait(self, job_ids) -> None:
        self.waited.append(sorted(job_ids))
        self._copy()


class CPUOffloadingSpec:
    def __init__(self, vllm_config, kv_cache_config):
        self.vllm_config, self.kv_cache_config = vllm_config, kv_cache_config
        self.extra_config = vllm_config.kv_transfer_config.kv_connector_extra_config
        self.hash_block_size = vllm_config.cache_config.block_size
        self.gpu_block_size = tuple(group.kv_cache_spec.block_size for group in kv_cache_config.kv_cache_groups)
        self.block_size_factor = int(self.extra_config.get("block_size", self.gpu_block_size[0])) // self.gpu_block_size[0]
        (page,) = {group.kv_cache_spec.page_size_bytes for group in kv_cache_config.kv_cache_groups}
        block = page * len(kv_cache_config.kv_cache_tensors) * vllm_config.parallel_config.world_size * self.block_size_factor
        self.num_blocks = int(self.extra_config["cpu_bytes_to_use"]) // block
        self._manager = self._handlers = None
        self.eviction_policy = self.extra_config.get("eviction_policy", "lru")

    def get_handlers(self, kv_caches):
        device = [one.tensor.view(np.int8).view(-1, one.page_size_bytes) for one in kv_caches.tensors]
        host = [tensors.Tensor(np.zeros((self.num_blocks, one.shape[1] * self.block_size_factor), np.int8)) for one in device]
        refs = kv_caches.group_data_refs
        to_host, to_device = (SingleDirectionOffloadingHandler(device, host, self.block_size_factor, refs, way) for way in (True, False))
        yield GPULoadStoreSpec, CPULoadStoreSpec, to_host
        yield CPULoadStoreSpec, GPULoadStoreSpec, to_device


class OffloadingConnector(KVConnectorBase_V1):
    """Only the parts that quire's subclass reads."""

    connector_scheduler = connector_worker = None

    def get_kv_connector_stats(self):
        return None if self.connector_worker is None else self.connector_worker.get_kv_connector_stats()


def _caches_of(kv_cache_config, kv_caches: dict, ref) -> CanonicalKVCaches:
    """Returns the caches with one tensor per KVCacheTensor. kv_caches: layer -> Tensor with a row per block."""
    tensors, refs = [], {}
    for index, shared in enumerate(kv_cache_config.kv_cache_tensors):
        tensor = kv_caches[shared.shared_by[0]]
        page = tensor.array.nbytes // tensor.shape[0]
        tensors.append(CanonicalKVCacheTensor(tensor, page))
        refs.update(dict.fromkeys(shared.shared_by, ref(index, page)))
    return CanonicalKVCaches(tensors, [[refs[layer] for layer in group.layer_names] for group in kv_cache_config.kv_cache_groups])


class OffloadingConnectorWorker:
    def __init__(self, spec):
        self.spec = spec

    def register_kv_caches(self, kv_caches):
        self._register_handlers(_caches_of(self.spec.kv_cache_config, kv_caches, CanonicalKVCacheRef))

    def register_cross_layers_kv_cache(self, kv_cache, attn_backend):
        page = kv_cache.array.nbytes // kv_cache.shape[0]
        self._register_handlers(CanonicalKVCaches([CanonicalKVCacheTensor(kv_cache, page)], [[CanonicalKVCacheRef(0, page)]]))


@dataclasses.dataclass
class UniformTypeKVCacheSpecs:
    block_size: int
    kv_cache_specs: dict

    @property
    def page_size_bytes(self) -> int:
        return sum(spec.page_size_bytes for spec in self.kv_cache_specs.values())


def page_size_bytes(spec) -> int:
    return spec.page_size_padded or 2 * spec.block_size * spec.num_kv_heads * spec.head_size * spec.dtype.itemsize


values.AttentionSpec.page_size_bytes = property(page_size_bytes)


def members(names: str) -> dict:
    return {name: globals()[name] for name in names.split()}


def modules() -> dict:
    connectors, offload = "vllm.distributed.kv_transfer.kv_connector.v1", "vllm.v1.kv_offload"
    return {
        f"{connectors}.offloading.metrics": members("OffloadingConnectorStats OffloadPromMetrics"),
        f"{connectors}.offloading.worker": members("OffloadingConnectorWorker"),
        f"{connectors}.offloading_connector": members("OffloadingConnector"),
        f"{offload}.abstract": members("LoadStoreSpec OffloadingEvent OffloadingManager PrepareStoreOutput"),
        f"{offload}.mediums": members("BlockIDsLoadStoreSpec CPULoadStoreSpec GPULoadStoreSpec"),
        f"{offload}.spec": members("CanonicalKVCacheRef CanonicalKVCaches CanonicalKVCacheTensor"),
        f"{offload}.cpu.spec": members("CPUOffloadingSpec"),
        f"{offload}.worker.worker": members("OffloadingHandler TransferResult"),
        f"{offload}.worker.cpu_gpu": members("SingleDirectionOffloadingHandler"),
        "vllm.platforms": {"current_platform": Platform()},
    }
