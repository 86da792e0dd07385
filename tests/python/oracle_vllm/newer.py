"""The differences of vLLM 0.32.0 from 0.19.0 in the names and fields that quire.vllm.Scheduler and the oracle use."""

import dataclasses
import enum
import hashlib

from . import hashing, offload, offload_newer, requests, values
from .values import record

NewRequestData = record(
    "NewRequestData", "req_id", "prompt_token_ids", "mm_features", "sampling_params", "pooling_params", "block_ids", "num_computed_tokens",
    "lora_request", prompt_embeds=None, prompt_is_token_ids=None, prefill_token_ids=None, replay_start=0,
)
SchedulerOutput = record(
    "SchedulerOutput", "scheduled_new_reqs", "scheduled_cached_reqs", "num_scheduled_tokens", "total_num_scheduled_tokens",
    "scheduled_spec_decode_tokens", "scheduled_encoder_inputs", "finished_req_ids", "free_encoder_mm_hashes",
    scheduled_encoder_input_stats=None, preempted_req_ids=None, has_structured_output_requests=False, pending_structured_output_tokens=False,
    num_invalid_spec_tokens=None, kv_connector_metadata=None, has_sync_kv_loads=False, aux_output_connector_metadata=None,
    ec_connector_metadata=None, ec_manager_metadata=None, new_block_ids_to_zero=None, kv_cache_block_copies=None,
    kv_connector_block_state=None, num_spec_tokens_to_schedule=0, num_common_prefix_blocks=list,
)
ScheduledEncoderInputStats = record("ScheduledEncoderInputStats", num_inputs=0, output_tokens=0)
GrammarOutput = record("GrammarOutput", "structured_output_request_ids", "grammar_bitmask", num_acceptable_drafts=None)
EngineCoreOutput = record(
    "EngineCoreOutput", "request_id", "new_token_ids", new_logprobs=None, new_prompt_logprobs_tensors=None, pooling_output=None,
    finish_reason=None, stop_reason=None, events=None, kv_transfer_params=None, ec_transfer_params=None, trace_headers=None,
    prefill_stats=None, routed_experts=None, num_nans_in_logits=0, mm_cache_miss_hashes=None, new_sampling_mask=None,
    spec_decode_metrics=None, prompt_token_id_logprobs=None,
)
ModelRunnerOutput = record(
    "ModelRunnerOutput", "req_ids", "req_id_to_index", sampled_token_ids=list, logprobs=None, prompt_logprobs_dict=dict,
    prompt_token_id_logprobs_dict=dict, pooler_output=None, kv_connector_output=None, ec_connector_output=None, num_nans_in_logits=None,
    cudagraph_stats=None, aux_output_connector_output=None, sampling_masks=None,
)
PrefillStats = record(
    "PrefillStats", num_prompt_tokens=0, num_computed_tokens=0, num_cached_tokens=0, num_local_cached_tokens=0, num_external_cached_tokens=0,
    num_cache_creation_tokens=0,
)
_PrefixCacheStats = record(
    "PrefixCacheStats", reset=False, requests=0, queries=0, hits=0, preempted_requests=0, preempted_queries=0, preempted_hits=0, hits_by_source=dict
)


class PrefixCacheStats(_PrefixCacheStats):
    def record(self, num_tokens, num_hits, preempted, hits_by_source=None):
        for source, count in (hits_by_source or {}).items():
            self.hits_by_source[source] = self.hits_by_source.get(source, 0) + count


SchedulerStats = record(
    "SchedulerStats", num_running_reqs=0, num_waiting_reqs=0, num_skipped_waiting_reqs=0, num_kv_fetch_reqs_by_stage=dict, step_counter=0,
    current_wave=0, kv_cache_usage=0.0, iteration_details=None, prefix_cache_stats=PrefixCacheStats, connector_prefix_cache_stats=None,
    kv_cache_eviction_events=list, spec_decoding_stats=None, kv_connector_stats=None, ec_connector_stats=None, waiting_lora_adapters=dict,
    running_lora_adapters=dict, cudagraph_stats=None, perf_stats=None,
)
SpecDecodingStats = record(
    "SpecDecodingStats", "num_spec_tokens", num_drafts=0, num_draft_tokens=0, num_accepted_tokens=0, num_accepted_tokens_per_pos=list,
    num_draft_tokens_per_pos=list,
)
BlockStored = record(
    "BlockStored", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name", extra_keys=None,
    group_idx=None, kv_cache_spec_kind=None, kv_cache_spec_sliding_window=None, locality=None, ownership=None, session_id=None,
)
BlockRemoved = record("BlockRemoved", "block_hashes", "medium", group_idx=None, locality=None, ownership=None)
KV_FETCH_STAGES = KV_FETCH_WAITING_TO_START, KV_FETCH_IN_PROGRESS, KV_FETCH_COMPLETED_WAITING = "waiting_to_start", "in_progress", "completed_waiting"
KVConnectorBlockState = record("KVConnectorBlockState", "req_ids", "resolve_block_ids", "boundary_state_offloads")
KVConnectorBlockState.get_block_ids = lambda self, name: self.resolve_block_ids(name) if name in self.req_ids else None
KVConnectorOutput = record(
    "KVConnectorOutput", finished_sending=None, finished_recving=None, kv_connector_stats=None, kv_cache_events=None, kv_connector_worker_meta=None,
    invalid_block_ids=set, failed_recving=set, expected_finished_count=0,
)


class KVConnectorBase_V1(offload.KVConnectorBase_V1):
    requires_kv_delivery = property(lambda self: self._kv_transfer_config.is_kv_producer)

    def bind_kv_cache_manager(self, manager):
        self.bind_gpu_block_pool(manager.block_pool)

    def bind_gpu_block_pool(self, pool):
        pass

    def get_external_cache_hit_sources(self, request, num_external_tokens):
        return {offload_newer.CacheHitSource.EXTERNAL_UNSPECIFIED: num_external_tokens}

    def has_pending_block_frees(self):
        return False

    def has_pending_push_work(self):
        return False


SlidingWindowSpec = values.spec("SlidingWindowSpec", "sliding_window", **values.SHAPE, extra_retained_tokens=0)
KVCacheGroupSpec = record("KVCacheGroupSpec", "layer_names", "kv_cache_spec", is_eagle_group=False, host_resident=False, enable_kv_transfer=True)


@dataclasses.dataclass
class KVCacheConfig(values.KVCacheConfig):
    prefix_cache_retention_interval: int | None = None
    kv_cache_layout: str | None = None
    hash_block_size: int | None = None
    hisparse_host_num_blocks: int | None = None


class SpecKind(str, enum.Enum):
    FullAttentionSpec = "full_attention"
    MLAAttentionSpec = "mla_attention"
    SlidingWindowSpec = "sliding_window"
    ChunkedLocalAttentionSpec = "chunked_local_attention"
    CrossAttentionSpec = "cross_attention"


def get_kv_cache_spec_kind(spec) -> SpecKind:
    return SpecKind[type(spec).__name__]


def get_kv_cache_spec_sliding_window(spec) -> int | None:
    return spec.sliding_window if type(spec) is SlidingWindowSpec else None


def strip_speculative_padding(tokens: list) -> list:
    return tokens[: tokens.index(-1)] if -1 in tokens else tokens


@dataclasses.dataclass
class EngineCoreRequest(requests.EngineCoreRequest):
    session_id: str | None = None
    prompt_is_token_ids: list | None = None


class Request(requests.Request):
    def __init__(self, arrived, hasher):
        super().__init__(arrived, hasher)
        self.session_id, self.prompt_is_token_ids = arrived.session_id, arrived.prompt_is_token_ids
        self.num_stale_output_tokens = self.num_in_flight_tokens = 0
        self.drop_stale_output = False


def _extra_keys(request, start: int, end: int):
    keys = []
    if request.lora_request:
        keys.append(("lora", request.lora_request.lora_name, request.lora_request.lora_path))
    for feature in request.mm_features:
        first = feature.mm_position.offset
        if first < end and first + feature.mm_position.length > start:
            keys.append(("mm", feature.identifier, first - start))
    if start == 0 and request.cache_salt:
        keys.append(("cache_salt", request.cache_salt))
    if request.prompt_embeds is not None:
        keys.append(("prompt_embeds", hashlib.sha256(request.prompt_embeds[start:end].tobytes()).digest()))
    return tuple(keys) or None


def get_request_block_hasher(block_size: int, function):
    return hashing.get_request_block_hasher(block_size, function, _extra_keys)


def change(modules: dict) -> dict:
    """Updates the modules of 0.19.0 to 0.32.0."""
    here = globals()
    named = lambda text: {name: here[name] for name in text.split()}  # noqa: E731
    modules["vllm"]["__version__"] = "0.32.0"
    modules["vllm.distributed.kv_events"].update(named("BlockStored BlockRemoved"))
    modules["vllm.v1.core.sched.output"].update(named("NewRequestData SchedulerOutput ScheduledEncoderInputStats GrammarOutput KVConnectorBlockState"))
    modules["vllm.v1.engine"].update(named("EngineCoreOutput EngineCoreRequest"))
    modules["vllm.v1.outputs"].update(named("ModelRunnerOutput KVConnectorOutput"))
    modules["vllm.v1.metrics.stats"].update(named("PrefillStats PrefixCacheStats SchedulerStats KV_FETCH_STAGES"))
    modules["vllm.v1.metrics.stats"].update(named("KV_FETCH_WAITING_TO_START KV_FETCH_IN_PROGRESS KV_FETCH_COMPLETED_WAITING"))
    modules["vllm.distributed.kv_transfer.kv_connector.v1.base"].update(named("KVConnectorBase_V1"))
    modules["vllm.distributed.kv_transfer.kv_connector.v1.base"].update(offload_newer.members("KVConnectorTransferResults"))
    modules["vllm.v1.spec_decode.metrics"].update(named("SpecDecodingStats"))
    modules["vllm.v1.request"].update(named("Request"))
    modules["vllm.v1.kv_cache_interface"].update(
        named("KVCacheConfig KVCacheGroupSpec SlidingWindowSpec get_kv_cache_spec_kind get_kv_cache_spec_sliding_window")
        | offload_newer.members("HiddenStateCacheSpec RSWASpec iter_layer_specs")
    )
    modules["vllm.v1.structured_output.utils"] = named("strip_speculative_padding")
    modules["vllm.v1.core.single_type_kv_cache_manager"] = {"register_all_kvcache_specs": lambda vllm_config: None}
    del modules["vllm.model_executor.layers.fused_moe.routed_experts_capturer"]
    return {name: parts for name, parts in modules.items() if name not in offload.modules()} | offload_newer.modules()

