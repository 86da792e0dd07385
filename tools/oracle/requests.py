"""Creates vLLM's Request from a script's plain values, a new one for each scheduler, because schedulers keep and change
their arguments."""

from functools import lru_cache

import torch
from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.pooling_params import PoolingParams
from vllm.sampling_params import RepetitionDetectionParams, SamplingParams, StructuredOutputsParams
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.request import Request

from .stage import draw


@lru_cache(maxsize=1 << 10)
def _draws(doc: int) -> list:
    """Returns the numbers from which the document's first tokens are computed; _doc_draws() appends more as needed."""
    return []


def _doc_draws(doc: int, count: int) -> list:
    draws = _draws(doc)
    draws.extend(draw("doc", doc, position) for position in range(len(draws), count))
    return draws


def doc_token(doc: int, position: int, vocab: int) -> int:
    """Returns token `position` of document `doc`: the text that prompts and answers share."""
    return _doc_draws(doc, position + 1)[position] % vocab


def prompt_tokens(spec: dict, vocab: int) -> list:
    if "tokens" in spec:  # from a recorded run
        return list(spec["tokens"])
    return [number % vocab for number in _doc_draws(spec["doc"], spec["n"])[: spec["n"]]] + list(spec.get("tail", ()))


def parameters(spec: dict):
    """Returns SamplingParams or PoolingParams. They are never changed, so both schedulers share one object."""
    if spec.get("pooling"):
        return PoolingParams(task="embed", skip_reading_prefix_cache=spec.get("skip_read"))
    repetition = spec.get("repetition")
    params = SamplingParams(
        max_tokens=spec.get("max_tokens", 16),
        min_tokens=spec.get("min_tokens", 0),
        stop_token_ids=list(spec.get("stop", ())),
        logprobs=1 if spec.get("logprobs") else None,
        skip_reading_prefix_cache=spec.get("skip_read"),
        structured_outputs=_structured(spec.get("grammar")),
        extra_args=_extra(spec) or None,
        repetition_detection=RepetitionDetectionParams(*repetition) if repetition else None,
    )
    params._eos_token_id = spec.get("eos")
    return params


def _structured(grammar) -> StructuredOutputsParams | None:
    """Returns the parameters. `grammar`: their arguments, or True for a scripted grammar."""
    if not grammar:
        return None
    params = StructuredOutputsParams(**(grammar if isinstance(grammar, dict) else {"json_object": True}))
    params._backend = "guidance"
    return params


def _extra(spec: dict) -> dict:
    extra = {"kv_transfer_params": {"from": spec["id"]}} if spec.get("kv_params") else {}
    if "job" in spec:
        extra.update(job_id=spec["job"], is_last_step=bool(spec.get("last")))
    return extra


def _features(spec: dict) -> list:
    features = []
    for offset, length, name, mask in spec.get("images", ()):
        is_embed = torch.tensor(mask, dtype=torch.bool) if mask else None
        position = PlaceholderRange(offset=offset, length=length, is_embed=is_embed)
        features.append(MultiModalFeatureSpec(data=None, modality="image", identifier=name, mm_position=position, mm_hash=name))
    return features


@lru_cache(maxsize=1024)
def lora(number: int) -> LoRARequest:
    return LoRARequest(lora_name=f"lora{number}", lora_int_id=number, lora_path="/lora")


class RequestMaker:
    """Creates one request of a script; `make()` returns an equal Request each time."""

    def __init__(self, spec: dict, vocab: int, hasher):
        self.spec = spec
        self.hasher = hasher
        self.params = parameters(spec)
        self.tokens = prompt_tokens(spec, vocab)
        self.embeds = None
        if spec.get("embeds"):
            self.embeds = torch.tensor([[float(token)] for token in self.tokens])

    def make(self) -> Request:
        """Creates the Request as EngineCore does from a message on its socket."""
        spec, pooling = self.spec, bool(self.spec.get("pooling"))
        arrived = EngineCoreRequest(
            request_id=spec["id"],
            prompt_token_ids=None if self.embeds is not None else list(self.tokens),
            mm_features=_features(spec),
            sampling_params=None if pooling else self.params,
            pooling_params=self.params if pooling else None,
            arrival_time=spec["arrival"],
            lora_request=lora(spec["lora"]) if spec.get("lora") else None,
            cache_salt=spec.get("salt"),
            data_parallel_rank=None,
            prompt_embeds=self.embeds,
            client_index=spec.get("client", 0),
            priority=spec.get("priority", 0),
            trace_headers={"trace": spec["id"]} if spec.get("trace") else None,
            resumable=bool(spec.get("resumable")),
        )
        request = Request.from_engine_core_request(arrived, self.hasher)
        # Attributes with the names that the fork's Request uses.
        extra = (None if pooling else self.params.extra_args) or {}
        request.job_id, request.is_last_step = extra.get("job_id"), extra.get("is_last_step", False)
        return request
