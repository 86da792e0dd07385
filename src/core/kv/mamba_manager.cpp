// The list of an aligned sequence, before and after a step of two blocks (R: running state; x, y, z: speculative blocks; .: null):
//   . . . R x y    ->    . . . R . y x z
// The last num_speculative blocks are speculative, and the block before them is the running state. Speculative blocks before the new state
// move to the end: x moves, y stays and becomes the state. At most one new block (z) is taken. The worker copies the old state R into the
// new state in the step in which the list changes. R is therefore released only when that step has run, two steps later. This manager is
// called like every manager (group_manager.cpp).
#include "core/kv/mamba_manager.h"

#include <algorithm>

#include "base/check.h"

namespace quire {

MambaManager::MambaManager(const GroupOptions& options, const MambaSpec& spec, BlockPool& pool)
    : SkippingManager(options, pool), mode_(spec.mode), num_speculative_(spec.num_speculative_blocks), spec_block_size_(spec.block_size) {
  QUIRE_CHECK(spec_block_size_ > 0 && tokens_.size() % spec_block_size_ == 0, "the block size is a multiple of the block size of the spec");
}

void MambaManager::find(HitQuery& query) const {
  query.assign_null(0);
  const std::int64_t end = tokens_.floor(query.limits().max_tokens);
  QUIRE_CHECK(query.num_hashed() >= end, "known tokens have block hashes");
  for (std::int64_t i = end - 1; i >= 0; --i) {
    if (query.look_up(i) && query.aligned(tokens_, i + 1)) {
      query.assign_null(i);
      query.append();
      return;
    }
  }
}

std::int64_t MambaManager::blocks_needed(const GroupBlockList& list, const GroupDemand& demand, std::span<const BlockId> hit) const {
  if (!hit.empty() && pool_.index().contains(hit.back()) && cached_this_step_.contains(pool_.index().hash_of(hit.back())))
    return std::int64_t{pool_.num_blocks()} + 1;
  if (aligns()) return aligned_needed(list, demand, hit);
  return count_needed(list, demand.num_tokens + spec_block_size_ * num_speculative_, hit, num_skipped_tokens(demand.num_computed_tokens));
}

std::int64_t MambaManager::aligned_needed(const GroupBlockList& list, const GroupDemand& demand, std::span<const BlockId> hit) const {
  const auto held = static_cast<std::int64_t>(hit.size() + list.blocks.size());
  std::int64_t fresh = aligned_size(demand.num_main_model_tokens) - held;
  if (fresh > 0) fresh = list.has_running_state ? 1 : 1 + num_speculative_;
  return fresh + num_unreferenced(hit);  // negative if draft tokens were rejected; this reduces the sum over all groups, as in vLLM
}

void MambaManager::allocate(GroupBlockList& list, const GroupDemand& demand) {
  if (aligns())
    allocate_aligned(list, demand);
  else
    extend(list, demand.num_tokens + tokens_.size() * num_speculative_);
}

void MambaManager::allocate_aligned(GroupBlockList& list, const GroupDemand& demand) {
  track(list);
  const auto old_size = static_cast<std::int64_t>(list.blocks.size());
  const std::int64_t size = aligned_size(demand.num_main_model_tokens);
  // vLLM stops if the list would have to shrink. After draft tokens were rejected, the list is already long enough.
  if (size <= old_size) return;
  QUIRE_CHECK(!list.has_running_state || old_size > num_speculative_, "a running state comes before its speculative blocks");
  if (list.has_running_state)
    list.last_state_block = static_cast<std::uint32_t>(old_size - 1 - num_speculative_);
  else if (old_size > 0)
    list.last_state_block = static_cast<std::uint32_t>(old_size - 1);
  const std::int64_t num_skipped = size - num_speculative_ - 1;
  if (old_size < num_skipped) list.blocks.resize(as_index(num_skipped), kNullBlock);
  if (list.has_running_state) move_speculative_blocks(list, old_size, num_skipped);
  while (static_cast<std::int64_t>(list.blocks.size()) < size) list.blocks.push_back(pool_.allocate());
  QUIRE_CHECK(static_cast<std::int64_t>(list.blocks.size()) == size, "a block list has the length that its tokens and drafts need");
  list.has_running_state = true;
}

void MambaManager::move_speculative_blocks(GroupBlockList& list, std::int64_t old_size, std::int64_t num_skipped) {
  for (std::int64_t i = old_size - num_speculative_; i < std::min(old_size, num_skipped); ++i) {
    const BlockId block = list.blocks[as_index(i)];
    QUIRE_CHECK(block != kNullBlock, "a speculative state has a block");
    list.blocks.push_back(block);
    list.blocks[as_index(i)] = kNullBlock;
  }
}

void MambaManager::cache(GroupBlockList& list, const KvRequest& request, std::int64_t num_tokens) {
  const std::uint32_t before = list.num_cached_blocks.value_or(0);
  GroupManager::cache(list, request, num_tokens);
  const std::size_t end = std::min<std::size_t>(list.num_cached_blocks.value_or(0), list.blocks.size());
  QUIRE_CHECK(list.num_cached_blocks.value_or(0) >= before, "the number of cached blocks does not decrease");
  for (std::size_t i = before; i < end; ++i)
    if (list.blocks[i] != kNullBlock) cached_this_step_.insert(pool_.index().hash_of(list.blocks[i]));
}

void MambaManager::swap_out(GroupBlockList& list, std::int64_t num_tokens, std::vector<SwappedOutBlock>& taken) {
  remove_skipped(list, num_tokens);
  list.last_state_block.reset();
  list.has_running_state = false;
  GroupManager::swap_out(list, num_tokens, taken);
}

bool MambaManager::can_share(const GroupBlockList& parent, const ForkPoint& point) const {
  const bool is_kept = point.num_computed == point.parent_state || point.num_computed % tokens_.size() == 0;
  return is_kept && SkippingManager::can_share(parent, point);
}

void MambaManager::remove_skipped(GroupBlockList& list, std::int64_t num_computed) {
  num_computed = std::max<std::int64_t>(0, num_computed - num_speculative_);
  drop_skipped(list, num_skipped_tokens(num_computed));
  if (!aligns() || !list.last_state_block || *list.last_state_block >= tokens_.ceil(num_computed) - 1) return;
  QUIRE_CHECK(*list.last_state_block < list.blocks.size(), "the index of the last state is in the list");
  BlockId& block = list.blocks[*list.last_state_block];
  if (block != kNullBlock) {
    pool_.release(block);
    block = kNullBlock;
  }
}

}  // namespace quire
