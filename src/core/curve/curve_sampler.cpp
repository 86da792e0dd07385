// Estimates from the core's events how many tokens caches of other sizes would have hit. Runs on the core's thread, while the core decides:
// it copies facts and decides nothing. Three events of a request count: the look-up with which it is admitted, its admission, and the
// release of its blocks. Each visits the request's block hashes; for most of them, a single comparison shows that they are not in the
// sample.
//
// Whether a cache of another size would have contained a block follows from the eviction order, which is the same for all sizes (Mattson's
// inclusion property). A plain LRU stack distance (blocks used since the last use) would be inaccurate for three reasons:
//   Held blocks cannot be evicted. A block's age counts only from the release by its last holder. The order is therefore the order of
//   releases, and held blocks take room without a position in the order. A block is cached if the cache has room for it, the blocks that
//   were released later, and the held blocks. The core reports the exact number of held blocks.
//   A sequence is released from its end, so the beginning of a prompt is evicted last. A block is never evicted before the block after it,
//   so a smaller cache misses the end of the prompt. A running maximum corrects estimates that contradict this because of sampling.
//   A released block takes room even if it has no hash: a block that is not full, and blocks for tokens that were never computed.
// Only full blocks of the prompt without its last token can be hit, as in KvCacheManager::find_prefix().
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "base/check.h"
#include "core/curve/reuse_stack.h"
#include "quire/core.h"
#include "quire/lab/curve.h"

namespace quire {
namespace {

constexpr double kSmallest = 1.0 / 8.0, kLargest = 16.0;
// The sample is initially large enough for this many times the blocks of the cache.
constexpr double kCachesAtFirst = 4.0;

double first_rate(const CurveOptions& options) {
  const double names = options.num_blocks / options.pool_blocks_per_block * kCachesAtFirst;
  return std::min(1.0, options.max_tracked / names);
}

}  // namespace

struct CurveSampler::Impl {
  explicit Impl(const CurveOptions& given)
      : options(given), stack(given.max_tracked, static_cast<double>(given.sizes.back()) / given.pool_blocks_per_block, first_rate(given)) {
    all.hit_tokens.resize(options.sizes.size());
  }

  [[nodiscard]] std::uint32_t num_held() const {
    const CoreCounters counters = core->counters();
    return counters.num_blocks - counters.num_free_blocks;
  }

  // Returns the key of the block. A block may consist of several hash blocks; the hash of the last one depends on the others.
  [[nodiscard]] std::uint64_t key_of(const RequestView& view, std::uint32_t block) const {
    const std::size_t place = (std::size_t{block} + 1) * (options.block_size / options.hash_block_size) - 1;
    QUIRE_CHECK((place + 1) * sizeof(BlockHashBytes) <= view.block_hashes.size(), "the block has a block hash");
    std::uint64_t key = 0;
    std::memcpy(&key, view.block_hashes.data() + place * sizeof(BlockHashBytes), sizeof(key));
    return key;
  }

  [[nodiscard]] std::uint32_t num_names(const RequestView& view) const {
    const std::size_t hashes = view.block_hashes.size() / sizeof(BlockHashBytes);
    return static_cast<std::uint32_t>(hashes / (options.block_size / options.hash_block_size));
  }

  void admit(const Event& event) {
    const std::optional<RequestView> view = core->view(event.owner);
    QUIRE_CHECK(view.has_value(), "an admitted request is known to the core");
    const bool is_first = view->num_preemptions == 0;
    const auto num_external = static_cast<std::uint32_t>(std::max<std::int64_t>(view->num_external_computed_tokens, 0));
    if (is_first && looked_up == event.owner) {
      count(*view, event, num_found, event.amount - std::min(event.amount, num_found), held_then);
    } else if (is_first && num_external > 0 && !view->resumable) {
      // The request was looked up and then waited until a tier had loaded the rest. Its own blocks are held already, so they are
      // subtracted.
      const std::uint32_t held = num_held();
      count(*view, event, event.amount - std::min(event.amount, num_external), num_external, held - std::min(held, view->num_blocks));
    }
    looked_up.reset();
    for (std::uint32_t i = 0; i < num_names(*view); ++i)
      if (const std::uint64_t key = key_of(*view, i); stack.samples(key)) stack.hold(key);
  }

  void count(const RequestView& view, const Event& event, std::uint32_t found, std::uint32_t external, std::uint32_t held) {
    QUIRE_CHECK(found <= event.total, "found tokens do not exceed the tokens of the request");
    age(event.time_s);
    QUIRE_CHECK(view.tags != nullptr, "the view of a request has tags");
    CurveCounts* tenant = counts_of(view.tags->tenant);
    const double weight = options.block_size / stack.rate();
    for (CurveCounts* to : {&all, tenant}) {
      if (to == nullptr) continue;
      to->num_requests += 1.0;
      to->query_tokens += event.total;
      to->found_tokens += found;
      to->external_tokens += external;
    }
    QUIRE_CHECK(event.total > 0, "an admitted request has a token to compute");
    const std::uint32_t num_whole = std::min(num_names(view), (event.total - 1) / options.block_size);
    double needed = 0.0;  // size that a cache must have to hit this block and all blocks before it
    for (std::uint32_t i = 0; i < num_whole; ++i) {
      const std::uint64_t key = key_of(view, i);
      if (!stack.samples(key)) continue;
      const ReuseStack::Found known = stack.find(key);
      if (known.state == ReuseStack::State::released)
        needed = std::max(needed, held + (known.num_after + 1.0) * options.pool_blocks_per_block);
      else if ((i + 1) * options.block_size > found)
        break;  // the block was never released, or so long ago that no size would contain it
      const auto size =
          std::ranges::lower_bound(options.sizes, needed, {}, [](std::uint64_t blocks) { return static_cast<double>(blocks); });
      if (size == options.sizes.end()) break;
      const auto place = static_cast<std::size_t>(size - options.sizes.begin());
      QUIRE_CHECK(place < all.hit_tokens.size(), "each size has a counter");
      all.hit_tokens[place] += weight;
      if (tenant != nullptr) tenant->hit_tokens[place] += weight;
    }
  }

  // Returns the tenant's counts, or null if max_tenants tenants are counted already.
  CurveCounts* counts_of(const std::string& tenant) {
    const auto found = tenants.find(tenant);
    if (found != tenants.end()) return &found->second;
    if (tenants.size() >= options.max_tenants) return nullptr;
    CurveCounts& counts = tenants[tenant];
    QUIRE_CHECK(tenants.size() <= options.max_tenants, "at most max_tenants tenants are counted");
    counts.tenant = tenant;
    counts.hit_tokens.resize(options.sizes.size());
    return &counts;
  }

  void age(double now_s) {
    if (!last_s.has_value()) last_s = halved_s = now_s;
    seconds += std::max(now_s - *last_s, 0.0);
    last_s = now_s;
    if (options.halve_after_s <= 0.0 || now_s - halved_s < options.halve_after_s) return;
    halved_s = now_s;
    seconds *= 0.5;
    halve(all);
    for (auto& [name, counts] : tenants) halve(counts);
  }

  static void halve(CurveCounts& counts) {
    for (double* count : {&counts.num_requests, &counts.query_tokens, &counts.found_tokens, &counts.external_tokens}) *count *= 0.5;
    for (double& tokens : counts.hit_tokens) tokens *= 0.5;
  }

  // Releases blocks in the core's order: first blocks without a hash, then blocks with a hash, from the last block on.
  void release(RequestId id) {
    const std::optional<RequestView> view = core->view(id);
    if (!view.has_value()) return;
    const std::span<const BlockId> blocks = core->blocks(id, 0);
    const std::uint32_t names = num_names(*view);
    const std::uint32_t computed =
        std::min({names, view->num_computed_tokens / options.block_size, static_cast<std::uint32_t>(blocks.size())});
    for (auto i = static_cast<std::uint32_t>(blocks.size()); i-- > computed;)
      if (const std::uint64_t key = key_without_hash(id, i); blocks[i] != kNullBlock && stack.samples(key)) stack.release(key);
    for (std::uint32_t i = names; i-- > 0;) {
      const std::uint64_t key = key_of(*view, i);
      if (!stack.samples(key)) continue;
      // Skips blocks that other requests still hold. A block that this request did not compute is released only if the sample contains it
      // as held.
      if (i < computed ? blocks[i] == kNullBlock || core->ref_count(blocks[i]) <= 1 : stack.find(key).state == ReuseStack::State::held)
        stack.release(key);
    }
  }

  // Returns a key for a block without a hash.
  static std::uint64_t key_without_hash(RequestId id, std::uint32_t block) {
    std::uint64_t key = id.value * 0xBF58476D1CE4E5B9ULL + block;
    key = (key ^ (key >> 31U)) * 0x94D049BB133111EBULL;
    return key ^ (key >> 30U);
  }

  void hold_existing(RequestId id) {
    const std::optional<RequestView> view = core->view(id);
    for (std::uint32_t i = 0; view.has_value() && i < num_names(*view); ++i)
      if (const std::uint64_t key = key_of(*view, i); stack.samples(key)) stack.hold(key);
  }

  void forget(const BlockHashBytes& name) {
    std::uint64_t key = 0;
    std::memcpy(&key, name.data(), sizeof(key));
    if (stack.samples(key)) stack.forget(key);
  }

  const CurveOptions options;
  const Core* core = nullptr;
  ReuseStack stack;
  CurveCounts all;  // here and in `tenants`, hit_tokens counts each token only at the smallest size that hits it
  std::map<std::string, CurveCounts> tenants;
  std::optional<RequestId> looked_up;  // the last request that was looked up, to which num_found and held_then belong
  std::uint32_t num_found = 0, held_then = 0;
  std::optional<double> last_s;
  double halved_s = 0.0, seconds = 0.0;
};

CurveOptions CurveOptions::of(const CoreConfig& config, std::uint32_t max_tracked, const std::vector<std::uint64_t>& more) {
  CurveOptions options{.num_blocks = config.kv.num_blocks - 1,
                       .block_size = config.block_size,
                       .hash_block_size = config.block_size,
                       .sizes = more,
                       .max_tracked = max_tracked};
  // Blocks of windows and states are released earlier than others, but all of them pass through the free queue and therefore count.
  double per_token = 0.0;
  for (const KvCacheGroup& group : config.kv.groups) {
    const std::uint32_t of_group = block_size_of(group.spec);
    if (of_group >= config.scheduler.max_model_len || of_group % config.block_size != 0) continue;
    options.block_size = std::max(options.block_size, of_group);
    per_token += 1.0 / of_group;
  }
  options.pool_blocks_per_block = std::max(1.0, per_token * options.block_size);
  const auto steps = static_cast<int>(std::lround(std::log2(kLargest / kSmallest) * kStepsPerOctave));
  for (int i = 0; i <= steps; ++i) {
    const double factor = kSmallest * std::exp2(static_cast<double>(i) / kStepsPerOctave);
    options.sizes.push_back(std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::llround(options.num_blocks * factor))));
  }
  std::ranges::sort(options.sizes);
  options.sizes.erase(std::ranges::unique(options.sizes).begin(), options.sizes.end());
  return options;
}

CurveSampler::CurveSampler(const CurveOptions& options) {
  QUIRE_CHECK(options.num_blocks > 0 && options.hash_block_size > 0 && options.block_size % options.hash_block_size == 0,
              "a block is a whole number of hash blocks, and there are blocks");
  QUIRE_CHECK(std::ranges::binary_search(options.sizes, options.num_blocks), "the sizes include the size of the cache");
  impl_ = std::make_unique<Impl>(options);
}

CurveSampler::~CurveSampler() = default;

void CurveSampler::follow(const Core& core) {
  QUIRE_CHECK(impl_->core == nullptr, "the sampler follows one core");
  impl_->core = &core;
}

void CurveSampler::on_event(const Event& event) {
  Impl& i = *impl_;
  QUIRE_CHECK(i.core != nullptr, "the sampler follows a core before the first event");
  switch (event.what) {
    case EventKind::prefix_looked_up:
      // The look-up precedes all allocations of the request. If it is repeated, the last one counts, because with it the request is
      // admitted.
      i.looked_up = event.owner;
      i.num_found = event.amount;
      i.held_then = i.num_held();
      return;
    case EventKind::admitted:
      return i.admit(event);
    case EventKind::preempted:
    case EventKind::ended:
    case EventKind::unpinned:
      return i.release(event.owner);
    case EventKind::pinned:
      return i.hold_existing(event.owner);
    case EventKind::block_forgotten:
      return i.forget(event.name);
    case EventKind::cache_reset:
      return i.stack.clear();
    default:
      return;
  }
}

HitRateCurve CurveSampler::curve(const std::optional<std::string_view>& tenant) const {
  const Impl& i = *impl_;
  HitRateCurve curve{.num_blocks = i.options.num_blocks,
                     .block_size = i.options.block_size,
                     .pool_blocks_per_block = i.options.pool_blocks_per_block,
                     .sizes = i.options.sizes,
                     .sampling_rate = i.stack.rate(),
                     .num_tracked = i.stack.num_tracked(),
                     .num_bytes = i.stack.num_bytes(),
                     .seconds = i.seconds};
  const auto summed = [](CurveCounts counts) {
    for (std::size_t k = 1; k < counts.hit_tokens.size(); ++k) counts.hit_tokens[k] += counts.hit_tokens[k - 1];
    return counts;
  };
  if (!tenant.has_value()) curve.all = summed(i.all);
  for (const auto& [name, counts] : i.tenants)
    if (!tenant.has_value() || name == *tenant) curve.tenants.push_back(summed(counts));
  return curve;
}

}  // namespace quire
