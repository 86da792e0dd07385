"""Converts a vLLM Request to the fields that the core needs, and applies a session's inputs to a Request."""

from dataclasses import replace

from vllm.v1.utils import tensor_data

from quire.vllm import _continuum


def ending(sampling_params) -> dict:
    """Returns the end conditions of a new request, or of an input of a session."""
    if sampling_params is None:
        return {"min_tokens": 0, "eos_ids": [], "stop_token_ids": [], "repetition": (0, 0, 0)}
    repetition = sampling_params.repetition_detection
    eos = sampling_params.eos_token_id
    return {
        "min_tokens": sampling_params.min_tokens,
        "eos_ids": [] if eos is None else [eos],
        "stop_token_ids": list(sampling_params.stop_token_ids or ()),
        "repetition": (0, 0, 0)
        if repetition is None
        else (repetition.min_pattern_size, repetition.max_pattern_size, repetition.min_count),
    }


def features(mm_features) -> list:
    out = []
    for feature in mm_features or ():
        position = feature.mm_position
        mask = None if position.is_embed is None else [bool(flag) for flag in position.is_embed]
        out.append((feature.identifier, position.offset, position.length, mask))
    return out


def needs_logprobs(sampling) -> bool:
    """Returns whether log probabilities of outputs are requested. Newer versions of vLLM have another field for this."""
    return sampling is not None and getattr(sampling, "num_logprobs", sampling.logprobs) is not None


def new_request(request, has_block_hashes: bool) -> dict:
    lora, sampling = request.lora_request, request.sampling_params
    return {
        **ending(sampling),
        "tags": _continuum.tags(request),
        "client_index": request.client_index,
        "priority": request.priority,
        "arrival_time": request.arrival_time,
        "max_tokens": request.max_tokens,
        "pooling": request.pooling_params is not None,
        "structured_output": request.use_structured_output,
        "resumable": request.resumable,
        "skip_reading_prefix_cache": request.skip_reading_prefix_cache,
        "lora_id": lora.lora_int_id if lora else 0,
        "lora_name": lora.lora_name if lora else "",
        "lora_path": lora.lora_path if lora else "",
        "cache_salt": request.cache_salt or "",
        "multimodal": features(request.mm_features),
        "prompt_embeds": bytes(tensor_data(request.prompt_embeds)) if has_block_hashes and request.prompt_embeds is not None else None,
        "needs_logprobs": needs_logprobs(sampling),
        "pass_hashes": has_block_hashes,
    }


def session_input(update) -> dict:
    return {
        **ending(update.sampling_params),
        "tokens": list(update.prompt_token_ids or ()),
        "multimodal": features(update.mm_features),
        "arrival_time": update.arrival_time,
        "max_tokens": update.max_tokens,
    }


def take_session_input(request, update, num_prompt_tokens: int) -> bool:
    """Applies the next input of a session, which the core has already taken, to the Python request, except its tokens. Returns whether log
    probabilities are requested."""
    if update.mm_features:
        base = num_prompt_tokens - len(update.prompt_token_ids or ())
        for feature in update.mm_features:
            feature.mm_position = replace(feature.mm_position, offset=feature.mm_position.offset + base)
        request.mm_features.extend(update.mm_features)
    request.arrival_time = update.arrival_time
    request.sampling_params = update.sampling_params
    return needs_logprobs(update.sampling_params)
