"""The part of v0_32.py that is only used with a KV connector: calls of the connector, and its statistics of loads.

The core decides. This file makes the core's calls in vLLM's form, and counts loads for vLLM's statistics. It runs on the engine's thread,
during calls of the scheduler.
"""

from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1 import KVConnectorRole
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1
from vllm.v1.core.sched.output import KVConnectorBlockState
from vllm.v1.metrics.stats import KV_FETCH_COMPLETED_WAITING, KV_FETCH_IN_PROGRESS, KV_FETCH_STAGES, KV_FETCH_WAITING_TO_START, PrefixCacheStats

from quire.vllm._config import refuse
from quire.vllm._hooks import Hooks
from quire.vllm._setup import refuse_pool_allocating_connectors


class LoadStages:
    """Counts the stages of loads for which requests wait, and the tiers that had their tokens. Used only for statistics."""

    def __init__(self):
        self.counts = dict.fromkeys(KV_FETCH_STAGES, 0)
        self._stages = {}  # request id -> stage
        self._awaited = {}  # request id -> whether the request waits while the tokens of its last match are loaded
        self._sources = PrefixCacheStats()

    def move(self, name: str, stage: str | None) -> None:
        before = self._stages.pop(name, None)
        if before is not None:
            self.counts[before] -= 1
        if stage is not None:
            self._stages[name] = stage
            self.counts[stage] += 1

    def matched(self, request, answer) -> None:
        num_tokens, is_async = (0, False) if request.skip_reading_prefix_cache else answer
        if num_tokens is None:
            return
        self._awaited[request.request_id] = is_async
        self.move(request.request_id, KV_FETCH_WAITING_TO_START if is_async else None)

    def blocks_allocated(self, request, num_external_tokens: int, connector) -> bool:
        """Returns whether the step itself loads the tokens. Asks `connector`, which may be None, for their sources."""
        name = request.request_id
        is_async = num_external_tokens > 0 and self._awaited.get(name, False)
        if num_external_tokens and request.num_preemptions == 0 and connector is not None:
            sources = connector.get_external_cache_hit_sources(request, num_external_tokens)
            self._sources.record(num_tokens=0, num_hits=num_external_tokens, preempted=False, hits_by_source=sources)
        self.move(name, KV_FETCH_IN_PROGRESS if is_async else None)
        return num_external_tokens > 0 and not is_async

    def received(self, names) -> None:
        for name in names:
            if self._stages.get(name) == KV_FETCH_IN_PROGRESS:
                self.move(name, KV_FETCH_COMPLETED_WAITING)

    def forget(self, name: str) -> None:
        self.move(name, None)
        self._awaited.pop(name, None)

    def take_sources(self) -> dict:
        sources, self._sources = self._sources.hits_by_source, PrefixCacheStats()
        return sources


class ConnectorHooks(Hooks):
    def match(self, request, num_local_tokens):
        answer = super().match(request, num_local_tokens)
        self._scheduler.loads.matched(request, answer)
        return answer

    def allocated(self, request, block_ids, num_external_tokens):
        super().allocated(request, block_ids, num_external_tokens)
        scheduler = self._scheduler
        asked = self._connector if scheduler.log_stats else None
        scheduler.has_sync_loads |= scheduler.loads.blocks_allocated(request, num_external_tokens, asked)

    def finished(self, request, block_ids):
        self._scheduler.loads.forget(request.request_id)
        return super().finished(request, block_ids)

    def planned(self, pieces):
        scheduler = self._scheduler
        output = scheduler.make_output(pieces)
        output.kv_connector_block_state = KVConnectorBlockState(
            req_ids=set(output.num_scheduled_tokens), resolve_block_ids=scheduler.kv_cache_manager.get_block_ids, boundary_state_offloads={}
        )
        output.kv_connector_metadata = scheduler._build_kv_connector_meta(self._connector, output)
        output.kv_connector_block_state = None  # not sent to the workers
        scheduler._plan_output = output

    def order_failed(self, names, num_async):
        # vLLM builds sets of names and iterates over the last one; so does this code, to get the same order.
        worker = self._scheduler._worker_output
        named = {name for name in worker.failed_recving if name in names[:num_async]}
        failed = set()
        failed.update(named)
        failed.update({name for name in names[:num_async] if name not in named or self._holds(name, worker.invalid_block_ids)} | set(names[num_async:]))
        ending = set(self._scheduler.failed_grammars)
        ending.update(failed)
        order = [name for name in set(ending) if name in failed]
        return order, list(order)

    def _holds(self, name, block_ids) -> bool:
        return any(not block_ids.isdisjoint(group) for group in self._scheduler.kv_cache_manager.get_block_ids(name))


def attach_connector(scheduler) -> None:
    config = scheduler.vllm_config
    scheduler.connector = None
    if config.kv_transfer_config is None:
        return
    scheduler.connector = KVConnectorFactory.create_connector(
        config=config, role=KVConnectorRole.SCHEDULER, kv_cache_config=scheduler.kv_cache_config
    )
    for part in (scheduler.connector, *getattr(scheduler.connector, "_connectors", ())):
        own = getattr(type(part), "has_pending_block_frees", None)
        if own is not None and own is not KVConnectorBase_V1.has_pending_block_frees and not hasattr(part, "_connectors"):
            refuse(f"{type(part).__name__}, which frees blocks of running requests", "use OffloadingConnector")


def connector_options(scheduler) -> dict:
    """Returns the core's options that depend on the connector."""
    transfer = scheduler.vllm_config.kv_transfer_config
    if transfer is None or scheduler.connector is None:
        return {}
    several = scheduler.vllm_config.max_concurrent_batches > 1
    return {
        "defer_block_free": bool(several and transfer.is_kv_consumer),
        "drop_undelivered": bool(scheduler.connector.requires_kv_delivery),
    }


class ConnectorMixin:
    """The scheduler's methods for the connector. It must come before Adapter in the list of base classes."""

    def bind_connector(self) -> None:
        refuse_pool_allocating_connectors(self.connector)
        if self.connector is not None:
            self.connector.bind_kv_cache_manager(self.kv_cache_manager)

    @property
    def requires_kv_delivery(self) -> bool:
        return self._core_config.drop_undelivered

    @property
    def defer_block_free(self) -> bool:
        return self._core_config.defer_block_free

    @property
    def _kv_fetch_counts(self) -> dict:
        return self.loads.counts

    def add_request(self, request) -> None:
        is_new = not self._native.is_known(request.request_id)
        super().add_request(request)
        if self.connector is None or not is_new:
            return
        self.connector.on_new_request(request)
        if (request.kv_transfer_params or {}).get("do_remote_prefill"):
            self.loads.move(request.request_id, KV_FETCH_WAITING_TO_START)

    def update_from_output(self, scheduler_output, model_runner_output):
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        self.failed_grammars.clear()
        if self.connector is not None:
            for core in outputs.values():
                for output in core.outputs:
                    params = output.kv_transfer_params
                    if params is not None and output.prefill_stats is not None and params.get("do_remote_prefill"):
                        params["remote_prefill_cached_tokens"] = output.prefill_stats.num_cached_tokens
        return outputs

    def connector_stats_before_update(self, worker):
        return None  # the connector is asked after it has received the step's results

    def connector_stats_after_update(self, worker, stats):
        stats = worker.kv_connector_stats if worker else None
        if self.connector is None:
            return stats
        if worker:
            self.loads.received(worker.finished_recving or ())
        self._native.requests()  # the connector may read requests to which it has references
        own = self.connector.get_kv_connector_stats()
        if own is not None and not own.is_empty():
            stats = stats.aggregate(own) if stats is not None else own
        return stats

    def has_finished_requests(self) -> bool:
        if super().has_finished_requests():
            return True
        running, waiting = self.get_request_counts()
        return self.connector is not None and len(self._native.stale_requests()) > running + waiting

    def has_requests(self) -> bool:
        return super().has_requests() or (self.connector is not None and self.connector.has_pending_push_work())
