// Copies the state that a monitoring page shows, on the core's thread between two of its calls. No step can begin during the copy, so it is
// short: one copy of the blocks and one pass over the requests, which visits only the blocks of a list that have no owner yet.
#include "quire/watch.h"

#include <algorithm>
#include <ranges>
#include <variant>

#include "base/check.h"
#include "core/schedule/state.h"

namespace quire {
namespace {

WatchedState state_of(const Request& request, QueueKind queue) {
  if (queue == QueueKind::pinned) return WatchedState::pinned;
  switch (request.status) {
    case RequestStatus::running:
      return request.is_prefill_chunk || request.num_output_tokens == 0 ? WatchedState::prefill : WatchedState::decode;
    case RequestStatus::waiting_for_grammar:
      return WatchedState::grammar;
    case RequestStatus::waiting_for_remote_kv:
      return WatchedState::loading;
    case RequestStatus::waiting_for_input:
      return WatchedState::input;
    case RequestStatus::preempted:
      return WatchedState::preempted;
    default:
      return WatchedState::queued;
  }
}

void show_request(const Request& request, QueueKind queue, WatchFrame& frame) {
  if (frame.requests.size() == WatchFrame::kMaxRequests) {
    ++frame.num_left_out;
    return;
  }
  frame.requests.push_back({.id = request.id,
                            .state = state_of(request, queue),
                            .arrival_s = request.arrival_time,
                            .num_prompt_tokens = static_cast<std::uint32_t>(request.num_prompt_tokens),
                            .num_tokens = static_cast<std::uint32_t>(request.num_tokens()),
                            .num_computed_tokens = static_cast<std::uint32_t>(std::max(request.num_computed_tokens, 0)),
                            .num_cached_tokens = request.num_cached_tokens,
                            .num_external_tokens = request.num_external_computed_tokens,
                            .num_preemptions = request.num_preemptions,
                            .num_blocks = Requests::num_blocks(request),
                            .name_size = static_cast<std::uint32_t>(request.name.size()),
                            .tenant_size = static_cast<std::uint32_t>(request.tags.tenant.size())});
  frame.text += request.name;
  frame.text += request.tags.tenant;
}

// Returns whether requests that share a block also share all blocks before it. True for all kinds of full attention, but not for windows
// and states.
bool shares_beginnings(const KvCacheGroup& group) {
  return std::holds_alternative<FullAttentionSpec>(group.spec) || std::holds_alternative<MlaAttentionSpec>(group.spec);
}

// Makes the request the owner of its blocks that have no owner yet. With full attention, requests that share a block share the blocks
// before it, so the loop from the end stops at the first block with an owner: a thousand requests with the same prompt visit its blocks
// only once. If two requests computed the same tokens at the same time, earlier blocks may belong to the other request, or have no owner if
// that request has ended. For windows, all blocks are visited, because a request that is further ahead has released some.
void show_owner(const Request& request, std::uint32_t group, bool is_full, std::vector<WatchedBlock>& blocks) {
  const auto owner = static_cast<std::uint32_t>(request.id.value);
  for (const BlockId block : std::views::reverse(request.blocks.blocks(group))) {
    if (block == kNullBlock) return;
    QUIRE_CHECK(block.value < blocks.size(), "an owned block is in the pool");
    const bool is_owned = blocks[block.value].owner != WatchedBlock::kNoOwner;
    if (is_owned && is_full) return;
    if (!is_owned) blocks[block.value].owner = owner;
  }
}

}  // namespace

void Core::watch(WatchFrame& frame) {
  State& s = *state_;
  frame.blocks = s.kv.watch();
  frame.requests.clear();
  frame.text.clear();
  frame.num_left_out = 0;
  const auto own = [&](const Request& request) {
    for (std::uint32_t group = 0; group < s.context.num_groups; ++group)
      show_owner(request, group, shares_beginnings(s.context.config.kv.groups[group]), frame.blocks);
  };
  const auto show = [&](const Request& request, QueueKind queue) {
    own(request);
    show_request(request, queue, frame);
  };
  // Uses the order of the queues, so that a block has the same owner from frame to frame.
  for (const Request* request : s.queues.running) show(*request, QueueKind::running);
  s.queues.waiting.for_each([&](const Request& request) { show(request, QueueKind::waiting); });
  s.queues.skipped_waiting.for_each([&](const Request& request) { show(request, QueueKind::skipped_waiting); });
  for (const Pin& pin : s.jobs.pins())
    if (const Request* request = s.table.find(pin.request); request != nullptr) show(*request, QueueKind::pinned);
  // Includes ended requests, because a transfer may still keep their blocks.
  for (const auto& [id, request] : s.table.all()) own(*request);
  for (const OpenTransfers::Entry& transfer : s.open_transfers.all()) {
    const std::uint8_t flag = transfer.direction == TransferDirection::load ? WatchedBlock::kLoading : WatchedBlock::kStoring;
    for (const BlockId block : transfer.blocks) {
      QUIRE_CHECK(block.value < frame.blocks.size(), "a transferred block is in the pool");
      frame.blocks[block.value].flags |= flag;
    }
  }
}

void Core::end_watch() {
  state_->kv.block_watch().end();
}

}  // namespace quire
