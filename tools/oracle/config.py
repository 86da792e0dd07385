"""Converts a script's "config" (plain values, see generate.py) to the arguments of a scheduler.

vLLM's configuration objects take milliseconds to construct and to check against a model. The schedulers only read their attributes, so
plain namespaces replace the objects.
"""

import os
from dataclasses import dataclass
from types import SimpleNamespace

import torch
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
    MLAAttentionSpec,
    SinkFullAttentionSpec,
    SlidingWindowSpec,
)

from . import orders, versions
from .parties import GrammarManager, NewerGrammarManager, Registry, transfer_config


@dataclass
class EventsConfig:
    enable_kv_cache_events: bool
    publisher: str = "scripted"


def kv_spec(group: dict):
    """Returns a vLLM KVCacheSpec from {"kind", "block_size", ...}, with one head that is one float wide."""
    kind, size = group["kind"], group["block_size"]
    shape = {"num_kv_heads": 1, "head_size": 1, "dtype": torch.float16}
    if kind == "full":
        return FullAttentionSpec(block_size=size, **shape)
    if kind == "mla":
        return MLAAttentionSpec(block_size=size, **shape)
    if kind == "sink":
        return SinkFullAttentionSpec(block_size=size, sink_len=group["sink"] * size, **shape)
    if kind == "sliding":
        return SlidingWindowSpec(block_size=size, sliding_window=group["window"], **shape)
    if kind == "chunked":
        return ChunkedLocalAttentionSpec(block_size=size, attention_chunk_size=group["chunk"], **shape)
    if kind == "cross":
        return CrossAttentionSpec(block_size=size, **shape)
    assert kind == "mamba", kind
    return MambaSpec(
        block_size=size,
        shapes=((1,),),
        dtypes=(torch.float16,),
        mamba_cache_mode=group["mode"],
        num_speculative_blocks=group["spec_blocks"],
    )


def kv_cache_config(config: dict) -> KVCacheConfig:
    groups = [KVCacheGroupSpec([f"layer{i}"], kv_spec(group)) for i, group in enumerate(config["groups"])]
    newer = {"prefix_cache_retention_interval": config.get("retention")} if versions.IS_NEWER else {}
    return KVCacheConfig(num_blocks=config["num_blocks"], kv_cache_tensors=[], kv_cache_groups=groups, **newer)


def _speculative(config: dict):
    if config["spec"] == "none":
        return None
    method, num = config["spec"], config["num_spec_tokens"]
    namespace = SimpleNamespace(
        method=method,
        num_speculative_tokens=num,
        use_eagle=lambda: method == "eagle",
        uses_draft_model=lambda: method == "draft_model",
    )
    return versions.has_attributes(
        namespace, max_num_new_slots_for_drafting=0, num_speculative_tokens_per_batch_size=None, use_eagle_block_drop=lambda: method == "eagle"
    )


def _encoder_connector(config: dict) -> str:
    """Returns the class name of the encoder connector. A recorded run names it; a random script only says that a connector exists."""
    return config["ec_connector"] if isinstance(config["ec_connector"], str) else "ScriptedEncoderConnector"


def vllm_config(config: dict) -> SimpleNamespace:
    scheduler = SimpleNamespace(
        max_num_seqs=config["max_num_seqs"],
        max_num_batched_tokens=config["max_num_batched_tokens"],
        max_num_scheduled_tokens=config["max_num_scheduled_tokens"],
        max_model_len=config["max_model_len"],
        policy=config["policy"],
        async_scheduling=config["async"],
        enable_chunked_prefill=config["chunked_prefill"],
        long_prefill_token_threshold=config["long_prefill_token_threshold"],
        scheduler_reserve_full_isl=config["reserve_full_isl"],
        disable_chunked_mm_input=config["disable_chunked_mm_input"],
        disable_hybrid_kv_cache_manager=config["connector"] == "ScriptedConnector",
        max_num_encoder_input_tokens=config["encoder_budget"],
        encoder_cache_size=config["encoder_cache"],
        is_encoder_decoder=config["encoder_decoder"],
        stream_interval=1,
        scheduler_cls=None,
    )
    cache = SimpleNamespace(
        block_size=config["cache_block_size"],
        num_gpu_blocks=config["num_blocks"],
        enable_prefix_caching=config["prefix_caching"],
        prefix_caching_hash_algo=config["hash"],
        mamba_cache_mode=config["mamba_mode"],
        mamba_block_size=None,
        num_gpu_blocks_override=None,
    )
    parallel = SimpleNamespace(
        data_parallel_index=0,
        data_parallel_rank=0,
        data_parallel_size=1,
        tensor_parallel_size=1,
        pipeline_parallel_size=config["pp"],
        decode_context_parallel_size=config["dcp"],
        prefill_context_parallel_size=config["pcp"],
    )
    model = SimpleNamespace(
        max_model_len=config["max_model_len"],
        is_encoder_decoder=config["encoder_decoder"],
        enable_return_routed_experts=config["routed_experts"],
        is_multimodal_model=config["multimodal"],
        runner_type="generate",
    )
    observability = SimpleNamespace(
        kv_cache_metrics=config["kv_metrics"] > 0, kv_cache_metrics_sample=config["kv_metrics"], enable_mfu_metrics=config["mfu"]
    )
    connector = config["connector"]
    versions.has_attributes(
        scheduler,
        max_num_active_seqs=config.get("max_num_active_seqs"),
        long_prefill_token_threshold_adaptive=config.get("adaptive_threshold", False),
        watermark=config.get("watermark", 0.0),
        prefill_schedule_interval=1,
    )
    versions.has_attributes(cache, enable_mamba_shared_prefix_checkpoint=False, prefix_cache_retention_interval=0, prefix_match_unit=None)
    versions.has_attributes(
        model, uses_mrope=False, is_diffusion=False, return_sampling_mask=False, supports_multimodal_inputs=config["multimodal"]
    )
    versions.has_attributes(observability, per_request_spec_decode_metrics="none", enable_logging_iteration_details=config.get("iteration_details", False))
    return _with_newer(config, SimpleNamespace(
        scheduler_config=scheduler,
        cache_config=cache,
        parallel_config=parallel,
        model_config=model,
        observability_config=observability,
        lora_config=SimpleNamespace(max_loras=config["max_loras"]) if config["max_loras"] else None,
        kv_events_config=EventsConfig(True) if config["kv_events"] else None,
        kv_transfer_config=transfer_config(connector, config["load_failure"], config.get("role", "kv_both")) if connector else None,
        ec_transfer_config=SimpleNamespace(ec_connector=_encoder_connector(config), engine_id="oracle") if config["ec_connector"] else None,
        speculative_config=_speculative(config),
        additional_config=dict(config.get("additional", {})),
        structured_outputs_config=SimpleNamespace(reasoning_parser=""),
        mm_max_toks_per_item={"image": config["mm_max_tokens"]} if config["mm_max_tokens"] else {},
        max_concurrent_batches=config["queue_depth"],
    ))


def _with_newer(config: dict, namespace: SimpleNamespace) -> SimpleNamespace:
    drafts = namespace.speculative_config
    eagle = config["spec"] == "eagle"
    return versions.has_attributes(
        namespace,
        is_mm_encoder_only=False,
        num_speculative_tokens=config["num_spec_tokens"] if drafts else 0,
        num_lookahead_tokens=config["num_spec_tokens"] if config["spec"] in ("eagle", "draft_model") else 0,
        num_prefill_lookahead_tokens=1 if eagle else 0,
        max_in_flight_tokens=config["queue_depth"] * config["max_num_batched_tokens"],
        use_v2_model_runner=config["v2_runner"],
        ec_manager_config=SimpleNamespace(get_encoder_cache_manager_obj=lambda: None),
        aux_output_config=SimpleNamespace(enabled=False),
        diffusion_config=None,
    )


def prepare(config: dict) -> None:
    """Sets the process settings that both schedulers read."""
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "1" if config["v2_runner"] else "0"
    os.environ["VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES"] = "1" if config["int_hashes"] else "0"
    init_none_hash(get_hash_fn_by_name(config["hash"]))


def block_hasher(config: dict):
    """Returns the block hasher as EngineCore makes it; None without prefix caching and connector."""
    if not config["prefix_caching"] and not config["connector"]:
        return None
    return get_request_block_hasher(config["scheduler_block_size"], get_hash_fn_by_name(config["hash"]))


def install(config: dict) -> None:
    """Applies the process settings that this configuration needs in addition to the common ones."""
    if config.get("guided"):
        from . import guided

        guided.install_once()


def _grammars(config: dict, vllm_config_, side):
    if config.get("guided") and side.tape is not None and side.tape.is_read:
        from . import tape

        return tape.Manager(side, config["guided"])
    if config.get("guided"):
        from . import guided

        return guided.Manager(side, vllm_config_, config["guided"])
    return (NewerGrammarManager if versions.IS_NEWER else GrammarManager)(side, config["reasoning"])


def scheduler_arguments(config: dict, side) -> dict:
    vllm_config_ = vllm_config(config)
    return {
        "vllm_config": vllm_config_,
        "kv_cache_config": kv_cache_config(config),
        "structured_output_manager": _grammars(config, vllm_config_, side),
        "block_size": config["scheduler_block_size"],
        "mm_registry": Registry(config["multimodal"]),
        "include_finished_set": config["include_finished_set"],
        "log_stats": config["log_stats"],
    }


def stock_scheduler(arguments: dict):
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler

    if versions.IS_NEWER:
        orders.install(Scheduler)
    scheduler_config = arguments["vllm_config"].scheduler_config
    is_async = scheduler_config.async_scheduling
    if scheduler_config.policy == "continuum":
        from . import continuum

        return continuum.classes()[is_async](**arguments, decode=continuum.decode)
    return (AsyncScheduler if is_async else Scheduler)(**arguments)


def quire_scheduler(arguments: dict):
    from quire.vllm import Scheduler

    scheduler = Scheduler(**arguments)
    if arguments["vllm_config"].scheduler_config.policy == "continuum":
        from . import continuum

        scheduler.decode_output = continuum.decode
    return scheduler


SIDES = {"stock": stock_scheduler, "quire": quire_scheduler}
