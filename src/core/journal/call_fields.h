#pragma once
// Lists the fields of calls' arguments (quire/core_call.h) in the order of their bytes, once for writing and reading. If a field is added,
// increase the version in call_bytes.h; records of earlier versions are then refused.
#include "quire/base/plan.h"
#include "quire/base/request.h"
#include "quire/core.h"

namespace quire {

template <class Archive>
void fields(Archive& form, StepInput& input) {
  form(input.now, input.random);
}

template <class Archive>
void fields(Archive& form, RepetitionDetection& repetition) {
  form(repetition.min_pattern_tokens, repetition.max_pattern_tokens, repetition.min_count);
}

template <class Archive>
void fields(Archive& form, NewRequest& request) {
  form(request.id, request.name, request.prompt, request.client_index, request.priority, request.arrival_time, request.max_tokens,
       request.min_tokens, request.eos_ids, request.stop_token_ids, request.repetition, request.pooling, request.structured_output,
       request.resumable, request.skip_reading_prefix_cache, request.loads_nothing, request.lora_id, request.lora_name, request.lora_path,
       request.cache_salt, request.multimodal, request.prompt_embeds, request.block_hashes, request.tags);
}

template <class Archive>
void fields(Archive& form, ForkRequest& child) {
  form(child.id, child.name, child.client_index, child.arrival_time, child.num_tokens, child.next_token, child.max_tokens, child.resumable,
       child.waits_for_input);
}

template <class Archive>
void fields(Archive& form, SessionInput& input) {
  form(input.tokens, input.multimodal, input.arrival_time, input.max_tokens, input.min_tokens, input.eos_ids, input.stop_token_ids,
       input.repetition);
}

template <class Archive>
void fields(Archive& form, SampledToken& sampled) {
  form(sampled.id, sampled.token);
}

template <class Archive>
void fields(Archive& form, TransferCompletion& completion) {
  form(completion.transfer, completion.outcome, completion.bytes, completion.seconds, completion.bad_blocks);
}

template <class Archive>
void fields(Archive& form, StepResult& result) {
  form(result.step, result.sampled, result.pooled, result.has_connector_output, result.finished_sending, result.finished_receiving,
       result.invalid_blocks, result.failed_receiving, result.completions);
}

template <class Archive>
void fields(Archive& form, SwapCosts& costs) {
  auto& [out, in, disk_out, disk_in, prefill] = costs;
  form(out, in, disk_out, disk_in, prefill);
}

template <class Archive>
void fields(Archive& form, Draft& draft) {
  form(draft.id, draft.tokens);
}

template <class Archive>
void fields(Archive& form, PrefillLimits& limits) {
  form(limits.beside_decodes, limits.without_decodes, limits.context_of_double_cost);
}

}  // namespace quire
