"""Converts vLLM's configuration to the core's. Refuses configurations that cannot be served, with the reason.

Called once, in the process of vLLM's EngineCore, when its scheduler is created. An option that would change a decision and that the core
does not support must be refused, because otherwise the decisions would silently differ from vLLM's.
"""

import quire

HASHES = {
    "sha256": quire.HashAlgorithm.SHA256,
    "sha256_cbor": quire.HashAlgorithm.SHA256_CBOR,
    "xxhash": quire.HashAlgorithm.XXHASH,
    "xxhash_cbor": quire.HashAlgorithm.XXHASH_CBOR,
}
# Class name of a vLLM KVCacheSpec -> the core's spec, and the additional fields that both have.
SPECS = {
    "FullAttentionSpec": (quire.FullAttentionSpec, ("sliding_window", "attention_chunk_size")),
    "MLAAttentionSpec": (quire.MlaAttentionSpec, ("sliding_window", "attention_chunk_size")),
    "SinkFullAttentionSpec": (quire.SinkFullAttentionSpec, ("sliding_window", "attention_chunk_size", "sink_len")),
    "SlidingWindowSpec": (quire.SlidingWindowSpec, ("sliding_window",)),
    "ChunkedLocalAttentionSpec": (quire.ChunkedLocalSpec, ("attention_chunk_size",)),
    "CrossAttentionSpec": (quire.CrossAttentionSpec, ()),
    "MambaSpec": (quire.MambaSpec, ("mamba_type", "num_speculative_blocks")),
}
MAMBA_MODES = {"none": quire.MambaCacheMode.NONE, "all": quire.MambaCacheMode.ALL, "align": quire.MambaCacheMode.ALIGN}


class Unsupported(ValueError):
    """Raised if quire.vllm.Scheduler cannot serve this configuration."""


def refuse(what: str, remedy: str):
    raise Unsupported(f"quire.vllm.Scheduler does not support {what}; {remedy}, or leave out --scheduler-cls")


def _dtype(dtype) -> quire.CacheDtype:
    return quire.CacheDtype(str(dtype).removeprefix("torch."), dtype.itemsize)


def _mamba(spec, vllm_spec) -> None:
    spec.shapes = [list(shape) for shape in vllm_spec.shapes]
    spec.dtypes = [_dtype(dtype) for dtype in vllm_spec.dtypes]
    spec.mode = MAMBA_MODES[vllm_spec.mamba_cache_mode]


def kv_spec(vllm_spec):
    """Returns the core's spec for a vLLM KVCacheSpec. For layers of one type with different specs, returns the spec of the first layer."""
    name = type(vllm_spec).__name__
    if name == "UniformTypeKVCacheSpecs":
        return kv_spec(next(iter(vllm_spec.kv_cache_specs.values())))
    if name not in SPECS:
        refuse(f"KV-cache specs of type {name}", f"use one of {', '.join(SPECS)}")
    cls, fields = SPECS[name]
    spec = cls()
    spec.block_size = vllm_spec.block_size
    if name == "MambaSpec":
        _mamba(spec, vllm_spec)
    else:
        spec.num_kv_heads = vllm_spec.num_kv_heads
        spec.head_size = vllm_spec.head_size
        spec.dtype = _dtype(vllm_spec.dtype)
    for field in fields:
        setattr(spec, field, getattr(vllm_spec, field))
    return spec


def kv_groups(kv_cache_config) -> list:
    return [quire.KvCacheGroup(list(group.layer_names), kv_spec(group.kv_cache_spec)) for group in kv_cache_config.kv_cache_groups]


def hash_algorithm(cache_config) -> quire.HashAlgorithm:
    name = cache_config.prefix_caching_hash_algo
    if name not in HASHES:
        if not cache_config.enable_prefix_caching:
            return quire.HashAlgorithm.SHA256
        refuse(f"prefix_caching_hash_algo={name!r}", f"use one of {', '.join(HASHES)}")
    return HASHES[name]


def speculation(vllm_config) -> dict:
    speculative_config = vllm_config.speculative_config
    if not speculative_config:
        return {}
    num = speculative_config.num_speculative_tokens
    eagle = bool(speculative_config.use_eagle())
    lookahead = getattr(vllm_config, "num_lookahead_tokens", None)
    if lookahead is None:  # older versions of vLLM compute it in their scheduler
        lookahead = num if eagle or speculative_config.uses_draft_model() else 0
    return {"num_spec_tokens": num, "use_eagle": eagle, "num_lookahead_tokens": lookahead}


def core_config(s) -> quire.CoreConfig:
    """Returns the core's options for the scheduler `s`, after its attributes from vLLM are set."""
    scheduler, cache, parallel = s.scheduler_config, s.cache_config, s.parallel_config
    transfer = s.vllm_config.kv_transfer_config
    align = s.kv_cache_config.has_mamba_layers and cache.mamba_cache_mode == "align"
    return quire.CoreConfig(
        decisions=s.decisions,
        max_num_seqs=s.max_num_running_reqs,
        max_num_batched_tokens=s.max_num_scheduled_tokens,
        max_model_len=s.max_model_len,
        long_prefill_token_threshold=scheduler.long_prefill_token_threshold,
        max_num_waiting=2**31,
        enable_chunked_prefill=bool(scheduler.enable_chunked_prefill),
        reserve_full_isl=bool(scheduler.scheduler_reserve_full_isl),
        async_scheduling=bool(scheduler.async_scheduling),
        admit_oversized=True,
        num_blocks=s.kv_cache_config.num_blocks,
        groups=kv_groups(s.kv_cache_config),
        block_size=s.block_size,
        cache_block_size=cache.block_size,
        enable_prefix_caching=bool(cache.enable_prefix_caching),
        hash=hash_algorithm(cache),
        enable_kv_events=s.enable_kv_cache_events,
        log_stats=s.log_stats,
        kv_metrics_sample=s.kv_metrics_sample,
        mamba_align=align,
        # vLLM sets no limit. Its engine has one step in flight per pipeline stage, and one more with asynchronous scheduling.
        max_outstanding_plans=max(4, parallel.pipeline_parallel_size + 2),
        max_loras=s.lora_config.max_loras if s.lora_config else 0,
        max_encoder_tokens=s.max_num_encoder_input_tokens,
        encoder_cache_size=s.encoder_cache_size,
        is_encoder_decoder=s.is_encoder_decoder,
        disable_chunked_mm_input=bool(scheduler.disable_chunked_mm_input),
        pipeline_parallel=s.use_pp,
        dcp_world_size=s.dcp_world_size,
        pcp_world_size=s.pcp_world_size,
        kv_load_failure=quire.KvLoadFailurePolicy.RECOMPUTE
        if transfer is not None and transfer.kv_load_failure_policy == "recompute"
        else quire.KvLoadFailurePolicy.FAIL,
        include_finished_set=s.include_finished_set,
        **s.version_options(),
        **{"policy": quire.SchedulingPolicy.PRIORITY if s.policy.value == "priority" else quire.SchedulingPolicy.FCFS, **s.own_options},
        **speculation(s.vllm_config),
    )
