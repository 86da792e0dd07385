#pragma once
// A sample of block names in the order in which they would be evicted, whatever the size of the cache: the LRU stack of Mattson et al.
// (1970), thinned out as SHARDS does it (Waldspurger et al., FAST 2015): a name is in the sample when its hash is below a threshold, so all
// its uses are; distances within the sample, divided by the sampling rate, are those within all.
#include <cstdint>
#include <optional>
#include <vector>

namespace quire {

// Belongs to one CurveSampler, on the core's thread. Nothing allocates but the constructor. Costs of a name that is sampled: a look into a
// hash table, and for num_released_after() a sum over some hundred numbers. Each time that as many names were released as are tracked, and
// each time that the rate is halved, all of them are gone through once (about a millisecond).
class ReuseStack {
 public:
  // Follows at most `max_tracked` names, and those behind which `max_depth` blocks were released no more. `rate` is the share of names that
  // it begins with: the fixed-size variant of SHARDS, which halves it where names get too many. (The paper takes out the name of the
  // highest hash, one at a time; by halves it needs no queue of them.)
  ReuseStack(std::uint32_t max_tracked, double max_depth, double rate);

  // One multiplication and one comparison.
  [[nodiscard]] bool samples(std::uint64_t key) const { return key * kSampleMix <= threshold_; }
  [[nodiscard]] double rate() const { return rate_; }
  [[nodiscard]] std::uint32_t num_tracked() const { return num_tracked_; }
  [[nodiscard]] std::uint64_t num_bytes() const;

  // The following are of names that samples().
  enum class State : std::uint8_t { unknown, held, released };
  struct Found {
    State state = State::unknown;
    double num_after = 0.0;  // blocks, of all and not of the sample, that were released later and are not held
  };
  [[nodiscard]] Found find(std::uint64_t key);
  // A running request has it: out of the order, if it is known.
  void hold(std::uint64_t key);
  // Nobody has it any more: last in the order.
  void release(std::uint64_t key);
  void forget(std::uint64_t key);
  void clear();

  // Stops the program if chains, slots and counts do not agree. Slow.
  void check_invariants() const;

 private:
  static constexpr std::uint64_t kSampleMix = 0x9E3779B97F4A7C15ULL, kBucketMix = 0xD6E8FEB86659FD93ULL;
  static constexpr std::uint32_t kNone = UINT32_MAX;
  static constexpr std::uint32_t kGroupSlots = 256, kWordBits = 64;
  struct Name {
    std::uint64_t key = 0;
    std::uint32_t slot = kNone;  // kNone: held
    std::uint32_t next = kNone;  // in its bucket, or among the unused
  };

  [[nodiscard]] std::uint32_t bucket(std::uint64_t key) const { return static_cast<std::uint32_t>((key * kBucketMix) >> shift_); }
  [[nodiscard]] std::uint32_t place_of(std::uint64_t key) const;
  [[nodiscard]] std::uint32_t num_after_slot(std::uint32_t slot) const;
  void occupy(std::uint32_t place);
  void vacate(std::uint32_t place);
  // kNone: with the rate that was halved for it, the name is not sampled any more.
  std::uint32_t take_place(std::uint64_t key);
  void remove(std::uint32_t place);
  void drop_oldest();
  void halve_rate();
  void renumber();

  const double max_depth_;
  double rate_ = 1.0;
  std::uint64_t threshold_ = UINT64_MAX;
  std::vector<Name> names_;  // by place
  std::vector<std::uint32_t> buckets_;
  unsigned shift_;
  std::uint32_t unused_ = kNone;
  std::uint32_t num_tracked_ = 0, num_released_ = 0;
  // Slots in the order of release; those of names that were released anew since are vacant.
  std::vector<std::uint32_t> slots_;  // place, where occupied
  std::vector<std::uint64_t> occupied_;
  std::vector<std::uint32_t> per_group_;  // occupied ones of kGroupSlots each
  std::uint32_t next_slot_ = 0, oldest_word_ = 0;
  // Blocks of a sequence lie side by side: the next question is mostly about the slot before.
  std::uint32_t asked_slot_ = kNone, asked_after_ = 0;
};

}  // namespace quire
