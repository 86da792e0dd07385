"""The parts of quire.vllm.Connector for vLLM 0.32.0."""

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorTransferResults, SupportsHMA
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.config import build_offloading_config
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import OffloadingConnectorStats, OffloadPromMetrics
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.worker import OffloadingConnectorWorker
from vllm.platforms import current_platform
from vllm.v1.kv_cache_interface import HiddenStateCacheSpec, RSWASpec, iter_layer_specs
from vllm.v1.kv_offload.base import GPULoadStoreSpec, OffloadingCounterMetadata
from vllm.v1.kv_offload.cpu.common import CPULoadStoreSpec
from vllm.v1.metrics.cache_hit_source import CacheHitSource

from quire.vllm._connector_copies import HostCopies, EndedJob
from quire.vllm._connector_meta import COUNTERS, Job
from quire.vllm._offload_pages import as_one_group, copier_of
from quire.vllm._offload_checks import check_hash_algorithm
from quire.vllm._offload_v0_32 import COUNTERS as DISK_COUNTERS
from quire.vllm._offload_v0_32 import DeviceCopyWorker, NumberedSpec, QuireOffloadingSpec

SUPPORTS_FAILED_REQUESTS = True
_PREFIX = "vllm:kv_offload_quire_"
_TRANSFERS = {("GPU", "CPU"): "store", ("CPU", "GPU"): "load"}


class ConnectorBase(KVConnectorBase_V1, SupportsHMA):
    _cache_hit_source = CacheHitSource.HOST  # blocks on disk were read into host memory before

    @property
    def requires_kv_delivery(self) -> bool:
        return False  # blocks that are not stored are computed again

    @classmethod
    def get_required_kvcache_layout(cls, vllm_config):
        return "LBHNC"  # one row per block for each layer, as OffloadingConnector requires

    def get_transfer_results(self, finished_req_ids):
        sent, received = self.worker_half.finished()
        return KVConnectorTransferResults(sent, received, self.worker_half.take_failed_requests())

    def on_new_request(self, request) -> None:
        self.scheduler_half.on_queued(request)


def check_supported(vllm_config, kv_cache_config, options) -> None:
    if current_platform.is_xpu():
        _refuse("Intel GPUs", "use vLLM's OffloadingConnector")
    if current_platform.is_cuda_alike() and options.layer_by_layer:
        _refuse("layer_by_layer on a GPU", "leave it out, because vLLM copies all layers together")
    if kv_cache_config.hisparse_host_num_blocks is not None:
        _refuse("HiSparse", "leave it out")
    groups = kv_cache_config.kv_cache_groups
    if any(group.host_resident or not group.enable_kv_transfer for group in groups):
        _refuse("cache groups that vLLM does not pass to connectors", "use vLLM's OffloadingConnector")
    if len({bool(group.is_eagle_group) for group in groups}) > 1:
        _refuse("draft models with separate cache groups", "use vLLM's OffloadingConnector")
    for spec in (spec for group in groups for spec in iter_layer_specs(group.kv_cache_spec)):
        if isinstance(spec, (RSWASpec, HiddenStateCacheSpec)):
            _refuse(f"layers of {type(spec).__name__}", "leave the connector out")
        if getattr(spec, "extra_retained_tokens", 0):
            _refuse("sliding windows that keep more tokens than they attend to", "leave the connector out")
    size = groups[0].kv_cache_spec.block_size
    if (kv_cache_config.hash_block_size or size) != size:
        _refuse(f"blocks of {size} tokens with a hash block size of {kv_cache_config.hash_block_size}", "use the same size for both")
    if "disk_path" in vllm_config.kv_transfer_config.kv_connector_extra_config:
        check_hash_algorithm(vllm_config)


def _refuse(what: str, instead: str):
    raise ValueError(f"quire.vllm.Connector does not support {what} under vLLM 0.32.0; {instead}")


class _CanonicalCachesReader(OffloadingConnectorWorker):
    """Uses vLLM's conversion of KV caches of any layout to rows of bytes."""

    def _init_worker(self, kv_caches):
        self.canonical_caches = kv_caches


def canonical(spec, kv_cache_config, kv_caches):
    catcher = _CanonicalCachesReader(spec, spec.vllm_config, kv_cache_config)
    catcher.register_kv_caches(kv_caches)
    return catcher.canonical_caches


class ConnectorSpec(QuireOffloadingSpec):
    """Provides the memory, folder and options of OffloadingConnector with quire's spec."""

    def __init__(self, vllm_config, kv_cache_config):
        self.vllm_config = vllm_config
        super().__init__(build_offloading_config(vllm_config, kv_cache_config))
        self.gpu_block_size, self.block_size_factor = self.tokens_per_block, self.blocks_per_chunk

    def check_supported(self) -> None:
        """Does nothing: the connector checks its configuration."""

    def full_vllm_config(self):
        return self.vllm_config

    def copies(self, kv_caches):
        region = self.region(kv_caches)
        if current_platform.is_cuda_alike():
            return DeviceCopies(DeviceCopyWorker(as_one_group(kv_caches), region, self.block_size_factor))
        return HostCopies(copier_of(kv_caches, region), copier_of(kv_caches, region), self.block_size_factor)


class DeviceCopies:
    """Executes copies with vLLM's handlers, all layers together."""

    def __init__(self, worker: DeviceCopyWorker):
        self._worker = worker

    def store(self, job: Job) -> bool:
        target = NumberedSpec(job.slots, job.numbers) if job.numbers else CPULoadStoreSpec(job.slots)
        return self._worker.submit_store(job.id, _blocks(job), target)

    def load(self, job: Job) -> bool:
        return self._worker.submit_load(job.id, CPULoadStoreSpec(job.slots), _blocks(job))

    def wait_stores(self, jobs) -> None:
        self._worker.stores.wait(jobs)

    def wait_loads(self, jobs) -> None:
        self._worker.loads.wait(jobs)

    def take_stores(self) -> list[EndedJob]:
        return _ended_jobs(self._worker.take_stores())

    def take_loads(self) -> list[EndedJob]:
        return _ended_jobs(self._worker.loads.get_finished())


def _blocks(job: Job) -> GPULoadStoreSpec:
    return GPULoadStoreSpec(job.blocks, (len(job.blocks),), (job.first,))


def _ended_jobs(results) -> list[EndedJob]:
    return [EndedJob(one.job_id, one.success, one.transfer_size, one.transfer_time) for one in results]


class ConnectorStats(OffloadingConnectorStats):
    """vLLM's statistics, under the names of its metrics, and quire's counters."""

    def record_transfer(self, num_bytes, time, transfer_type) -> None:
        name = f"vllm:kv_offload_{_TRANSFERS[transfer_type]}"
        self.increase_counter(f"{name}_bytes", num_bytes)
        self.increase_counter(f"{name}_time", time)
        self.observe_histogram(f"{name}_size", num_bytes)

    def count(self, name: str, amount: int) -> None:
        if amount:
            self.increase_counter(_PREFIX + name, amount)

    def counted(self) -> dict:
        return {name.removeprefix(_PREFIX): value[()] for name, value in self._values.items() if name.startswith(_PREFIX)}


def record_disk_transfers(stats: ConnectorStats, now: dict, told: dict) -> None:
    for name, (key, _) in DISK_COUNTERS.items():
        if now[key] > told.get(key, 0):
            stats.increase_counter(name, now[key] - told.get(key, 0))


class ConnectorPromMetrics(OffloadPromMetrics):
    """vLLM's metrics vllm:kv_offload_*, the metrics of the disk, and vllm:kv_offload_quire_* for the counters."""

    def __init__(self, vllm_config, metric_types, labelnames, per_engine_labelvalues):
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        own = {_PREFIX + name: text for name, text in COUNTERS.items()} | {name: text for name, (_, text) in DISK_COUNTERS.items()}
        for name, text in own.items():
            self._offloading_metric_metadata[name] = OffloadingCounterMetadata(documentation=text)
            self._offloading_metric_defs[name] = self._create_metric(name, self._offloading_metric_metadata[name])
