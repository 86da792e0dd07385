// What a connector's workers report: loads that failed, and transfers that are over. The rules are vLLM V1's _handle_invalid_blocks and
// _update_from_kv_xfer_finished (v0.19.0).
//
//   waiting_for_remote_kv -> same, finished_receiving   the waiting loop promotes it
//   waiting_for_remote_kv -> same, failed_receiving     recompute: promoted with what was loaded well
//   finished, known -> unknown                          its transfer was what kept the blocks
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "core/schedule/state.h"

namespace quire {
namespace {

std::int32_t num_scheduled_tokens(const PlanArena& arena, const Request& request) {
  const auto found = std::ranges::find(arena.requests(), &request);
  return found == arena.requests().end()
             ? 0
             : static_cast<std::int32_t>(arena.plan().scheduled[static_cast<std::size_t>(found - arena.requests().begin())].num_tokens);
}

}  // namespace

void Core::State::find_failed_loads(const PlanArena& arena, std::span<const BlockId> invalid) {
  out.invalid.assign(invalid.begin(), invalid.end());
  std::ranges::sort(out.invalid);
  out.to_evict.clear();
  out.marked.clear();
  const bool recompute = config.kv_load_failure == KvLoadFailurePolicy::recompute;
  skipped_waiting.for_each([&](Request& request) {
    if (request.status == RequestStatus::waiting_for_remote_kv &&
        cut_at_invalid_block(request, num_scheduled_tokens(arena, request), false)) {
      (recompute ? request.failed_receiving : request.load_failed) = true;
      if (!recompute) out.failed_loads.push_back(&request);
    }
  });
  out.num_failed_async = out.failed_loads.size();
  out.marked.clear();
  for (Request* request : running) {
    if (cut_at_invalid_block(*request, num_scheduled_tokens(arena, *request), true)) {
      request->load_failed = true;
      out.failed_loads.push_back(request);
    }
  }
  if (!recompute) evict_invalid();
}

// The request keeps the computed tokens before its first invalid block, unless an earlier request in the scan computes that block again.
// True: it holds an invalid block.
bool Core::State::cut_at_invalid_block(Request& request, std::int32_t num_scheduled, bool evict) {
  const std::int32_t num_computed = request.num_computed_tokens - num_scheduled;
  const auto block_size = static_cast<std::int32_t>(config.block_size);
  const std::span<const BlockId> blocks = request.blocks.blocks(0);
  const std::int32_t num_blocks = std::min((num_computed + block_size - 1) / block_size, static_cast<std::int32_t>(blocks.size()));
  bool affected = false;
  bool cut = false;
  for (std::int32_t i = 0; i < num_blocks; ++i) {
    const BlockId block = blocks[static_cast<std::size_t>(i)];
    if (!std::ranges::binary_search(out.invalid, block)) continue;
    affected = true;
    if (std::ranges::find(out.marked, block) != out.marked.end()) continue;
    out.marked.push_back(block);
    if (!std::exchange(cut, true)) {
      request.num_computed_tokens = i * block_size;
      request.num_external_computed_tokens -= num_computed - request.num_computed_tokens;
      for (BlockId lost : evict ? blocks.subspan(static_cast<std::size_t>(i)) : std::span<const BlockId>()) add_to_evict(lost);
    }
  }
  if (affected && !cut) request.num_computed_tokens = num_computed;
  return affected;
}

void Core::State::add_to_evict(BlockId block) {
  if (std::ranges::find(out.to_evict, block.value) == out.to_evict.end()) out.to_evict.push_back(block.value);
}

// In the order in which CPython iterates over the set, which shows in the events.
void Core::State::evict_invalid() {
  out.evict_order.apply(out.to_evict);
  out.evicted.clear();
  for (std::uint32_t block : out.to_evict) out.evicted.push_back(BlockId{block});
  kv.evict_blocks(out.evicted);
}

void Core::State::fail_loads() {
  out.failed_ids.clear();
  for (Request* request : out.failed_loads) {
    QUIRE_CHECK(request->load_failed && request->known, "its result was skipped");
    request->load_failed = false;
    out.failed_ids.push_back(request->id);
  }
  if (config.kv_load_failure == KvLoadFailurePolicy::fail && !out.failed_loads.empty()) finish_failed_loads();
  out.failed_loads.clear();
}

void Core::State::finish_failed_loads() {
  out.failed_finishing = out.failed_ids;
  out.failed_reported = out.failed_ids;
  if (seams.connector != nullptr) seams.connector->order_failed(out.num_failed_async, out.failed_finishing, out.failed_reported);
  out.ending.clear();
  for (RequestId id : out.failed_finishing) out.ending.push_back(table.find(id));
  QUIRE_CHECK(std::ranges::find(out.ending, nullptr) == out.ending.end(), "the connector orders only what failed");
  finish(out.ending, RequestStatus::finished_error);
  for (RequestId id : out.failed_reported) {
    Request& request = *table.find_any(id);
    RequestUpdate& update = report(request, UINT32_MAX, {});
    update.finished = true;
    update.reason = FinishReason::error;
    update.stop_token.reset();
    update.num_external_computed_tokens = 0;
  }
}

void Core::State::take_transfers(const StepResult& result) {
  if (seams.connector != nullptr) seams.connector->step_output();
  for (RequestId id : result.finished_receiving) {
    Request* request = table.find(id);
    if (request != nullptr && request->status == RequestStatus::waiting_for_remote_kv)
      num_loading -= std::exchange(request->finished_receiving, true) ? 0 : 1;
    else if (request != nullptr && HoldLedger::holds(*request, Holder::transfer))
      let_go(*request, Holder::transfer);
  }
  for (RequestId id : result.finished_sending) {
    Request* request = table.find(id);
    if (request != nullptr && HoldLedger::holds(*request, Holder::transfer)) let_go(*request, Holder::transfer);
  }
}

}  // namespace quire
