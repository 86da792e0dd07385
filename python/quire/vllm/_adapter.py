"""The parts of quire.vllm.Scheduler that are the same under every version of vLLM, for synchronous and asynchronous scheduling.

The core decides. This file converts the core's decisions to vLLM's objects, and passes its calls to vLLM's connectors, grammars and
publishers. For each version (v0_19.py, v0_32.py), a class states the decision profile, the unsupported configurations, and the objects that
differ.
"""

import random
import time
from collections import deque
from collections.abc import Iterable
from functools import cached_property

from vllm.distributed.kv_events import KVEventBatch
from vllm.logger import init_logger
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.v1.core import kv_cache_utils
from vllm.v1.core.sched.interface import PauseState, SchedulerInterface
from vllm.v1.core.sched.output import GrammarOutput, SchedulerOutput
from vllm.v1.engine import EngineCoreEvent, EngineCoreEventType, EngineCoreOutput, EngineCoreOutputs, FinishReason
from vllm.v1.metrics.stats import SchedulerStats
from vllm.v1.request import Request, RequestStatus, StreamingUpdate

import quire
from quire import _core
from quire.vllm import _continuum, _requests
from quire.vllm._config import core_config, refuse
from quire.vllm._convert import merged_stats
from quire.vllm._setup import attach_vllm_objects, bind_block_pool, read_encoder_budget, read_limits
from quire.vllm._scheduler_views import SchedulerViews
from quire.vllm._views import KvCacheManager

logger = init_logger("vllm.quire")  # child of vLLM's logger, which has the handlers

_STATUSES = [
    RequestStatus.WAITING,
    RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR,
    RequestStatus.WAITING_FOR_REMOTE_KVS,
    RequestStatus.WAITING_FOR_STREAMING_REQ,
    RequestStatus.RUNNING,
    RequestStatus.PREEMPTED,
    RequestStatus.FINISHED_STOPPED,
    RequestStatus.FINISHED_LENGTH_CAPPED,
    RequestStatus.FINISHED_ABORTED,
    RequestStatus.FINISHED_IGNORED,
    RequestStatus.FINISHED_ERROR,
    RequestStatus.FINISHED_REPETITION,
]
_QUIRE_STATUS = dict(zip(_STATUSES, quire.RequestStatus))
_QUIRE_PAUSE = dict(zip(PauseState, quire.PauseState))
_PAUSE = dict(zip(quire.PauseState, PauseState))


class Adapter(SchedulerViews, SchedulerInterface):
    """vLLM's scheduler with quire's core: `vllm serve MODEL --scheduler-cls quire.vllm.Scheduler`.

    `kv_cache_manager` and the properties of SchedulerViews are snapshots; changes to them have no effect.
    """

    decisions: quire.DecisionProfile
    hooks: type  # class of the object that the core calls; see _hooks.py

    def __init__(
        self,
        vllm_config,
        kv_cache_config,
        structured_output_manager,
        block_size: int,
        mm_registry=MULTIMODAL_REGISTRY,
        include_finished_set: bool = False,
        log_stats: bool = False,
        **kwargs,
    ) -> None:
        self.take_version_arguments(kwargs, block_size)
        if kwargs:
            refuse(f"the constructor arguments {sorted(kwargs)}", "install a version of vLLM that this package supports")
        self.vllm_config = vllm_config
        self.scheduler_config = vllm_config.scheduler_config
        self.cache_config = vllm_config.cache_config
        self.lora_config = vllm_config.lora_config
        self.kv_cache_config = kv_cache_config
        self.kv_events_config = vllm_config.kv_events_config
        self.parallel_config = vllm_config.parallel_config
        self.observability_config = vllm_config.observability_config
        self.structured_output_manager = structured_output_manager
        self.block_size = block_size
        self.include_finished_set = include_finished_set
        self.log_stats = log_stats
        read_limits(self)
        self._attach_objects(mm_registry)
        self._core_config = core_config(self)
        self._core_config.validate()
        self._plan_output = None  # SchedulerOutput of the plan in progress, after the connector has received it
        self._worker_output = None  # KVConnectorOutput of the step whose result is being applied
        self._idle = []  # (outputs by client, (finished sets, statistics, events)) of skipped idle steps, to be merged into the next result
        self.kv_cache_manager = KvCacheManager(lambda: self._native, kv_cache_config, self.cache_config.enable_prefix_caching)
        self.bind_connector()
        logger.info("quire.vllm.Scheduler: quire %s, %s scheduling", quire.__version__, "async" if self._is_async else "sync")

    def take_version_arguments(self, given: dict, block_size: int) -> None:
        """Removes from `given` the arguments that only this version's scheduler has."""

    def version_options(self) -> dict:
        """Returns the core's options that only this version has."""
        return {}

    def bind_connector(self) -> None:
        """Gives the connector access to the blocks."""
        bind_block_pool(self)

    def check_supported(self) -> None:
        """Refuses configurations that this version does not support."""

    def describe_groups(self) -> None:
        """Stores what events report about the cache groups."""

    def bridge_options(self) -> dict:
        """Returns the options of VllmBridge that differ between versions."""
        return {"uses_grammar_manager": False, "prefill_stats": None}

    def make_output(self, pieces) -> SchedulerOutput:
        """Converts the parts of a plan (_core.VllmBridge.schedule) to vLLM's object."""
        raise NotImplementedError

    def _attach_objects(self, mm_registry) -> None:
        """Attaches the objects that the core calls, and reads the budgets of the encoder."""
        read_encoder_budget(self, mm_registry, mm_registry.supports_multimodal_inputs(self.vllm_config.model_config))
        attach_vllm_objects(self)

    @cached_property
    def _native(self) -> _core.VllmBridge:
        # The bridge is created on first use, because vLLM chooses the root of all block hashes after it has created the scheduler.
        root = getattr(kv_cache_utils, "NONE_HASH", None)
        if root is not None:
            self._core_config.root_hash = bytes(root)
        return _core.VllmBridge(
            self._core_config,
            self.hooks(self),
            {
                "statuses": _STATUSES,
                "output": EngineCoreOutput,
                "finish_reasons": list(FinishReason),
                "event": EngineCoreEvent,
                "event_types": list(EngineCoreEventType),
                "has_connector": self.connector is not None,
                "has_encoder_connector": self.ec_connector is not None,
                "has_grammar": True,
                "detects_tools": self.policy is quire.SchedulingPolicy.CONTINUUM,
                "resumed_as_new": bool(self.use_v2_model_runner),
                "sends_new_token_ids": self.use_pp and not self._is_async,
                "routed_group": self._routed_group,
                "trace": self.trace,
                "journal": self.journal,
                "connector": type(self.connector).__name__ if self.connector is not None else "",
                **self.bridge_options(),
            },
        )

    @cached_property
    def decode_output(self):
        return _continuum.decoder(self.vllm_config)

    def _random(self) -> int:
        return random.getrandbits(64) if self.kv_metrics_sample else 0

    # One step: schedule(), then update_from_output() with the workers' result.

    def schedule(self) -> SchedulerOutput:
        pieces, structured, pending = self._native.schedule(time.monotonic(), self._random())
        if pieces is None:
            output, self._plan_output = self._plan_output, None
        else:
            output = self.make_output(pieces)
        if self.ec_connector is not None:
            output.ec_connector_metadata = self.ec_connector.build_connector_meta(output)
        output.has_structured_output_requests = structured
        output.pending_structured_output_tokens = pending
        return output

    def _build_kv_connector_meta(self, connector, scheduler_output):
        return connector.build_connector_meta(scheduler_output)

    def update_from_output(self, scheduler_output, model_runner_output) -> dict[int, EngineCoreOutputs]:
        worker = model_runner_output.kv_connector_output
        perf_stats = None
        if self.perf_metrics and self.perf_metrics.is_enabled():
            perf_stats = self.perf_metrics.get_step_perf_stats_per_gpu(scheduler_output)
        transfer_stats, sending, receiving, invalid, failed = self.connector_stats_before_update(worker), None, None, None, ()
        if worker:
            sending, receiving = worker.finished_sending or (), worker.finished_recving or ()
            invalid, failed = worker.invalid_block_ids or (), getattr(worker, "failed_recving", ())
            self._worker_output = worker
        scheduled = scheduler_output.num_scheduled_tokens
        for _ in range(self._native.num_idle_before(scheduled)):
            self._apply_idle_step()
        try:
            by_client, finished, stats, events = self._native.update(
                scheduled,
                model_runner_output.req_id_to_index,
                model_runner_output.sampled_token_ids,
                model_runner_output.logprobs,
                model_runner_output.prompt_logprobs_dict,
                model_runner_output.pooler_output,
                model_runner_output.num_nans_in_logits,
                sending,
                receiving,
                invalid,
                time.monotonic(),
                self._random(),
                failed,
            )
        finally:
            self._worker_output = None
        for ended, idle in self._idle:
            for client, made in ended.items():  # requests whose grammar has failed
                by_client.setdefault(client, []).extend(made)
            finished, stats, events = self._merged_results(idle, (finished, stats, events))
        self._idle.clear()
        transfer_stats = self.connector_stats_after_update(worker, transfer_stats)
        self._publish(events)
        outputs = {client: EngineCoreOutputs(outputs=made) for client, made in by_client.items()}
        for client, names in (finished or {}).items():
            if client in outputs:
                outputs[client].finished_requests = names
            else:
                outputs[client] = EngineCoreOutputs(finished_requests=names)
        if stats is not None:
            first = next(iter(outputs.values()), None)
            if first is None:
                first = outputs[0] = EngineCoreOutputs()
            first.scheduler_stats = self.convert_stats(stats, transfer_stats, model_runner_output.cudagraph_stats, perf_stats)
        return outputs

    def _apply_idle_step(self) -> None:
        """Applies an empty result for the oldest step, which scheduled nothing. Workers return no result for such a step."""
        nothing = ({}, {}, [], None, {}, None, None, None, None, None)
        by_client, *told = self._native.update(*nothing, time.monotonic(), self._random())
        self._idle.append((by_client, told))

    @staticmethod
    def _merged_results(earlier, later):
        finished = {client: set(names) for client, names in (earlier[0] or {}).items()}
        for client, names in (later[0] or {}).items():
            finished.setdefault(client, set()).update(names)
        return finished, merged_stats(earlier[1], later[1]), [*(earlier[2] or ()), *(later[2] or ())]

    def connector_stats_before_update(self, worker):
        """Returns the connector's statistics if this version asks for them before the step's results are applied."""
        stats = worker.kv_connector_stats if worker else None
        if stats and self.connector:
            self._native.requests()  # the connector may read requests to which it has references
            own = self.connector.get_kv_connector_stats()
            if own:
                stats = stats.aggregate(own)
        return stats

    def connector_stats_after_update(self, worker, stats):
        """Returns the connector's statistics if this version asks for them after the step's results are applied."""
        return stats

    def _publish(self, events) -> None:
        batch = [self.make_event(event) for event in events] if events else []
        if self.connector is not None:
            self._native.requests()
            batch.extend(self.connector.take_events() or ())
        if batch:
            self.kv_event_publisher.publish(KVEventBatch(ts=time.time(), events=batch))

    def get_grammar_bitmask(self, scheduler_output) -> GrammarOutput | None:
        if not scheduler_output.has_structured_output_requests:
            return None
        native = self._native
        names = [
            name for name in scheduler_output.num_scheduled_tokens if native.is_structured(name) and not native.is_prefill_chunk(name)
        ]
        if not names:
            return None
        for name in names:
            native.request(name)
        bitmask = self.structured_output_manager.grammar_bitmask(
            native.stale_requests(), names, scheduler_output.scheduled_spec_decode_tokens
        )
        return self.make_grammar_output(names, bitmask, scheduler_output)

    def make_grammar_output(self, names, bitmask, scheduler_output) -> GrammarOutput:
        return GrammarOutput(names, bitmask)

    def convert_stats(self, stats, transfer_stats=None, cudagraph_stats=None, perf_stats=None) -> SchedulerStats:
        raise NotImplementedError

    def make_event(self, event):
        raise NotImplementedError

    def update_draft_token_ids(self, draft_token_ids) -> None:
        self._native.set_drafts(draft_token_ids.req_ids, draft_token_ids.draft_token_ids)

    def update_draft_token_ids_in_output(self, draft_token_ids, scheduler_output) -> None:
        drafts = self._native.set_drafts_in_plan(draft_token_ids.req_ids, draft_token_ids.draft_token_ids)
        scheduler_output.scheduled_spec_decode_tokens.update(drafts)
        invalid = {name: tokens.count(-1) for name, tokens in drafts.items()}
        scheduler_output.num_invalid_spec_tokens = {name: count for name, count in invalid.items() if count}

    # Adding and ending requests.

    def add_request(self, request: Request) -> None:
        native = self._native
        if native.is_known(request.request_id):
            self._continue_session(native.request(request.request_id), request)
            return
        if request.resumable:
            request.streaming_queue = deque()
        native.add(request, _requests.new_request(request, self._has_block_hashes), time.monotonic())

    def _continue_session(self, session: Request, request: Request) -> None:
        update = StreamingUpdate.from_request(request)
        name = session.request_id
        if session.streaming_queue is None:
            raise ValueError(f"request_id: {name} already exists; use a different id for each request")
        if RequestStatus.is_finished(session.status):  # a transfer still holds the session's blocks; the input has no effect
            session.streaming_queue.append(update)
            return
        waits = session.status == RequestStatus.WAITING_FOR_STREAMING_REQ
        if waits and update is None:
            self.finish_requests(name, RequestStatus.FINISHED_ABORTED)
            return
        self._native.continue_session(name, None if update is None else _requests.session_input(update), time.monotonic())
        session.streaming_queue.append(update)
        if waits:
            self._native.show_session_input(name)

    def finish_requests(self, request_ids: str | Iterable[str] | None, finished_status: RequestStatus) -> list[tuple[str, int]]:
        if not RequestStatus.is_finished(finished_status):
            raise ValueError(f"finished_status: {finished_status!r} is not a finished status")
        if isinstance(request_ids, str):
            request_ids = (request_ids,)
        elif request_ids is not None:
            request_ids = set(request_ids)
        return self._native.finish(request_ids, _QUIRE_STATUS[finished_status], time.monotonic())

    # Calls of vLLM's engine.

    def get_num_unfinished_requests(self) -> int:
        return self._native.counts()[2]

    def has_finished_requests(self) -> bool:
        return self._native.has_finished_requests()

    def get_request_counts(self) -> tuple[int, int]:
        return self._native.counts()[:2]

    @property
    def pause_state(self) -> PauseState:
        return _PAUSE[self._native.pause_state]

    def set_pause_state(self, pause_state: PauseState) -> None:
        self._native.pause_state = _QUIRE_PAUSE[pause_state]

    def reset_prefix_cache(self, reset_running_requests: bool = False, reset_connector: bool = False) -> bool:
        try:
            return self._native.reset_prefix_cache(reset_running_requests, reset_connector, time.monotonic())
        except ValueError as error:
            raise RuntimeError(f"Failed to reset KV cache: {error}") from error

    def reset_connector_cache(self) -> bool:
        if self.connector is None:
            return self.reset_without_connector()
        return self._native.reset_connector_cache()

    def reset_without_connector(self) -> bool:
        """Returns the result of a reset of the connector's cache when no connector exists."""
        logger.warning("reset_connector called but no KV connector is configured.")
        return False

    def reset_encoder_cache(self) -> None:
        self._native.reset_encoder_cache()

    def make_stats(self) -> SchedulerStats | None:
        stats = self._native.make_stats()
        return None if stats is None else self.convert_stats(stats)

    def shutdown(self) -> None:
        if self.trace and "_native" in self.__dict__:
            logger.info("quire.vllm.Scheduler: trace %s: %d steps written, %d left out", self.trace["path"], *self._native.flush_trace())
        if self.journal and "_native" in self.__dict__:
            path, size, ended = self._native.flush_journal()
            logger.info("quire.vllm.Scheduler: journal %s: %d bytes%s", path, size, f"; it ended early: {ended}" if ended else "")
        if self.kv_event_publisher:
            self.kv_event_publisher.shutdown()
        if self.connector is not None:
            self.connector.shutdown()

    def get_kv_connector(self):
        return self.connector

    @property
    def connector(self):
        return self._connector

    @connector.setter
    def connector(self, connector) -> None:
        """Tests and plug-ins replace the connector. The core's decisions depend on whether a connector exists, so it can be added or
        removed only while no requests exist."""
        had = getattr(self, "_connector", None) is not None
        if "_native" in self.__dict__ and had != (connector is not None):
            if self._native.stale_requests():
                raise RuntimeError("connector: can be added or removed only while the scheduler has no requests; it can be replaced at any time")
            del self._native  # created again on first use, with an empty cache
        self._connector = connector
        self._has_block_hashes = self.cache_config.enable_prefix_caching or connector is not None  # then vLLM's requests have hashes
