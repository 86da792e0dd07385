"""Records a scheduler's calls as a script that tools/oracle can play: plain values, and the answers of connectors and grammars.

The script contains the token ids of all prompts and answers. Its size is limited: if a run exceeds LIMIT values, the whole script is
dropped.
"""

import json

import quire
from vllm import envs

LIMIT = 4_000_000
KINDS = {
    "FullAttentionSpec": "full",
    "MLAAttentionSpec": "mla",
    "SinkFullAttentionSpec": "sink",
    "SlidingWindowSpec": "sliding",
    "ChunkedLocalAttentionSpec": "chunked",
    "CrossAttentionSpec": "cross",
    "MambaSpec": "mamba",
}
# Answers of scripted connectors, grammars and encoders, which a recorded run does not have.
NO_ANSWERS = dict.fromkeys(("unknown", "async", "sync", "delay", "params", "stats", "events", "finish", "invalid", "encoder", "inspect", "keep"), 0)


def _group(spec) -> dict:
    if type(spec).__name__ == "UniformTypeKVCacheSpecs":
        spec = next(iter(spec.kv_cache_specs.values()))
    group = {"kind": KINDS[type(spec).__name__], "block_size": spec.block_size}
    if group["kind"] == "sink":
        group["sink"] = spec.sink_len // spec.block_size
    elif group["kind"] == "sliding":
        group["window"] = spec.sliding_window
    elif group["kind"] == "chunked":
        group["chunk"] = spec.attention_chunk_size
    elif group["kind"] == "mamba":
        group.update(mode=spec.mamba_cache_mode, spec_blocks=spec.num_speculative_blocks)
    return group


def _speculation(speculative) -> dict:
    if not speculative:
        return {"spec": "none", "num_spec_tokens": 0}
    method = "eagle" if speculative.use_eagle() else "draft_model" if speculative.uses_draft_model() else "ngram"
    return {"spec": method, "num_spec_tokens": speculative.num_speculative_tokens}


def configuration(s) -> dict:
    """Returns the configuration of a quire.vllm.Scheduler, in the oracle's format."""
    scheduler, cache, model = s.scheduler_config, s.cache_config, s.vllm_config.model_config
    transfer = s.vllm_config.kv_transfer_config
    return {
        "prefix_caching": bool(cache.enable_prefix_caching), "hash": cache.prefix_caching_hash_algo, "int_hashes": False,
        "policy": s.policy.value, "async": s._is_async, "chunked_prefill": bool(scheduler.enable_chunked_prefill),
        "dcp": s.dcp_world_size, "pcp": s.pcp_world_size, "pp": s.parallel_config.pipeline_parallel_size,
        "max_loras": s.lora_config.max_loras if s.lora_config else 0, "kv_events": False, "log_stats": bool(s.log_stats), "kv_metrics": 0,
        "include_finished_set": bool(s.include_finished_set), "v2_runner": bool(envs.VLLM_USE_V2_MODEL_RUNNER), "routed_experts": False,
        "encoder_decoder": s.is_encoder_decoder, "load_failure": transfer.kv_load_failure_policy if transfer else "fail", "reasoning": 0,
        "mfu": False, "vocab": 1, "follow": 0, "answers": {**NO_ANSWERS, "unit": 1, "reset": True},
        "queue_depth": getattr(s.vllm_config, "max_concurrent_batches", 1), "role": transfer.kv_role if transfer else "kv_both",
        **_speculation(s.vllm_config.speculative_config), "mamba_mode": cache.mamba_cache_mode,
        "groups": [_group(group.kv_cache_spec) for group in s.kv_cache_config.kv_cache_groups],
        "scheduler_block_size": s.block_size, "cache_block_size": cache.block_size, "max_model_len": model.max_model_len,
        "num_blocks": s.kv_cache_config.num_blocks, "max_num_seqs": s.max_num_running_reqs,
        "max_num_batched_tokens": scheduler.max_num_batched_tokens, "max_num_scheduled_tokens": scheduler.max_num_scheduled_tokens,
        "long_prefill_token_threshold": scheduler.long_prefill_token_threshold, "reserve_full_isl": bool(scheduler.scheduler_reserve_full_isl),
        "multimodal": s.max_num_encoder_input_tokens > 0, "mm_max_tokens": 1 if s.max_num_encoder_input_tokens else 0,
        "encoder_budget": s.max_num_encoder_input_tokens, "encoder_cache": s.encoder_cache_size,
        "disable_chunked_mm_input": bool(scheduler.disable_chunked_mm_input),
        "ec_connector": "RecordedEncoderConnector" if s.ec_connector is not None else False,
        "connector": "RecordedConnector" if s.connector is not None else None,
        **_newer_configuration(s),
    }  # fmt: skip


def _newer_configuration(s) -> dict:
    """Returns the settings that only vLLM 0.32.0 has."""
    if s.decisions == quire.DecisionProfile.VLLM_0_19:
        return {}
    limits = s.scheduler_config
    return {
        "retention": s.kv_cache_config.prefix_cache_retention_interval, "max_num_active_seqs": limits.max_num_active_seqs,
        "adaptive_threshold": bool(limits.long_prefill_token_threshold_adaptive), "watermark": limits.watermark,
        "iteration_details": bool(s.observability_config.enable_logging_iteration_details),
    }  # fmt: skip


def request_spec(request) -> dict:
    """Returns a request as it was when it arrived."""
    spec = {
        "id": request.request_id, "tokens": list(request._all_token_ids), "arrival": request.arrival_time, "priority": request.priority,
        "client": request.client_index, "max_tokens": request.max_tokens, "salt": request.cache_salt,
        "skip_read": request.skip_reading_prefix_cache, "lora": request.lora_request.lora_int_id if request.lora_request else 0,
        "resumable": int(request.resumable), "embeds": int(request.prompt_embeds is not None),
        "pooling": int(request.pooling_params is not None), "grammar": int(request.use_structured_output),
    }  # fmt: skip
    if request.mm_features:
        spec["images"] = [_feature(feature) for feature in request.mm_features]
    sampling = request.sampling_params
    if sampling is not None:
        repetition = sampling.repetition_detection
        spec.update(min_tokens=sampling.min_tokens, eos=sampling.eos_token_id, stop=list(sampling.stop_token_ids or ()))
        spec["repetition"] = repetition and [repetition.max_pattern_size, repetition.min_pattern_size, repetition.min_count]
    return spec


def _feature(feature) -> list:
    position = feature.mm_position
    mask = None if position.is_embed is None else [int(flag) for flag in position.is_embed]
    return [position.offset, position.length, feature.identifier, mask]


def result(output) -> dict:
    """Returns the part of a ModelRunnerOutput on which decisions depend."""
    worker = output.kv_connector_output
    told = {"ids": list(output.req_id_to_index.items()), "sampled": [list(row) for row in output.sampled_token_ids or ()]}
    if output.pooler_output:
        told["pooled"] = [int(row is not None) for row in output.pooler_output]
    if output.num_nans_in_logits is not None:
        told["nans"] = dict(output.num_nans_in_logits)
    if worker is not None:
        told["kv"] = [sorted(worker.finished_sending or ()), sorted(worker.finished_recving or ()), sorted(worker.invalid_block_ids or ())]
    return told


def _size(value) -> int:
    if isinstance(value, (list, tuple)):
        return 1 + sum(map(_size, value))
    return 1 + sum(map(_size, value.values())) if isinstance(value, dict) else 1


class Journal:
    def __init__(self, config: dict):
        self._config = config
        self._events = []
        self._answers = {}
        self._size = 0
        self.full = False

    def event(self, *event) -> None:
        self._grow(event)
        if not self.full:
            self._events.append(event)

    def event_before(self, *event) -> None:
        """Inserts an event before the newest event, which depends on it."""
        if not self.full:
            self._events.insert(len(self._events) - 1, event)

    def answer(self, question: str, name: str, answer) -> None:
        self._grow(answer)
        if not self.full:
            self._answers.setdefault(question, {}).setdefault(name, []).append(answer)

    def _grow(self, value) -> None:
        self._size += _size(value) if not self.full else 0
        if self._size > LIMIT and not self.full:
            self.full = True
            self._events, self._answers = [], {}

    def write(self, file) -> None:
        script = {"seed": 0, "look_every": 1, "config": self._config, "recorded": self._answers, "events": self._events}
        json.dump(script, file, default=int)  # int, because workers may answer with NumPy integers
