"""The parts of quire.vllm.Connector for vLLM 0.19.0."""

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, SupportsHMA
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import OffloadingConnectorStats, OffloadPromMetrics
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.worker import OffloadingConnectorWorker
from vllm.platforms import current_platform
from vllm.v1.kv_offload.mediums import CPULoadStoreSpec, GPULoadStoreSpec

from quire.vllm._connector_copies import HostCopies, EndedJob
from quire.vllm._connector_meta import COUNTERS, Job
from quire.vllm._offload_copies import NumberedSpec
from quire.vllm._offload_pages import as_one_group, copier_of
from quire.vllm._offload_v0_19 import QuireOffloadingSpec

SUPPORTS_FAILED_REQUESTS = False
_COUNTED = "counted"  # key of the counters in the statistics' data


class ConnectorBase(KVConnectorBase_V1, SupportsHMA):
    @property
    def prefer_cross_layer_blocks(self) -> bool:
        return not self.options.layer_by_layer

    def register_cross_layers_kv_cache(self, kv_cache, attn_backend):
        self.worker_half.register_caches(canonical(self.worker_half.spec, None, kv_cache, attn_backend))

    def get_finished(self, finished_req_ids):
        return self.worker_half.finished()

    def quire_on_queued(self, request) -> None:
        """Called by quire.vllm.Scheduler when a request was queued; vLLM 0.19.0 has no such call."""
        self.scheduler_half.on_queued(request)


def check_supported(vllm_config, kv_cache_config, options) -> None:
    if current_platform.is_cuda_alike() and options.layer_by_layer:
        raise ValueError("quire.vllm.Connector does not support layer_by_layer on a GPU: vLLM copies all layers together; leave it out")


class _CanonicalCachesReader(OffloadingConnectorWorker):
    """Uses vLLM's conversion of KV caches of any layout to rows of bytes."""

    def _register_handlers(self, kv_caches):
        self.canonical_caches = kv_caches


def canonical(spec, kv_cache_config, kv_caches, cross_layers_backend=None):
    catcher = _CanonicalCachesReader(spec)
    if cross_layers_backend is not None:
        catcher.register_cross_layers_kv_cache(kv_caches, cross_layers_backend)
    else:
        catcher.register_kv_caches(kv_caches)
    return catcher.canonical_caches


class ConnectorSpec(QuireOffloadingSpec):
    """Provides the memory, folder and options of OffloadingConnector with quire's spec."""

    def copies(self, kv_caches):
        if current_platform.is_cuda_alike():
            (_, _, to_host), (_, _, to_device) = self.get_handlers(as_one_group(kv_caches))
            return DeviceCopies(to_host, to_device)
        region = self.region(kv_caches)
        return HostCopies(copier_of(kv_caches, region), copier_of(kv_caches, region), self.block_size_factor)


class DeviceCopies:
    """Executes copies with vLLM's handlers, all layers together."""

    def __init__(self, to_host, to_device):
        self._to_host, self._to_device = to_host, to_device

    def store(self, job: Job) -> bool:
        target = NumberedSpec(job.slots, job.numbers) if job.numbers else CPULoadStoreSpec(job.slots)
        return self._to_host.transfer_async(job.id, (GPULoadStoreSpec(job.blocks, (len(job.blocks),)), target))

    def load(self, job: Job) -> bool:
        target = GPULoadStoreSpec(job.blocks, (len(job.blocks),), (job.first,))
        return self._to_device.transfer_async(job.id, (CPULoadStoreSpec(job.slots), target))

    def wait_stores(self, jobs) -> None:
        self._to_host.wait(jobs)

    def wait_loads(self, jobs) -> None:
        self._to_device.wait(jobs)

    def take_stores(self) -> list[EndedJob]:
        return _ended_jobs(self._to_host)

    def take_loads(self) -> list[EndedJob]:
        return _ended_jobs(self._to_device)


def _ended_jobs(handler) -> list[EndedJob]:
    return [EndedJob(one.job_id, one.success, one.transfer_size, one.transfer_time) for one in handler.get_finished()]


class ConnectorStats(OffloadingConnectorStats):
    """vLLM's statistics of transfers, and quire's counters."""

    def record_transfer(self, num_bytes, time, transfer_type):
        """Records a transfer in the form that vLLM's statistics have after they were sent to another process, because readers support only
        this form.
        """
        self.data.setdefault("_to_".join(transfer_type), []).append({"op_size": num_bytes, "op_time": time})

    def count(self, name: str, amount: int) -> None:
        if amount:
            counted = self.data.setdefault(_COUNTED, {})
            counted[name] = counted.get(name, 0) + amount

    def counted(self) -> dict:
        return self.data.get(_COUNTED, {})

    def aggregate(self, other):
        theirs = other.data.pop(_COUNTED, {})
        super().aggregate(other)
        if theirs:
            own = self.counted()
            self.data[_COUNTED] = {name: own.get(name, 0) + theirs.get(name, 0) for name in {**own, **theirs}}
        return self

    def reduce(self):
        transfers = {name: value for name, value in self.data.items() if name != _COUNTED}
        return OffloadingConnectorStats(data=transfers).reduce() | self.counted()


def record_disk_transfers(stats: ConnectorStats, now: dict, told: dict) -> None:
    for size, seconds, kind in [("bytes_read", "reading_s", ("DISK", "CPU")), ("bytes_written", "", ("CPU", "DISK"))]:
        if now[size] > told.get(size, 0):
            took = now[seconds] - told.get(seconds, 0.0) if seconds else 0.0
            stats.record_transfer(now[size] - told.get(size, 0), took, kind)


class ConnectorPromMetrics(OffloadPromMetrics):
    """vLLM's metrics vllm:kv_offload_*, and vllm:kv_offload_quire_* for the counters."""

    def __init__(self, vllm_config, metric_types, labelnames, per_engine_labelvalues):
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._counters = {
            name: self._counter_cls(name=f"vllm:kv_offload_quire_{name}", documentation=text, labelnames=labelnames)
            for name, text in COUNTERS.items()
        }

    def observe(self, transfer_stats_data, engine_idx=0):
        super().observe({name: value for name, value in transfer_stats_data.items() if name != _COUNTED}, engine_idx)
        for name, amount in transfer_stats_data.get(_COUNTED, {}).items():
            self._counters[name].labels(*self.per_engine_labelvalues[engine_idx]).inc(amount)
