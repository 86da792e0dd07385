"""Names of fields, arguments and objects that differ between vLLM 0.32.0 and 0.19.0. No decision depends on this module."""

import vllm

NUMBERS = tuple(int(part) for part in vllm.__version__.split("+")[0].split(".")[:3])
IS_NEWER = NUMBERS >= (0, 32)
NAME = "0.32.0" if IS_NEWER else "0.19.0"


def second_queue(scheduler):
    """Returns the waiting requests that are not in `waiting`: skipped requests, or requests that hold blocks."""
    return scheduler.kv_holding_waiting if hasattr(scheduler, "kv_holding_waiting") else scheduler.skipped_waiting


def counts(request) -> tuple:
    if IS_NEWER:
        return request.num_stale_output_tokens, request.num_in_flight_tokens
    return request.num_cached_tokens, request.num_external_computed_tokens


def is_discarding(request) -> bool:
    return request.drop_stale_output if IS_NEWER else request.discard_latest_async_tokens


def will_discard(request) -> bool:
    """Returns whether the result of the request's oldest step in flight will be discarded."""
    return is_discarding(request) and (not IS_NEWER or request.num_stale_output_tokens > 0)


def will_discard_core(core: dict) -> bool:
    """Returns the result of will_discard() for a request in a snapshot of the core."""
    return core["drops_stale"] and core["num_stale_tokens"] > 0 if IS_NEWER else core["discard_latest_async_tokens"]


def finished(answer: list) -> list:
    """Returns the result of finish_requests() as plain values."""
    return [(request.request_id, request.client_index, int(request.status)) for request in answer] if IS_NEWER else answer


def has_attributes(namespace, **values):
    """Returns the namespace with the additional attributes that vLLM 0.32.0 reads."""
    if IS_NEWER:
        for name, value in values.items():
            setattr(namespace, name, value)
    return namespace
