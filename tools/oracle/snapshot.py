"""The state of a scheduler after a call, as plain values that are compared between the two schedulers.

`of_vllm` reads vLLM's objects. Another scheduler must return a dict of exactly this shape from `debug_snapshot()` (lists may be tuples):

    pool      "free"        [block id, ...]          the free queue from head (evicted next) to tail
              "ref_cnt"     [int, ...]               per block id; entry 0 (the null block, never counted exactly) is 0
              "hash"        [bytes | None, ...]      per block id: block hash + 4-byte big-endian group id
              "cached"      {bytes: [block id, ...]} the prefix index: key -> blocks in order of insertion
              "residency"   {block id: (birth_ns, last_access_ns, [access_ns, ...])}  sampled blocks; {} without KV metrics
    queues    "running", "waiting", "skipped_waiting"   [request id, ...]   PRIORITY: sorted, as iteration yields them
              "finished"    [request id, ...]        finished since the last schedule, sorted
              "prev_step"   [request id, ...]        scheduled in the previous step, sorted
              "finished_recving", "failed_recving"   [request id, ...]   sorted
              "num_waiting_for_streaming_input"      int
              "pause_state" int
    requests  "requests"    {request id: tuple in the order of REQUEST_FIELDS}
              "order"       [request id, ...]        of addition
    encoder   "encoder"     {"cached": {mm hash: [request id, ...] sorted}, "freeable": [[mm hash, embeds], ...] oldest first,
                             "freed": [mm hash, ...], "free_slots": int, "freeable_slots": int,
                             "allocated": [mm hash, ...], "to_free": [mm hash, ...]}
                            encoder-decoder models have only free_slots, allocated and to_free; the others are empty or 0, and vice versa
"""

import array
import zlib

from . import versions

REQUEST_FIELDS = (
    "status",  # int, vLLM's RequestStatus
    "num_tokens",
    "tokens",  # int: a checksum
    "num_prompt_tokens",
    "num_output_tokens",
    "max_tokens",
    "num_computed_tokens",
    "num_output_placeholders",
    "num_cached_tokens",  # under vLLM 0.32.0: num_stale_output_tokens
    "num_external_computed_tokens",  # under vLLM 0.32.0: num_in_flight_tokens
    "num_preemptions",
    "is_prefill_chunk",  # bool
    "discard_latest_async_tokens",  # bool; under vLLM 0.32.0: drop_stale_output
    "spec_token_ids",  # [int, ...]
    "num_block_hashes",
    "last_block_hash",  # bytes | None
    "stop_reason",  # int | str | None
    "num_nans_in_logits",
    "priority",
    "arrival_time",
    "blocks",  # per group: [block id, ...]; skipped positions are 0
    "num_cached_block",  # per group: int | None
)


def checksum(tokens) -> int:
    return zlib.crc32(array.array("i", tokens).tobytes())


def _pool(scheduler) -> dict:
    pool = scheduler.kv_cache_manager.block_pool
    blocks = pool.blocks
    ref_cnt = [block.ref_cnt for block in blocks]
    ref_cnt[0] = 0
    cached = {
        key: list(entry) if type(entry) is dict else [entry.block_id]
        for key, entry in pool.cached_block_hash_to_block._cache.items()
    }
    metrics = pool.metrics_collector
    return {
        "free": [block.block_id for block in pool.free_block_queue.get_all_free_blocks()],
        "ref_cnt": ref_cnt,
        "hash": [block._block_hash for block in blocks],
        "cached": cached,
        "residency": {
            block_id: (state.birth_time_ns, state.last_access_ns, list(state.access_history))
            for block_id, state in metrics.block_metrics.items()
        }
        if metrics
        else {},
    }


def _request(request, managers) -> tuple:
    request_id, hashes = request.request_id, request.block_hashes
    return (
        int(request.status),
        len(request._all_token_ids),
        checksum(request._all_token_ids),
        request.num_prompt_tokens,
        len(request._output_token_ids),
        request.max_tokens,
        request.num_computed_tokens,
        request.num_output_placeholders,
        *versions.counts(request),
        request.num_preemptions,
        request.is_prefill_chunk,
        versions.is_discarding(request),
        list(request.spec_token_ids),
        len(hashes),
        hashes[-1] if hashes else None,
        request.stop_reason,
        request.num_nans_in_logits,
        request.priority,
        request.arrival_time,
        [[block.block_id for block in manager.req_to_blocks.get(request_id, ())] for manager in managers],
        [manager.num_cached_block.get(request_id) for manager in managers],
    )


def _encoder(manager) -> dict:
    freeable = getattr(manager, "freeable", None)
    return {
        "cached": {key: sorted(ids) for key, ids in manager.cached.items()} if freeable is not None else {},
        "freeable": [list(item) for item in freeable.items()] if freeable is not None else [],
        "freed": list(manager.freed) if freeable is not None else [],
        "free_slots": manager.num_free_slots,
        "freeable_slots": manager.num_freeable_slots if freeable is not None else 0,
        "allocated": list(getattr(manager, "allocated", ())),
        "to_free": list(getattr(manager, "to_free", ())),
    }


def of_vllm(scheduler) -> dict:
    """Returns the state of vLLM's own Scheduler or AsyncScheduler."""
    managers = scheduler.kv_cache_manager.coordinator.single_type_managers
    state = _pool(scheduler)
    state["running"] = [request.request_id for request in scheduler.running]
    state["waiting"] = [request.request_id for request in scheduler.waiting]
    state["skipped_waiting"] = [request.request_id for request in versions.second_queue(scheduler)]
    if versions.IS_NEWER:
        state["deferred"] = sorted(request.request_id for request in scheduler.deferred_waiting)
    state["finished"] = sorted(scheduler.finished_req_ids)
    state["prev_step"] = sorted(scheduler.prev_step_scheduled_req_ids)
    state["finished_recving"] = sorted(scheduler.finished_recving_kv_req_ids)
    state["failed_recving"] = sorted(scheduler.failed_recving_kv_req_ids)
    state["num_waiting_for_streaming_input"] = scheduler.num_waiting_for_streaming_input
    state["pause_state"] = int(scheduler.pause_state)
    state["requests"] = {request_id: _request(request, managers) for request_id, request in scheduler.requests.items()}
    state["order"] = list(state["requests"])
    state["encoder"] = _encoder(scheduler.encoder_cache_manager)
    return state


def without(state: dict, names) -> dict:
    """Returns the state without the parts and request fields with these names, to find differences that a known difference hides."""
    kept = {key: value for key, value in state.items() if key not in names}
    if "requests" in kept:
        places = [i for i, name in enumerate(REQUEST_FIELDS) if name not in names]
        kept["requests"] = {key: tuple(fields[i] for i in places) for key, fields in kept["requests"].items()}
    return kept


def of(scheduler) -> dict:
    """Returns the state of a scheduler of quire or vLLM."""
    native = getattr(scheduler, "debug_snapshot", None)
    return native() if native is not None else of_vllm(scheduler)


def _peek_quire(scheduler, request_ids) -> dict:
    """Reads the state of the core itself, without refreshing quire's Python requests."""
    requests = scheduler._native.snapshot()["requests"]
    named = dict(zip(scheduler._native.names_of([request["id"] for request in requests]), requests))
    known = {name: named[name] for name in request_ids if name in named}
    return {name: (core["num_tokens"], core["is_prefill_chunk"], versions.will_discard_core(core)) for name, core in known.items()}


def peek(scheduler, request_ids) -> dict:
    """Returns {request id: (num_tokens, is_prefill_chunk, whether its next tokens are discarded)} for the scheduler's requests."""
    if getattr(scheduler, "debug_snapshot", None) is not None:
        return _peek_quire(scheduler, request_ids)
    known = {name: scheduler.requests[name] for name in request_ids if name in scheduler.requests}
    return {name: (request.num_tokens, request.is_prefill_chunk, versions.will_discard(request)) for name, request in known.items()}
