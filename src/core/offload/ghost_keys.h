#pragma once
// Ghosts: keys that a policy has evicted and still remembers.
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "core/offload/index_list.h"
#include "core/offload/key_index.h"

namespace quire {

// Owned by one policy. Each ghost is in one of two lists of at most `capacity` keys, oldest first. The memory is fixed: both lists share
// entries for 2 * capacity keys.
class GhostKeys {
 public:
  enum class List : std::uint8_t { b1, b2 };

  explicit GhostKeys(std::uint32_t capacity);
  GhostKeys(const GhostKeys&) = delete;
  GhostKeys& operator=(const GhostKeys&) = delete;

  [[nodiscard]] std::uint32_t size(List list) const { return of(list).size(); }
  // Returns the entry of the key for list_of() and touch(), or kNoIndex for an unknown key.
  [[nodiscard]] std::uint32_t find(const OffloadKey& key) const { return index_.find(key); }
  [[nodiscard]] List list_of(std::uint32_t entry) const {
    QUIRE_CHECK(entry < list_of_.size(), "a queried entry exists");
    return list_of_[entry];
  }
  void touch(std::uint32_t entry);

  // Adds the key as the newest of the list. The key must be in neither list. A full list first forgets its oldest key.
  void push(List list, const OffloadKey& key);
  void forget(const OffloadKey& key);
  // Forgets the oldest key of a list, which must not be empty.
  void forget_oldest(List list) { drop(of(list).front()); }

  [[nodiscard]] std::vector<OffloadKey> keys(List list) const;
  void check_invariants(const KeyIndex& residents) const;

 private:
  [[nodiscard]] const IndexList& of(List list) const { return list == List::b1 ? b1_ : b2_; }
  [[nodiscard]] IndexList& of(List list) { return list == List::b1 ? b1_ : b2_; }
  void drop(std::uint32_t entry);

  std::uint32_t capacity_;
  KeyIndex index_;
  std::vector<List> list_of_;
  std::vector<std::uint32_t> free_;
  std::vector<IndexLink> links_;
  IndexList b1_;
  IndexList b2_;
};

}  // namespace quire
