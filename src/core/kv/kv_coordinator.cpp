// Searches all cache groups for a prefix. KvCacheManager::find_prefix() calls find() on the core's thread for each attempt to admit a
// request. A hit must suit every group: its length is a multiple of all block sizes. If a bucket finds a shorter hit, the other buckets are
// searched again with this limit.
#include "core/kv/kv_coordinator.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "core/kv/hash/hash_list.h"
#include "core/kv/kv_cache_manager.h"

namespace quire {
namespace {

AnyGroupManager make_manager(const LayerKvSpec& spec, const GroupOptions& options, BlockPool& pool) {
  if (const auto* sink = std::get_if<SinkFullAttentionSpec>(&spec)) return SinkFullAttentionManager(options, sink->sink_len, pool);
  if (const auto* window = std::get_if<SlidingWindowSpec>(&spec)) return SlidingWindowManager(options, window->sliding_window, pool);
  if (const auto* chunked = std::get_if<ChunkedLocalSpec>(&spec)) return ChunkedLocalManager(options, chunked->attention_chunk_size, pool);
  if (const auto* mamba = std::get_if<MambaSpec>(&spec)) return MambaManager(options, *mamba, pool);
  if (std::holds_alternative<CrossAttentionSpec>(spec)) return CrossAttentionManager(options, pool);
  return FullAttentionManager(options, pool);
}

}  // namespace

KvCoordinator::KvCoordinator(const KvCacheConfig& config, const KvCacheOptions& options, BlockPool& pool)
    : pool_(pool),
      hash_block_size_(options.hash_block_size),
      use_eagle_(options.use_eagle),
      eagle_drops_once_(options.rules.eagle_drops_once),
      hits_(config.groups.size()),
      found_(config.groups.size()) {
  managers_.reserve(config.groups.size());
  for (const KvCacheGroup& group : config.groups) {
    const GroupOptions group_options{
        .group = static_cast<std::uint32_t>(managers_.size()),
        .block_size = block_size_of(group.spec) * options.dcp_world_size * options.pcp_world_size,
        .hash_block_size = options.hash_block_size,
        .enable_caching = options.enable_caching,
        .record_new_blocks = config.has_mamba_layers() && std::holds_alternative<FullAttentionSpec>(group.spec),
        .use_eagle = options.use_eagle,
        .no_load_for_skipped_tokens = options.rules.no_load_for_skipped_tokens,
        .retention = options.retention};
    QUIRE_CHECK(group_options.block_size > 0, "the block size of each group is positive");
    managers_.push_back(make_manager(group.spec, group_options, pool));
    alignment_ = std::lcm(alignment_, std::int64_t{group_options.block_size});
  }
  if (options.enable_caching) make_buckets(config);
}

void KvCoordinator::make_buckets(const KvCacheConfig& config) {
  for (std::uint32_t group = 0; group < config.groups.size(); ++group) {
    const LayerKvSpec& spec = config.groups[group].spec;
    const auto equal = [&](const Bucket& bucket) { return config.groups[bucket.groups.front()].spec == spec; };
    if (const auto bucket = std::ranges::find_if(buckets_, equal); bucket != buckets_.end())
      bucket->groups.push_back(group);
    else
      buckets_.push_back({.groups = {group}, .is_full = is_full_attention(spec)});
  }
  // Full attention comes first: its hit is the longest, and the other buckets only shorten it.
  std::vector<Bucket> others;
  std::ranges::copy_if(buckets_, std::back_inserter(others), [](const Bucket& bucket) { return !bucket.is_full; });
  std::erase_if(buckets_, [](const Bucket& bucket) { return !bucket.is_full; });
  std::ranges::move(others, std::back_inserter(buckets_));
  std::size_t num_groups_found = 0;
  for (const Bucket& bucket : buckets_) num_groups_found += bucket.groups.size();
  QUIRE_CHECK(num_groups_found == config.groups.size(), "each group is in exactly one bucket");
}

std::uint32_t KvCoordinator::block_size(std::uint32_t group) const {
  QUIRE_CHECK(group < managers_.size(), "the cache group exists");
  return std::visit([](const auto& manager) { return static_cast<std::uint32_t>(manager.tokens_per_block().size()); }, managers_[group]);
}

std::int64_t KvCoordinator::find(std::span<const BlockHash> hashes, std::int64_t max_tokens) {
  longest_found_ = 0;
  if (buckets_.size() <= 1) return buckets_.empty() ? 0 : find_in(buckets_.front(), hashes, max_tokens);
  if (eagle_drops_once_) return find_dropping_once(hashes, max_tokens);
  // One pass suffices for full attention and one other bucket. In a second pass EAGLE would drop another block.
  const bool single_pass = buckets_.size() == 2 && buckets_.front().is_full;
  std::int64_t num_tokens = max_tokens;
  for (bool first = true;; first = false) {
    const std::int64_t left = pass(hashes, num_tokens, first);
    if (left >= num_tokens) break;
    QUIRE_CHECK(left >= 0 && left < num_tokens, "each pass shortens the hit");
    num_tokens = left;
    if (single_pass) break;
  }
  truncate_full_hits(num_tokens);
  return num_tokens;
}

std::int64_t KvCoordinator::pass(std::span<const BlockHash> hashes, std::int64_t max_tokens, bool first) {
  for (const Bucket& bucket : buckets_)
    if (first || !bucket.is_full)
      max_tokens = find_in(bucket, hashes, max_tokens);
    else
      max_tokens -= max_tokens % block_size(bucket.groups.front());
  return max_tokens;
}

std::int64_t KvCoordinator::find_dropping_once(std::span<const BlockHash> hashes, std::int64_t max_tokens) {
  const bool single_pass = buckets_.size() == 2 && buckets_.front().is_full;
  for (Bucket& bucket : buckets_) {
    bucket.num_hit_tokens = -1;
    bucket.has_dropped = false;
  }
  std::int64_t num_tokens = max_tokens;
  while (true) {
    const std::int64_t left = pass_dropping_once(hashes, num_tokens);
    if (left >= num_tokens) break;
    QUIRE_CHECK(left >= 0, "the length of a hit is not negative");
    num_tokens = left;
    if (single_pass) break;
  }
  for (const Bucket& bucket : buckets_)
    if (bucket.is_full) truncate_hits(bucket, num_tokens);
  return num_tokens;
}

// Each bucket drops a block at the end of the hit only once per length of the hit. A bucket that drops a block searches one block further,
// so that the hit need not become shorter.
std::int64_t KvCoordinator::pass_dropping_once(std::span<const BlockHash> hashes, std::int64_t max_tokens) {
  for (Bucket& bucket : buckets_) {
    if (bucket.is_full && bucket.num_hit_tokens >= 0) {
      max_tokens = std::min(max_tokens, bucket.num_hit_tokens);
      continue;
    }
    const bool drops = use_eagle_ && !bucket.has_dropped;
    const std::int64_t named = static_cast<std::int64_t>(hashes.size()) * hash_block_size_;
    const std::int64_t most = drops ? std::min(max_tokens + block_size(bucket.groups.front()), named) : max_tokens;
    const std::int64_t found = find_in(bucket, hashes, most, drops);
    if (drops)
      bucket.has_dropped = true;
    else if (found < max_tokens)
      for (Bucket& other : buckets_) other.has_dropped = false;
    bucket.num_hit_tokens = max_tokens = found;
    longest_found_ = std::max(longest_found_, found);
  }
  return max_tokens;
}

std::int64_t KvCoordinator::find_in(const Bucket& bucket, std::span<const BlockHash> hashes, std::int64_t max_tokens, bool drops) {
  const std::uint32_t size = block_size(bucket.groups.front());
  const BlockHashList names(hashes, hash_block_size_, size);
  HitQuery query(pool_, names, bucket.groups, {.max_tokens = max_tokens, .alignment = alignment_, .use_eagle = drops}, hits_, found_);
  std::visit([&](const auto& manager) { manager.find(query); }, managers_[bucket.groups.front()]);
  QUIRE_CHECK(max_tokens >= 0, "the number of known tokens is not negative");
  const std::int64_t num_tokens = query.size() * size;
  QUIRE_CHECK(num_tokens <= max_tokens && num_tokens % alignment_ == 0, "a hit ends at a block boundary of every group");
  return num_tokens;
}

void KvCoordinator::truncate_full_hits(std::int64_t num_tokens) {
  if (buckets_.front().is_full) truncate_hits(buckets_.front(), num_tokens);
}

void KvCoordinator::truncate_hits(const Bucket& bucket, std::int64_t num_tokens) {
  for (const std::uint32_t group : bucket.groups) {
    const auto size = static_cast<std::size_t>(num_tokens / block_size(group));
    QUIRE_CHECK(size <= hits_[group].size(), "other groups only shorten a hit");
    hits_[group].resize(size);
  }
}

}  // namespace quire
