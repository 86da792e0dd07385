"""vLLM's Request and its parts, with the fields that a scheduler reads and writes."""

import dataclasses
import enum
from collections import deque


class RequestStatus(enum.IntEnum):
    WAITING = 1
    WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR = 2
    WAITING_FOR_REMOTE_KVS = 3
    WAITING_FOR_STREAMING_REQ = 4
    RUNNING = 5
    PREEMPTED = 6
    FINISHED_STOPPED = 7
    FINISHED_LENGTH_CAPPED = 8
    FINISHED_ABORTED = 9
    FINISHED_IGNORED = 10
    FINISHED_ERROR = 11
    FINISHED_REPETITION = 12

    @staticmethod
    def is_finished(status) -> bool:
        return status > RequestStatus.PREEMPTED


@dataclasses.dataclass(eq=False)
class RepetitionDetectionParams:
    max_pattern_size: int = 0
    min_pattern_size: int = 0
    min_count: int = 0


@dataclasses.dataclass
class StructuredOutputsParams:
    json_object: bool | None = None
    json: str | None = None
    regex: str | None = None
    choice: list | None = None
    grammar: str | None = None
    structural_tag: str | None = None


@dataclasses.dataclass
class SamplingParams:
    max_tokens: int = 16
    min_tokens: int = 0
    stop_token_ids: list = dataclasses.field(default_factory=list)
    logprobs: int | None = None
    skip_reading_prefix_cache: bool | None = None
    structured_outputs: StructuredOutputsParams | None = None
    extra_args: dict | None = None
    repetition_detection: RepetitionDetectionParams | None = None
    _eos_token_id: int | None = None

    @property
    def eos_token_id(self):
        return self._eos_token_id


@dataclasses.dataclass
class PoolingParams:
    task: str
    skip_reading_prefix_cache: bool | None = None


@dataclasses.dataclass
class LoRARequest:
    lora_name: str
    lora_int_id: int
    lora_path: str

    @property
    def adapter_id(self):
        return self.lora_int_id

    @property
    def name(self):
        return self.lora_name


@dataclasses.dataclass(frozen=True)
class PlaceholderRange:
    offset: int
    length: int
    is_embed: object = None

    def get_num_embeds(self) -> int:
        return self.length if self.is_embed is None else int(sum(self.is_embed))


@dataclasses.dataclass
class MultiModalFeatureSpec:
    data: object
    modality: str
    identifier: str
    mm_position: PlaceholderRange
    mm_hash: str | None = None


@dataclasses.dataclass
class StructuredOutputRequest:
    grammar: object = None
    reasoning_ended: bool | None = None


@dataclasses.dataclass
class EngineCoreRequest:
    request_id: str
    prompt_token_ids: list | None
    mm_features: list | None
    sampling_params: SamplingParams | None
    pooling_params: PoolingParams | None
    arrival_time: float
    lora_request: LoRARequest | None
    cache_salt: str | None
    data_parallel_rank: int | None
    prompt_embeds: object = None
    client_index: int = 0
    priority: int = 0
    trace_headers: dict | None = None
    resumable: bool = False


@dataclasses.dataclass
class StreamingUpdate:
    mm_features: list | None
    prompt_token_ids: list | None
    max_tokens: int
    arrival_time: float
    sampling_params: SamplingParams | None

    @classmethod
    def from_request(cls, request):
        if not request.resumable:
            return None
        return cls(request.mm_features, request.prompt_token_ids, request.max_tokens, request.arrival_time, request.sampling_params)


class ConstantList:
    def __init__(self, x):
        self._x = x

    def __len__(self):
        return len(self._x)

    def __getitem__(self, item):
        return self._x[item]

    def __iter__(self):
        return iter(self._x)

    def __contains__(self, item):
        return item in self._x


class Request:
    def __init__(self, arrived: EngineCoreRequest, hasher):
        for name in (
            "request_id", "prompt_token_ids", "sampling_params", "pooling_params", "arrival_time", "lora_request", "cache_salt",
            "prompt_embeds", "client_index", "priority", "trace_headers", "resumable",
        ):
            setattr(self, name, getattr(arrived, name))
        params = self.sampling_params or self.pooling_params
        self.mm_features = arrived.mm_features or []
        self.max_tokens = 1 if self.pooling_params else params.max_tokens
        self.skip_reading_prefix_cache = bool(params.skip_reading_prefix_cache)
        structured = self.sampling_params is not None and self.sampling_params.structured_outputs is not None
        self.structured_output_request = StructuredOutputRequest() if structured else None
        self.status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR if structured else RequestStatus.WAITING
        extra = self.sampling_params.extra_args if self.sampling_params else None
        self.kv_transfer_params = extra.get("kv_transfer_params") if extra else None
        tokens = self.prompt_token_ids
        self.num_prompt_tokens = len(tokens) if tokens is not None else len(self.prompt_embeds)
        self._all_token_ids = list(tokens) if tokens is not None else [0] * self.num_prompt_tokens
        self._output_token_ids = []
        self.all_token_ids, self.output_token_ids = ConstantList(self._all_token_ids), ConstantList(self._output_token_ids)
        self.events, self.spec_token_ids, self.block_hashes = [], [], []
        self.stop_reason, self.streaming_queue = None, None
        self.num_output_placeholders = self.num_computed_tokens = self.num_nans_in_logits = 0
        self.num_preemptions = self.num_external_computed_tokens = 0
        self.num_cached_tokens = -1
        self.discard_latest_async_tokens = self.is_prefill_chunk = False
        self._block_hasher = hasher
        self.update_block_hashes()

    @classmethod
    def from_engine_core_request(cls, arrived, hasher):
        return cls(arrived, hasher)

    def update_block_hashes(self) -> None:
        if self._block_hasher is not None:
            self.block_hashes.extend(self._block_hasher(self))

    def append_output_token_ids(self, token) -> None:
        self._output_token_ids.append(token)
        self._all_token_ids.append(token)
        self.update_block_hashes()

    @property
    def use_structured_output(self) -> bool:
        return self.structured_output_request is not None

    @property
    def num_tokens(self) -> int:
        return len(self._all_token_ids)

    @property
    def num_output_tokens(self) -> int:
        return len(self._output_token_ids)

    @property
    def has_encoder_inputs(self) -> bool:
        return bool(self.mm_features)

    def get_num_encoder_embeds(self, index: int) -> int:
        return self.mm_features[index].mm_position.get_num_embeds()

    def is_finished(self) -> bool:
        return RequestStatus.is_finished(self.status)

    def take_events(self):
        events, self.events = self.events, []
        return events or None


__all__ = ["deque", *[name for name in list(globals()) if name[:1].isupper()]]
