"""quire.vllm.Scheduler for vLLM 0.19.0."""

from vllm.v1.core.sched.output import CachedRequestData, NewRequestData, SchedulerOutput

import quire
from quire.vllm._adapter import Adapter
from quire.vllm._convert import kv_event, scheduler_stats
from quire.vllm._hooks import Hooks


class Scheduler(Adapter):
    __doc__ = Adapter.__doc__

    decisions = quire.DecisionProfile.VLLM_0_19
    hooks = Hooks
    convert_stats = staticmethod(scheduler_stats)
    make_event = staticmethod(kv_event)

    def add_request(self, request) -> None:
        tell = getattr(self.connector, "quire_on_queued", None)  # a method of quire.vllm.Connector only
        is_new = tell is not None and not self._native.is_known(request.request_id)
        super().add_request(request)
        if is_new:
            tell(request)

    def make_output(self, pieces) -> SchedulerOutput:
        # `cached` contains the columns of CachedRequestData, in its order.
        new, *cached, num_tokens, total_tokens, drafts, encoder_inputs, num_common_blocks, finished, freed_encoder, preempted, to_zero = pieces
        return SchedulerOutput(
            scheduled_new_reqs=[self._new_request_data(*piece) for piece in new] if new else [],
            scheduled_cached_reqs=CachedRequestData(*cached),
            num_scheduled_tokens=num_tokens,
            total_num_scheduled_tokens=total_tokens,
            scheduled_spec_decode_tokens=drafts,
            scheduled_encoder_inputs=encoder_inputs,
            num_common_prefix_blocks=num_common_blocks,
            finished_req_ids=finished,
            free_encoder_mm_hashes=freed_encoder,
            preempted_req_ids=preempted,
            new_block_ids_to_zero=to_zero if to_zero and self.needs_kv_cache_zeroing else None,
        )

    @staticmethod
    def _new_request_data(request, block_ids, num_computed_tokens, prefill_token_ids) -> NewRequestData:
        return NewRequestData(
            req_id=request.request_id,
            prompt_token_ids=request.prompt_token_ids,
            mm_features=request.mm_features,
            sampling_params=request.sampling_params,
            pooling_params=request.pooling_params,
            block_ids=block_ids,
            num_computed_tokens=num_computed_tokens,
            lora_request=request.lora_request,
            prompt_embeds=request.prompt_embeds,
            prefill_token_ids=prefill_token_ids,
        )
