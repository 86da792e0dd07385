#pragma once
// Finds the entry of a fixed array that has a given key. Each key occurs once. Nothing is allocated after construction.
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "core/offload/index_list.h"
#include "quire/eviction_policy.h"

namespace quire {

// Owned by the ledger (entries are slots), the reuse filter and the ghosts. Keys begin with bytes of a digest, so one multiplication is a
// sufficient hash.
class KeyIndex final : public SlotKeys {
 public:
  explicit KeyIndex(std::uint32_t num_entries);

  [[nodiscard]] std::uint32_t size() const { return size_; }
  // Returns the entry with this key, or kNoIndex if no entry has it.
  [[nodiscard]] std::uint32_t find(const OffloadKey& key) const;
  // Returns the last key of an entry. The reference is valid until the entry is inserted again.
  [[nodiscard]] const OffloadKey& key_of(std::uint32_t entry) const override {
    QUIRE_CHECK(entry < keys_.size(), "the entry is in the index");
    return keys_[entry];
  }

  // Gives the entry a key. Neither the key nor the entry may be in the index.
  void insert(const OffloadKey& key, std::uint32_t entry);
  void remove(std::uint32_t entry);
  // Stops the program if a key is in a wrong chain or the count is wrong.
  void check_invariants() const;

 private:
  [[nodiscard]] std::size_t bucket(const OffloadKey& key) const {
    return ((key.prefix() ^ key.group * 0xC2B2AE3D27D4EB4FULL) * 0x9E3779B97F4A7C15ULL) >> shift_;
  }

  std::vector<OffloadKey> keys_;
  std::vector<std::uint32_t> next_;  // next entry in the chain of the bucket
  std::vector<std::uint32_t> buckets_;
  unsigned shift_;
  std::uint32_t size_ = 0;
};

}  // namespace quire
