// on_allocated() starts to follow a sample of blocks. on_evicted() ends the sample of a block with an event, reset() without an event.
// Accesses do not change whether a block is followed. The block pool calls these functions during a step. Without
// ReportOptions::kv_metrics_sample, they do nothing.
#include "core/kv/residency.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace quire {
namespace {

double seconds(std::int64_t ns) {
  return static_cast<double>(ns) / 1e9;
}

}  // namespace

KvResidency::KvResidency(std::uint32_t num_blocks, double sample_rate, bool makes_events)
    : sample_rate_(sample_rate), makes_events_(makes_events) {
  QUIRE_CHECK(sample_rate >= 0.0 && sample_rate <= 1.0, "the sample rate is between 0 and 1");
  if (sample_rate > 0.0) lifetimes_.resize(num_blocks);
}

void KvResidency::begin(std::int64_t now_ns, std::uint64_t random) {
  now_ns_ = now_ns;
  random_ = Random(random);
}

void KvResidency::on_allocated(BlockId block) {
  if (lifetimes_.empty()) return;
  QUIRE_CHECK(block.value < lifetimes_.size(), "an allocated block is in the pool");
  if (random_.chance(sample_rate_))
    lifetimes_[block.value] = {.followed = true, .num_accesses = 0, .birth_ns = now_ns_, .last_access_ns = now_ns_, .accesses_ns = {}};
}

void KvResidency::on_accessed(BlockId block) {
  if (lifetimes_.empty()) return;
  QUIRE_CHECK(block.value < lifetimes_.size(), "an accessed block is in the pool");
  BlockLifetime& life = lifetimes_[block.value];
  if (!life.followed) return;
  life.last_access_ns = now_ns_;
  life.accesses_ns[life.num_accesses % kNumAccesses] = now_ns_;
  ++life.num_accesses;
}

void KvResidency::on_evicted(BlockId block) {
  if (lifetimes_.empty()) return;
  QUIRE_CHECK(block.value < lifetimes_.size(), "an evicted block is in the pool");
  BlockLifetime& life = lifetimes_[block.value];
  if (!life.followed) return;
  life.followed = false;
  if (!makes_events_) return;
  events_.push_back(
      {.lifetime = seconds(now_ns_ - life.birth_ns), .idle = seconds(now_ns_ - life.last_access_ns), .reuse_gaps = reuse_gaps(life)});
}

void KvResidency::reset() {
  std::ranges::fill(lifetimes_, BlockLifetime());
  events_.clear();
}

void KvResidency::take_events(std::vector<KvEvictionEvent>& out) {
  std::ranges::move(events_, std::back_inserter(out));
  events_.clear();
}

std::vector<KvResidency::Followed> KvResidency::followed() const {
  std::vector<Followed> out;
  for (std::uint32_t block = 0; block < lifetimes_.size(); ++block) {
    const BlockLifetime& life = lifetimes_[block];
    if (!life.followed) continue;
    Followed& copy = out.emplace_back(Followed{BlockId{block}, life.birth_ns, life.last_access_ns, {}});
    for (std::uint32_t i = life.num_accesses - std::min(life.num_accesses, kNumAccesses); i < life.num_accesses; ++i)
      copy.accesses_ns.push_back(life.accesses_ns[i % kNumAccesses]);
  }
  return out;
}

std::vector<double> KvResidency::reuse_gaps(const BlockLifetime& life) {
  std::vector<double> gaps;
  const std::uint32_t first = life.num_accesses > kNumAccesses ? life.num_accesses - kNumAccesses : 0;
  for (std::uint32_t i = first + 1; i < life.num_accesses; ++i)
    gaps.push_back(seconds(life.accesses_ns[i % kNumAccesses] - life.accesses_ns[(i - 1) % kNumAccesses]));
  QUIRE_CHECK(gaps.size() < kNumAccesses, "gaps lie between the recorded accesses");
  return gaps;
}

}  // namespace quire
