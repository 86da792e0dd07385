"""SchedulingPolicy.CONTINUUM in vLLM: reads a request's tags, and finds the tool that a turn calls.

vLLM's --scheduling-policy does not support this policy, so it is selected with

    --additional-config '{"quire": {"policy": "continuum", "pins_give_way": true}}'

and requests set `job_id` and `is_last_step` in SamplingParams.extra_args.
"""

import re

from vllm.logger import init_logger

logger = init_logger("vllm.quire")

# A bash code block, in the form in which mini-swe-agent's models write commands.
_BLOCK = re.compile(r"```bash\s*\n(.*?)\n```", re.DOTALL)


def tags(request) -> dict:
    """Returns the tags of a vLLM request."""
    extra = request.sampling_params.extra_args if request.sampling_params is not None else None
    if not extra:
        return {}
    return {"job": str(extra.get("job_id") or ""), "is_last_step": bool(extra.get("is_last_step", False)), "tool": str(extra.get("tool") or "")}


def tool_in(text: str) -> str:
    """Returns the first word of the only bash code block, or "" if the text has none or several."""
    blocks = _BLOCK.findall(text)
    words = blocks[0].split() if len(blocks) == 1 else []
    return words[0] if words else ""


def decoder(vllm_config):
    """Returns a function that converts output tokens to text with the model's tokenizer. Returns None if the tokenizer cannot be loaded;
    then tools are known only if requests name them."""
    try:
        from vllm.tokenizers import get_tokenizer

        model = vllm_config.model_config
        tokenizer = get_tokenizer(
            model.tokenizer or model.model,
            tokenizer_mode=model.tokenizer_mode,
            trust_remote_code=model.trust_remote_code,
            revision=model.tokenizer_revision,
        )
    except Exception as error:  # the loader may raise any exception; the engine works without a tokenizer
        logger.warning(
            "quire.vllm.Scheduler: the tokenizer could not be loaded (%s): a tool is known only if the request names it, so few blocks are pinned",
            error,
        )
        return None
    return lambda tokens: tokenizer.decode(tokens, skip_special_tokens=True)
