// States of a sequence: at first it is untracked, with an empty list. attach() adds hit blocks and external blocks, once, while
// num_cached_blocks is unset. Then allocate, cache and drop_skipped follow in any order, until free() makes it untracked again. Each block
// before num_cached_blocks is null, has a hash, or has lost its hash by eviction. Later blocks have no hash. KvCacheManager calls the
// managers through KvCoordinator::each() on the core's thread: each phase visits all groups before the next phase begins. Blocks are taken
// only after blocks_needed() was checked for all groups, because a step that runs out of blocks halfway could not be undone.
#include "core/kv/group_manager.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "core/kv/hash/hash_list.h"

namespace quire {

GroupManager::GroupManager(const GroupOptions& options, BlockPool& pool) : options_(options), tokens_(options.block_size), pool_(pool) {
  QUIRE_CHECK(!options.enable_caching || options.block_size % options.hash_block_size == 0, "a block is a whole number of hash blocks");
}

void GroupManager::track(GroupBlockList& list) {
  num_tracked_ += list.tracked ? 0 : 1;
  list.tracked = true;
}

std::int64_t GroupManager::num_unreferenced(std::span<const BlockId> hit) const {
  return std::ranges::count_if(hit, [&](BlockId block) { return block != kNullBlock && pool_.ref_count(block) == 0; });
}

std::int64_t GroupManager::count_needed(const GroupBlockList& list, std::int64_t num_tokens, std::span<const BlockId> hit,
                                        std::int64_t num_skipped, std::int64_t most) const {
  QUIRE_CHECK(num_tokens >= 0, "the number of tokens is not negative");
  const std::int64_t required = std::min(tokens_.ceil(num_tokens), most);
  const auto held = static_cast<std::int64_t>(list.blocks.size());
  if (list.num_cached_blocks) {
    QUIRE_CHECK(hit.empty(), "a tracked sequence has no prefix hit");
    return std::max<std::int64_t>(required - held, 0);
  }
  QUIRE_CHECK(hit.empty() || held == 0, "prefix hits come before all other blocks");
  const std::int64_t skipped = std::max<std::int64_t>(tokens_.floor(num_skipped), 0);
  const std::int64_t fresh = required - std::max(skipped, static_cast<std::int64_t>(hit.size()) + held);
  const std::size_t skipped_hits = std::min(hit.size(), as_index(skipped));
  return std::max<std::int64_t>(fresh, 0) + num_unreferenced(hit.subspan(skipped_hits));
}

std::int64_t GroupManager::attach_hit(GroupBlockList& list, std::span<const BlockId> hit, std::int64_t num_local, std::int64_t num_external,
                                      std::int64_t num_skipped) {
  if (list.num_cached_blocks) {
    QUIRE_CHECK(hit.empty(), "a tracked sequence has no prefix hit");
    return 0;
  }
  QUIRE_CHECK(list.blocks.empty(), "prefix hits come before all other blocks");
  track(list);
  QUIRE_CHECK(num_local >= 0 && num_external >= 0, "the numbers of tokens are not negative");
  const std::int64_t total = num_local + num_external;
  if (const std::int64_t skipped = tokens_.floor(num_skipped); skipped > 0) {
    // Blocks that a window has passed are not held. Null blocks replace them in the list, so that the index of a block gives its tokens.
    hit = hit.subspan(std::min(hit.size(), as_index(skipped)));
    num_external = std::min(total - num_skipped, num_external);
    list.blocks.assign(as_index(skipped), kNullBlock);
  }
  if (options_.no_load_for_skipped_tokens && num_skipped > 0) num_external = std::min(total - num_skipped, num_external);
  QUIRE_CHECK(options_.enable_caching || hit.empty(), "there are hits only with prefix caching");
  // Hits are referenced before new blocks are allocated, because an allocation could evict them.
  for (const BlockId block : hit) pool_.touch(block);
  list.blocks.insert(list.blocks.end(), hit.begin(), hit.end());
  list.num_cached_blocks = static_cast<std::uint32_t>(list.blocks.size());
  return num_external > 0 ? std::max<std::int64_t>(tokens_.ceil(total) - static_cast<std::int64_t>(list.blocks.size()), 0) : 0;
}

void GroupManager::extend(GroupBlockList& list, std::int64_t num_tokens) {
  track(list);
  append_new(list, tokens_.ceil(num_tokens) - static_cast<std::int64_t>(list.blocks.size()));
}

void GroupManager::append_new(GroupBlockList& list, std::int64_t num_blocks) {
  QUIRE_CHECK(num_blocks <= std::int64_t{pool_.num_free_blocks()}, "there are enough free blocks");
  for (std::int64_t i = 0; i < num_blocks; ++i) {
    const BlockId block = pool_.allocate();
    list.blocks.push_back(block);
    if (options_.record_new_blocks) new_block_ids_.push_back(block);
  }
}

void GroupManager::cache_where(GroupBlockList& list, const KvRequest& request, std::int64_t num_tokens, const WindowReach* reach) {
  const std::int64_t num_cached = list.num_cached_blocks.value_or(0);
  const std::int64_t num_full = tokens_.floor(num_tokens);
  if (num_cached >= num_full) return;
  const BlockHashList names(request.hashes, options_.hash_block_size, options_.block_size);
  // Tokens beyond max_model_len have no blocks.
  const std::size_t end = std::min(list.blocks.size(), as_index(num_full));
  const std::size_t begin = std::min(end, as_index(num_cached));
  QUIRE_CHECK(names.size() >= end, "a full block of known tokens has a block hash");
  std::span<const BlockId> blocks = std::span<const BlockId>(list.blocks).subspan(begin, end - begin);
  if (reach != nullptr) {
    // Blocks that no later hit can need get no hash, like blocks that a window has passed.
    named_.assign(blocks.begin(), blocks.end());
    for (std::size_t i = 0; i < named_.size(); ++i)
      if (!reach->contains(num_cached + static_cast<std::int64_t>(i))) named_[i] = kNullBlock;
    blocks = named_;
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const std::size_t place = as_index(num_cached) + i;
    if (blocks[i] != kNullBlock) set_block_hash(blocks[i], names, place);
  }
  if (pool_.event_log().enabled()) {
    QUIRE_CHECK(request.content != nullptr, "events have the content of the request");
    pool_.event_log().stored({.blocks = blocks,
                              .names = names,
                              .first_block = static_cast<std::uint32_t>(num_cached),
                              .block_size = options_.block_size,
                              .group = options_.group,
                              .content = *request.content,
                              .lora_id = request.lora_id});
  }
  list.num_cached_blocks = static_cast<std::uint32_t>(num_full);
}

void GroupManager::set_block_hash(BlockId block, const BlockHashList& names, std::size_t place) {
  const auto num_tokens = static_cast<std::uint32_t>((place + 1) * options_.block_size);
  pool_.cache(block, {names[place], options_.group}, place > 0 ? &names[place - 1].back() : nullptr, num_tokens);
}

std::uint32_t GroupManager::num_exclusive(const GroupBlockList& list, std::int64_t num_tokens) const {
  const std::size_t end = std::min(list.blocks.size(), as_index(tokens_.ceil(num_tokens)));
  return static_cast<std::uint32_t>(
      std::ranges::count_if(std::span(list.blocks).first(end), [&](BlockId block) { return pool_.ref_count(block) == 1; }));
}

void GroupManager::swap_out(GroupBlockList& list, std::int64_t num_tokens, std::vector<SwappedOutBlock>& taken) {
  const std::size_t end = std::min(list.blocks.size(), as_index(tokens_.ceil(num_tokens)));
  // Blocks after the computed tokens have no content, so they are released without a transfer.
  for (; list.blocks.size() > end; list.blocks.pop_back()) pool_.release(list.blocks.back());
  const auto first = static_cast<std::ptrdiff_t>(taken.size());
  for (std::size_t i = end; i > 0; --i) {
    BlockId& block = list.blocks[i - 1];
    if (pool_.ref_count(block) != 1) continue;
    QUIRE_CHECK(block != kNullBlock, "a block with one reference is not the null block");
    const bool was_hashed = i <= list.num_cached_blocks.value_or(0);
    taken.push_back({.group = options_.group, .index = static_cast<std::uint32_t>(i - 1), .block = block, .was_hashed = was_hashed});
    pool_.release(std::exchange(block, kNullBlock));
  }
  std::reverse(taken.begin() + first, taken.end());
  // num_cached_blocks may include blocks that the current step would have filled. They are not computed, so they no longer count as cached.
  if (list.num_cached_blocks)
    list.num_cached_blocks = std::min(*list.num_cached_blocks, static_cast<std::uint32_t>(tokens_.floor(num_tokens)));
  list.num_before_allocation = static_cast<std::uint32_t>(list.blocks.size());
  list.copied_from = kNullBlock;
}

void GroupManager::swap_in(GroupBlockList& list, SwappedOutBlock& taken) {
  QUIRE_CHECK(taken.index < list.blocks.size() && list.blocks[taken.index] == kNullBlock,
              "the index of a swapped block holds the null block");
  QUIRE_CHECK(taken.group == options_.group, "a block returns to its group");
  taken.block = pool_.allocate();
  list.blocks[taken.index] = taken.block;
}

void GroupManager::restore_hashes(const GroupBlockList& list, const KvRequest& request, const SwappedOutBlock& taken) {
  if (!options_.enable_caching || !taken.was_hashed || taken.index >= list.num_cached_blocks.value_or(0)) return;
  const BlockHashList names(request.hashes, options_.hash_block_size, options_.block_size);
  const std::size_t place = taken.index;
  QUIRE_CHECK(place < names.size(), "a block that had a hash still has it");
  set_block_hash(taken.block, names, place);
  if (pool_.event_log().enabled()) {
    QUIRE_CHECK(request.content != nullptr, "events have the content of the request");
    pool_.event_log().stored({.blocks = {&taken.block, 1},
                              .names = names,
                              .first_block = taken.index,
                              .block_size = options_.block_size,
                              .group = options_.group,
                              .content = *request.content,
                              .lora_id = request.lora_id});
  }
}

void GroupManager::free(GroupBlockList& list) {
  // Starts at the end: by default, blocks are reused in the order in which they were freed. The end of a prompt is then evicted before its
  // beginning, which other requests may share.
  std::ranges::reverse(list.blocks);
  pool_.release(list.blocks);
  forget(list);
}

void GroupManager::release_blocks(GroupBlockList& list, std::vector<BlockId>& blocks) {
  for (const BlockId block : list.blocks)
    if (block != kNullBlock) blocks.push_back(block);
  forget(list);
}

void GroupManager::forget(GroupBlockList& list) {
  QUIRE_CHECK(!list.tracked || num_tracked_ > 0, "a tracked sequence is counted");
  num_tracked_ -= list.tracked ? 1 : 0;
  list.blocks.clear();
  list.num_cached_blocks.reset();
  list.num_before_allocation = 0;
  list.last_state_block.reset();
  list.shared_block.reset();
  list.copied_from = kNullBlock;
  list.tracked = false;
  list.has_running_state = false;
}

void GroupManager::drop_skipped(GroupBlockList& list, std::int64_t num_skipped) {
  if (num_skipped <= 0) return;
  const std::int64_t end = std::min(tokens_.floor(num_skipped), static_cast<std::int64_t>(list.blocks.size()));
  // Stops at the first null block: the blocks before it were dropped earlier.
  dropped_.clear();
  for (std::int64_t i = end - 1; i >= 0 && list.blocks[as_index(i)] != kNullBlock; --i)
    dropped_.push_back(std::exchange(list.blocks[as_index(i)], kNullBlock));
  pool_.release(dropped_);
}

bool GroupManager::can_share(const GroupBlockList& parent, std::int64_t num_computed, std::int64_t num_skipped) const {
  const std::int64_t begin = tokens_.floor(num_skipped);
  const std::int64_t end = tokens_.ceil(num_computed);
  if (end > static_cast<std::int64_t>(parent.blocks.size())) return false;
  const std::span<const BlockId> blocks = std::span<const BlockId>(parent.blocks).subspan(as_index(begin), as_index(end - begin));
  return std::ranges::find(blocks, kNullBlock) == blocks.end();
}

// Shares the parent's blocks with the child. The child caches blocks that become full after the fork. The caller must have cached the
// parent's full blocks before (KvCacheManager::fork()).
void GroupManager::share(GroupBlockList& parent, GroupBlockList& child, const ForkPoint& point, std::int64_t num_skipped) {
  QUIRE_CHECK(child.blocks.empty() && !child.num_cached_blocks, "a new child has no blocks");
  const std::int64_t num_full = tokens_.floor(point.num_computed);
  QUIRE_CHECK(!options_.enable_caching || parent.num_cached_blocks.value_or(0) >= num_full, "full blocks of the parent are cached");
  track(child);
  child.blocks.assign(as_index(tokens_.floor(num_skipped)), kNullBlock);
  QUIRE_CHECK(tokens_.ceil(point.num_computed) <= static_cast<std::int64_t>(parent.blocks.size()),
              "the parent has blocks for all computed tokens");
  const std::int64_t end = tokens_.ceil(point.num_computed);
  for (std::size_t i = child.blocks.size(); i < as_index(end); ++i) {
    pool_.touch(parent.blocks[i]);
    child.blocks.push_back(parent.blocks[i]);
  }
  if (options_.enable_caching) child.num_cached_blocks = static_cast<std::uint32_t>(num_full);
  if (num_full == end) return;
  child.shared_block = static_cast<std::uint32_t>(num_full);
  // If the parent may still write to the last block, it is a shared block of the parent too. The sequence that writes first gets a copy;
  // the other one keeps the block.
  if (tokens_.floor(point.parent_next) <= num_full) parent.shared_block = child.shared_block;
}

void GroupManager::copy_written_block(GroupBlockList& list, std::int64_t num_computed) {
  list.copied_from = kNullBlock;
  if (!list.shared_block || tokens_.floor(num_computed) > *list.shared_block) return;
  QUIRE_CHECK(*list.shared_block < list.blocks.size(), "the shared block is in the list");
  BlockId& block = list.blocks[*list.shared_block];
  if (writes_shared(list, num_computed)) {
    list.copied_block = *list.shared_block;
    list.copied_from = block;
    block = pool_.allocate();
    pool_.release(list.copied_from);
  } else if (pool_.index().contains(block)) {
    pool_.evict(block);  // the hash covers tokens that another sequence wrote after the fork
  }
  list.shared_block.reset();
}

void GroupManager::take_new_block_ids(std::vector<BlockId>& out) {
  QUIRE_CHECK(options_.record_new_blocks || new_block_ids_.empty(), "new blocks are recorded only if the option is on");
  out.insert(out.end(), new_block_ids_.begin(), new_block_ids_.end());
  new_block_ids_.clear();
}

}  // namespace quire
