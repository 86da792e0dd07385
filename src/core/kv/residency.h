#pragma once
// Measures how long blocks live in the cache, on a random sample of them. The rules are vLLM V1's KVCacheMetricsCollector (v0.19.0). The
// caller supplies the clock and the random numbers.
#include <array>
#include <cstdint>
#include <vector>

#include "base/random.h"
#include "quire/base/ids.h"
#include "quire/base/kv_stats.h"

namespace quire {

// A block is sampled when it is allocated, from the seed of the call, so equal calls sample equal blocks.
class KvResidency {
 public:
  // `sample_rate` is the share of allocations that are sampled, in [0, 1]; 0 turns everything off and takes no memory. Without
  // `makes_events` blocks are sampled, but no events are queued.
  KvResidency(std::uint32_t num_blocks, double sample_rate, bool makes_events = true);

  // Sets the time of the calls that follow (any monotonic clock, ns) and the seed of their draws.
  void begin(std::int64_t now_ns, std::uint64_t random);

  void on_allocated(BlockId block);
  // One more request takes the block.
  void on_accessed(BlockId block);
  // The block is taken for new content, or its hash is forgotten.
  void on_evicted(BlockId block);
  // The cache was reset: no block is followed any more, and pending events are lost, as in vLLM.
  void reset();

  // Moves the events since the last call to the end of `out`, in order of eviction.
  void take_events(std::vector<KvEvictionEvent>& out);

  // Times at which a followed block was taken and used, for comparisons and tests.
  struct Followed {
    BlockId block;
    std::int64_t birth_ns = 0, last_access_ns = 0;
    std::vector<std::int64_t> accesses_ns;  // the most recent ones, oldest first
  };
  [[nodiscard]] std::vector<Followed> followed() const;

  // Checkpoint fields (schedule/checkpoint/state_archive.h). The binding must name every member, or it does not compile.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [sample_rate, makes_events, now_ns, random, lifetimes, events] = self;
    // `random` need not be saved, because a seed is set before blocks are taken.
    const std::size_t num_lifetimes = lifetimes.size();
    form(now_ns, lifetimes, events);
    form.expect(lifetimes.size() == num_lifetimes, "each block has a record if residency is sampled");
  }

 private:
  static constexpr std::uint32_t kNumAccesses = 4;
  struct BlockLifetime {
    template <class Archive, class Self>
    static void fields(Archive& form, Self& self) {
      auto& [followed, num_accesses, birth_ns, last_access_ns, accesses_ns] = self;
      form(followed);
      if (followed) form(num_accesses, birth_ns, last_access_ns, accesses_ns);
    }

    bool followed = false;
    std::uint32_t num_accesses = 0;  // in total; the last kNumAccesses are kept
    std::int64_t birth_ns = 0;
    std::int64_t last_access_ns = 0;
    std::array<std::int64_t, kNumAccesses> accesses_ns{};  // a ring buffer
  };

  [[nodiscard]] static std::vector<double> reuse_gaps(const BlockLifetime& life);

  double sample_rate_;
  bool makes_events_;
  std::int64_t now_ns_ = 0;
  Random random_{0};
  std::vector<BlockLifetime> lifetimes_;  // by block id; empty when off
  std::vector<KvEvictionEvent> events_;
};

}  // namespace quire
