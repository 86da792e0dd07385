#include "core/offload/ghost_keys.h"

#include "base/check.h"

namespace quire {

GhostKeys::GhostKeys(std::uint32_t capacity)
    : capacity_(capacity),
      index_(2 * capacity),
      list_of_(2UZ * capacity),
      free_(2UZ * capacity),
      links_(2UZ * capacity),
      b1_(links_),
      b2_(links_) {
  for (std::size_t i = 0; i < free_.size(); ++i) free_[i] = static_cast<std::uint32_t>(i);
}

void GhostKeys::touch(std::uint32_t entry) {
  QUIRE_CHECK(entry < list_of_.size(), "a touched entry exists");
  IndexList& list = of(list_of_[entry]);
  list.remove(entry);
  list.push_back(entry);
}

void GhostKeys::push(List list, const OffloadKey& key) {
  if (of(list).size() == capacity_) drop(of(list).front());
  QUIRE_CHECK(!free_.empty(), "there is a free entry");
  const std::uint32_t entry = free_.back();
  free_.pop_back();
  index_.insert(key, entry);
  list_of_[entry] = list;
  of(list).push_back(entry);
}

void GhostKeys::forget(const OffloadKey& key) {
  if (const std::uint32_t entry = index_.find(key); entry != kNoIndex) drop(entry);
}

void GhostKeys::drop(std::uint32_t entry) {
  QUIRE_CHECK(entry < list_of_.size(), "a dropped entry exists");
  of(list_of_[entry]).remove(entry);
  index_.remove(entry);
  free_.push_back(entry);
}

std::vector<OffloadKey> GhostKeys::keys(List list) const {
  std::vector<OffloadKey> keys;
  of(list).for_each([&](std::uint32_t entry) { keys.push_back(index_.key_of(entry)); });
  return keys;
}

void GhostKeys::check_invariants(const KeyIndex& residents) const {
  QUIRE_CHECK(b1_.size() <= capacity_ && b2_.size() <= capacity_);
  QUIRE_CHECK(index_.size() == b1_.size() + b2_.size() && index_.size() + free_.size() == links_.size());
  for (const List list : {List::b1, List::b2}) {
    of(list).for_each([&](std::uint32_t entry) {
      QUIRE_CHECK(list_of_[entry] == list && index_.find(index_.key_of(entry)) == entry);
      QUIRE_CHECK(residents.find(index_.key_of(entry)) == kNoIndex, "a resident key is not in a ghost list");
    });
    of(list).check_invariants();
  }
  index_.check_invariants();
}

}  // namespace quire
