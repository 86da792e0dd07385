#pragma once
// A sample of block hashes in eviction order, which does not depend on the size of the cache. This is the LRU stack of Mattson et al.
// (1970), sampled as in SHARDS (Waldspurger et al., FAST 2015): a hash is in the sample if a hash of it is below a threshold, so either all
// or none of its uses are in the sample. Distances within the sample, divided by the sampling rate, estimate distances within all blocks.
#include <cstdint>
#include <optional>
#include <vector>

namespace quire {

// Belongs to one CurveSampler, on the core's thread. Only the constructor allocates. A sampled hash costs one look-up in a hash table, and
// find() also adds up some hundred numbers. All entries are visited (which takes about a millisecond) after as many releases as there are
// tracked hashes, and each time the rate is halved.
class ReuseStack {
 public:
  // Tracks at most `max_tracked` hashes, and drops a hash when more than `max_depth` blocks were released after it. `rate` is the initial
  // share of sampled hashes. As in the fixed-size variant of SHARDS, the rate is reduced when too many hashes are sampled; here it is
  // halved. (The paper removes the highest hash each time, which needs a priority queue.)
  ReuseStack(std::uint32_t max_tracked, double max_depth, double rate);

  // Returns whether the key is in the sample. Costs one multiplication and one comparison.
  [[nodiscard]] bool samples(std::uint64_t key) const { return key * kSampleMix <= threshold_; }
  [[nodiscard]] double rate() const { return rate_; }
  [[nodiscard]] std::uint32_t num_tracked() const { return num_tracked_; }
  [[nodiscard]] std::uint64_t num_bytes() const;

  // The following functions accept only keys for which samples() returns true.
  enum class State : std::uint8_t { unknown, held, released };
  struct Found {
    State state = State::unknown;
    double num_after = 0.0;  // estimated number of blocks of the whole cache, not of the sample, that were released later and are not held
  };
  [[nodiscard]] Found find(std::uint64_t key);
  // Called when a running request holds the block. A known key leaves the order.
  void hold(std::uint64_t key);
  // Called when no request holds the block any more. The key becomes the last one in the order.
  void release(std::uint64_t key);
  void forget(std::uint64_t key);
  void clear();

  // Stops the program if chains, slots and counts are inconsistent. Slow.
  void check_invariants() const;

 private:
  static constexpr std::uint64_t kSampleMix = 0x9E3779B97F4A7C15ULL, kBucketMix = 0xD6E8FEB86659FD93ULL;
  static constexpr std::uint32_t kNone = UINT32_MAX;
  static constexpr std::uint32_t kGroupSlots = 256, kWordBits = 64;
  struct Entry {
    std::uint64_t key = 0;
    std::uint32_t slot = kNone;  // kNone: the block is held
    std::uint32_t next = kNone;  // next entry in the bucket, or in the list of unused entries
  };

  [[nodiscard]] std::uint32_t bucket(std::uint64_t key) const { return static_cast<std::uint32_t>((key * kBucketMix) >> shift_); }
  [[nodiscard]] std::uint32_t entry_of(std::uint64_t key) const;
  [[nodiscard]] std::uint32_t num_after_slot(std::uint32_t slot) const;
  void occupy(std::uint32_t place);
  void vacate(std::uint32_t place);
  // Returns an entry for the key. If none is unused, halves the rate. Returns kNone if the key is then not sampled any more.
  std::uint32_t take_entry(std::uint64_t key);
  void remove(std::uint32_t place);
  void drop_oldest();
  void halve_rate();
  void renumber();

  const double max_depth_;
  double rate_ = 1.0;
  std::uint64_t threshold_ = UINT64_MAX;
  std::vector<Entry> entries_;  // indexed by entry
  std::vector<std::uint32_t> buckets_;
  unsigned shift_;
  std::uint32_t unused_ = kNone;
  std::uint32_t num_tracked_ = 0, num_released_ = 0;
  // Slots in the order of release. If a hash is released again, its earlier slot becomes vacant.
  std::vector<std::uint32_t> slots_;  // by slot: the entry, if the slot is occupied
  std::vector<std::uint64_t> occupied_;
  std::vector<std::uint32_t> per_group_;  // number of occupied slots per group of kGroupSlots
  std::uint32_t next_slot_ = 0, oldest_word_ = 0;
  // The result of the last find(). Blocks of a sequence have adjacent slots, so the next query is mostly for the slot before.
  std::uint32_t asked_slot_ = kNone, asked_after_ = 0;
};

}  // namespace quire
