// Finds the requests that ran on blocks whose load failed. Called by FailedLoads and LoadFailureRecovery during apply(), and by
// Core::requests_invalidated_by() before it, on the core's thread. It does not change the requests: other parts recover or end them. It
// must find every request that read a bad block in an outstanding plan, because otherwise blocks with wrong content would be cached.
#include "core/schedule/moves/failed_load_tracker.h"

#include <algorithm>

#include "base/check.h"

namespace quire {
namespace {

// Returns the plan's entry for the request, or null if the plan does not schedule it.
const ScheduledRequest* find_scheduled(const PlanArena& arena, const Request& request) {
  const auto found = std::ranges::find(arena.requests(), &request);
  if (found == arena.requests().end()) return nullptr;
  return &arena.plan().scheduled[static_cast<std::size_t>(found - arena.requests().begin())];
}

}  // namespace

// Repeats the scans until nothing new is found: a request may use blocks that another request computed, in the same plan or a later one.
void FailedLoadTracker::find(const PlanArena* applied, std::span<const BlockId> not_loaded) {
  is_bad_.assign(kv_.pool().num_blocks(), false);
  bad_.clear();
  invalidated_.clear();
  bool has_grown = false;
  for (const BlockId block : not_loaded) has_grown |= invalidate(block);
  while (has_grown) {
    has_grown = scan_running(applied);
    if (applied != nullptr) has_grown |= scan_plan(*applied);
    for (std::uint32_t i = 0; i < plans_.size(); ++i) has_grown |= scan_plan(plans_.at(i));
  }
  std::ranges::sort(bad_);
  QUIRE_CHECK(std::ranges::adjacent_find(bad_) == bad_.end(), "each block that was not loaded is listed once");
}

bool FailedLoadTracker::invalidate(BlockId block) {
  QUIRE_CHECK(block.value < is_bad_.size(), "a plan contains blocks of the pool");
  if (block == kNullBlock || is_bad_[block.value]) return false;
  is_bad_[block.value] = true;
  bad_.push_back(block);
  return true;
}

bool FailedLoadTracker::invalidate(Request& request, std::uint32_t num_valid_tokens) {
  const auto found = std::ranges::find(invalidated_, &request, &InvalidatedRequest::request);
  if (found == invalidated_.end()) {
    invalidated_.push_back({&request, num_valid_tokens});
    return true;
  }
  if (found->num_valid_tokens <= num_valid_tokens) return false;
  found->num_valid_tokens = num_valid_tokens;
  return true;
}

const FailedLoadTracker::InvalidatedRequest* FailedLoadTracker::find_invalidated(const Request& request) const {
  const auto found = std::ranges::find(invalidated_, &request, &InvalidatedRequest::request);
  return found == invalidated_.end() ? nullptr : &*found;
}

std::size_t FailedLoadTracker::first_bad(std::span<const BlockId> blocks, std::uint32_t group, std::uint32_t num_tokens) const {
  const std::uint32_t block_size = kv_.block_size(group);
  QUIRE_CHECK(block_size > 0, "the block size is positive");
  const std::size_t num_blocks = std::min<std::size_t>((num_tokens + block_size - 1) / block_size, blocks.size());
  const auto found = std::ranges::find_if(blocks.first(num_blocks), [this](BlockId block) { return is_bad(block); });
  return found == blocks.begin() + static_cast<std::ptrdiff_t>(num_blocks) ? blocks.size()
                                                                           : static_cast<std::size_t>(found - blocks.begin());
}

// Scans the block tables in the plan, because they show which blocks a request began with, even if it does not hold them any more.
bool FailedLoadTracker::scan_plan(const PlanArena& arena) {
  QUIRE_CHECK(arena.requests().size() == arena.plan().scheduled.size(), "a plan has a request for each entry");
  bool has_grown = false;
  for (const BlockCopy& copy : arena.plan().copies)
    if (is_bad(copy.source)) has_grown |= invalidate(copy.destination);
  for (const BlockTableDelta& delta : arena.plan().table_deltas) {
    const auto scheduled = std::ranges::find(arena.plan().scheduled, delta.id, &ScheduledRequest::id);
    if (scheduled == arena.plan().scheduled.end()) continue;
    Request& request = *arena.requests()[static_cast<std::size_t>(scheduled - arena.plan().scheduled.begin())];
    has_grown |= scan_table_delta(request, delta, scheduled->num_computed_tokens);
  }
  return has_grown;
}

bool FailedLoadTracker::scan_table_delta(Request& request, const BlockTableDelta& delta, std::uint32_t num_computed_tokens) {
  bool has_grown = false;
  const std::uint32_t block_size = kv_.block_size(delta.group);
  std::span<const BlockId> blocks = delta.blocks;
  if (delta.update == TableUpdate::replace_all) {
    const std::size_t bad = first_bad(blocks, delta.group, num_computed_tokens);
    if (bad < blocks.size()) has_grown |= invalidate(request, static_cast<std::uint32_t>(bad) * block_size);
  }
  const InvalidatedRequest* const invalidated = find_invalidated(request);
  if (invalidated == nullptr) return has_grown;
  if (delta.update == TableUpdate::replace_all)
    blocks = blocks.subspan(std::min<std::size_t>(invalidated->num_valid_tokens / block_size, blocks.size()));
  for (const BlockId block : blocks) has_grown |= invalidate(block);
  return has_grown;
}

bool FailedLoadTracker::scan_running(const PlanArena* applied) {
  bool has_grown = false;
  for (Request* request : queues_.running) {
    QUIRE_CHECK(request->status == RequestStatus::running, "each request in the running list runs");
    const auto num_planned = num_planned_tokens(*request, applied);
    const auto num_known = static_cast<std::uint32_t>(std::max(request->num_computed_tokens, 0));
    const std::uint32_t num_before = num_known - std::min(num_known, num_planned);
    for (std::uint32_t group = 0; group < kv_.num_groups(); ++group) {
      const std::span<const BlockId> blocks = request->blocks.blocks(group);
      const std::size_t bad = first_bad(blocks, group, num_before);
      if (bad < blocks.size()) has_grown |= invalidate(*request, static_cast<std::uint32_t>(bad) * kv_.block_size(group));
    }
    const InvalidatedRequest* const invalidated = find_invalidated(*request);
    for (std::uint32_t group = 0; invalidated != nullptr && group < kv_.num_groups(); ++group) {
      const std::span<const BlockId> blocks = request->blocks.blocks(group);
      const std::size_t num_good = invalidated->num_valid_tokens / kv_.block_size(group);
      for (const BlockId block : blocks.subspan(std::min(num_good, blocks.size()))) has_grown |= invalidate(block);
    }
  }
  return has_grown;
}

std::uint32_t FailedLoadTracker::num_planned_tokens(const Request& request, const PlanArena* applied) const {
  const auto num_tokens = [&](const PlanArena& arena) {
    const ScheduledRequest* const scheduled = find_scheduled(arena, request);
    return scheduled == nullptr ? 0U : scheduled->num_tokens;
  };
  std::uint32_t total = applied == nullptr ? 0U : num_tokens(*applied);
  for (std::uint32_t i = 0; i < plans_.size(); ++i) total += num_tokens(plans_.at(i));
  return total;
}

bool FailedLoadTracker::holds_invalid_blocks(const Request& request) const {
  for (std::uint32_t group = 0; group < kv_.num_groups(); ++group)
    if (std::ranges::any_of(request.blocks.blocks(group), [this](BlockId block) { return is_bad(block); })) return true;
  return false;
}

}  // namespace quire
