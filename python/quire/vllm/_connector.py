"""quire.vllm.Connector: a KV connector for vLLM that stores KV blocks in host memory and in a folder; see docs/vllm.md.

    vllm serve MODEL --kv-transfer-config '{"kv_connector": "Connector", "kv_connector_module_path": "quire.vllm", "kv_role": "kv_both",
      "kv_load_failure_policy": "recompute", "kv_connector_extra_config": {"cpu_bytes_to_use": 8000000000}}'

Some of its features cannot be added to OffloadingConnector by a spec: loads that are begun only if they are faster than computing, that
several requests share, that begin before a request's turn, or for which a step waits layer by layer. vLLM creates the connector for its
scheduler and in each worker. _connector_vllm.py contains the differences between versions of vLLM.
"""

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole

from quire.vllm._connector_options import options_of, windows_of
from quire.vllm._connector_scheduler import SchedulerHalf
from quire.vllm._connector_vllm import ConnectorBase, ConnectorPromMetrics, ConnectorSpec, ConnectorStats, canonical, check_supported, record_disk_transfers
from quire.vllm._connector_worker import WorkerHalf


class Connector(ConnectorBase):
    def __init__(self, vllm_config, role, kv_cache_config=None):
        super().__init__(vllm_config, role, kv_cache_config)
        extra = vllm_config.kv_transfer_config.kv_connector_extra_config
        self.options = options_of(extra)
        windows = windows_of(vllm_config, kv_cache_config, extra)
        check_supported(vllm_config, kv_cache_config, self.options)
        spec = ConnectorSpec(vllm_config, kv_cache_config)
        self.scheduler_half = self.worker_half = None
        if role == KVConnectorRole.SCHEDULER:
            self.scheduler_half = SchedulerHalf(spec, windows, self.options)
            self._disk = {}  # statistics of the disk at the last report
        else:
            self.worker_half = WorkerHalf(spec, kv_cache_config)

    # Methods that vLLM calls in the workers.

    def register_kv_caches(self, kv_caches):
        self.worker_half.register_caches(canonical(self.worker_half.spec, self._kv_cache_config, kv_caches))

    def handle_preemptions(self, kv_connector_metadata):
        self.worker_half.begin(kv_connector_metadata)

    def start_load_kv(self, forward_context, **kwargs) -> None:
        self.worker_half.begin_loads(self._connector_metadata)

    def wait_for_layer_load(self, layer_name: str) -> None:
        self.worker_half.wait_for_layer(layer_name)

    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs) -> None:
        """Does nothing: stores begin with the next step."""

    def wait_for_save(self):
        self.worker_half.wait_for_loads_in_step()

    def get_block_ids_with_load_errors(self) -> set[int]:
        return self.worker_half.take_bad_blocks()

    def build_connector_worker_meta(self):
        return self.worker_half.take_meta()

    # Methods that vLLM calls in the scheduler.

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        return self.scheduler_half.match(request, num_computed_tokens)

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        self.scheduler_half.allocated(request, blocks, num_external_tokens)

    def build_connector_meta(self, scheduler_output):
        return self.scheduler_half.build_meta(scheduler_output)

    def update_connector_output(self, connector_output):
        self.scheduler_half.update(connector_output)

    def request_finished(self, request, block_ids):
        return self.scheduler_half.finished(request), None

    def request_finished_all_groups(self, request, block_ids):
        return self.scheduler_half.finished(request), None

    def take_events(self):
        return self.scheduler_half.events()

    def reset_cache(self) -> bool:
        self.scheduler_half.reset()
        return True

    # Metrics.

    def get_kv_connector_stats(self):
        if self.worker_half is not None:
            return self.worker_half.take_stats()
        half = self.scheduler_half
        stats, half.stats = half.stats, ConnectorStats()
        if half.has_disk:
            now = half.native.stats()
            record_disk_transfers(stats, now, self._disk)
            self._disk = now
        return None if stats.is_empty() else stats

    @classmethod
    def build_kv_connector_stats(cls, data=None):
        return ConnectorStats(data=data) if data is not None else ConnectorStats()

    @classmethod
    def build_prom_metrics(cls, vllm_config, metric_types, labelnames, per_engine_labelvalues):
        return ConnectorPromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)
