#pragma once
// A set of block hashes that is filled and cleared in every step: open addressing, cleared in O(1). The memory is as large as the largest
// set so far needed.
#include <cstdint>
#include <vector>

#include "quire/hash_function.h"

namespace quire {

// Contains the hashes that were cached in the current step (mamba_manager.cpp). Block hashes are digests, so their first bytes serve as the
// table's hash.
class HashSet {
 public:
  [[nodiscard]] bool contains(const BlockHash& hash) const { return !slots_.empty() && slots_[slot_of(hash)].round == round_; }
  void insert(const BlockHash& hash);
  void clear();
  [[nodiscard]] std::size_t size() const { return size_; }
  // Stops the program if a hash cannot be found or the count is wrong.
  void check_invariants() const;

 private:
  struct Slot {
    BlockHash hash;
    std::uint64_t round = 0;  // the slot is taken if this equals the set's round
  };

  // Returns the slot of the hash, or the slot at which it would be inserted. At least one slot is always free.
  [[nodiscard]] std::size_t slot_of(const BlockHash& hash) const;

  std::vector<Slot> slots_;  // size is a power of two
  std::uint64_t round_ = 1;
  std::size_t size_ = 0;
};

}  // namespace quire
