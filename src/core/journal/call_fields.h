#pragma once
// The fields of a core's calls, in the order of their bytes: one list for writing and reading.
// Adding a field here changes the bytes: the version in call_kind.h goes up with it, and recorded calls of the version before are refused.
#include "quire/base/plan.h"
#include "quire/base/request.h"
#include "quire/core.h"

namespace quire {

template <class Form>
void fields(Form& form, StepInput& input) {
  form(input.now, input.random);
}

template <class Form>
void fields(Form& form, RepetitionDetection& repetition) {
  form(repetition.min_pattern_tokens, repetition.max_pattern_tokens, repetition.min_count);
}

template <class Form>
void fields(Form& form, NewRequest& request) {
  form(request.id, request.name, request.prompt, request.client_index, request.priority, request.arrival_time, request.max_tokens,
       request.min_tokens, request.eos_ids, request.stop_token_ids, request.repetition, request.pooling, request.structured_output,
       request.resumable, request.skip_reading_prefix_cache, request.loads_nothing, request.lora_id, request.lora_name, request.lora_path,
       request.cache_salt, request.multimodal, request.prompt_embeds, request.block_hashes, request.tags);
}

template <class Form>
void fields(Form& form, ForkRequest& child) {
  form(child.id, child.name, child.client_index, child.arrival_time, child.num_tokens, child.next_token, child.max_tokens, child.resumable,
       child.waits_for_input);
}

template <class Form>
void fields(Form& form, SessionInput& input) {
  form(input.tokens, input.multimodal, input.arrival_time, input.max_tokens, input.min_tokens, input.eos_ids, input.stop_token_ids,
       input.repetition);
}

template <class Form>
void fields(Form& form, SampledToken& sampled) {
  form(sampled.id, sampled.token);
}

template <class Form>
void fields(Form& form, TransferCompletion& completion) {
  form(completion.transfer, completion.outcome, completion.bytes, completion.seconds, completion.bad_blocks);
}

template <class Form>
void fields(Form& form, StepResult& result) {
  form(result.step, result.sampled, result.pooled, result.has_connector_output, result.finished_sending, result.finished_receiving,
       result.invalid_blocks, result.failed_receiving, result.completions);
}

template <class Form>
void fields(Form& form, SwapCosts& costs) {
  auto& [out, in, far_out, far_in, prefill] = costs;
  form(out, in, far_out, far_in, prefill);
}

template <class Form>
void fields(Form& form, Draft& draft) {
  form(draft.id, draft.tokens);
}

}  // namespace quire
