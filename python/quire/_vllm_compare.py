"""Converts the results of a vLLM scheduler to plain values and finds the first difference of two results. Orders that callers cannot see
are removed. The oracle and the shadow use it. Imports nothing of vLLM, so it can be imported at any time.
"""

from dataclasses import asdict


def shorten(value, limit: int = 600) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]} ... ({len(text)} characters)"


def first_difference(left, right, path: str = ""):
    """Returns (path, left part, right part) of the first position where the two differ."""
    if isinstance(left, dict) and isinstance(right, dict):
        for key in [*left, *(key for key in right if key not in left)]:
            if key not in left or key not in right or left[key] != right[key]:
                name = key.hex() if isinstance(key, bytes) else key
                return first_difference(left.get(key, "absent"), right.get(key, "absent"), f"{path}.{name}")
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)) and len(left) == len(right):
        for index, (a, b) in enumerate(zip(left, right)):
            if a != b:
                return first_difference(a, b, f"{path}[{index}]")
    return path, left, right


def _array(value):
    return value.tolist() if hasattr(value, "tolist") else value


def _features(features) -> list:
    return [(f.identifier, f.mm_position.offset, f.mm_position.length) for f in features or ()]


def _new_request(data) -> tuple:
    return (
        data.req_id,
        data.prompt_token_ids,
        _features(data.mm_features),
        data.sampling_params,
        data.pooling_params,
        [list(group) for group in data.block_ids],
        data.num_computed_tokens,
        data.lora_request,
        _array(data.prompt_embeds),
        None if data.prefill_token_ids is None else list(data.prefill_token_ids),
        *((data.prompt_is_token_ids, data.replay_start) if hasattr(data, "replay_start") else ()),  # newer versions of vLLM
    )


def plan(output) -> dict:
    """Returns a SchedulerOutput as plain values."""
    cached = output.scheduled_cached_reqs
    return {
        "num_scheduled_tokens": list(output.num_scheduled_tokens.items()),
        "new_reqs": [_new_request(data) for data in output.scheduled_new_reqs],
        "req_ids": cached.req_ids,
        "resumed_req_ids": cached.resumed_req_ids,
        "new_token_ids": cached.new_token_ids,
        "all_token_ids": list(cached.all_token_ids.items()),
        "new_block_ids": [None if ids is None else [list(group) for group in ids] for ids in cached.new_block_ids],
        "num_computed_tokens": cached.num_computed_tokens,
        "num_output_tokens": cached.num_output_tokens,
        "total": output.total_num_scheduled_tokens,
        "spec": [(key, list(value)) for key, value in output.scheduled_spec_decode_tokens.items()],
        "encoder": list(output.scheduled_encoder_inputs.items()),
        "common_prefix": list(output.num_common_prefix_blocks),
        "finished": output.finished_req_ids.copy(),
        "free_encoder": list(output.free_encoder_mm_hashes),
        "preempted": output.preempted_req_ids,
        "structured": output.has_structured_output_requests,
        "pending": output.pending_structured_output_tokens,
        "invalid_spec": None if output.num_invalid_spec_tokens is None else list(output.num_invalid_spec_tokens.items()),
        "kv_meta": output.kv_connector_metadata,
        "ec_meta": output.ec_connector_metadata,
        "to_zero": output.new_block_ids_to_zero,
        **_newer(output),
    }


def _newer(output) -> dict:
    """Returns the fields that only newer versions of vLLM have."""
    if not hasattr(output, "num_spec_tokens_to_schedule"):
        return {}
    return {
        "num_drafts": output.num_spec_tokens_to_schedule,
        "sync_loads": output.has_sync_kv_loads,
        "copies": output.kv_cache_block_copies,
        "encoder_stats": output.scheduled_encoder_input_stats,
    }


def plan_sent(output) -> dict:
    """Returns a SchedulerOutput that the workers have already received, without its new requests, because vLLM may share a list of tokens
    with a request, which grows."""
    return {key: value for key, value in plan(output).items() if key != "new_reqs"}


def _output(output, decided: bool) -> tuple:
    logprobs = output.new_logprobs
    return (
        output.request_id,
        list(output.new_token_ids),
        None if logprobs is None else [_array(part) for part in logprobs],
        output.new_prompt_logprobs_tensors,
        output.pooling_output,
        output.finish_reason,
        output.stop_reason,
        None if output.events is None else [int(event.type) if decided else (int(event.type), event.timestamp) for event in output.events],
        output.kv_transfer_params,
        output.trace_headers,
        *_cached(output),
        None if decided else _array(output.routed_experts),
        output.num_nans_in_logits,
    )


def _cached(output) -> tuple:
    """Returns how many tokens of the prompt were cached. Newer versions of vLLM report this only once."""
    if hasattr(output, "num_cached_tokens"):
        return output.num_cached_tokens, output.num_external_computed_tokens
    told = output.prefill_stats
    return None if told is None else asdict(told), output.prompt_token_id_logprobs


def outputs(by_client: dict, decided: bool = False) -> list:
    """Returns the result of update_from_output: EngineCoreOutputs per client, in the dict's order. With `decided`, omits values that depend
    on clocks, random numbers or workers, which differ between two schedulers of one process.
    """
    items = _clients_in_order(by_client) if decided else list(by_client.items())
    told = [stats(core.scheduler_stats, decided) for _, core in items]
    if items != list(by_client.items()):  # the first client has the statistics
        told.sort(key=lambda value: value is None)
    return [
        (
            client,
            [_output(output, decided) for output in (_in_order(core.outputs) if decided else core.outputs)],
            value,
            None if decided else core.timestamp,
            None if core.finished_requests is None else set(core.finished_requests),
            (core.engine_index, core.utility_output, core.wave_complete, core.start_wave),
        )
        for (client, core), value in zip(items, told)
    ]


def _is_unordered(output) -> bool:
    """Returns whether the order of this output is undefined: newer versions of vLLM end requests with invalid grammars in the order of a
    set, after all sampled outputs."""
    return hasattr(output, "prefill_stats") and not output.new_token_ids and getattr(output.finish_reason, "name", "") == "ERROR"


def _in_order(told: list) -> list:
    last = [output for output in told if _is_unordered(output)]
    if len(last) < 2:
        return told
    return [output for output in told if not _is_unordered(output)] + sorted(last, key=lambda output: output.request_id)


def _clients_in_order(by_client: dict) -> list:
    last = [item for item in by_client.items() if item[1].outputs and all(map(_is_unordered, item[1].outputs))]
    if len(last) < 2:
        return list(by_client.items())
    names = {client for client, _ in last}
    return [item for item in by_client.items() if item[0] not in names] + sorted(last, key=lambda item: item[0])


def stats(value, decided: bool = False) -> dict | None:
    """Returns SchedulerStats as plain values."""
    if value is None:
        return None
    fields = value.__dict__.copy()
    for name in ("prefix_cache_stats", "connector_prefix_cache_stats", "spec_decoding_stats"):
        if fields[name] is not None:
            fields[name] = fields[name].__dict__.copy()
    fields["kv_cache_eviction_events"] = [asdict(event) for event in fields["kv_cache_eviction_events"]]
    if decided:
        fields = {name: part for name, part in fields.items() if name not in ("kv_cache_eviction_events", "kv_connector_stats", "perf_stats")}
    return fields


def grammar(output) -> tuple | None:
    """Returns a GrammarOutput as plain values."""
    if output is None:
        return None
    told = (output.structured_output_request_ids, _array(output.grammar_bitmask))
    return (*told, output.num_acceptable_drafts) if hasattr(output, "num_acceptable_drafts") else told
