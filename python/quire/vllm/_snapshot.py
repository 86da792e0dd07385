"""Converts the whole state of a quire.vllm.Scheduler to plain values."""

import array
import zlib

import quire

_STATUS = {status: index + 1 for index, status in enumerate(quire.RequestStatus)}


def _is_newer(scheduler) -> bool:
    return scheduler.decisions != quire.DecisionProfile.VLLM_0_19


def _request(core: dict, request, is_newer: bool) -> tuple:
    hashes = request.block_hashes
    return (
        _STATUS[core["status"]],
        core["num_tokens"],
        zlib.crc32(array.array("i", request._all_token_ids).tobytes()),
        request.num_prompt_tokens,
        len(request._output_token_ids),
        request.max_tokens,
        core["num_computed_tokens"],
        core["num_output_placeholders"],
        core["num_stale_tokens" if is_newer else "num_cached_tokens"],
        core["num_tokens_in_flight" if is_newer else "num_external_computed_tokens"],
        core["num_preemptions"],
        core["is_prefill_chunk"],
        core["drops_stale" if is_newer else "discard_latest_async_tokens"],
        core["draft_tokens"],
        len(hashes),
        hashes[-1] if hashes else None,
        request.stop_reason,
        request.num_nans_in_logits,
        request.priority,
        request.arrival_time,
        core["blocks"],
        core["num_cached_blocks"],
    )


def _pool(core: dict) -> dict:
    cached = {}
    for block_id in core["cached_blocks"]:
        cached.setdefault(core["keys"][block_id], []).append(block_id)
    return {
        "free": core["free_blocks"],
        "ref_cnt": [0, *core["ref_counts"][1:]],
        "hash": core["keys"],
        "cached": cached,
        "residency": {block: (birth, last, accesses) for block, birth, last, accesses in core["residency"]},
    }


def _encoder(core: dict, names, is_encoder_decoder: bool) -> dict:
    freed = core["encoder_freed"]
    return {
        "cached": {identifier: sorted(names(holders)) for identifier, holders, _ in core["encoder_cached"]},
        "freeable": [[identifier, embeds] for identifier, _, embeds in core["encoder_freeable"]],
        "freed": [] if is_encoder_decoder else freed,
        "free_slots": core["encoder_free_slots"],
        "freeable_slots": 0 if is_encoder_decoder else core["encoder_freeable_slots"],
        "allocated": freed if is_encoder_decoder else [],
        "to_free": core["encoder_to_report"],
    }


def encoder_cache(scheduler) -> dict:
    """Returns only the encoder cache, in the format of debug_snapshot()."""
    native = scheduler._native
    return _encoder(native.snapshot(), native.names_of, scheduler.is_encoder_decoder)


def debug_snapshot(scheduler) -> dict:
    native = scheduler._native
    requests = native.requests()
    core = native.snapshot()
    names = native.names_of
    state = _pool(core)
    for queue in ("running", "waiting", "skipped_waiting"):
        state[queue] = names(core[queue])
    state["finished"] = sorted(set(names(core["finished"])))
    is_newer = _is_newer(scheduler)
    state["prev_step"] = [] if is_newer and scheduler.use_v2_model_runner else sorted(native.last_step_names())
    if is_newer:
        state["deferred"] = sorted(names([r["id"] for r in core["requests"] if r["deferred"]]))
    state["finished_recving"] = sorted(names(core["finished_receiving"]))
    state["failed_recving"] = sorted(names(core["failed_receiving"]))
    waiting_for_input = [r for r in core["requests"] if r["status"] == quire.RequestStatus.WAITING_FOR_INPUT]
    state["num_waiting_for_streaming_input"] = len(waiting_for_input)
    state["pause_state"] = int(scheduler.pause_state)
    by_name = dict(zip(names([r["id"] for r in core["requests"]]), core["requests"]))
    state["requests"] = {name: _request(by_name[name], request, is_newer) for name, request in requests.items() if name in by_name}
    state["order"] = list(state["requests"])
    state["encoder"] = _encoder(core, names, scheduler.is_encoder_decoder)
    return state
