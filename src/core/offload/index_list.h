#pragma once
// A doubly linked list of indices of an array. Lists without common elements may share one array of links. The list does not own the links,
// which must outlive the list.
#include <cstdint>
#include <span>

#include "base/check.h"

namespace quire {

inline constexpr std::uint32_t kNoIndex = UINT32_MAX;

struct IndexLink {
  static constexpr std::uint32_t kUnlinked = UINT32_MAX - 1;
  std::uint32_t prev = kUnlinked;
  std::uint32_t next = kUnlinked;
};

// push, insert and remove are O(1) and allocate nothing. Among lists that share links, an index is in at most one list.
class IndexList {
 public:
  explicit IndexList(std::span<IndexLink> links) : links_(links) {}

  [[nodiscard]] std::uint32_t size() const { return size_; }
  // Returns kNoIndex if the list is empty.
  [[nodiscard]] std::uint32_t front() const { return first_; }
  // Return the neighbours of an element, or kNoIndex at the ends.
  [[nodiscard]] std::uint32_t prev(std::uint32_t index) const { return links_[index].prev; }
  [[nodiscard]] std::uint32_t next(std::uint32_t index) const { return links_[index].next; }
  // Returns whether the index is in this list, or in another list that shares the links.
  [[nodiscard]] bool linked(std::uint32_t index) const {
    QUIRE_CHECK(index < links_.size(), "the index is in the array");
    return links_[index].next != IndexLink::kUnlinked;
  }

  void push_back(std::uint32_t index) { link(index, last_, kNoIndex); }
  void push_front(std::uint32_t index) { link(index, kNoIndex, first_); }
  void insert_after(std::uint32_t index, std::uint32_t element) {
    QUIRE_CHECK(linked(element), "the neighbour is in a list");
    link(index, element, links_[element].next);
  }
  void insert_before(std::uint32_t index, std::uint32_t element) {
    QUIRE_CHECK(linked(element), "the neighbour is in a list");
    link(index, links_[element].prev, element);
  }

  void remove(std::uint32_t index) {
    QUIRE_CHECK(linked(index), "the element is in a list");
    QUIRE_CHECK(size_ > 0, "the list is not empty");
    const IndexLink link = links_[index];
    (link.prev != kNoIndex ? links_[link.prev].next : first_) = link.next;
    (link.next != kNoIndex ? links_[link.next].prev : last_) = link.prev;
    links_[index] = {};
    --size_;
  }

  // Stops the program if the links of the list are inconsistent.
  void check_invariants() const {
    std::uint32_t num_walked = 0, before = kNoIndex;
    for (std::uint32_t index = first_; index != kNoIndex; index = links_[index].next) {
      QUIRE_CHECK(index < links_.size() && ++num_walked <= size_, "the list contains elements of the array, each once");
      QUIRE_CHECK(links_[index].prev == before, "each element links back to the previous one");
      before = index;
    }
    QUIRE_CHECK(num_walked == size_ && last_ == before, "the size equals the number of elements, and the last one ends the list");
  }
  // Calls body(index) from front to back; the body must not change the list.
  template <class Body>
  void for_each(Body&& body) const {
    for (std::uint32_t index = first_; index != kNoIndex; index = links_[index].next) body(index);
  }

 private:
  void link(std::uint32_t index, std::uint32_t prev, std::uint32_t next) {
    QUIRE_CHECK(!linked(index), "the element is in no list");
    links_[index] = {prev, next};
    (prev != kNoIndex ? links_[prev].next : first_) = index;
    (next != kNoIndex ? links_[next].prev : last_) = index;
    ++size_;
  }

  std::span<IndexLink> links_;
  std::uint32_t first_ = kNoIndex;
  std::uint32_t last_ = kNoIndex;
  std::uint32_t size_ = 0;
};

}  // namespace quire
