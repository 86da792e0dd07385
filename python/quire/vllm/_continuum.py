"""SchedulingPolicy.CONTINUUM inside vLLM: a request's tags, and the tool that a turn calls.

vLLM's own --scheduling-policy does not know this policy, so it is selected by

    --additional-config '{"quire": {"policy": "continuum", "pins_give_way": true}}'

and requests carry `job_id` and `is_last_step` in SamplingParams.extra_args.
"""

import re

from vllm.logger import init_logger

logger = init_logger("vllm.quire")

# A bash command in a separate code block, as mini-swe-agent's models write it.
_BLOCK = re.compile(r"```bash\s*\n(.*?)\n```", re.DOTALL)


def tags(request) -> dict:
    """Returns the tags of a vLLM request."""
    extra = request.sampling_params.extra_args if request.sampling_params is not None else None
    if not extra:
        return {}
    return {"job": str(extra.get("job_id") or ""), "is_last_step": bool(extra.get("is_last_step", False)), "tool": str(extra.get("tool") or "")}


def tool_in(text: str) -> str:
    """Returns the first word of the only bash block; "" if there is no such block, or more than one."""
    blocks = _BLOCK.findall(text)
    words = blocks[0].split() if len(blocks) == 1 else []
    return words[0] if words else ""


def decoder(vllm_config):
    """Returns a function from output tokens to text, by the model's tokenizer; None if it cannot be loaded: then no tool is ever known."""
    try:
        from vllm.tokenizers import get_tokenizer

        model = vllm_config.model_config
        tokenizer = get_tokenizer(
            model.tokenizer or model.model,
            tokenizer_mode=model.tokenizer_mode,
            trust_remote_code=model.trust_remote_code,
            revision=model.tokenizer_revision,
        )
    except Exception as error:  # the loader may raise anything; the engine works without a tokenizer
        logger.warning(
            "quire.vllm.Scheduler: the tokenizer could not be loaded (%s): a tool is known only if the request names it, so few blocks are pinned",
            error,
        )
        return None
    return lambda tokens: tokenizer.decode(tokens, skip_special_tokens=True)
