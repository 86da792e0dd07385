#pragma once
// How long blocks live in the cache, measured on a random sample of them. The rules are those of vLLM V1's KVCacheMetricsCollector
// (v0.19.0); the clock and the random numbers are handed in.
#include <array>
#include <cstdint>
#include <vector>

#include "base/random.h"
#include "quire/base/ids.h"
#include "quire/base/kv_stats.h"

namespace quire {

// The sample is drawn when a block is taken, from the seed of the call, so equal calls follow equal blocks.
class KvResidency {
 public:
  // `sample_rate` is the share of allocations that are followed, in [0, 1]; 0 turns everything off and takes no memory. Without
  // `makes_events` blocks are followed, and nothing piles up that nobody takes.
  KvResidency(std::uint32_t num_blocks, double sample_rate, bool makes_events = true);

  // What follows happens at this time (any monotonic clock, ns), with draws from this seed.
  void begin(std::int64_t now_ns, std::uint64_t random);

  void on_allocated(BlockId block);
  // Taken by one more request.
  void on_accessed(BlockId block);
  // Taken for new content, or its name was forgotten.
  void on_evicted(BlockId block);
  // The cache was reset: nothing is followed any more, and events not yet taken are lost, as in vLLM.
  void reset();

  // Moves the events since the last call to the end of `out`, in order of eviction.
  void take_events(std::vector<KvEvictionEvent>& out);

  // When a followed block was taken and used, for comparisons and tests.
  struct Followed {
    BlockId block;
    std::int64_t birth_ns = 0, last_access_ns = 0;
    std::vector<std::int64_t> accesses_ns;  // the last ones, oldest first
  };
  [[nodiscard]] std::vector<Followed> followed() const;

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
    [[maybe_unused]] auto& [sample_rate, makes_events, now_ns, random, lives, events] = self;
    // Whoever takes blocks gives a seed first, so nothing is left of `random`.
    const std::size_t num_lives = lives.size();
    form(now_ns, lives, events);
    form.expect(lives.size() == num_lives, "each block has a life, where lives are measured");
  }

 private:
  static constexpr std::uint32_t kNumAccesses = 4;
  struct Life {
    template <class Form, class Self>
    static void fields(Form& form, Self& self) {
      auto& [followed, num_accesses, birth_ns, last_access_ns, accesses_ns] = self;
      form(followed);
      if (followed) form(num_accesses, birth_ns, last_access_ns, accesses_ns);
    }

    bool followed = false;
    std::uint32_t num_accesses = 0;  // ever; the last kNumAccesses are kept
    std::int64_t birth_ns = 0;
    std::int64_t last_access_ns = 0;
    std::array<std::int64_t, kNumAccesses> accesses_ns{};  // a ring
  };

  [[nodiscard]] static std::vector<double> reuse_gaps(const Life& life);

  double sample_rate_;
  bool makes_events_;
  std::int64_t now_ns_ = 0;
  Random random_{0};
  std::vector<Life> lives_;  // by block id; empty when off
  std::vector<KvEvictionEvent> events_;
};

}  // namespace quire
