#pragma once
// Lists the checkpoint fields of public types in a core's state, in the order of their bytes, for types that are not saved completely. One
// list serves writing and reading. A new field does not compile until the structured binding names it. Types with private members list
// their fields themselves (T::fields). Other aggregates need no list: state_archive.h writes all their members in order.
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

// group_idx is not saved, so that the format of checkpoints does not change. A core that begins at a checkpoint only replays and publishes
// no events.
template <class Archive>
void fields(Archive& form, IsState<BlockStored> auto& stored) {
  [[maybe_unused]] auto& [block_hashes, parent_block_hash, token_ids, block_size, lora_id, medium, lora_name, extra_keys, group_idx] =
      stored;
  form(block_hashes, parent_block_hash, token_ids, block_size, lora_id, medium, lora_name, extra_keys);
}

template <class Archive>
void fields(Archive& form, IsState<BlockRemoved> auto& removed) {
  [[maybe_unused]] auto& [block_hash, medium, group_idx] = removed;
  form(block_hash, medium);
}

// Parts of plans. Their views are not saved: the arena restores them.

template <class Archive>
void fields(Archive& form, IsState<AdmittedRequest> auto& admitted) {
  [[maybe_unused]] auto& [id, slot, tokens, num_prompt_tokens, sampling, lora_id] = admitted;
  form(id, slot, num_prompt_tokens, lora_id);
}

template <class Archive>
void fields(Archive& form, IsState<ScheduledRequest> auto& scheduled) {
  [[maybe_unused]] auto& [id, slot, num_computed_tokens, num_tokens, samples, pools, kind, send_all_tokens, num_output_tokens, drafts,
                          new_tokens, encoder_inputs] = scheduled;
  form(id, slot, num_computed_tokens, num_tokens, samples, pools, kind, send_all_tokens, num_output_tokens);
}

template <class Archive>
void fields(Archive& form, IsState<BlockTableDelta> auto& delta) {
  [[maybe_unused]] auto& [slot, group, id, update, index, blocks] = delta;
  form(slot, group, id, update, index);
}

template <class Archive>
void fields(Archive& form, IsState<Transfer> auto& transfer) {
  auto& [id, request, direction, need, group, tier, blocks, places] = transfer;
  form(id, request, direction, need, group, tier);
  form.moved_by(id, blocks, places);
}

// The lists are not saved here: the arena saves them.
template <class Archive>
void fields(Archive& form, IsState<StepPlan> auto& plan) {
  [[maybe_unused]] auto& [step, released, admitted, table_deltas, copies, scheduled, num_scheduled_tokens, finished, preempted,
                          num_common_prefix_blocks, freed_encoder_outputs, blocks_to_zero, transfers, fences, has_structured_output,
                          pending_structured_output] = plan;
  form(step, num_scheduled_tokens, has_structured_output, pending_structured_output);
}

}  // namespace quire
