"""quire.vllm.Scheduler for vLLM 0.32.0: full, sliding-window, chunked and cross attention, with encoders. docs/vllm_0_32.md describes which
decisions differ from 0.19.0, and why other configurations are refused.
"""

from vllm.distributed.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, EventPublisherFactory
from vllm.logger import init_logger
from vllm.v1.core import kv_cache_utils
from vllm.v1.core.sched.output import CachedRequestData, GrammarOutput, NewRequestData, ScheduledEncoderInputStats, SchedulerOutput
from vllm.v1.kv_cache_interface import get_kv_cache_spec_kind, get_kv_cache_spec_sliding_window
from vllm.v1.metrics.perf import ModelMetrics
from vllm.v1.metrics.stats import KVCacheEvictionEvent, PrefillStats, PrefixCacheStats, SchedulerStats
from vllm.v1.spec_decode.metrics import SpecDecodingStats
from vllm.v1.structured_output.utils import strip_speculative_padding

import quire
from quire.vllm._adapter import Adapter
from quire.vllm._config import refuse
from quire.vllm._scheduler_connector_v0_32 import ConnectorMixin, ConnectorHooks, LoadStages, attach_connector, connector_options
from quire.vllm._setup import read_encoder_budget

logger = init_logger("vllm.quire")

_USE_V0_19 = "use vLLM 0.19.0, where quire supports this"
_SUPPORTED_SPECS = ("FullAttentionSpec", "MLAAttentionSpec", "SlidingWindowSpec", "ChunkedLocalAttentionSpec", "CrossAttentionSpec")


class ManagerHooks(ConnectorHooks):
    """Calls the grammar manager instead of a request's grammar, except to check whether the grammar is compiled."""

    def grammar_ready(self, request):
        structured = request.structured_output_request
        return structured is not None and structured.grammar is not None and not isinstance(structured.grammar, Exception)

    def grammar_failed(self, request):
        structured = request.structured_output_request
        failed = structured is not None and isinstance(structured.grammar, Exception)
        if failed:
            self._scheduler.failed_grammars.add(request.request_id)
        return failed

    def grammar_accept(self, request, tokens):
        return self._grammar.accept_tokens(request, tokens)

    def grammar_count_valid(self, request, drafts):
        return len(self._grammar.validate_tokens(request, drafts))

    def session_input_taken(self, request, num_prompt_tokens):
        request.max_tokens = request.streaming_queue[0].max_tokens
        return super().session_input_taken(request, num_prompt_tokens)


def _refuse_parallel(scheduler) -> None:
    parallel = scheduler.parallel_config
    if parallel.decode_context_parallel_size * parallel.prefill_context_parallel_size != 1:
        refuse("context parallelism under vLLM 0.32.0", _USE_V0_19)
    if parallel.pipeline_parallel_size > 1 and scheduler.use_v2_model_runner and scheduler._is_async:
        refuse("pipeline parallelism with the V2 model runner and asynchronous scheduling under vLLM 0.32.0", "set VLLM_USE_V2_MODEL_RUNNER=0")


def _refuse_limits(scheduler) -> None:
    limits = scheduler.scheduler_config
    if limits.prefill_schedule_interval != 1:
        refuse(f"prefill_schedule_interval={limits.prefill_schedule_interval} under vLLM 0.32.0", "set it to 1")


def _refuse_drafts(scheduler) -> None:
    config, drafts = scheduler.vllm_config, scheduler.vllm_config.speculative_config
    if drafts is None:
        return
    if drafts.max_num_new_slots_for_drafting:
        refuse("drafting methods that take tokens from a step (draft models, parallel drafting) under vLLM 0.32.0", "use EAGLE, MTP or n-gram drafts")
    if drafts.num_speculative_tokens_per_batch_size:
        refuse("num_speculative_tokens_per_batch_size under vLLM 0.32.0", "set one number of draft tokens")
    if config.num_prefill_lookahead_tokens > 1:
        refuse("chains of MTP modules under vLLM 0.32.0", "use one module")
    if drafts.use_eagle() and not drafts.use_eagle_block_drop():
        refuse("EAGLE that keeps the last block of a hit under vLLM 0.32.0", "set it to drop that block")


def _refuse_cache(scheduler) -> None:
    groups = scheduler.kv_cache_config.kv_cache_groups
    for group in groups:
        specs = getattr(group.kv_cache_spec, "kv_cache_specs", None)
        for spec in specs.values() if specs else (group.kv_cache_spec,):
            if type(spec).__name__ not in _SUPPORTED_SPECS:
                refuse(f"KV-cache specs of type {type(spec).__name__} under vLLM 0.32.0", _USE_V0_19)
            if getattr(spec, "extra_retained_tokens", 0):
                refuse("sliding windows that keep more tokens than they attend to under vLLM 0.32.0", _USE_V0_19)
        if group.kv_cache_spec.block_size != scheduler.block_size:
            refuse("cache groups with different block sizes under vLLM 0.32.0", _USE_V0_19)
    marked = [bool(group.is_eagle_group) for group in groups]
    if any(marked) and not all(marked):
        refuse("draft models with separate cache groups under vLLM 0.32.0", _USE_V0_19)
    _check_retention(scheduler)
    if scheduler.kv_cache_config.needs_kv_cache_zeroing:
        refuse("caches of mixed precision under vLLM 0.32.0", _USE_V0_19)


def _check_retention(scheduler) -> None:
    """Makes the same checks as vLLM's coordinator."""
    interval = scheduler.kv_cache_config.prefix_cache_retention_interval
    if not interval:
        return
    if not any(type(group.kv_cache_spec).__name__ == "SlidingWindowSpec" for group in scheduler.kv_cache_config.kv_cache_groups):
        raise ValueError(f"prefix_cache_retention_interval={interval}: the model has no sliding window; set it to 0")
    if interval < 0 or interval % scheduler.block_size:
        raise ValueError(f"prefix_cache_retention_interval={interval}: use a multiple of {scheduler.block_size}")


def _refuse_components(scheduler) -> None:
    config = scheduler.vllm_config
    model = config.model_config
    if config.ec_transfer_config is not None:
        refuse("encoder-cache connectors under vLLM 0.32.0", _USE_V0_19)
    if model.is_encoder_decoder and config.kv_transfer_config is not None:
        raise ValueError("encoder-decoder models are not supported with KV connectors")
    if config.is_mm_encoder_only:
        refuse("an encoder without its language model (mm_encoder_only) under vLLM 0.32.0", "use vLLM's own scheduler for it")
    if config.ec_manager_config.get_encoder_cache_manager_obj() is not None:
        refuse("encoder_cache_manager_cls under vLLM 0.32.0", "leave it out")
    if model.runner_type == "pooling" or model.is_diffusion:
        refuse("pooling and diffusion models under vLLM 0.32.0", _USE_V0_19)
    if config.aux_output_config.enabled:
        refuse("routed experts under vLLM 0.32.0", _USE_V0_19)
    if scheduler.observability_config.per_request_spec_decode_metrics != "none":
        refuse("per_request_spec_decode_metrics under vLLM 0.32.0", "leave it out")
    if scheduler.own_options:
        refuse(f"additional_config: quire.{next(iter(scheduler.own_options))} under vLLM 0.32.0", "leave it out, or use vLLM 0.19.0")


class Scheduler(ConnectorMixin, Adapter):
    __doc__ = Adapter.__doc__

    decisions = quire.DecisionProfile.VLLM_0_32
    hooks = ManagerHooks

    def take_version_arguments(self, given: dict, block_size: int) -> None:
        self.hash_block_size = given.pop("hash_block_size", None) or block_size
        self.loads, self.has_sync_loads, self.failed_grammars = LoadStages(), False, set()  # the shadow's scheduler needs them too

    def version_options(self) -> dict:
        interval = self.kv_cache_config.prefix_cache_retention_interval
        limits = self.scheduler_config
        return {
            "max_in_flight_tokens": self.vllm_config.max_in_flight_tokens,
            "retention_interval": -1 if interval is None else interval,
            "max_num_active_seqs": limits.max_num_active_seqs or 0,
            "num_watermark_blocks": int(limits.watermark * self.kv_cache_config.num_blocks),
            "shared_prefill_tokens": limits.max_num_batched_tokens if limits.long_prefill_token_threshold_adaptive else 0,
            **connector_options(self),
        }

    def bridge_options(self) -> dict:
        return {"uses_grammar_manager": True, "prefill_stats": PrefillStats}

    def check_supported(self) -> None:
        for check in (_refuse_components, _refuse_cache, _refuse_drafts, _refuse_limits, _refuse_parallel):
            check(self)
        if self.hash_block_size != self.block_size:
            refuse(f"blocks of {self.block_size} tokens with a hash block size of {self.hash_block_size} under vLLM 0.32.0", _USE_V0_19)

    def _attach_objects(self, mm_registry) -> None:
        self.check_supported()
        read_encoder_budget(self, mm_registry, self.vllm_config.model_config.supports_multimodal_inputs)
        self.ec_connector = self.perf_metrics = None
        attach_connector(self)
        self._routed_group = -1
        self._attach_publishers()
        self.describe_groups()

    def describe_groups(self) -> None:
        self._spec_kinds = [
            (get_kv_cache_spec_kind(group.kv_cache_spec).value, get_kv_cache_spec_sliding_window(group.kv_cache_spec))
            for group in self.kv_cache_config.kv_cache_groups
        ]

    def _attach_publishers(self) -> None:
        self.kv_event_publisher = EventPublisherFactory.create(self.kv_events_config, self.parallel_config.data_parallel_index)
        if self.log_stats and self.observability_config.enable_mfu_metrics:
            self.perf_metrics = ModelMetrics(self.vllm_config)

    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:
        if throttle_prefills:  # vLLM never sets it while prefill_schedule_interval is 1
            raise ValueError("throttle_prefills: quire.vllm.Scheduler does not support prefill_schedule_interval; set it to 1, or leave out --scheduler-cls")
        return super().schedule()

    def make_output(self, pieces) -> SchedulerOutput:
        # `cached` contains the columns of CachedRequestData, in its order.
        new, *cached, num_tokens, total_tokens, drafts, encoder_inputs, _, finished, freed_encoder, preempted, _ = pieces
        if self.use_v2_model_runner:
            cached[3] = {}
        speculative = self.vllm_config.speculative_config
        has_sync_loads, self.has_sync_loads = self.has_sync_loads, False
        return SchedulerOutput(
            scheduled_new_reqs=[self._new_request_data(*piece) for piece in new] if new else [],
            scheduled_cached_reqs=CachedRequestData(*cached),
            num_scheduled_tokens=num_tokens,
            total_num_scheduled_tokens=total_tokens,
            scheduled_spec_decode_tokens=drafts,
            scheduled_encoder_inputs=encoder_inputs,
            scheduled_encoder_input_stats=self._encoder_input_stats(encoder_inputs),
            finished_req_ids=finished,
            free_encoder_mm_hashes=freed_encoder,
            preempted_req_ids=preempted,
            has_sync_kv_loads=has_sync_loads,
            num_spec_tokens_to_schedule=speculative.num_speculative_tokens if speculative is not None else 0,
        )

    def _encoder_input_stats(self, encoder_inputs: dict) -> ScheduledEncoderInputStats | None:
        if not encoder_inputs or not self.log_stats or not self.observability_config.enable_logging_iteration_details:
            return None
        requests = self._native.stale_requests()
        positions = [requests[name].mm_features[index].mm_position for name, indexes in encoder_inputs.items() for index in indexes]
        return ScheduledEncoderInputStats(len(positions), sum(position.get_num_embeds() for position in positions))

    @staticmethod
    def _new_request_data(request, block_ids, num_computed_tokens, prefill_token_ids) -> NewRequestData:
        return NewRequestData(
            req_id=request.request_id,
            prompt_token_ids=request.prompt_token_ids,
            mm_features=request.mm_features,
            sampling_params=request.sampling_params,
            pooling_params=request.pooling_params,
            block_ids=block_ids,
            num_computed_tokens=num_computed_tokens,
            lora_request=request.lora_request,
            prompt_embeds=request.prompt_embeds,
            prompt_is_token_ids=request.prompt_is_token_ids,
            prefill_token_ids=prefill_token_ids,
        )

    def update_from_output(self, scheduler_output, model_runner_output):
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        self._copy_sampling_data(outputs, model_runner_output)
        return outputs

    def _copy_sampling_data(self, outputs, result) -> None:
        """Passes on data about tokens that no decision depends on."""
        scores = result.prompt_token_id_logprobs_dict
        masks = result.sampling_masks if self.vllm_config.model_config.return_sampling_mask else None
        if not scores and masks is None:
            return
        for core in outputs.values():
            for output in core.outputs:
                if output.request_id in scores:
                    output.prompt_token_id_logprobs = scores[output.request_id]
                if masks is not None and output.new_token_ids:
                    row = result.req_id_to_index[output.request_id]
                    output.new_sampling_mask = masks.slice_request(row, len(output.new_token_ids))

    def make_grammar_output(self, names, bitmask, scheduler_output) -> GrammarOutput:
        drafts = scheduler_output.scheduled_spec_decode_tokens
        return GrammarOutput(names, bitmask, [len(strip_speculative_padding(drafts.get(name, []))) for name in names])

    def finish_requests(self, request_ids, finished_status) -> list:
        """Returns the requests themselves instead of their names."""
        known = self._native.stale_requests()
        if request_ids is None:
            asked = dict(known)
        else:
            request_ids = request_ids if isinstance(request_ids, str) else list(request_ids)
            names = (request_ids,) if isinstance(request_ids, str) else request_ids
            asked = {name: known[name] for name in names if name in known}
        return [asked[name] for name, _ in super().finish_requests(request_ids, finished_status)]

    @property
    def kv_holding_waiting(self):
        """Returns the waiting requests that hold blocks. `waiting` contains all other waiting requests."""
        return self.skipped_waiting

    def add_request(self, request) -> None:
        if self.enable_kv_cache_events and (request.session_id or getattr(request, "kv_cache_report_mode", "incremental") != "incremental"):
            logger.warning("quire.vllm.Scheduler: KV events of request %s do not report its session, nor blocks that it reuses", request.request_id)
        super().add_request(request)

    @property
    def deferred_waiting(self) -> set:
        """Returns the waiting requests that were skipped or are blocked."""
        requests = self._native.requests()
        deferred = [core["id"] for core in self._native.snapshot()["requests"] if core["deferred"]]
        return {requests[name] for name in self._native.names_of(deferred)}

    def reset_without_connector(self) -> bool:
        return True

    def get_kv_cache_usage(self) -> float:
        return self.kv_cache_manager.usage

    def get_ec_connector(self):
        return None

    def get_kv_event_publisher_config(self):
        return self.kv_event_publisher.get_publisher_config()

    def convert_stats(self, stats, transfer_stats=None, cudagraph_stats=None, perf_stats=None) -> SchedulerStats:
        running, waiting, kv_usage, _, prefix, connector_prefix, spec, evictions, deferred = stats
        if self.connector is not None:
            connector_prefix = PrefixCacheStats(*(connector_prefix or ()), hits_by_source=self.loads.take_sources())
        return SchedulerStats(
            num_running_reqs=running,
            num_waiting_reqs=waiting - deferred,
            num_skipped_waiting_reqs=deferred,
            num_kv_fetch_reqs_by_stage=dict(self.loads.counts),
            kv_cache_usage=kv_usage,
            prefix_cache_stats=PrefixCacheStats(*prefix),
            connector_prefix_cache_stats=connector_prefix or None,
            kv_cache_eviction_events=[KVCacheEvictionEvent(*event) for event in evictions],
            spec_decoding_stats=SpecDecodingStats(*spec) if spec else None,
            kv_connector_stats=transfer_stats.to_dict() if transfer_stats else None,
            cudagraph_stats=cudagraph_stats,
            perf_stats=perf_stats,
        )

    def make_event(self, event):
        kind = event[0]
        if kind == "cleared":
            return AllBlocksCleared()
        convert = kv_cache_utils.maybe_convert_block_hash
        if kind == "removed":
            return BlockRemoved(block_hashes=[convert(event[1])], medium=event[2], group_idx=event[3])
        _, hashes, parent, token_ids, block_size, lora_id, medium, lora_name, extra_keys, group = event
        spec_kind, window = self._spec_kinds[group]
        return BlockStored(
            block_hashes=[convert(value) for value in hashes],
            parent_block_hash=None if parent is None else convert(parent),
            token_ids=token_ids,
            block_size=block_size,
            lora_id=lora_id,
            medium=medium,
            lora_name=lora_name,
            extra_keys=extra_keys,
            group_idx=group,
            kv_cache_spec_kind=spec_kind,
            kv_cache_spec_sliding_window=window,
        )
