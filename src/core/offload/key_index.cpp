#include "core/offload/key_index.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace quire {

void KeyIndex::check_invariants() const {
  std::uint32_t num_chained = 0;
  for (std::size_t head = 0; head < buckets_.size(); ++head) {
    for (std::uint32_t entry = buckets_[head]; entry != kNoIndex; entry = next_[entry]) {
      QUIRE_CHECK(entry < keys_.size() && ++num_chained <= size_, "an entry with a key is in one chain");
      QUIRE_CHECK(bucket(keys_[entry]) == head, "a key is in the chain of its bucket");
      QUIRE_CHECK(find(keys_[entry]) == entry, "each key has one entry");
    }
  }
  QUIRE_CHECK(num_chained == size_, "the size equals the number of entries with a key");
}

KeyIndex::KeyIndex(std::uint32_t num_entries)
    : keys_(num_entries), next_(num_entries, kNoIndex), buckets_(std::bit_ceil(std::max<std::size_t>(2, num_entries)), kNoIndex) {
  shift_ = 64U - static_cast<unsigned>(std::countr_zero(buckets_.size()));
}

std::uint32_t KeyIndex::find(const OffloadKey& key) const {
  std::uint32_t entry = buckets_[bucket(key)];
  while (entry != kNoIndex && keys_[entry] != key) entry = next_[entry];
  return entry;
}

void KeyIndex::insert(const OffloadKey& key, std::uint32_t entry) {
  QUIRE_CHECK(entry < keys_.size() && find(key) == kNoIndex, "an inserted key has no entry yet");
  std::uint32_t& first = buckets_[bucket(key)];
  keys_[entry] = key;
  next_[entry] = first;
  first = entry;
  ++size_;
}

void KeyIndex::remove(std::uint32_t entry) {
  QUIRE_CHECK(entry < keys_.size() && size_ > 0, "a removed entry exists, and the index is not empty");
  std::uint32_t* at = &buckets_[bucket(keys_[entry])];
  while (*at != entry) {
    QUIRE_CHECK(*at != kNoIndex, "a removed entry has a key");
    at = &next_[*at];
  }
  *at = next_[entry];
  --size_;
}

}  // namespace quire
