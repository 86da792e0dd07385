#pragma once
// A set of block hashes that is filled and emptied every step: open addressing, cleared in O(1), grown to the fullest step there was.
#include <cstdint>
#include <vector>

#include "quire/hash_function.h"

namespace quire {

// For what a step has cached (mamba_manager.cpp). Names are digests, so their first bytes are hash enough.
class HashSet {
 public:
  [[nodiscard]] bool contains(const BlockHash& hash) const { return !slots_.empty() && slots_[slot_of(hash)].round == round_; }
  void insert(const BlockHash& hash);
  void clear();
  [[nodiscard]] std::size_t size() const { return size_; }
  // Stops the program if a hash cannot be found, or there are more or fewer than are counted.
  void check_invariants() const;

 private:
  struct Slot {
    BlockHash hash;
    std::uint64_t round = 0;  // taken where it is the set's
  };

  // Where the hash is, or would be put. There is always a free slot.
  [[nodiscard]] std::size_t slot_of(const BlockHash& hash) const;

  std::vector<Slot> slots_;  // a power of two
  std::uint64_t round_ = 1;
  std::size_t size_ = 0;
};

}  // namespace quire
