// Each function follows vLLM's order: every phase (skip, count, attach, allocate, cache, free) visits the groups in order, so blocks enter
// and leave the free queue group by group. The scheduler calls the manager on the core's thread, in every step. A call that returns a
// number of missing blocks has taken none, so the caller can preempt requests and call again. A call that returns 0 is complete.
#include "core/kv/kv_cache_manager.h"

#include <algorithm>
#include <concepts>
#include <utility>

#include "base/check.h"
#include "base/rules.h"
#include "core/kv/kv_coordinator.h"

namespace quire {
namespace {

BlockPoolOptions pool_options(const KvCacheConfig& config, const KvCacheOptions& options) {
  std::uint32_t max_hashes = 1;
  for (const KvCacheGroup& group : config.groups)
    max_hashes = std::max(max_hashes, options.enable_caching ? block_size_of(group.spec) / options.hash_block_size : 1);
  return {.num_blocks = config.num_blocks,
          .max_hashes_per_block = max_hashes,
          .hash_bytes = options.hash_bytes,
          .enable_caching = options.enable_caching,
          .enable_events = options.enable_events,
          .residency_sample = options.residency_sample,
          .residency_events = options.log_stats,
          .unhashed_first = options.rules.unhashed_blocks_first,
          .segments = {.reused = static_cast<std::uint32_t>(options.slru_share * (config.num_blocks - 1)),
                       .retained = static_cast<std::uint32_t>(options.retained_share * (config.num_blocks - 1))},
          .lifo = options.lifo_free_blocks};
}

KvCacheOptions checked(const KvCacheConfig& config, const KvCacheOptions& options) {
  QUIRE_CHECK(KvCacheManager::check(config, options).has_value(), "the options are valid");
  return options;
}

std::span<const BlockId> hit_of(const KvHit& hit, std::size_t group) {
  return group < hit.groups.size() ? std::span<const BlockId>(hit.groups[group]) : std::span<const BlockId>();
}

}  // namespace

KvCacheManager::KvCacheManager(const KvCacheConfig& config, const KvCacheOptions& options, EventSink* sink)
    : options_(checked(config, options)),
      pool_(pool_options(config, options), sink),
      coordinator_(std::make_unique<KvCoordinator>(config, options, pool_)),
      num_loaded_(coordinator_->num_groups()) {
  coordinator_->each([this]<class Manager>(const Manager& /*manager*/, std::size_t) {
    drops_blocks_ |= !std::derived_from<Manager, FullAttentionManager> && !std::same_as<Manager, CrossAttentionManager>;
  });
}

KvCacheManager::~KvCacheManager() = default;

std::uint32_t KvCacheManager::num_groups() const {
  return static_cast<std::uint32_t>(coordinator_->num_groups());
}

std::uint32_t KvCacheManager::block_size(std::uint32_t group) const {
  QUIRE_CHECK(group < num_groups(), "the queried cache group exists");
  return coordinator_->block_size(group);
}

std::span<GroupBlockList> KvCacheManager::lists(KvBlocks& blocks) const {
  if (blocks.groups_.size() != coordinator_->num_groups()) [[unlikely]] {
    QUIRE_CHECK(blocks.groups_.empty(), "the blocks belong to this manager");
    blocks.groups_.resize(coordinator_->num_groups());
  }
  return blocks.groups_;
}

void KvCacheManager::reserve(KvBlocks& blocks, std::uint32_t num_tokens) const {
  const std::span<GroupBlockList> groups = lists(blocks);
  std::as_const(*coordinator_).each([&](const auto& manager, std::size_t group) {
    groups[group].blocks.reserve(static_cast<std::size_t>(manager.max_blocks(num_tokens)));
  });
}

void KvCacheManager::new_step_starts(double now) {
  pool_.end_retention(now);
  coordinator_->each([](auto& manager, std::size_t) { manager.new_step_starts(); });
}

std::uint32_t KvCacheManager::count_prefix(std::span<const BlockHash> hashes, std::uint32_t num_tokens) {
  if (!options_.enable_caching) return 0;
  // The last token is not looked up: it is computed even if it is cached, because its output is the next token.
  const auto num_hits = static_cast<std::uint32_t>(coordinator_->find(hashes, std::int64_t{num_tokens} - 1));
  QUIRE_CHECK(num_hits < num_tokens, "at least one token is left to compute");
  return num_hits;
}

KvHit KvCacheManager::find_prefix(const KvRequest& request, bool counts_now) {
  if (!options_.enable_caching || request.skip_reading_prefix_cache) return {};
  QUIRE_CHECK(request.num_tokens > 0);
  const std::uint32_t num_tokens = count_prefix(request.hashes, request.num_tokens);
  if (counts_now && !options_.rules.counts_hits_at_admission) count_lookup(request, num_tokens);
  const bool any = std::ranges::any_of(coordinator_->hits(), [](const auto& list) { return !list.empty(); });
  return {
      .groups = any ? coordinator_->hits() : std::span<const std::vector<BlockId>>(),
      .num_tokens = num_tokens,
      .shared_prefix_boundary = static_cast<std::uint32_t>(coordinator_->longest_found() > num_tokens ? coordinator_->longest_found() : 0)};
}

void KvCacheManager::count_admission(const KvRequest& request, std::uint32_t num_hits) {
  if (options_.enable_caching && !request.skip_reading_prefix_cache) count_lookup(request, num_hits);
}

void KvCacheManager::count_lookup(const KvRequest& request, std::uint32_t num_hits) {
  if (!options_.log_stats) return;
  QUIRE_CHECK(num_hits < request.num_tokens, "the hits are fewer than the queried tokens");
  ++(request.was_preempted ? stats_.preempted_requests : stats_.requests);
  (request.was_preempted ? stats_.preempted_queries : stats_.queries) += request.num_tokens;
  (request.was_preempted ? stats_.preempted_hits : stats_.hits) += num_hits;
}

std::uint32_t KvCacheManager::missing(KvBlocks& blocks, const GroupDemand& demand, const KvHit& hit, std::uint32_t num_min_free_blocks,
                                      std::uint32_t num_more, std::uint32_t num_kept) {
  const std::span<GroupBlockList> groups = lists(blocks);
  std::int64_t needed = num_more;
  coordinator_->each([&](auto& manager, std::size_t group) {
    needed += manager.blocks_needed(groups[group], demand, hit_of(hit, group));
    needed += manager.writes_shared(groups[group], demand.num_computed_tokens) ? 1 : 0;
  });
  // A request that needs no block is admitted into a full pool, so num_min_free_blocks applies only if blocks are taken.
  if (needed > 0) needed += num_min_free_blocks;
  needed += num_kept;
  return static_cast<std::uint32_t>(std::max<std::int64_t>(needed - pool_.num_free_blocks(), 0));
}

std::uint32_t KvCacheManager::missing_for_full_sequence(const KvRequest& request, const SlotDemand& demand, const KvHit& hit) {
  QUIRE_CHECK(hit.groups.empty() || hit.groups.size() == num_groups(), "this manager found the hit");
  const std::int64_t computed = std::int64_t{request.num_computed_tokens} + demand.num_new_computed_tokens + demand.num_external_tokens;
  const std::int64_t all = std::min(request.num_tokens, options_.max_model_len);
  return missing(request.blocks,
                 {.num_tokens = all,
                  .num_main_model_tokens = all,
                  .num_computed_tokens = std::min<std::int64_t>(computed, options_.max_model_len),
                  .num_encoder_tokens = demand.num_encoder_tokens,
                  .max_in_flight_tokens = options_.max_in_flight_tokens,
                  .max_model_len = options_.max_model_len,
                  .max_step_tokens = options_.max_step_tokens},
                 hit, demand.num_min_free_blocks, demand.num_prefill_blocks, demand.num_watermark_blocks);
}

std::uint32_t KvCacheManager::allocate_slots(const KvRequest& request, const SlotDemand& demand, const KvHit& hit) {
  QUIRE_CHECK(demand.num_new_tokens > 0 || demand.num_external_tokens > 0, "there is a token to allocate for");
  QUIRE_CHECK(hit.groups.empty() || hit.groups.size() == num_groups(), "the hit belongs to this manager");
  const std::int64_t local = std::int64_t{request.num_computed_tokens} + demand.num_new_computed_tokens;
  const std::int64_t uncapped = local + demand.num_external_tokens;
  const std::int64_t computed = std::min<std::int64_t>(uncapped, options_.max_model_len);
  const std::int64_t main_model = computed + demand.num_new_tokens;
  const GroupDemand slots{.num_tokens = std::min<std::int64_t>(main_model + demand.num_lookahead_tokens, options_.max_model_len),
                          .num_main_model_tokens = main_model,
                          .num_computed_tokens = uncapped,
                          .num_encoder_tokens = demand.num_encoder_tokens};
  // Releases blocks before counting, because this request can use the blocks that its window has passed.
  if (drops_blocks_) remove_skipped(request.blocks, std::max<std::int64_t>(computed - demand.num_unsure_tokens, 0));
  // External tokens beyond max_model_len get blocks too. vLLM does not count these blocks, and stops if they are missing.
  GroupDemand counted = slots;
  counted.num_tokens = demand.num_external_tokens > 0 ? std::max(slots.num_tokens, uncapped) : slots.num_tokens;
  const std::uint32_t num_kept = demand.num_watermark_blocks + demand.num_reserved_blocks;
  if (const std::uint32_t lack = missing(request.blocks, counted, hit, demand.num_min_free_blocks, 0, num_kept); lack > 0) return lack;
  const std::span<GroupBlockList> groups = lists(request.blocks);
  if (!hit.groups.empty() || demand.num_external_tokens > 0) attach(groups, hit, local, demand.num_external_tokens);
  coordinator_->each([&](auto& manager, std::size_t group) {
    manager.copy_written_block(groups[group], slots.num_computed_tokens);
    groups[group].num_before_allocation = static_cast<std::uint32_t>(groups[group].blocks.size());
    manager.allocate(groups[group], slots);
  });
  if (!demand.delay_caching) cache_up_to(request, std::min<std::int64_t>(main_model, request.num_tokens));
  return 0;
}

void KvCacheManager::attach(std::span<GroupBlockList> groups, const KvHit& hit, std::int64_t num_local, std::int64_t num_external) {
  QUIRE_CHECK(num_loaded_.size() == groups.size(), "there is a number of loaded blocks for each group");
  coordinator_->each([&](auto& manager, std::size_t group) {
    num_loaded_[group] = manager.attach(groups[group], hit_of(hit, group), num_local, num_external);
    // vLLM proceeds group by group, so the new blocks of one group may evict a hit of the next group. With hits_before_loads, the hits of
    // all groups are referenced first.
    if (!options_.rules.hits_before_loads) manager.append_new(groups[group], num_loaded_[group]);
  });
  if (!options_.rules.hits_before_loads) return;
  coordinator_->each([&](auto& manager, std::size_t group) { manager.append_new(groups[group], num_loaded_[group]); });
}

bool KvCacheManager::fork(const KvRequest& parent, std::uint32_t parent_next, KvBlocks& child, std::uint32_t num_computed) {
  QUIRE_CHECK(num_computed <= parent.num_tokens, "a child begins with known tokens");
  QUIRE_CHECK(&parent.blocks != &child, "a child differs from its parent");
  const std::span<GroupBlockList> from = lists(parent.blocks);
  bool shares = true;
  const ForkPoint point{.num_computed = num_computed, .parent_next = parent_next, .parent_state = parent.num_computed_tokens};
  coordinator_->each([&](auto& manager, std::size_t group) { shares = shares && manager.can_share(from[group], point); });
  if (!shares) return false;
  // Full blocks get their hashes before they are shared, because the child's list counts them as cached.
  cache_up_to(parent, num_computed);
  const std::span<GroupBlockList> to = lists(child);
  coordinator_->each([&](auto& manager, std::size_t group) { manager.share(from[group], to[group], point); });
  return true;
}

void KvCacheManager::cache_blocks(const KvRequest& request, std::uint32_t num_computed_tokens) {
  cache_up_to(request, num_computed_tokens);
}

void KvCacheManager::cache_up_to(const KvRequest& request, std::int64_t num_tokens) {
  if (!options_.enable_caching) return;
  QUIRE_CHECK(num_tokens <= request.num_tokens, "only known tokens are cached");
  const std::span<GroupBlockList> groups = lists(request.blocks);
  coordinator_->each([&](auto& manager, std::size_t group) { manager.cache(groups[group], request, num_tokens); });
}

void KvCacheManager::retain(const KvBlocks& blocks, double until) {
  for (const GroupBlockList& list : blocks.groups_)
    for (const BlockId block : list.blocks) pool_.retain(block, until);
}

void KvCacheManager::free(KvBlocks& blocks) {
  const std::span<GroupBlockList> groups = lists(blocks);
  coordinator_->each([&](auto& manager, std::size_t group) { manager.free(groups[group]); });
}

std::uint32_t KvCacheManager::num_future_blocks(const KvRequest& request, std::uint32_t num_more_tokens, bool slides) {
  const std::int64_t known = std::min(request.num_tokens, options_.max_model_len);
  const GroupDemand all{.num_tokens = known + num_more_tokens,
                        .num_main_model_tokens = known,
                        .num_computed_tokens = request.num_computed_tokens,
                        .max_in_flight_tokens = options_.max_in_flight_tokens,
                        .max_model_len = options_.max_model_len,
                        .max_step_tokens = slides ? options_.max_step_tokens : 0};
  const std::span<GroupBlockList> groups = lists(request.blocks);
  std::int64_t needed = 0;
  coordinator_->each([&](auto& manager, std::size_t group) { needed += manager.blocks_needed(groups[group], all, {}); });
  QUIRE_CHECK(needed >= 0, "the number of missing blocks is not negative");
  return static_cast<std::uint32_t>(needed);
}

void KvCacheManager::free_later(KvBlocks& blocks, std::uint64_t due) {
  QUIRE_CHECK(deferred_frees_.empty() || deferred_frees_.back().due <= due, "blocks are freed in the order of their due steps");
  if (!spare_.empty()) {
    deferred_frees_.push_back(std::move(spare_.back()));
    spare_.pop_back();
  } else {
    deferred_frees_.emplace_back();
  }
  DeferredFree& last = deferred_frees_.back();
  last.due = due;
  last.blocks.clear();
  const std::span<GroupBlockList> groups = lists(blocks);
  coordinator_->each([&](auto& manager, std::size_t group) { manager.release_blocks(groups[group], last.blocks); });
  // The last block comes first, across all groups.
  std::ranges::reverse(last.blocks);
}

void KvCacheManager::free_due(std::uint64_t now) {
  const auto end = std::ranges::find_if(deferred_frees_, [&](const DeferredFree& one) { return one.due > now; });
  for (auto one = deferred_frees_.begin(); one != end; ++one) {
    pool_.release(one->blocks);
    spare_.push_back(std::move(*one));
  }
  deferred_frees_.erase(deferred_frees_.begin(), end);
  QUIRE_CHECK(deferred_frees_.empty() || deferred_frees_.front().due > now, "blocks that stay are due later");
}

bool KvCacheManager::has_sound_deferred_frees() const {
  return std::ranges::all_of(deferred_frees_, [&](const DeferredFree& one) {
    return std::ranges::all_of(one.blocks, [&](BlockId block) { return block.value < pool_.num_blocks() && block != kNullBlock; });
  });
}

std::uint32_t KvCacheManager::num_exclusive_blocks(const KvBlocks& blocks, std::uint32_t num_tokens) const {
  std::uint32_t count = 0;
  for (std::uint32_t group = 0; group < num_groups(); ++group) count += num_exclusive_blocks(blocks, num_tokens, group);
  return count;
}

std::uint32_t KvCacheManager::num_exclusive_blocks(const KvBlocks& blocks, std::uint32_t num_tokens, std::uint32_t group) const {
  if (group >= blocks.groups_.size()) return 0;
  std::uint32_t count = 0;
  std::as_const(*coordinator_).each([&](const auto& manager, std::size_t i) {
    if (i == group) count = manager.num_exclusive(blocks.groups_[group], num_tokens);
  });
  return count;
}

void KvCacheManager::swap_out(KvBlocks& blocks, std::uint32_t num_tokens, std::vector<SwappedOutBlock>& taken) {
  const std::span<GroupBlockList> groups = lists(blocks);
  coordinator_->each([&](auto& manager, std::size_t group) { manager.swap_out(groups[group], num_tokens, taken); });
}

std::uint32_t KvCacheManager::swap_in(const KvRequest& request, std::span<SwappedOutBlock> taken, const ReturnDemand& demand) {
  const GroupDemand room{.num_tokens = std::min(demand.num_tokens, options_.max_model_len),
                         .num_main_model_tokens = std::min(demand.num_tokens, options_.max_model_len),
                         .num_computed_tokens = request.num_computed_tokens,
                         .max_step_tokens = options_.max_step_tokens};
  for (const SwappedOutBlock& one : taken) QUIRE_CHECK(one.group < num_groups(), "a swapped block belongs to a cache group");
  const auto num_taken = static_cast<std::uint32_t>(taken.size());
  if (const std::uint32_t lack = missing(request.blocks, room, {}, demand.num_min_free_blocks, num_taken); lack > 0) return lack;
  const std::span<GroupBlockList> groups = lists(request.blocks);
  coordinator_->each([&](auto& manager, std::size_t group) {
    for (SwappedOutBlock& one : taken)
      if (one.group == group) manager.swap_in(groups[group], one);
  });
  return 0;
}

void KvCacheManager::restore_hashes(const KvRequest& request, std::span<const SwappedOutBlock> taken) {
  for (const SwappedOutBlock& one : taken)
    QUIRE_CHECK(one.group < num_groups() && one.block != kNullBlock,
                "a block that was swapped in belongs to a group and is not the null block");
  const std::span<GroupBlockList> groups = lists(request.blocks);
  coordinator_->each([&](auto& manager, std::size_t group) {
    for (const SwappedOutBlock& one : taken)
      if (one.group == group) manager.restore_hashes(groups[group], request, one);
  });
}

bool KvCacheManager::holds_any(const KvBlocks& blocks) {
  return std::ranges::any_of(blocks.groups_, [](const GroupBlockList& list) {
    return std::ranges::any_of(list.blocks, [](BlockId block) { return block != kNullBlock; });
  });
}

void KvCacheManager::remove_skipped_blocks(KvBlocks& blocks, std::uint32_t num_computed_tokens) {
  remove_skipped(blocks, num_computed_tokens);
}

void KvCacheManager::remove_skipped(KvBlocks& blocks, std::int64_t num_computed_tokens) {
  const std::span<GroupBlockList> groups = lists(blocks);
  coordinator_->each([&](auto& manager, std::size_t group) { manager.remove_skipped(groups[group], num_computed_tokens); });
}

void KvCacheManager::evict_blocks(std::span<const BlockId> blocks) {
  for (const BlockId block : blocks) pool_.evict(block);
}

bool KvCacheManager::reset_prefix_cache() {
  const bool done = (options_.rules.reset_is_noop_without_groups && num_groups() == 0) || pool_.reset();
  stats_.reset = stats_.reset || (done && options_.log_stats);
  return done;
}

void KvCacheManager::common_prefix_blocks(KvBlocks& running, std::span<std::uint32_t> num_blocks) {
  const std::span<GroupBlockList> groups = lists(running);
  QUIRE_CHECK(num_blocks.size() == groups.size(), "there is a number for each group");
  coordinator_->each(
      [&](auto& manager, std::size_t group) { num_blocks[group] = options_.enable_caching ? manager.common_prefix(groups[group]) : 0; });
}

void KvCacheManager::take_new_block_ids(std::vector<BlockId>& out) {
  coordinator_->each([&](auto& manager, std::size_t) { manager.take_new_block_ids(out); });
}

void KvCacheManager::take_events(std::vector<KvEvent>& out) {
  pool_.event_log().take(out);
}

PrefixCacheStats KvCacheManager::take_prefix_cache_stats() {
  QUIRE_CHECK(has_sound_stats(), "the hits do not exceed the queries");
  return std::exchange(stats_, {});
}

void KvCacheManager::check_invariants(std::span<const KvBlocks* const> sequences) const {
  check_rules(broken_rule(sequences));
  pool_.check_lists();
}

const Rule* KvCacheManager::broken_rule(std::span<const KvBlocks* const> sequences) const {
  std::vector<std::uint32_t> holders(pool_.num_blocks(), 0);
  for (const KvBlocks* sequence : sequences) {
    for (const GroupBlockList& list : sequence->groups_) {
      QUIRE_RULE(!list.last_state_block || *list.last_state_block < list.blocks.size(), "the last state block is in the list");
      for (const BlockId block : list.blocks) {
        QUIRE_CHECK(block.value < holders.size(), "sequences hold blocks of the pool");
        ++holders[block.value];  // the count of the null block is ignored
      }
      for (std::size_t i = list.num_cached_blocks.value_or(0); i < list.blocks.size(); ++i)
        QUIRE_RULE(list.shared_block == i || !pool_.index().contains(list.blocks[i]), "a block that is not cached has no hash");
    }
  }
  for (const DeferredFree& one : deferred_frees_)
    for (const BlockId block : one.blocks) ++holders[block.value];
  if (const Rule* broken = pool_.broken_rule(holders)) return broken;
  bool are_counted = true;
  std::as_const(*coordinator_).each([&](const auto& manager, std::size_t group) {
    const auto tracked = [&](const KvBlocks* sequence) { return group < sequence->groups_.size() && sequence->groups_[group].tracked; };
    are_counted &= manager.num_tracked() == std::ranges::count_if(sequences, tracked);
  });
  QUIRE_RULE(are_counted, "the numbers of tracked sequences are correct");
  QUIRE_RULE(has_sound_stats(), "the hits do not exceed the queries");
  return nullptr;
}

bool KvBlocks::is_sound(std::size_t num_groups, std::uint32_t num_pool_blocks) const {
  const auto is_in = [&](const GroupBlockList& list) {
    const std::size_t size = list.blocks.size();
    return std::ranges::all_of(list.blocks, [&](BlockId block) { return block.value < num_pool_blocks; }) &&
           list.copied_from.value < num_pool_blocks && list.num_before_allocation <= size && list.shared_block.value_or(0) <= size &&
           (!list.shared_block || *list.shared_block < size) && (!list.last_state_block || *list.last_state_block < size) &&
           (list.copied_from == kNullBlock || list.copied_block < size);
  };
  return (groups_.empty() || groups_.size() == num_groups) && std::ranges::all_of(groups_, is_in);
}

}  // namespace quire
