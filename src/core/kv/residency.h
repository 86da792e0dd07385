#pragma once
// Measures how long blocks stay in the cache, on a random sample of blocks. The rules are vLLM V1's KVCacheMetricsCollector (v0.19.0). The
// caller supplies the clock and the random numbers.
#include <array>
#include <cstdint>
#include <vector>

#include "base/random.h"
#include "quire/base/ids.h"
#include "quire/base/kv_stats.h"

namespace quire {

// Decides at a block's allocation, from the seed of the call, whether the block is sampled. Equal calls therefore sample equal blocks.
class KvResidency {
 public:
  // `sample_rate` is the share of allocated blocks that are sampled, in [0, 1]; 0 turns the measurement off and takes no memory. Without
  // `makes_events`, blocks are sampled but no events are queued.
  KvResidency(std::uint32_t num_blocks, double sample_rate, bool makes_events = true);

  // Sets the time of the following calls (any monotonic clock, ns) and the seed of their random numbers.
  void begin(std::int64_t now_ns, std::uint64_t random);

  void on_allocated(BlockId block);
  // Records that one more request uses the block.
  void on_accessed(BlockId block);
  // Called when the block is taken for new content or its hash is removed.
  void on_evicted(BlockId block);
  // Called when the cache is reset. Stops following all blocks and drops pending events, as vLLM does.
  void reset();

  // Moves the events since the last call to the end of `out`, in order of eviction.
  void take_events(std::vector<KvEvictionEvent>& out);

  // Times at which a followed block was allocated and used, for comparisons and tests.
  struct Followed {
    BlockId block;
    std::int64_t birth_ns = 0, last_access_ns = 0;
    std::vector<std::int64_t> accesses_ns;  // the most recent accesses, oldest first
  };
  [[nodiscard]] std::vector<Followed> followed() const;

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [sample_rate, makes_events, now_ns, random, lifetimes, events] = self;
    // `random` need not be saved, because each call sets a seed before blocks are taken.
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
    std::uint32_t num_accesses = 0;  // total number; only the last kNumAccesses times are kept
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
