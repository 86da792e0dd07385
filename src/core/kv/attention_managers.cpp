// Searches for a cached prefix, per kind of attention. KvCoordinator calls find() on the core's thread when it looks up a request. find()
// takes no blocks: they are taken when the hit is attached. The results equal vLLM's block for block; the tests compare them with a naive
// model.
#include "core/kv/attention_managers.h"

#include <algorithm>

#include "base/check.h"

namespace quire {

void FullAttentionManager::find(HitQuery& query) const {
  query.assign_null(0);
  // Only an unbroken prefix counts: the first miss ends the search, even if later blocks are cached.
  const std::int64_t end = std::min(tokens_.floor(query.limits().max_tokens), query.num_hashed());
  for (std::int64_t i = 0; i < end && query.look_up(i); ++i) query.append();
  std::int64_t size = query.size();
  size -= query.limits().use_eagle && size > 0 ? 1 : 0;
  while (!query.aligned(tokens_, size)) --size;
  query.truncate(size);
}

std::uint32_t FullAttentionManager::common_prefix(GroupBlockList& running) {
  track(running);
  QUIRE_CHECK(num_tracked_ > 0, "the running sequence is tracked");
  const auto end = std::ranges::find_if(running.blocks, [&](BlockId block) { return pool_.ref_count(block) != num_tracked_; });
  return static_cast<std::uint32_t>(end - running.blocks.begin());
}

SinkFullAttentionManager::SinkFullAttentionManager(const GroupOptions& options, std::uint32_t sink_len, BlockPool& pool)
    : FullAttentionManager(options, pool) {
  QUIRE_CHECK(sink_len % tokens_.size() == 0, "the sink size is a multiple of the block size");
  pool.set_aside(static_cast<std::uint32_t>(tokens_.floor(sink_len)));
}

SlidingWindowManager::SlidingWindowManager(const GroupOptions& options, std::uint32_t window, BlockPool& pool)
    : SkippingManager(options, pool), window_(window) {
  QUIRE_CHECK(window > 0, "a sliding window has at least one token");
}

void SlidingWindowManager::find(HitQuery& query) const {
  const bool use_eagle = query.limits().use_eagle;
  // Searches from right to left for the longest hit. A hit needs only the blocks of the window at its end.
  const std::int64_t wanted = tokens_.ceil(window_ - 1) + (use_eagle ? 1 : 0);
  const std::int64_t end = tokens_.floor(query.limits().max_tokens);
  QUIRE_CHECK(query.num_hashed() >= end, "known tokens have block hashes");
  query.assign_null(end);
  std::int64_t run = 0;
  std::int64_t size = 0;
  for (std::int64_t i = end - 1; i >= 0 && size == 0; --i) {
    if (!query.look_up(i)) {
      run = 0;
    } else if (run > 0 || query.aligned(tokens_, i + 1)) {
      query.put(i);
      ++run;
      size = run >= wanted ? i + run : 0;
    }
  }
  if (size == 0) {
    // The run that is left begins at the first block, so the window at its end has no missing block.
    size = run;
    while (!query.aligned(tokens_, size)) --size;
  }
  query.truncate(use_eagle && size > 0 ? size - 1 : size);
}

// Computes vLLM 0.32.0's reachable_block_mask for the case that all groups have the same block size.
WindowReach SlidingWindowManager::reach_of(const KvRequest& request, std::int64_t retention) const {
  const std::int64_t size = tokens_.size();
  const std::int64_t shift = options_.use_eagle ? 1 : 0;
  WindowReach reach{.need = tokens_.ceil(window_ - 1) + shift, .shift = shift};
  reach.per_segment = retention < 0 ? 1 : retention / size;
  if (retention < 0) return reach;
  // A later request with the same prompt, or with a longer prompt that begins with it, can continue at these boundaries. With EAGLE, each
  // boundary is one block earlier.
  const auto prompt = std::int64_t{request.num_prompt_tokens};
  const auto add = [&](std::int64_t boundary) {
    QUIRE_CHECK(reach.num_ends < reach.ends.size(), "there is room for each boundary of a prompt");
    reach.ends[reach.num_ends++] = boundary / size + shift;
  };
  if (options_.use_eagle) {
    add(std::max<std::int64_t>((prompt - 1) / size * size - size, 0));
    add(std::max<std::int64_t>(prompt / size * size - size, 0));
  } else {
    add(prompt - 1);
  }
  if (request.shared_prefix_boundary > 0) add(request.shared_prefix_boundary);
  return reach;
}

void SlidingWindowManager::cache(GroupBlockList& list, const KvRequest& request, std::int64_t num_tokens) {
  if (!options_.retention) return cache_where(list, request, num_tokens, nullptr);
  const WindowReach reach = reach_of(request, *options_.retention);
  cache_where(list, request, num_tokens, reach.per_segment > 0 && reach.need >= reach.per_segment ? nullptr : &reach);
}

ChunkedLocalManager::ChunkedLocalManager(const GroupOptions& options, std::uint32_t chunk, BlockPool& pool)
    : SkippingManager(options, pool), chunk_(chunk) {
  QUIRE_CHECK(chunk > 0, "a chunk has at least one token");
}

void ChunkedLocalManager::find(HitQuery& query) const {
  const std::int64_t max_tokens = query.limits().max_tokens;
  const std::int64_t end = tokens_.floor(max_tokens);
  const std::int64_t start = tokens_.floor(num_skipped_tokens(max_tokens));
  QUIRE_CHECK(start >= 0 && start <= end, "earlier chunks lie before the end of the known tokens");
  QUIRE_CHECK(query.num_hashed() >= end, "known tokens have block hashes");
  query.assign_null(start);
  for (std::int64_t i = start; i < end && query.look_up(i); ++i) query.append();
}

std::int64_t CrossAttentionManager::blocks_needed(const GroupBlockList& list, const GroupDemand& demand,
                                                  std::span<const BlockId> /*hit*/) const {
  return count_needed(list, demand.num_encoder_tokens, {}, 0);
}

std::int64_t CrossAttentionManager::attach(GroupBlockList& /*list*/, std::span<const BlockId> hit, std::int64_t /*num_local*/,
                                           std::int64_t /*num_external*/) {
  QUIRE_CHECK(hit.empty(), "cross-attention blocks are not shared");
  return 0;
}

void CrossAttentionManager::cache(GroupBlockList& /*list*/, const KvRequest& /*request*/, std::int64_t /*num_tokens*/) {
  QUIRE_CHECK(false, "cross-attention blocks are not cached");
}

void CrossAttentionManager::find(HitQuery& /*query*/) const {
  QUIRE_CHECK(false, "cross-attention blocks are not cached");
}

void CrossAttentionManager::share(GroupBlockList& /*parent*/, GroupBlockList& /*child*/, const ForkPoint& /*point*/) {
  QUIRE_CHECK(false, "cross-attention blocks are not shared");
}

std::uint32_t CrossAttentionManager::num_exclusive(const GroupBlockList& list, std::int64_t /*num_tokens*/) const {
  return GroupManager::num_exclusive(list, static_cast<std::int64_t>(list.blocks.size()) * tokens_.size());
}

void CrossAttentionManager::swap_out(GroupBlockList& list, std::int64_t /*num_tokens*/, std::vector<SwappedOutBlock>& taken) {
  GroupManager::swap_out(list, static_cast<std::int64_t>(list.blocks.size()) * tokens_.size(), taken);
}

}  // namespace quire
