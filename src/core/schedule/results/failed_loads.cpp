// Finds the requests that a failed load affects, and ends them or lets them be computed again. step.cpp calls it within apply(): find()
// before the results are taken, and handle() after. The order is always vLLM's, even where vLLM iterates over Python sets, because a host
// that compares both must see the same events. Blocks that another transfer still fills are not touched.
#include "core/schedule/results/failed_loads.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace quire {

namespace {

std::int32_t num_scheduled_tokens(const PlanArena& arena, const Request& request) {
  const auto found = std::ranges::find(arena.requests(), &request);
  return found == arena.requests().end()
             ? 0
             : static_cast<std::int32_t>(arena.plan().scheduled[static_cast<std::size_t>(found - arena.requests().begin())].num_tokens);
}

}  // namespace

void FailedLoads::find(const PlanArena& arena, const StepResult& result) {
  const std::span<const BlockId> invalid = result.invalid_blocks;
  QUIRE_CHECK(failed_.empty(), "the failures of the previous result were handled");
  invalid_.assign(invalid.begin(), invalid.end());
  std::ranges::sort(invalid_);
  to_evict_.clear();
  marked_.clear();
  has_found_ = true;
  if (starts_again()) {
    failed_load_tracker_.find(&arena, invalid);
    invalid_.assign(failed_load_tracker_.bad_blocks().begin(), failed_load_tracker_.bad_blocks().end());
  } else {
    forks_.release_shares_of(invalid_);
  }
  find_reported(result.failed_receiving);
  find_waiting(arena);
  num_failed_async_ = failed_.size();
  marked_.clear();
  if (starts_again())
    take_invalidated();
  else
    find_running(arena);
}

// Finds requests by id: the connector reports them, because block ids do not identify them.
void FailedLoads::find_reported(std::span<const RequestId> failed) {
  for (const RequestId id : failed) {
    Request* request = table_.find(id);
    if (request == nullptr || request->status != RequestStatus::waiting_for_remote_kv) continue;
    if (context_.config.kv_load_failure == KvLoadFailurePolicy::recompute) {
      request->num_computed_tokens = 0;
      if (request->load.failure == LoadFailure::none) request->load.failure = LoadFailure::partial;
    } else {
      request->load.skips_result = true;
      failed_.push_back(request);
    }
  }
}

void FailedLoads::find_waiting(const PlanArena& arena) {
  const bool recompute = context_.config.kv_load_failure == KvLoadFailurePolicy::recompute;
  const bool keeps_all_blocks = context_.num_groups == 1 && is_full_attention(context_.config.kv.groups[0].spec);
  const auto look = [&](Request& request) {
    if (request.status != RequestStatus::waiting_for_remote_kv) return;
    const bool is_listed = request.load.skips_result;  // set by find_reported()
    if (starts_again()) marked_.clear();               // no request may rely on another one to compute its invalid block
    const bool can_be_cut = keeps_all_blocks || !starts_again();
    // The blocks of a request with a lost load are freed when its last load has ended.
    if (request.load.failure == LoadFailure::lost
            ? !recompute
            : can_be_cut && cut_at_invalid_block(request, num_scheduled_tokens(arena, request), false)) {
      if (recompute) {
        request.load.failure = LoadFailure::partial;
        return;
      }
      request.load.skips_result = true;
      if (!is_listed) failed_.push_back(&request);
    }
  };
  queues_.skipped_waiting.for_each(look);
  if (context_.rules.early_loads) queues_.waiting.for_each(look);
}

void FailedLoads::find_running(const PlanArena& arena) {
  for (Request* request : queues_.running) {
    if (cut_at_invalid_block(*request, num_scheduled_tokens(arena, *request), true)) {
      request->load.skips_result = true;
      failed_.push_back(request);
    }
  }
  if (context_.config.kv_load_failure == KvLoadFailurePolicy::fail) evict_invalid();
}

void FailedLoads::take_invalidated() {
  for (const FailedLoadTracker::InvalidatedRequest& invalidated : failed_load_tracker_.invalidated()) {
    if (!invalidated.request->known || invalidated.request->finished()) continue;
    invalidated.request->load.skips_result = true;
    failed_.push_back(invalidated.request);
  }
}

bool FailedLoads::cut_at_invalid_block(Request& request, std::int32_t num_scheduled, bool evict) {
  const std::int32_t num_computed = request.num_computed_tokens - num_scheduled;
  const auto block_size = static_cast<std::int32_t>(context_.config.block_size);
  const std::span<const BlockId> blocks = request.blocks.blocks(0);
  const std::int32_t num_blocks = std::min((num_computed + block_size - 1) / block_size, static_cast<std::int32_t>(blocks.size()));
  bool affected = false;
  bool cut = false;
  for (std::int32_t i = 0; i < num_blocks; ++i) {
    const BlockId block = blocks[static_cast<std::size_t>(i)];
    if (!std::ranges::binary_search(invalid_, block)) continue;
    affected = true;
    // An earlier request of this scan computes this block again, so it will be valid for this request too. Later blocks stay.
    if (std::ranges::find(marked_, block) != marked_.end()) continue;
    marked_.push_back(block);
    if (!std::exchange(cut, true)) {
      request.num_computed_tokens = i * block_size;
      if (!context_.rules.reports_cached_of_last_lookup) request.num_external_computed_tokens -= num_computed - request.num_computed_tokens;
      for (BlockId lost : evict ? blocks.subspan(static_cast<std::size_t>(i)) : std::span<const BlockId>()) add_to_evict(lost);
    }
  }
  if (affected && !cut) request.num_computed_tokens = num_computed;
  return affected;
}

void FailedLoads::add_to_evict(BlockId block) {
  if (std::ranges::find(to_evict_, block.value) == to_evict_.end()) to_evict_.push_back(block.value);
}

// Evicts in the order in which CPython iterates over the set, because the order is visible in the events.
void FailedLoads::evict_invalid() {
  evict_order_.apply(to_evict_);
  evicted_.clear();
  for (std::uint32_t block : to_evict_) evicted_.push_back(BlockId{block});
  kv_.evict_blocks(evicted_);
}

bool FailedLoads::handle() {
  ids_.clear();
  for (Request* request : failed_) {
    QUIRE_CHECK(request->load.skips_result && request->known, "the result of a failed request was skipped");
    request->load.skips_result = false;
    ids_.push_back(request->id);
  }
  const bool recompute = context_.config.kv_load_failure == KvLoadFailurePolicy::recompute;
  const bool has_invalidated = std::exchange(has_found_, false) && starts_again();
  if (has_invalidated && context_.seams.connector != nullptr)
    for (const FailedLoadTracker::InvalidatedRequest& invalidated : failed_load_tracker_.invalidated())
      if (invalidated.request->known)
        context_.seams.connector->invalidated(Requests::view(*invalidated.request), invalidated.num_valid_tokens);
  if (!recompute && !failed_.empty()) finish();
  failed_.clear();
  return has_invalidated;
}

void FailedLoads::finish() {
  finishing_ = ids_;
  reported_ = ids_;
  if (context_.seams.connector != nullptr) context_.seams.connector->order_failed(num_failed_async_, finishing_, reported_);
  ending_now_.clear();
  for (RequestId id : finishing_) ending_now_.push_back(table_.find(id));
  QUIRE_CHECK(std::ranges::find(ending_now_, nullptr) == ending_now_.end(), "the connector orders only failed requests");
  ending_.finish(ending_now_, RequestStatus::finished_error);
  for (RequestId id : reported_) {
    QUIRE_CHECK(table_.find_any(id) != nullptr, "the connector reports only failed requests");
    Request& request = *table_.find_any(id);
    RequestUpdate& update = updates_.report(request, UINT32_MAX, {});
    update.finished = true;
    update.reason = FinishReason::error;
    update.stop_token.reset();
    update.num_external_computed_tokens = 0;
  }
}

}  // namespace quire
