"""
The engine: a model, its KV cache and its scheduler, stepped by a thread of its own.
"""

from collections.abc import Mapping, Sequence


class EngineConfig:
    """
    The options of an engine: the flags of `quire serve`, with underscores. Its help says what each does.
    """

    def __init__(self, **kwargs) -> None: ...

    @property
    def kv_cache_memory(self) -> int:
        """Bytes; 0: what the machine has left."""

    @kv_cache_memory.setter
    def kv_cache_memory(self, arg: int, /) -> None: ...

    @property
    def num_blocks(self) -> int:
        """0: as many as kv_cache_memory holds."""

    @num_blocks.setter
    def num_blocks(self, arg: int, /) -> None: ...

    @property
    def block_size(self) -> int:
        """Tokens per block."""

    @block_size.setter
    def block_size(self, arg: int, /) -> None: ...

    @property
    def kv_cache_dtype(self) -> str:
        """Of keys and values."""

    @kv_cache_dtype.setter
    def kv_cache_dtype(self, arg: str, /) -> None: ...

    @property
    def enable_prefix_caching(self) -> bool:
        """Blocks are found again."""

    @enable_prefix_caching.setter
    def enable_prefix_caching(self, arg: bool, /) -> None: ...

    @property
    def prefix_caching_hash_algo(self) -> str:
        """How blocks are named."""

    @prefix_caching_hash_algo.setter
    def prefix_caching_hash_algo(self, arg: str, /) -> None: ...

    @property
    def prefix_caching_hash_seed(self) -> str:
        """What the names begin with."""

    @prefix_caching_hash_seed.setter
    def prefix_caching_hash_seed(self, arg: str, /) -> None: ...

    @property
    def kv_lifo(self) -> bool:
        """Reuse the block freed last first."""

    @kv_lifo.setter
    def kv_lifo(self, arg: bool, /) -> None: ...

    @property
    def count_common_prefix(self) -> bool:
        """The trace tells what all requests of a step begin with."""

    @count_common_prefix.setter
    def count_common_prefix(self, arg: bool, /) -> None: ...

    @property
    def mamba_cache_mode(self) -> str:
        """
        Where states of layers are kept: none, all or align; empty: as it suits the model.
        """

    @mamba_cache_mode.setter
    def mamba_cache_mode(self, arg: str, /) -> None: ...

    @property
    def max_num_seqs(self) -> int:
        """Requests that run at once."""

    @max_num_seqs.setter
    def max_num_seqs(self, arg: int, /) -> None: ...

    @property
    def max_num_batched_tokens(self) -> int:
        """Of one step."""

    @max_num_batched_tokens.setter
    def max_num_batched_tokens(self, arg: int, /) -> None: ...

    @property
    def max_model_len(self) -> int:
        """0: the model's context."""

    @max_model_len.setter
    def max_model_len(self, arg: int, /) -> None: ...

    @property
    def max_num_waiting(self) -> int:
        """More are refused."""

    @max_num_waiting.setter
    def max_num_waiting(self, arg: int, /) -> None: ...

    @property
    def long_prefill_token_threshold(self) -> int:
        """Most prompt tokens of one request per step; 0: no limit."""

    @long_prefill_token_threshold.setter
    def long_prefill_token_threshold(self, arg: int, /) -> None: ...

    @property
    def scheduler_reserve_full_isl(self) -> bool:
        """Admit a request only when its whole prompt fits."""

    @scheduler_reserve_full_isl.setter
    def scheduler_reserve_full_isl(self, arg: bool, /) -> None: ...

    @property
    def enable_chunked_prefill(self) -> bool:
        """A prompt may be spread over steps."""

    @enable_chunked_prefill.setter
    def enable_chunked_prefill(self, arg: bool, /) -> None: ...

    @property
    def scheduling_policy(self) -> str:
        """Who goes first."""

    @scheduling_policy.setter
    def scheduling_policy(self, arg: str, /) -> None: ...

    @property
    def async_scheduling(self) -> bool:
        """The next step is planned while one is computed."""

    @async_scheduling.setter
    def async_scheduling(self, arg: bool, /) -> None: ...

    @property
    def continuum_pin(self) -> float:
        """Seconds that a turn's blocks stay."""

    @continuum_pin.setter
    def continuum_pin(self, arg: float, /) -> None: ...

    @property
    def continuum_longest_tool(self) -> float:
        """Seconds."""

    @continuum_longest_tool.setter
    def continuum_longest_tool(self, arg: float, /) -> None: ...

    @property
    def continuum_max_jobs(self) -> int:
        """Remembered between turns."""

    @continuum_max_jobs.setter
    def continuum_max_jobs(self, arg: int, /) -> None: ...

    @property
    def continuum_max_tools(self) -> int:
        """Whose times are remembered."""

    @continuum_max_tools.setter
    def continuum_max_tools(self, arg: int, /) -> None: ...

    @property
    def max_forks(self) -> int:
        """Open answers that descend from one by forks."""

    @max_forks.setter
    def max_forks(self, arg: int, /) -> None: ...

    @property
    def num_speculative_tokens(self) -> int:
        """0: off, or 4 with speculative_model."""

    @num_speculative_tokens.setter
    def num_speculative_tokens(self, arg: int, /) -> None: ...

    @property
    def speculative_model(self) -> str:
        """A smaller one that makes drafts; empty: none."""

    @speculative_model.setter
    def speculative_model(self, arg: str, /) -> None: ...

    @property
    def prompt_lookup_min(self) -> int:
        """For drafts, at least."""

    @prompt_lookup_min.setter
    def prompt_lookup_min(self, arg: int, /) -> None: ...

    @property
    def prompt_lookup_max(self) -> int:
        """For drafts, at most."""

    @prompt_lookup_max.setter
    def prompt_lookup_max(self, arg: int, /) -> None: ...

    @property
    def enable_lora(self) -> bool:
        """Serve LoRA adapters beside the model."""

    @enable_lora.setter
    def enable_lora(self, arg: bool, /) -> None: ...

    @property
    def max_loras(self) -> int:
        """Different adapters in one step."""

    @max_loras.setter
    def max_loras(self, arg: int, /) -> None: ...

    @property
    def max_lora_rank(self) -> int:
        """Of a higher rank none is loaded."""

    @max_lora_rank.setter
    def max_lora_rank(self, arg: int, /) -> None: ...

    @property
    def max_cpu_loras(self) -> int:
        """Adapters in memory; 0: max_loras, the modules or 4, whichever is most."""

    @max_cpu_loras.setter
    def max_cpu_loras(self, arg: int, /) -> None: ...

    @property
    def lora_modules(self) -> dict[str, str]:
        """Folders by name, loaded at the start."""

    @lora_modules.setter
    def lora_modules(self, arg: Mapping[str, str], /) -> None: ...

    @property
    def kv_watermark(self) -> float:
        """Share of the blocks that an admission leaves free."""

    @kv_watermark.setter
    def kv_watermark(self, arg: float, /) -> None: ...

    @property
    def kv_pressure_high(self) -> float:
        """Above this share nobody is admitted; 0: off."""

    @kv_pressure_high.setter
    def kv_pressure_high(self, arg: float, /) -> None: ...

    @property
    def kv_pressure_low(self) -> float:
        """Until it is below this one."""

    @kv_pressure_low.setter
    def kv_pressure_low(self, arg: float, /) -> None: ...

    @property
    def kv_pressure_preempt(self) -> bool:
        """Above kv_pressure_high requests are preempted, too."""

    @kv_pressure_preempt.setter
    def kv_pressure_preempt(self, arg: bool, /) -> None: ...

    @property
    def kv_swap(self) -> int:
        """Bytes for blocks of preempted requests."""

    @kv_swap.setter
    def kv_swap(self, arg: int, /) -> None: ...

    @property
    def kv_swap_choice(self) -> str:
        """Who is swapped."""

    @kv_swap_choice.setter
    def kv_swap_choice(self, arg: str, /) -> None: ...

    @property
    def mmproj(self) -> str:
        """
        Beside a GGUF file: that of its encoder of pictures, as llama.cpp's converter makes it.
        """

    @mmproj.setter
    def mmproj(self, arg: str, /) -> None: ...

    @property
    def quantize(self) -> str:
        """What becomes of the matrices that the model has as floats."""

    @quantize.setter
    def quantize(self, arg: str, /) -> None: ...

    @property
    def weights_cache(self) -> str:
        """A folder that keeps packed weights between starts."""

    @weights_cache.setter
    def weights_cache(self, arg: str, /) -> None: ...

    @property
    def weights_cache_budget(self) -> int:
        """Bytes."""

    @weights_cache_budget.setter
    def weights_cache_budget(self, arg: int, /) -> None: ...

    @property
    def expert_memory(self) -> int:
        """
        Bytes for the experts of a mixture; the others are read from weights_cache when they are wanted.
        """

    @expert_memory.setter
    def expert_memory(self, arg: int, /) -> None: ...

    @property
    def kv_swap_disk(self) -> str:
        """A folder for the same."""

    @kv_swap_disk.setter
    def kv_swap_disk(self, arg: str, /) -> None: ...

    @property
    def kv_swap_disk_budget(self) -> int:
        """Bytes."""

    @kv_swap_disk_budget.setter
    def kv_swap_disk_budget(self, arg: int, /) -> None: ...

    @property
    def kv_dram(self) -> int:
        """Bytes of host memory for KV blocks; 0: no tier."""

    @kv_dram.setter
    def kv_dram(self, arg: int, /) -> None: ...

    @property
    def kv_disk(self) -> str:
        """A folder for KV blocks; empty: no tier."""

    @kv_disk.setter
    def kv_disk(self, arg: str, /) -> None: ...

    @property
    def kv_disk_budget(self) -> int:
        """Bytes; 0: a quarter of what is free."""

    @kv_disk_budget.setter
    def kv_disk_budget(self, arg: int, /) -> None: ...

    @property
    def kv_remote(self) -> str:
        """
        A store that servers share, redis://, rediss:// or unix://; empty: no tier.
        """

    @kv_remote.setter
    def kv_remote(self, arg: str, /) -> None: ...

    @property
    def kv_remote_key(self) -> str:
        """A file of the bytes that sign its values."""

    @kv_remote_key.setter
    def kv_remote_key(self, arg: str, /) -> None: ...

    @property
    def kv_remote_ca(self) -> str:
        """Certificates to check it against."""

    @kv_remote_ca.setter
    def kv_remote_ca(self, arg: str, /) -> None: ...

    @property
    def kv_remote_budget(self) -> int:
        """Bytes stored there; 0: 16 GiB."""

    @kv_remote_budget.setter
    def kv_remote_budget(self, arg: int, /) -> None: ...

    @property
    def kv_remote_ttl(self) -> int:
        """Seconds until what nobody uses is forgotten."""

    @kv_remote_ttl.setter
    def kv_remote_ttl(self, arg: int, /) -> None: ...

    @property
    def kv_load_failure_policy(self) -> str:
        """What becomes of requests whose blocks could not be loaded."""

    @kv_load_failure_policy.setter
    def kv_load_failure_policy(self, arg: str, /) -> None: ...

    @property
    def threads(self) -> int:
        """Of the computation; 0: one per core."""

    @threads.setter
    def threads(self, arg: int, /) -> None: ...

    @property
    def seed(self) -> int:
        """For requests without a seed of their own."""

    @seed.setter
    def seed(self, arg: int, /) -> None: ...

    @property
    def activations(self) -> str:
        """How weights meet activations; bf16 is for weights in bf16."""

    @activations.setter
    def activations(self, arg: str, /) -> None: ...

    @property
    def isa(self) -> str:
        """Kernels."""

    @isa.setter
    def isa(self, arg: str, /) -> None: ...

    @property
    def trace(self) -> str:
        """PATH of the record of each step; empty: none."""

    @trace.setter
    def trace(self, arg: str, /) -> None: ...

    @property
    def trace_every(self) -> int:
        """Only every n-th step."""

    @trace_every.setter
    def trace_every(self, arg: int, /) -> None: ...

    @property
    def trace_max_steps(self) -> int:
        """0: no limit."""

    @trace_max_steps.setter
    def trace_max_steps(self, arg: int, /) -> None: ...

    @property
    def trace_file_bytes(self) -> int:
        """Largest file."""

    @trace_file_bytes.setter
    def trace_file_bytes(self, arg: int, /) -> None: ...

    @property
    def trace_files(self) -> int:
        """Of each kind."""

    @trace_files.setter
    def trace_files(self, arg: int, /) -> None: ...

    @property
    def journal(self) -> str:
        """A folder for journals; empty: none."""

    @journal.setter
    def journal(self, arg: str, /) -> None: ...

    @property
    def journal_max_bytes(self) -> int:
        """Of all journals in it."""

    @journal_max_bytes.setter
    def journal_max_bytes(self, arg: int, /) -> None: ...

    @property
    def journal_memory(self) -> int:
        """Bytes for the last minutes of the same in memory; 0: none are kept."""

    @journal_memory.setter
    def journal_memory(self, arg: int, /) -> None: ...

    @property
    def journal_save(self) -> str:
        """Where save_journal() writes them; empty: journal."""

    @journal_save.setter
    def journal_save(self, arg: str, /) -> None: ...

    @property
    def journal_tokens(self) -> bool:
        """False: what prompts and answers say is left out."""

    @journal_tokens.setter
    def journal_tokens(self, arg: bool, /) -> None: ...

class SamplingParams:
    """How the next token is chosen; names and ranges are vLLM's."""

    def __init__(self, **kwargs) -> None: ...

    @property
    def temperature(self) -> float:
        """0 is greedy; 0 to 2."""

    @temperature.setter
    def temperature(self, arg: float, /) -> None: ...

    @property
    def top_p(self) -> float:
        """Sample from the likeliest tokens of this total probability."""

    @top_p.setter
    def top_p(self, arg: float, /) -> None: ...

    @property
    def top_k(self) -> int:
        """Sample from the k likeliest tokens; 0: from all."""

    @top_k.setter
    def top_k(self, arg: int, /) -> None: ...

    @property
    def min_p(self) -> float:
        """Least probability, relative to the likeliest token."""

    @min_p.setter
    def min_p(self, arg: float, /) -> None: ...

    @property
    def repetition_penalty(self) -> float:
        """Over prompt and output."""

    @repetition_penalty.setter
    def repetition_penalty(self, arg: float, /) -> None: ...

    @property
    def presence_penalty(self) -> float:
        """Over output, -2 to 2."""

    @presence_penalty.setter
    def presence_penalty(self, arg: float, /) -> None: ...

    @property
    def frequency_penalty(self) -> float:
        """Over output, -2 to 2."""

    @frequency_penalty.setter
    def frequency_penalty(self, arg: float, /) -> None: ...

    @property
    def seed(self) -> int | None:
        """The same seed, prompt and parameters give the same tokens."""

    @seed.setter
    def seed(self, arg: int | None) -> None: ...

    @property
    def logprobs(self) -> int | None:
        """
        Alternatives beside each token, at most 20; None: no log probabilities.
        """

    @logprobs.setter
    def logprobs(self, arg: int | None) -> None: ...

    @property
    def prompt_logprobs(self) -> int | None:
        """The same beside each token of the prompt but the first."""

    @prompt_logprobs.setter
    def prompt_logprobs(self, arg: int | None) -> None: ...

    @property
    def routed_experts(self) -> bool:
        """Tell the experts of each token (Output.routed_experts)."""

    @routed_experts.setter
    def routed_experts(self, arg: bool, /) -> None: ...

    @property
    def logit_bias(self) -> list[tuple[int, float]]:
        """[(token, bias), ...]"""

    @logit_bias.setter
    def logit_bias(self, arg: Sequence[tuple[int, float]], /) -> None: ...

    @property
    def max_tokens(self) -> int:
        """Longest answer."""

    @max_tokens.setter
    def max_tokens(self, arg: int, /) -> None: ...

    @property
    def min_tokens(self) -> int:
        """Neither EOS nor a stop id before so many."""

    @min_tokens.setter
    def min_tokens(self, arg: int, /) -> None: ...

    @property
    def stop_token_ids(self) -> list[int]:
        """Besides the model's EOS ids."""

    @stop_token_ids.setter
    def stop_token_ids(self, arg: Sequence[int], /) -> None: ...

    @property
    def ignore_eos(self) -> bool:
        """Go on behind EOS."""

    @ignore_eos.setter
    def ignore_eos(self, arg: bool, /) -> None: ...

    @property
    def allowed_token_ids(self) -> list[int]:
        """No others are drawn; empty: all."""

    @allowed_token_ids.setter
    def allowed_token_ids(self, arg: Sequence[int], /) -> None: ...

    @property
    def bad_words(self) -> list[list[int]]:
        """Sequences of token ids that are not completed."""

    @bad_words.setter
    def bad_words(self, arg: Sequence[Sequence[int]], /) -> None: ...

class Output:
    """Part of an answer, as a stream gives it, or all of it."""

    @property
    def tokens(self) -> list[int]:
        """Token ids."""

    @property
    def text(self) -> str:
        """
        Whole characters only, without control tokens and without the stop id that ended it.
        """

    @property
    def logprobs(self) -> object:
        """
        Per token [(token, log probability, rank), ...], the token's own first; None: not asked for.
        """

    @property
    def prompt_logprobs(self) -> object:
        """The same per token of the prompt but the first."""

    @property
    def routed_experts(self) -> object:
        """
        A memoryview of the experts of each token that was computed, [token][layer][expert], as NumPy takes it: with the first part those of the prompt, then of the tokens before the part's; None: not asked for.
        """

    @property
    def finish_reason(self) -> str | None:
        """'stop', 'length', 'repetition' or 'abort'; None: the answer goes on."""

    @property
    def num_cached_tokens(self) -> int:
        """Tokens of the prompt that the prefix cache had."""

class Generation:
    """
    An answer under way: an iterator of Output. Dropped before its end, it is aborted.
    """

    def __iter__(self) -> object: ...

    def __next__(self) -> Output:
        """What has come since the last; waits for it."""

    def rest(self) -> Output:
        """
        Waits for the end, and returns all that has not been taken yet as one Output.
        """

    def abort(self) -> None:
        """Ends it; what was computed by then still comes."""

class NativeEngine:
    """What quire.Engine is made of."""

    def __init__(self, model: str, config: EngineConfig) -> None: ...

    def submit(self, prompt: Sequence[int], sampling: SamplingParams, *, priority: int = 0, cache_salt: str = '', job: str = '', is_last_step: bool = False, tool: str = '', adapter: str = '') -> Generation: ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, tokens: Sequence[int]) -> str: ...

    def encode_chat(self, messages: Sequence[tuple[str, str]]) -> list[int]: ...

    def stats(self) -> dict: ...

    def save_journal(self) -> dict: ...

    def load_adapter(self, name: str, path: str, replace: bool = False) -> None: ...

    def unload_adapter(self, name: str) -> None: ...

    def adapters(self) -> list: ...

    def probe(self, prompt: Sequence[int], cache_salt: str = '', adapter: str = '') -> dict: ...

    def cache_curve(self) -> list: ...

    def close(self, timeout: float) -> int: ...
