#pragma once
// The fields of public values that a core's state is made of, in the order of their bytes: one list for writing and reading. A binding that
// does not name every field is no C++, so whoever adds one learns of it here. What has private members lists them itself (T::fields).
#include <concepts>
#include <type_traits>

#include "core/schedule/requests/request_table.h"
#include "quire/base/kv_events.h"
#include "quire/base/kv_stats.h"
#include "quire/base/plan.h"
#include "quire/base/transfer.h"
#include "quire/core.h"

namespace quire {

template <class T, class Value>
concept IsState = std::same_as<std::remove_const_t<T>, Value>;

template <class Form>
void fields(Form& form, IsState<RepetitionDetection> auto& repetition) {
  auto& [min_pattern_tokens, max_pattern_tokens, min_count] = repetition;
  form(min_pattern_tokens, max_pattern_tokens, min_count);
}

template <class Form>
void fields(Form& form, IsState<RequestTags> auto& tags) {
  auto& [job, is_last_step, tool, tenant, hints] = tags;
  form(job, is_last_step, tool, tenant, hints);
}

template <class Form>
void fields(Form& form, IsState<RequestEvent> auto& event) {
  auto& [kind, timestamp] = event;
  form(kind, timestamp);
}

template <class Form>
void fields(Form& form, IsState<MultimodalFeature> auto& feature) {
  auto& [identifier, position] = feature;
  form(identifier, position);
}

template <class Form>
void fields(Form& form, IsState<SwapCosts> auto& costs) {
  auto& [out_bytes_per_s, in_bytes_per_s, far_out_bytes_per_s, far_in_bytes_per_s, prefill_tokens_per_s] = costs;
  form(out_bytes_per_s, in_bytes_per_s, far_out_bytes_per_s, far_in_bytes_per_s, prefill_tokens_per_s);
}

template <class Form>
void fields(Form& form, IsState<CoreCounters> auto& counters) {
  auto& [num_running, num_waiting, num_unfinished, num_awaiting_transfers, num_open_transfers, num_pinned, num_blocks, num_free_blocks,
         num_cached_blocks, num_steps, num_preemptions, num_evicted_blocks, num_scheduled_tokens, num_forks, num_copied_blocks,
         is_admission_stopped, num_admission_stops, num_pressure_preemptions, num_used_swap_places, num_swapped_out, num_swapped_out_blocks,
         num_swapped_in, num_swapped_in_blocks, num_swapped_in_tokens, num_swaps_lost, num_swaps_no_place, num_swaps_no_gain,
         prefix_query_tokens, prefix_hit_tokens, preempted_prefix_query_tokens, preempted_prefix_hit_tokens, external_query_tokens,
         external_hit_tokens] = counters;
  form(num_running, num_waiting, num_unfinished, num_awaiting_transfers, num_open_transfers, num_pinned, num_blocks, num_free_blocks,
       num_cached_blocks, num_steps, num_preemptions, num_evicted_blocks, num_scheduled_tokens, num_forks, num_copied_blocks,
       is_admission_stopped, num_admission_stops, num_pressure_preemptions, num_used_swap_places, num_swapped_out, num_swapped_out_blocks,
       num_swapped_in, num_swapped_in_blocks, num_swapped_in_tokens, num_swaps_lost, num_swaps_no_place, num_swaps_no_gain,
       prefix_query_tokens, prefix_hit_tokens, preempted_prefix_query_tokens, preempted_prefix_hit_tokens, external_query_tokens,
       external_hit_tokens);
}

template <class Form>
void fields(Form& form, IsState<PrefixCacheStats> auto& stats) {
  auto& [reset, requests, queries, hits, preempted_requests, preempted_queries, preempted_hits] = stats;
  form(reset, requests, queries, hits, preempted_requests, preempted_queries, preempted_hits);
}

template <class Form>
void fields(Form& form, IsState<KvEvictionEvent> auto& event) {
  auto& [lifetime, idle, reuse_gaps] = event;
  form(lifetime, idle, reuse_gaps);
}

template <class Form>
void fields(Form& form, IsState<MultimodalKey> auto& key) {
  auto& [identifier, offset] = key;
  form(identifier, offset);
}

// Groups are left out, so that checkpoints keep their bytes: who begins at one replays, and publishes nothing.
template <class Form>
void fields(Form& form, IsState<BlockStored> auto& stored) {
  [[maybe_unused]] auto& [block_hashes, parent_block_hash, token_ids, block_size, lora_id, medium, lora_name, extra_keys, group_idx] =
      stored;
  form(block_hashes, parent_block_hash, token_ids, block_size, lora_id, medium, lora_name, extra_keys);
}

template <class Form>
void fields(Form& form, IsState<BlockRemoved> auto& removed) {
  [[maybe_unused]] auto& [block_hash, medium, group_idx] = removed;
  form(block_hash, medium);
}

template <class Form>
void fields(Form& /*form*/, IsState<AllBlocksCleared> auto& /*cleared*/) {
  static_assert(std::is_empty_v<AllBlocksCleared>);
}

// Of plans: what they view lies elsewhere, and is found again by the arena.

template <class Form>
void fields(Form& form, IsState<AdmittedRequest> auto& admitted) {
  [[maybe_unused]] auto& [id, slot, tokens, num_prompt_tokens, sampling, lora_id] = admitted;
  form(id, slot, num_prompt_tokens, lora_id);
}

template <class Form>
void fields(Form& form, IsState<ScheduledRequest> auto& scheduled) {
  [[maybe_unused]] auto& [id, slot, num_computed_tokens, num_tokens, samples, pools, kind, send_all_tokens, num_output_tokens, drafts,
                          new_tokens, encoder_inputs] = scheduled;
  form(id, slot, num_computed_tokens, num_tokens, samples, pools, kind, send_all_tokens, num_output_tokens);
}

template <class Form>
void fields(Form& form, IsState<BlockTableDelta> auto& delta) {
  [[maybe_unused]] auto& [slot, group, id, update, index, blocks] = delta;
  form(slot, group, id, update, index);
}

template <class Form>
void fields(Form& form, IsState<BlockCopy> auto& copy) {
  auto& [id, group, source, destination] = copy;
  form(id, group, source, destination);
}

template <class Form>
void fields(Form& form, IsState<FirstAdmission> auto& admission) {
  auto& [id, num_cached_tokens] = admission;
  form(id, num_cached_tokens);
}

template <class Form>
void fields(Form& form, IsState<Transfer> auto& transfer) {
  auto& [id, request, direction, need, group, tier, blocks, places] = transfer;
  form(id, request, direction, need, group, tier);
  form.moved_by(id, blocks, places);
}

// Its lists are the arena's.
template <class Form>
void fields(Form& form, IsState<StepPlan> auto& plan) {
  [[maybe_unused]] auto& [step, released, admitted, table_deltas, copies, scheduled, num_scheduled_tokens, finished, preempted,
                          num_common_prefix_blocks, freed_encoder_outputs, blocks_to_zero, transfers, fences, has_structured_output,
                          pending_structured_output] = plan;
  form(step, num_scheduled_tokens, has_structured_output, pending_structured_output);
}

}  // namespace quire
