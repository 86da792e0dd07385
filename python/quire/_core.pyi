"""
The C++ core: which tokens of which requests run in each step, and in which KV-cache blocks.
"""

from collections.abc import Sequence
import enum
from typing import Annotated

import numpy
from numpy.typing import NDArray


class CacheDtype:
    """An element type by name, with its size."""

    def __init__(self, name: str, bytes: int) -> None: ...

    @property
    def name(self) -> str:
        """E.g. 'bfloat16'."""

    @name.setter
    def name(self, arg: str, /) -> None: ...

    @property
    def bytes(self) -> int:
        """Bytes of an element."""

    @bytes.setter
    def bytes(self, arg: int, /) -> None: ...

class AttentionShape:
    """What the specs of all attention layers have."""

    @property
    def block_size(self) -> int:
        """Tokens per block."""

    @block_size.setter
    def block_size(self, arg: int, /) -> None: ...

    @property
    def num_kv_heads(self) -> int:
        """Heads of keys and of values."""

    @num_kv_heads.setter
    def num_kv_heads(self, arg: int, /) -> None: ...

    @property
    def head_size(self) -> int:
        """Elements per head."""

    @head_size.setter
    def head_size(self, arg: int, /) -> None: ...

    @property
    def dtype(self) -> CacheDtype:
        """Element type."""

    @dtype.setter
    def dtype(self, arg: CacheDtype, /) -> None: ...

    @property
    def page_size_padded(self) -> int | None:
        """Bytes of a block where padding makes pages equal, else None."""

    @page_size_padded.setter
    def page_size_padded(self, arg: int | None) -> None: ...

class FullAttentionSpec(AttentionShape):
    """A layer in which every token attends to all tokens before it."""

    def __init__(self) -> None: ...

    @property
    def head_size_v(self) -> int:
        """Elements per head of values; 0: head_size."""

    @head_size_v.setter
    def head_size_v(self, arg: int, /) -> None: ...

    @property
    def sliding_window(self) -> int | None:
        """A window of layers that are kept as if they attended to everything."""

    @sliding_window.setter
    def sliding_window(self, arg: int | None) -> None: ...

    @property
    def attention_chunk_size(self) -> int | None:
        """A chunk of layers that are kept as if they attended to everything."""

    @attention_chunk_size.setter
    def attention_chunk_size(self, arg: int | None) -> None: ...

class MlaAttentionSpec(AttentionShape):
    """Multi-head latent attention."""

    def __init__(self) -> None: ...

    @property
    def head_size_v(self) -> int:
        """Elements per head of values; 0: head_size."""

    @head_size_v.setter
    def head_size_v(self, arg: int, /) -> None: ...

    @property
    def sliding_window(self) -> int | None:
        """A window of layers that are kept as if they attended to everything."""

    @sliding_window.setter
    def sliding_window(self, arg: int | None) -> None: ...

    @property
    def attention_chunk_size(self) -> int | None:
        """A chunk of layers that are kept as if they attended to everything."""

    @attention_chunk_size.setter
    def attention_chunk_size(self, arg: int | None) -> None: ...

    @property
    def cache_dtype(self) -> str | None:
        """'fp8_ds_mla' has a page size of its own."""

    @cache_dtype.setter
    def cache_dtype(self, arg: str | None) -> None: ...

class SinkFullAttentionSpec(AttentionShape):
    """Full attention whose first tokens have blocks set aside for ever."""

    def __init__(self) -> None: ...

    @property
    def head_size_v(self) -> int:
        """Elements per head of values; 0: head_size."""

    @head_size_v.setter
    def head_size_v(self, arg: int, /) -> None: ...

    @property
    def sliding_window(self) -> int | None:
        """A window of layers that are kept as if they attended to everything."""

    @sliding_window.setter
    def sliding_window(self, arg: int | None) -> None: ...

    @property
    def attention_chunk_size(self) -> int | None:
        """A chunk of layers that are kept as if they attended to everything."""

    @attention_chunk_size.setter
    def attention_chunk_size(self, arg: int | None) -> None: ...

    @property
    def sink_len(self) -> int:
        """Tokens, a positive multiple of block_size."""

    @sink_len.setter
    def sink_len(self, arg: int, /) -> None: ...

class SlidingWindowSpec(AttentionShape):
    """A layer in which a token attends to the tokens of a window before it."""

    def __init__(self) -> None: ...

    @property
    def sliding_window(self) -> int:
        """Tokens of the window, the current one among them."""

    @sliding_window.setter
    def sliding_window(self, arg: int, /) -> None: ...

class ChunkedLocalSpec(AttentionShape):
    """A layer in which a token attends to its own chunk."""

    def __init__(self) -> None: ...

    @property
    def attention_chunk_size(self) -> int:
        """Tokens of a chunk."""

    @attention_chunk_size.setter
    def attention_chunk_size(self, arg: int, /) -> None: ...

class CrossAttentionSpec(AttentionShape):
    """A decoder layer that attends to the encoder's output."""

    def __init__(self) -> None: ...

class EncoderOnlySpec(AttentionShape):
    """A layer without a cache."""

    def __init__(self) -> None: ...

class MambaCacheMode(enum.Enum):
    """When the states of a mamba layer are kept."""

    NONE = 0
    """One state per sequence."""

    ALL = 1
    """A state per block."""

    ALIGN = 2
    """States at block ends, kept while needed."""

class MambaSpec:
    """A layer that keeps a state instead of keys and values."""

    def __init__(self) -> None: ...

    @property
    def block_size(self) -> int:
        """Tokens per block."""

    @block_size.setter
    def block_size(self, arg: int, /) -> None: ...

    @property
    def shapes(self) -> list[list[int]]:
        """Shapes of the state tensors."""

    @shapes.setter
    def shapes(self, arg: Sequence[Sequence[int]], /) -> None: ...

    @property
    def dtypes(self) -> list[CacheDtype]:
        """One element type per shape."""

    @dtypes.setter
    def dtypes(self, arg: Sequence[CacheDtype], /) -> None: ...

    @property
    def page_size_padded(self) -> int | None:
        """Bytes of a block where padding makes pages equal, else None."""

    @page_size_padded.setter
    def page_size_padded(self, arg: int | None) -> None: ...

    @property
    def mamba_type(self) -> str:
        """Kind of mamba layer, e.g. 'mamba2'."""

    @mamba_type.setter
    def mamba_type(self, arg: str, /) -> None: ...

    @property
    def mode(self) -> MambaCacheMode:
        """When states are kept."""

    @mode.setter
    def mode(self, arg: MambaCacheMode, /) -> None: ...

    @property
    def num_speculative_blocks(self) -> int:
        """Further blocks for draft tokens."""

    @num_speculative_blocks.setter
    def num_speculative_blocks(self, arg: int, /) -> None: ...

class KvCacheGroup:
    """Layers that share one block table."""

    def __init__(self, layer_names: Sequence[str], spec: FullAttentionSpec | MlaAttentionSpec | SinkFullAttentionSpec | SlidingWindowSpec | ChunkedLocalSpec | MambaSpec | CrossAttentionSpec | EncoderOnlySpec) -> None: ...

    @property
    def layer_names(self) -> list[str]: ...

    @layer_names.setter
    def layer_names(self, arg: Sequence[str], /) -> None: ...

    @property
    def spec(self) -> FullAttentionSpec | MlaAttentionSpec | SinkFullAttentionSpec | SlidingWindowSpec | ChunkedLocalSpec | MambaSpec | CrossAttentionSpec | EncoderOnlySpec: ...

    @spec.setter
    def spec(self, arg: FullAttentionSpec | MlaAttentionSpec | SinkFullAttentionSpec | SlidingWindowSpec | ChunkedLocalSpec | MambaSpec | CrossAttentionSpec | EncoderOnlySpec, /) -> None: ...

class SchedulingPolicy(enum.Enum):
    """Which waiting request goes first."""

    FCFS = 0
    """In the order of arrival."""

    PRIORITY = 1
    """By (priority, arrival time, name); smaller goes first."""

    CONTINUUM = 2
    """By job; the blocks of an agent's turn stay while its tool runs."""

class DecisionProfile(enum.Enum):
    """Whose decisions the core makes, where versions of vLLM differ."""

    VLLM_0_19 = 0
    """vLLM 0.19.0."""

    VLLM_0_32 = 1
    """vLLM 0.32.0: full attention, without connectors and encoders."""

class HashAlgorithm(enum.Enum):
    """
    How blocks are named: vLLM's prefix_caching_hash_algo, and one of ours.
    """

    CANONICAL = 0
    """SHA-256 over an encoding in which every field is tagged."""

    SHA256 = 1
    """Equal to vLLM's sha256 (pickle)."""

    SHA256_CBOR = 2
    """Equal to vLLM's sha256_cbor."""

    XXHASH = 3
    """Equal to vLLM's xxhash (pickle)."""

    XXHASH_CBOR = 4
    """Equal to vLLM's xxhash_cbor."""

class KvLoadFailurePolicy(enum.Enum):
    """What becomes of requests whose external blocks could not be loaded."""

    FAIL = 0
    """They end with an error."""

    RECOMPUTE = 1
    """Their tokens are computed here."""

class PauseState(enum.Enum):
    """What may be scheduled."""

    UNPAUSED = 0
    """Everything."""

    PAUSED_NEW = 1
    """Only requests that run already."""

    PAUSED_ALL = 2
    """Nothing."""

class CoreConfig:
    """
    Every option of the core, without the groups that C++ has. Give at least num_blocks and max_model_len:

        CoreConfig(num_blocks=64, block_size=16, max_model_len=1024, max_num_seqs=8)

    Unlike the C++ default, scheduling is synchronous unless async_scheduling=True is given.
    """

    def __init__(self, **kwargs) -> None: ...

    @property
    def decisions(self) -> DecisionProfile:
        """Which version of vLLM decides, where they differ."""

    @decisions.setter
    def decisions(self, arg: DecisionProfile, /) -> None: ...

    @property
    def max_num_seqs(self) -> int:
        """Requests in the running batch."""

    @max_num_seqs.setter
    def max_num_seqs(self, arg: int, /) -> None: ...

    @property
    def max_num_batched_tokens(self) -> int:
        """Token budget of one step."""

    @max_num_batched_tokens.setter
    def max_num_batched_tokens(self, arg: int, /) -> None: ...

    @property
    def max_model_len(self) -> int:
        """Prompt and output tokens of a request."""

    @max_model_len.setter
    def max_model_len(self, arg: int, /) -> None: ...

    @property
    def long_prefill_token_threshold(self) -> int:
        """At most this many tokens of a request per step; 0: no limit."""

    @long_prefill_token_threshold.setter
    def long_prefill_token_threshold(self, arg: int, /) -> None: ...

    @property
    def max_num_waiting(self) -> int:
        """Requests beyond this many waiting ones are refused."""

    @max_num_waiting.setter
    def max_num_waiting(self, arg: int, /) -> None: ...

    @property
    def enable_chunked_prefill(self) -> bool:
        """A prompt may be spread over steps."""

    @enable_chunked_prefill.setter
    def enable_chunked_prefill(self, arg: bool, /) -> None: ...

    @property
    def reserve_full_isl(self) -> bool:
        """Admit a request only when its whole input fits."""

    @reserve_full_isl.setter
    def reserve_full_isl(self, arg: bool, /) -> None: ...

    @property
    def policy(self) -> SchedulingPolicy:
        """Which waiting request goes first, and which running one gives way."""

    @policy.setter
    def policy(self, arg: SchedulingPolicy, /) -> None: ...

    @property
    def async_scheduling(self) -> bool:
        """A step may be planned while the one before it runs."""

    @async_scheduling.setter
    def async_scheduling(self, arg: bool, /) -> None: ...

    @property
    def max_in_flight_tokens(self) -> int:
        """Tokens of all plans under way at most; 0: no bound."""

    @max_in_flight_tokens.setter
    def max_in_flight_tokens(self, arg: int, /) -> None: ...

    @property
    def admit_oversized(self) -> bool:
        """Take requests that can never run, as vLLM's scheduler does."""

    @admit_oversized.setter
    def admit_oversized(self, arg: bool, /) -> None: ...

    @property
    def max_num_active_seqs(self) -> int:
        """vLLM 0.32.0: requests that may run; 0: max_num_seqs."""

    @max_num_active_seqs.setter
    def max_num_active_seqs(self, arg: int, /) -> None: ...

    @property
    def num_watermark_blocks(self) -> int:
        """vLLM 0.32.0: blocks that an admission leaves free, if a request runs."""

    @num_watermark_blocks.setter
    def num_watermark_blocks(self, arg: int, /) -> None: ...

    @property
    def shared_prefill_tokens(self) -> int:
        """
        vLLM 0.32.0: long_prefill_token_threshold does not bind below an even share of so many tokens; 0: it does.
        """

    @shared_prefill_tokens.setter
    def shared_prefill_tokens(self, arg: int, /) -> None: ...

    @property
    def defer_block_free(self) -> bool:
        """
        vLLM 0.32.0: freed blocks go back when the steps that may write to them are over.
        """

    @defer_block_free.setter
    def defer_block_free(self, arg: bool, /) -> None: ...

    @property
    def drop_undelivered(self) -> bool:
        """vLLM 0.32.0: what is in flight for a preempted request is dropped."""

    @drop_undelivered.setter
    def drop_undelivered(self, arg: bool, /) -> None: ...

    @property
    def pin_s(self) -> float:
        """
        CONTINUUM: how long the blocks of a turn stay after its end, in seconds.
        """

    @pin_s.setter
    def pin_s(self, arg: float, /) -> None: ...

    @property
    def longest_tool_s(self) -> float:
        """CONTINUUM: no pin for a tool that takes longer in the mean."""

    @longest_tool_s.setter
    def longest_tool_s(self, arg: float, /) -> None: ...

    @property
    def max_jobs(self) -> int:
        """CONTINUUM: jobs remembered between turns."""

    @max_jobs.setter
    def max_jobs(self, arg: int, /) -> None: ...

    @property
    def max_tools(self) -> int:
        """CONTINUUM: tools whose times are remembered."""

    @max_tools.setter
    def max_tools(self, arg: int, /) -> None: ...

    @property
    def pins_give_way(self) -> bool:
        """
        CONTINUUM: where blocks lack, pins end before anybody is preempted, or kept waiting while nobody runs; the oldest first.
        """

    @pins_give_way.setter
    def pins_give_way(self, arg: bool, /) -> None: ...

    @property
    def pins_end_with_job(self) -> bool:
        """
        CONTINUUM: a pin ends with its job's last step, an aborted turn, and a reset of the prefix cache.
        """

    @pins_end_with_job.setter
    def pins_end_with_job(self, arg: bool, /) -> None: ...

    @property
    def jobless_in_order(self) -> bool:
        """CONTINUUM: requests without a job wait their turn, and no longer."""

    @jobless_in_order.setter
    def jobless_in_order(self, arg: bool, /) -> None: ...

    @property
    def admission_watermark(self) -> float:
        """Share of the blocks that an admission leaves free."""

    @admission_watermark.setter
    def admission_watermark(self, arg: float, /) -> None: ...

    @property
    def pressure_high(self) -> float:
        """
        While more than this share of the blocks is referenced nobody is admitted; 0: off.
        """

    @pressure_high.setter
    def pressure_high(self, arg: float, /) -> None: ...

    @property
    def pressure_low(self) -> float:
        """Until less than this share is."""

    @pressure_low.setter
    def pressure_low(self, arg: float, /) -> None: ...

    @property
    def pressure_preempts(self) -> bool:
        """Above pressure_high requests are preempted, too."""

    @pressure_preempts.setter
    def pressure_preempts(self, arg: bool, /) -> None: ...

    @property
    def num_blocks(self) -> int:
        """KV-cache blocks, the null block (id 0) included."""

    @num_blocks.setter
    def num_blocks(self, arg: int, /) -> None: ...

    @property
    def groups(self) -> list[KvCacheGroup]:
        """The cache groups of the model."""

    @groups.setter
    def groups(self, arg: Sequence[KvCacheGroup], /) -> None: ...

    @property
    def block_size(self) -> int:
        """Tokens of a hashed block."""

    @block_size.setter
    def block_size(self, arg: int, /) -> None: ...

    @property
    def cache_block_size(self) -> int:
        """vLLM's cache_config.block_size; 0: block_size."""

    @cache_block_size.setter
    def cache_block_size(self, arg: int, /) -> None: ...

    @property
    def enable_prefix_caching(self) -> bool:
        """Blocks of equal prefixes are shared."""

    @enable_prefix_caching.setter
    def enable_prefix_caching(self, arg: bool, /) -> None: ...

    @property
    def hash(self) -> HashAlgorithm:
        """How blocks are named."""

    @hash.setter
    def hash(self, arg: HashAlgorithm, /) -> None: ...

    @property
    def hash_seed(self) -> str:
        """Replicas with equal seeds name equal blocks alike."""

    @hash_seed.setter
    def hash_seed(self, arg: str, /) -> None: ...

    @property
    def root_hash(self) -> bytes:
        """
        The parent of every first block (vLLM's NONE_HASH), instead of one made from the seed.
        """

    @root_hash.setter
    def root_hash(self, arg: bytes, /) -> None: ...

    @property
    def retention_interval(self) -> int:
        """
        Of windows, blocks are found at each multiple of so many tokens; 0: behind prompts only; -1: everywhere.
        """

    @retention_interval.setter
    def retention_interval(self, arg: int, /) -> None: ...

    @property
    def lifo_free_blocks(self) -> bool:
        """
        Reuse the block that was freed last instead of the least recently used one.
        """

    @lifo_free_blocks.setter
    def lifo_free_blocks(self, arg: bool, /) -> None: ...

    @property
    def enable_kv_events(self) -> bool:
        """Outcomes carry what happened to cached blocks."""

    @enable_kv_events.setter
    def enable_kv_events(self, arg: bool, /) -> None: ...

    @property
    def log_stats(self) -> bool:
        """Outcomes carry statistics and request events."""

    @log_stats.setter
    def log_stats(self, arg: bool, /) -> None: ...

    @property
    def kv_metrics_sample(self) -> float:
        """Share of blocks whose residency is measured, 0 to 1."""

    @kv_metrics_sample.setter
    def kv_metrics_sample(self, arg: float, /) -> None: ...

    @property
    def mamba_align(self) -> bool:
        """mamba_cache_mode is 'align'."""

    @mamba_align.setter
    def mamba_align(self, arg: bool, /) -> None: ...

    @property
    def max_outstanding_plans(self) -> int:
        """Plans made and not yet applied: 1 synchronous, 2 asynchronous."""

    @max_outstanding_plans.setter
    def max_outstanding_plans(self, arg: int, /) -> None: ...

    @property
    def num_spec_tokens(self) -> int:
        """Draft tokens per step."""

    @num_spec_tokens.setter
    def num_spec_tokens(self, arg: int, /) -> None: ...

    @property
    def num_lookahead_tokens(self) -> int:
        """Block slots kept for them."""

    @num_lookahead_tokens.setter
    def num_lookahead_tokens(self, arg: int, /) -> None: ...

    @property
    def use_eagle(self) -> bool:
        """The last matched block is computed again, as EAGLE needs it."""

    @use_eagle.setter
    def use_eagle(self, arg: bool, /) -> None: ...

    @property
    def max_loras(self) -> int:
        """Adapters in one step; 0: no limit."""

    @max_loras.setter
    def max_loras(self, arg: int, /) -> None: ...

    @property
    def max_encoder_tokens(self) -> int:
        """Encoder embeddings computed per step."""

    @max_encoder_tokens.setter
    def max_encoder_tokens(self, arg: int, /) -> None: ...

    @property
    def encoder_cache_size(self) -> int:
        """Encoder embeddings kept."""

    @encoder_cache_size.setter
    def encoder_cache_size(self, arg: int, /) -> None: ...

    @property
    def is_encoder_decoder(self) -> bool:
        """The model has an encoder whose output the decoder attends to."""

    @is_encoder_decoder.setter
    def is_encoder_decoder(self, arg: bool, /) -> None: ...

    @property
    def disable_chunked_mm_input(self) -> bool:
        """A multimodal item is never split over steps."""

    @disable_chunked_mm_input.setter
    def disable_chunked_mm_input(self, arg: bool, /) -> None: ...

    @property
    def pipeline_parallel(self) -> bool:
        """Plans carry the sampled tokens back to the first stage."""

    @pipeline_parallel.setter
    def pipeline_parallel(self, arg: bool, /) -> None: ...

    @property
    def dcp_world_size(self) -> int:
        """Decode context parallelism."""

    @dcp_world_size.setter
    def dcp_world_size(self, arg: int, /) -> None: ...

    @property
    def pcp_world_size(self) -> int:
        """Prefill context parallelism."""

    @pcp_world_size.setter
    def pcp_world_size(self, arg: int, /) -> None: ...

    @property
    def kv_load_failure(self) -> KvLoadFailurePolicy:
        """What becomes of requests whose external blocks could not be loaded."""

    @kv_load_failure.setter
    def kv_load_failure(self, arg: KvLoadFailurePolicy, /) -> None: ...

    @property
    def include_finished_set(self) -> bool:
        """Outcomes list the requests that ended, per client."""

    @include_finished_set.setter
    def include_finished_set(self, arg: bool, /) -> None: ...

    def validate(self) -> None:
        """
        Raises ValueError, naming the option and the remedy, when these options cannot be served.
        """

class TransferDirection(enum.Enum):
    """Which way a transfer goes."""

    LOAD = 0
    """Fills the blocks."""

    STORE = 1
    """Reads what the steps before its plan have written to them."""

class TransferNeed(enum.Enum):
    """What must not begin before a transfer is over."""

    NOTHING = 0
    """A store, or a load whose request waits for it."""

    STEP = 1
    """The forward pass of its plan."""

    LAYER_BY_LAYER = 2
    """Layer i of the forward pass needs layer i of the blocks."""

class TransferList:
    """What a connector adds to a plan, during plan_transfers()."""

    def add(self, request: int, direction: TransferDirection, blocks: Sequence[int], places: Sequence[int], need: TransferNeed = TransferNeed.NOTHING, group: int = 0, tier: int = 0) -> int | None:
        """
        The transfer's id; None: as many are open as may be, so ask again with the next plan, or never. places: where each block is
        outside, in the connector's own numbers. request must be one that the core knows.
        """

class RequestStatus(enum.Enum):
    """Where a request stands; every value after PREEMPTED is finished."""

    WAITING = 0

    WAITING_FOR_GRAMMAR = 1

    WAITING_FOR_REMOTE_KV = 2

    WAITING_FOR_INPUT = 3

    RUNNING = 4

    PREEMPTED = 5

    FINISHED_STOPPED = 6

    FINISHED_LENGTH = 7

    FINISHED_ABORTED = 8

    FINISHED_IGNORED = 9

    FINISHED_ERROR = 10

    FINISHED_REPETITION = 11

class FinishReason(enum.Enum):
    """Why a request ended."""

    STOP = 0
    """A stop token."""

    LENGTH = 1
    """max_tokens or max_model_len."""

    ABORT = 2
    """finish() said so."""

    ERROR = 3
    """Its external blocks could not be loaded."""

    REPETITION = 4
    """The output repeated itself."""

class ScheduledKind(enum.Enum):
    """How a request came into the plan."""

    FRESH = 0
    """For the first time."""

    RESUMED = 1
    """Again, after a preemption."""

    RUNNING = 2
    """It ran before."""

class TableUpdate(enum.Enum):
    """What a block-table delta does."""

    APPEND = 0

    REPLACE_ALL = 1

    REPLACE_ONE = 2

class Scheduled:
    """
    Tokens [num_computed_tokens, num_computed_tokens + num_tokens) of a request run in this step.
    """

    @property
    def id(self) -> int: ...

    @property
    def slot(self) -> int:
        """The worker's row for this request."""

    @property
    def num_computed_tokens(self) -> int: ...

    @property
    def num_tokens(self) -> int: ...

    @property
    def samples(self) -> bool:
        """A token is sampled after the last scheduled one: apply() wants it."""

    @property
    def kind(self) -> ScheduledKind: ...

    @property
    def num_output_tokens(self) -> int:
        """Placeholders included."""

    @property
    def drafts(self) -> list:
        """Draft tokens among the scheduled ones; -1: the worker's own."""

    @property
    def encoder_inputs(self) -> list:
        """Multimodal inputs whose encoder runs in this step."""

class Admitted:
    """
    A request that enters the worker's batch; its block table starts empty.
    """

    @property
    def id(self) -> int: ...

    @property
    def slot(self) -> int: ...

    @property
    def tokens(self) -> list:
        """Prompt, then the outputs known so far."""

    @property
    def num_prompt_tokens(self) -> int: ...

class TableDelta:
    """A change of a request's block table in one cache group."""

    @property
    def id(self) -> int: ...

    @property
    def slot(self) -> int: ...

    @property
    def group(self) -> int: ...

    @property
    def update(self) -> TableUpdate: ...

    @property
    def index(self) -> int:
        """The entry, with REPLACE_ONE."""

    @property
    def blocks(self) -> list: ...

class Transfer:
    """What begins to move with this plan, on the connector's behalf."""

    @property
    def id(self) -> int: ...

    @property
    def request(self) -> int:
        """Its id."""

    @property
    def direction(self) -> TransferDirection: ...

    @property
    def need(self) -> TransferNeed: ...

    @property
    def group(self) -> int: ...

    @property
    def tier(self) -> int: ...

    @property
    def blocks(self) -> list: ...

    @property
    def places(self) -> list:
        """One for each block."""

class Plan:
    """What the worker has to do in one step. A copy: it stays as it is."""

    @property
    def step(self) -> int:
        """Steps are counted from 0."""

    @property
    def scheduled(self) -> list:
        """Scheduled, in order: running requests first, then admitted ones."""

    @property
    def admitted(self) -> list:
        """Admitted: new or resumed requests."""

    @property
    def table_deltas(self) -> list:
        """TableDelta: changes of block tables."""

    @property
    def num_scheduled_tokens(self) -> int:
        """Tokens of all scheduled requests."""

    @property
    def finished(self) -> list:
        """Ids of requests that ended since the plan before."""

    @property
    def preempted(self) -> list:
        """Ids of requests that this plan put back into the waiting queue."""

    @property
    def num_common_prefix_blocks(self) -> list:
        """Per cache group: blocks that all running requests share."""

    @property
    def freed_encoder_outputs(self) -> list:
        """Identifiers that the worker may forget."""

    @property
    def blocks_to_zero(self) -> list:
        """Blocks to be zeroed before use."""

    @property
    def transfers(self) -> list:
        """
        Transfer: stores first see what earlier steps wrote, loads fill blocks.
        """

    @property
    def fences(self) -> list:
        """
        Ids of transfers that must be over before this step writes or these loads begin.
        """

    def __repr__(self) -> str: ...

class Update:
    """What a result did to one request."""

    @property
    def id(self) -> int: ...

    @property
    def tokens(self) -> list:
        """Appended by this step."""

    @property
    def finished(self) -> bool: ...

    @property
    def status(self) -> RequestStatus: ...

    @property
    def reason(self) -> object:
        """FinishReason, or None while it goes on."""

    @property
    def stop_token(self) -> object:
        """The stop token that ended it, or None."""

    @property
    def session_waits(self) -> bool:
        """An input of a session ended, not the session."""

    @property
    def num_cached_tokens(self) -> int:
        """Prompt tokens found in the cache at admission."""

    def __repr__(self) -> str: ...

class Stats:
    """Counted since the outcome before."""

    @property
    def num_running(self) -> int: ...

    @property
    def num_waiting(self) -> int: ...

    @property
    def kv_cache_usage(self) -> float:
        """Share of blocks in use, 0 to 1."""

    @property
    def encoder_cache_usage(self) -> float:
        """Share of the encoder cache in use, 0 to 1."""

    @property
    def prefix_requests(self) -> int:
        """Look-ups in the prefix cache."""

    @property
    def prefix_queries(self) -> int:
        """Tokens looked up."""

    @property
    def prefix_hits(self) -> int:
        """Tokens found."""

class Outcome:
    """What a result did. A copy: it stays as it is."""

    @property
    def step(self) -> int: ...

    @property
    def updates(self) -> list:
        """
        Update, in the plan's order; none for a request of which there is nothing to tell.
        """

    @property
    def preempted(self) -> list:
        """Ids preempted when this step was planned."""

    @property
    def retired(self) -> list:
        """Ids that the core refers to no more."""

    @property
    def stats(self) -> object:
        """Stats, or None without log_stats."""

class RequestInfo:
    """One request as it was when asked for."""

    @property
    def id(self) -> int: ...

    @property
    def status(self) -> RequestStatus: ...

    @property
    def tokens(self) -> list:
        """Prompt, then outputs."""

    @property
    def draft_tokens(self) -> list: ...

    @property
    def num_prompt_tokens(self) -> int: ...

    @property
    def num_computed_tokens(self) -> int: ...

    @property
    def num_output_placeholders(self) -> int:
        """Tokens in flight, with async scheduling."""

    @property
    def num_preemptions(self) -> int: ...

    @property
    def num_cached_tokens(self) -> int:
        """Found in the cache at first admission; -1: not admitted yet."""

    @property
    def names(self) -> list:
        """Of its full blocks, in order: what equal beginnings have in common."""

class Core:
    """
    The scheduler and KV-cache manager, stepped by hand:

        core = quire.Core(quire.CoreConfig(num_blocks=64, max_model_len=1024))
        request = core.add([1, 2, 3], max_tokens=2)
        while core.has_work:
            plan = core.schedule()
            core.apply({r.id: [7] for r in plan.scheduled if r.samples})

    Deterministic: no clock, thread or random number of its own; equal calls give equal plans. Not thread-safe. Misuse raises and
    changes nothing.
    """

    def __init__(self, config: CoreConfig, connector: object | None = None) -> None:
        """
        connector: a quire.connectors.Connector; what it raises comes out of the call that asked it, whose result is then the
        exception's attribute `plan` or `outcome`.
        ValueError, naming the option and the remedy, for options that cannot be served.
        """

    def add(self, prompt: Sequence[int], *, max_tokens: int = 16, min_tokens: int = 0, eos_ids: Sequence[int] = [], stop_token_ids: Sequence[int] = [], priority: int = 0, arrival_time: float = 0.0, cache_salt: str = '', lora_id: int = 0, lora_name: str = '', pooling: bool = False, skip_reading_prefix_cache: bool = False, job: str = '', is_last_step: bool = False, tool: str = '', id: int | None = None, now: float = 0.0) -> int:
        """
        Puts a request into the waiting queue and returns its id.

        prompt: token ids. It is computed by the steps that follow, sharing the blocks of equal prefixes that are in the cache (requests with
        different cache_salt or adapter never share). ValueError when it is empty or longer than max_model_len or the cache allow.
        """

    def finish(self, id: int, status: RequestStatus = RequestStatus.FINISHED_ABORTED) -> bool:
        """
        Ends a request from outside, in any state. False when there is no such request any more.
        """

    def set_drafts(self, drafts: dict) -> None:
        """
        Draft tokens {id: [token, ...]} for the next plan. A drafted token is computed with the others; the step's result then holds the
        accepted ones and one more.
        """

    def __getitem__(self, id: int) -> object:
        """The request as it is now, a RequestInfo. KeyError when it ended."""

    def __contains__(self, id: int) -> bool: ...

    def blocks(self, id: int, group: int = 0) -> list[int]:
        """Block ids of a request in one cache group. KeyError when it ended."""

    def schedule(self, now: float = 0.0, random: int = 0) -> object:
        """
        Decides a step and returns its Plan: which tokens of which requests run, and in which blocks. Each plan must be applied, in order.
        RuntimeError when max_outstanding_plans of them wait already.
        """

    def apply(self, tokens: dict, pooled: Sequence[int] = [], completions: Sequence[tuple[int, bool, Sequence[int]]] = [], now: float = 0.0, random: int = 0) -> object:
        """
        Takes the result of the oldest outstanding plan: {id: [token, ...]} for every scheduled request with samples, one token each and one
        more for each accepted draft. Returns an Outcome. completions: the connector's transfers that are over, (id, whether it is done, bad blocks of a load; []: all).
        ValueError, and nothing changes, when the result does not match the plan.
        """

    def reset_prefix_cache(self, preempt_running: bool = False, reset_connector: bool = False) -> bool:
        """
        Forgets all cached prefixes. False, and nothing happens, while a request holds blocks.
        """

    def reset_encoder_cache(self) -> None:
        """Forgets all encoder outputs."""

    @property
    def pause_state(self) -> PauseState:
        """What may be scheduled."""

    @pause_state.setter
    def pause_state(self, arg: PauseState, /) -> None: ...

    @property
    def has_work(self) -> bool:
        """A request is running or waiting."""

    @property
    def num_awaiting_transfers(self) -> int:
        """Requests that have ended and whose blocks a transfer keeps."""

    @property
    def num_running(self) -> int:
        """Requests in the running batch."""

    @property
    def num_waiting(self) -> int:
        """Waiting requests, preempted ones included."""

    @property
    def num_free_blocks(self) -> int:
        """Blocks that no request holds; cached ones included."""

    @property
    def num_preemptions(self) -> int:
        """Since the start."""

    @property
    def num_outstanding_plans(self) -> int:
        """Plans not yet applied."""

    def snapshot(self) -> object:
        """
        Everything, copied, as a dict: queues, requests, blocks with reference counts and keys, the free queue in order.
        """

    def check_invariants(self) -> None:
        """
        Recomputes from scratch what must hold; the program stops where it does not. For tests.
        """

class OffloadManager:
    """
    Which blocks a lower tier holds, in which slots, and who goes when others need room; it moves nothing. Keys are the names of blocks,
    bytes of at most 32; shorter ones come back with zeros behind them. Not thread-safe.
    """

    def __init__(self, num_slots: int, policy: object = 'lru', store_threshold: int = 0, max_tracked_keys: int = 64000, enable_events: bool = False) -> None:
        """
        policy: 'lru' or 'arc', as vLLM's; 'arc_paper' or 's3fifo'; or a quire.connectors.EvictionPolicy. From a store_threshold of 2 on a
        key is stored when it was looked up so often. ValueError for an option out of range.
        """

    def lookup(self, keys: Sequence[bytes]) -> int:
        """
        How many of the keys, from the first one on, can be loaded without a gap.
        """

    def find(self, keys: Sequence[bytes]) -> bytes:
        """
        A byte for each key: 0 it is absent, 1 it can be loaded, 2 a store of it is under way, 3 it is coming up, 4 it can be brought up. Nothing is
        counted or begun.
        """

    def discard(self, key: bytes) -> bool:
        """
        It leaves, for what was loaded of it was no good. False: it is not there, or in transfer, and stays.
        """

    def prepare_load(self, keys: Sequence[bytes]) -> list[int]:
        """
        The keys' slots, to be read until complete_load with the same keys. ValueError, and no key is held, when one cannot be loaded.
        """

    def complete_load(self, keys: Sequence[bytes]) -> None:
        """ValueError when a key is not being loaded."""

    def touch(self, keys: Sequence[bytes]) -> None:
        """The keys were used, the first one last."""

    def use(self, keys: Sequence[bytes]) -> None:
        """
        A request that begins with the keys was admitted, once of each: what 'arc_paper' and 's3fifo' count instead of touches.
        """

    def prepare_store(self, keys: Sequence[bytes]) -> tuple[list[bytes], list[int], list[bytes]] | None:
        """
        Those of the keys that have no slot, their slots, and the keys that left for them. None, and nothing changes, when they find no room.
        """

    def complete_store(self, keys: Sequence[bytes], success: bool = True) -> None:
        """
        Those that were being stored can be loaded from now on; without success they are removed.
        """

    def take_events(self) -> list[tuple[list[bytes], bool]]:
        """
        What happened since the last time: [(keys, whether they left)], oldest first.
        """

    @property
    def num_slots(self) -> int: ...

    @property
    def num_free(self) -> int: ...

    @property
    def lists(self) -> list[list[bytes]]:
        """
        The policy's keys from the oldest on. 'lru': all; 'arc', 'arc_paper': t1, t2, b1, b2; 's3fifo': small, main, ghosts.
        """

    @property
    def target_t1_size(self) -> float:
        """Of 'arc' and 'arc_paper'."""

    @property
    def counted(self) -> list[tuple[bytes, int]]:
        """
        What the reuse filter has counted: [(key, lookups)], least recently looked up first.
        """

    def check_invariants(self) -> None:
        """The program stops where one does not hold."""

class TieredOffload:
    """
    OffloadManager over a folder: what is stored in host memory is written to the folder behind it, and what only the folder has comes up
    before lookup counts it. No call waits for the disk. Not thread-safe.
    """

    def __init__(self, num_slots: int, pages: Sequence[Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu')]], written: Sequence[Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu')]], folder: str, budget_bytes: int, fingerprint: bytes, policy: str = 'lru', store_threshold: int = 0, max_tracked_keys: int = 64000, enable_events: bool = False, bytes_per_second: int = 0) -> None:
        """
        pages: what a slot has in each tensor of each worker, a row per slot. written: by worker, for each slot the number of what was
        copied there last. budget_bytes: of everything in the folder. fingerprint: 32 bytes of all that a block's bytes depend on beside its
        name. ValueError for an option out of range, and for a folder that is in use, another model's, or cannot be written.
        """

    def close(self) -> None:
        """What is being written is finished, and the folder is free for others."""

    def lookup(self, keys: Sequence[bytes]) -> int | None:
        """
        How many of the keys, from the first one on, can be loaded from host memory; None: ask again, some are on their way up.
        """

    def find(self, keys: Sequence[bytes]) -> bytes:
        """
        A byte for each key: 0 it is absent, 1 it can be loaded, 2 a store of it is under way, 3 it is coming up, 4 it can be brought up. Nothing is
        counted or begun.
        """

    def bring_up(self, keys: Sequence[bytes]) -> bool:
        """
        Those that only the folder has come up, from the first one on, as many as find room. Whether any of the keys are on their way.
        """

    def count(self, keys: Sequence[bytes]) -> None:
        """For store_threshold: they were asked for. lookup does that, too."""

    def discard(self, key: bytes) -> bool:
        """As OffloadManager's, of host memory: what the folder has stays."""

    @property
    def num_slots(self) -> int: ...

    def prepare_load(self, keys: Sequence[bytes]) -> list[int]:
        """As OffloadManager's."""

    def complete_load(self, keys: Sequence[bytes]) -> None:
        """As OffloadManager's."""

    def touch(self, keys: Sequence[bytes]) -> None:
        """As OffloadManager's."""

    def use(self, keys: Sequence[bytes]) -> None:
        """As OffloadManager's."""

    def prepare_store(self, keys: Sequence[bytes]) -> tuple[list[bytes], list[int], list[int], list[bytes]] | None:
        """
        As OffloadManager's, with a number for each slot behind the slots: what mark_written writes when the block has been copied there.
        """

    def complete_store(self, keys: Sequence[bytes], success: bool = True) -> None:
        """As OffloadManager's."""

    def take_events(self) -> list[tuple[list[bytes], bool]]:
        """As OffloadManager's: of host memory."""

    def stats(self) -> dict:
        """
        Counts from the start: blocks and bytes written to the folder and read from it, and what failed.
        """

class BlockCopier:
    """
    Copies between a KV cache in host memory and slots, on a thread of its own, in the order of coming.
    """

    def __init__(self, device: Sequence[Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu')]], host: Sequence[Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu')]], written: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu')]) -> None:
        """
        device, host: for each tensor a row per page, of the same bytes on both sides.
        """

    def submit(self, id: int, to_host: bool, device_pages: Sequence[int], host_pages: Sequence[int], slots: Sequence[int] = [], numbers: Sequence[int] = [], tensors: Sequence[int] = []) -> None:
        """
        Returns at once. slots, numbers: what is marked as written when all is copied. tensors: by number, in the order in which they are
        copied; []: all. ValueError for a page, slot or tensor that is not there.
        """

    def take_over(self, to_host: bool) -> list[tuple[int, int, float]]:
        """Those that have ended since the last time: [(id, bytes, seconds)]."""

    def wait(self, ids: Sequence[int]) -> None:
        """Returns when none of these is waiting or being copied."""

def mark_written(written: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu')], slots: Sequence[int], numbers: Sequence[int]) -> None:
    """
    Tells that blocks have been copied to the slots: who sees a number there sees the block's bytes.
    """

class VllmBridge:
    """The native half of quire.vllm.Scheduler; not for other use."""

    def __init__(self, config: CoreConfig, hooks: object, options: dict) -> None: ...

    def add(self, request: object, fields: dict, now: float) -> None: ...

    def continue_session(self, name: object, fields: dict | None, now: float) -> None: ...

    def show_session_input(self, name: object) -> None: ...

    def schedule(self, now: float, random: int) -> tuple: ...

    def update(self, scheduled: object, index: object, sampled: object | None, logprobs: object | None, prompt_logprobs: object | None, pooled: object | None, nans: object | None, finished_sending: object | None, finished_receiving: object | None, invalid_blocks: object | None, now: float, random: int, failed_receiving: object = ()) -> tuple: ...

    def num_idle_before(self, scheduled: object) -> int: ...

    def set_drafts(self, names: object, drafts: object) -> None: ...

    def set_drafts_in_plan(self, names: object, drafts: object) -> dict: ...

    def finish(self, names: object | None, status: RequestStatus, now: float) -> list: ...

    def reset_prefix_cache(self, preempt_running: bool, reset_connector: bool, now: float) -> bool: ...

    def reset_connector_cache(self) -> bool: ...

    def reset_encoder_cache(self) -> None: ...

    def make_stats(self) -> object: ...

    def flush_trace(self) -> object: ...

    def flush_journal(self) -> object: ...

    def requests(self) -> dict: ...

    def stale_requests(self) -> dict: ...

    def request(self, name: object) -> object: ...

    def is_prefill_chunk(self, name: object) -> bool: ...

    def is_structured(self, name: object) -> bool: ...

    def is_known(self, name: object) -> bool: ...

    def finished_names(self) -> set: ...

    def block_ids(self, name: object) -> object: ...

    def names_of(self, ids: Sequence[int]) -> list: ...

    def queue_names(self, which: int) -> list: ...

    def last_step_names(self) -> list: ...

    def block(self, block: int) -> tuple: ...

    def snapshot(self) -> object: ...

    def check_invariants(self) -> None: ...

    def counts(self) -> tuple: ...

    def has_finished_requests(self) -> bool: ...

    @property
    def pause_state(self) -> PauseState: ...

    @pause_state.setter
    def pause_state(self, arg: PauseState, /) -> None: ...
