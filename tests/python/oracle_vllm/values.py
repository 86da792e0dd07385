"""The values that a vLLM 0.19.0 scheduler receives and returns, with the same fields only."""

import dataclasses
import enum
import time
from dataclasses import dataclass, field


def record(name: str, *required: str, **optional):
    """Returns a dataclass with these fields; a callable default is a factory."""
    fields = [(each, object) for each in required]
    fields += [(key, object, field(default_factory=v) if callable(v) else field(default=v)) for key, v in optional.items()]
    return dataclasses.make_dataclass(name, fields)


class PauseState(enum.IntEnum):
    UNPAUSED = 0
    PAUSED_NEW = 1
    PAUSED_ALL = 2


class SchedulingPolicy(enum.Enum):
    FCFS = "fcfs"
    PRIORITY = "priority"


class FinishReason(enum.IntEnum):
    STOP = 0
    LENGTH = 1
    ABORT = 2
    ERROR = 3
    REPETITION = 4


class EngineCoreEventType(enum.IntEnum):
    QUEUED = 1
    SCHEDULED = 2
    PREEMPTED = 3


class SchedulerInterface:
    def has_unfinished_requests(self) -> bool:
        return self.get_num_unfinished_requests() > 0

    def has_requests(self) -> bool:
        return self.has_unfinished_requests() or self.has_finished_requests()


NewRequestData = record(
    "NewRequestData", "req_id", "prompt_token_ids", "mm_features", "sampling_params", "pooling_params", "block_ids", "num_computed_tokens",
    "lora_request", prompt_embeds=None, prefill_token_ids=None,
)
CachedRequestData = record(
    "CachedRequestData", "req_ids", "resumed_req_ids", "new_token_ids", "all_token_ids", "new_block_ids", "num_computed_tokens",
    "num_output_tokens",
)
SchedulerOutput = record(
    "SchedulerOutput", "scheduled_new_reqs", "scheduled_cached_reqs", "num_scheduled_tokens", "total_num_scheduled_tokens",
    "scheduled_spec_decode_tokens", "scheduled_encoder_inputs", "num_common_prefix_blocks", "finished_req_ids", "free_encoder_mm_hashes",
    preempted_req_ids=None, has_structured_output_requests=False, pending_structured_output_tokens=False, num_invalid_spec_tokens=None,
    kv_connector_metadata=None, ec_connector_metadata=None, new_block_ids_to_zero=None,
)
GrammarOutput = record("GrammarOutput", "structured_output_request_ids", "grammar_bitmask")
EngineCoreEvent = record("EngineCoreEvent", "type", "timestamp")
EngineCoreOutput = record(
    "EngineCoreOutput", "request_id", "new_token_ids", new_logprobs=None, new_prompt_logprobs_tensors=None, pooling_output=None,
    finish_reason=None, stop_reason=None, events=None, kv_transfer_params=None, trace_headers=None, num_cached_tokens=0,
    num_external_computed_tokens=0, routed_experts=None, num_nans_in_logits=0,
)


@dataclass
class EngineCoreOutputs:
    engine_index: int = 0
    outputs: list = field(default_factory=list)
    scheduler_stats: object = None
    timestamp: float = 0.0
    utility_output: object = None
    finished_requests: object = None
    wave_complete: object = None
    start_wave: object = None

    def __post_init__(self):
        self.timestamp = self.timestamp or time.monotonic()


ModelRunnerOutput = record(
    "ModelRunnerOutput", "req_ids", "req_id_to_index", sampled_token_ids=list, logprobs=None, prompt_logprobs_dict=dict, pooler_output=None,
    kv_connector_output=None, ec_connector_output=None, num_nans_in_logits=None, cudagraph_stats=None,
)
DraftTokenIds = record("DraftTokenIds", "req_ids", "draft_token_ids")
KVConnectorOutput = record(
    "KVConnectorOutput", finished_sending=None, finished_recving=None, kv_connector_stats=None, kv_cache_events=None,
    kv_connector_worker_meta=None, invalid_block_ids=set, expected_finished_count=0,
)


@dataclass
class LogprobsLists:
    logprob_token_ids: object
    logprobs: object
    sampled_token_ranks: object
    cu_num_generated_tokens: list | None = None

    def __iter__(self):
        return iter((self.logprob_token_ids, self.logprobs, self.sampled_token_ranks, self.cu_num_generated_tokens))

    def slice_request(self, index: int, count: int):
        start = self.cu_num_generated_tokens[index] if self.cu_num_generated_tokens is not None else index
        rows = slice(start, start + count)
        return LogprobsLists(self.logprob_token_ids[rows], self.logprobs[rows], self.sampled_token_ranks[rows])


PrefixCacheStats = record(
    "PrefixCacheStats", reset=False, requests=0, queries=0, hits=0, preempted_requests=0, preempted_queries=0, preempted_hits=0
)
KVCacheEvictionEvent = record("KVCacheEvictionEvent", "lifetime_seconds", "idle_seconds", "reuse_gaps_seconds")
SchedulerStats = record(
    "SchedulerStats", num_running_reqs=0, num_waiting_reqs=0, step_counter=0, current_wave=0, kv_cache_usage=0.0, encoder_cache_usage=0.0,
    prefix_cache_stats=PrefixCacheStats, connector_prefix_cache_stats=None, kv_cache_eviction_events=list, spec_decoding_stats=None,
    kv_connector_stats=None, waiting_lora_adapters=dict, running_lora_adapters=dict, cudagraph_stats=None, perf_stats=None,
)
SpecDecodingStats = record(
    "SpecDecodingStats", "num_spec_tokens", num_drafts=0, num_draft_tokens=0, num_accepted_tokens=0, num_accepted_tokens_per_pos=list
)
BlockStored = record(
    "BlockStored", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name", extra_keys=None
)
BlockRemoved = record("BlockRemoved", "block_hashes", "medium")
AllBlocksCleared = record("AllBlocksCleared")
KVEventBatch = record("KVEventBatch", "ts", "events", data_parallel_rank=None)

# The cache specs have the fields that the adapter reads.
SHAPE = {"num_kv_heads": 1, "head_size": 1, "dtype": None, "page_size_padded": None}


class AttentionSpec:
    pass


def spec(name: str, *required: str, bases=(AttentionSpec,), **optional):
    """Returns a dataclass for a kind of cache."""
    fields = [("block_size", int), *[(each, object) for each in required], *[(k, object, field(default=v)) for k, v in optional.items()]]
    return dataclasses.make_dataclass(name, fields, bases=bases)


FULL = {**SHAPE, "head_size_v": None, "sliding_window": None, "attention_chunk_size": None}
FullAttentionSpec = spec("FullAttentionSpec", **FULL)
MLAAttentionSpec = spec("MLAAttentionSpec", bases=(FullAttentionSpec,), **FULL, cache_dtype_str=None)
SinkFullAttentionSpec = spec("SinkFullAttentionSpec", bases=(FullAttentionSpec,), **FULL, sink_len=None)
SlidingWindowSpec = spec("SlidingWindowSpec", "sliding_window", **SHAPE)
ChunkedLocalAttentionSpec = spec("ChunkedLocalAttentionSpec", "attention_chunk_size", **SHAPE)
CrossAttentionSpec = spec("CrossAttentionSpec", **SHAPE)
MambaSpec = spec(
    "MambaSpec", "shapes", "dtypes", bases=(), page_size_padded=None, mamba_type="mamba2", mamba_cache_mode="none", num_speculative_blocks=0
)
KVCacheGroupSpec = record("KVCacheGroupSpec", "layer_names", "kv_cache_spec")


@dataclass
class KVCacheConfig:
    num_blocks: int
    kv_cache_tensors: list
    kv_cache_groups: list

    @property
    def has_mamba_layers(self) -> bool:
        return any(type(group.kv_cache_spec) is MambaSpec for group in self.kv_cache_groups)

    @property
    def needs_kv_cache_zeroing(self) -> bool:
        return self.has_mamba_layers
