"""SchedulingPolicy.CONTINUUM inside vLLM: a request's tags, and the tool that a turn calls.

vLLM's own --scheduling-policy does not know it, so it is asked for with

    --additional-config '{"quire": {"policy": "continuum", "pins_give_way": true}}'

and requests carry `job_id` and `is_last_step` in SamplingParams.extra_args.
"""

import re

from vllm.logger import init_logger

logger = init_logger("vllm.quire")

# A bash command in a fence of its own, as mini-swe-agent's models write them.
_BLOCK = re.compile(r"```bash\s*\n(.*?)\n```", re.DOTALL)


def tags(request) -> dict:
    """Of a vLLM request."""
    extra = request.sampling_params.extra_args if request.sampling_params is not None else None
    if not extra:
        return {}
    return {"job": str(extra.get("job_id") or ""), "is_last_step": bool(extra.get("is_last_step", False)), "tool": str(extra.get("tool") or "")}


def tool_in(text: str) -> str:
    """The first word of the only bash block; "" if there is none, or more than one."""
    blocks = _BLOCK.findall(text)
    words = blocks[0].split() if len(blocks) == 1 else []
    return words[0] if words else ""


def decoder(vllm_config):
    """From output tokens to text, by the model's tokenizer; None if it cannot be loaded: then no tool is ever known."""
    try:
        from vllm.tokenizers import get_tokenizer

        model = vllm_config.model_config
        tokenizer = get_tokenizer(
            model.tokenizer or model.model,
            tokenizer_mode=model.tokenizer_mode,
            trust_remote_code=model.trust_remote_code,
            revision=model.tokenizer_revision,
        )
    except Exception as error:  # whatever the tokenizer's loader raises: the engine can do without
        logger.warning("quire.vllm.Scheduler: no tokenizer (%s): tools are known only where requests name them, so few blocks are pinned", error)
        return None
    return lambda tokens: tokenizer.decode(tokens, skip_special_tokens=True)
