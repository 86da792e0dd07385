#pragma once
// A doubly linked list through hooks inside the elements: no allocation, O(1) removal from the middle. Elements are not owned and must be
// removed before they are destroyed.
#include <cstddef>

#include "base/check.h"

namespace quire {

template <class T>
struct ListHook {
  T* prev = nullptr;
  T* next = nullptr;
  bool linked = false;
};

template <class T, ListHook<T> T::* hook>
// A list for one thread. An element may be in several lists, with one hook per list.
class IntrusiveList {
 public:
  [[nodiscard]] bool empty() const { return first_ == nullptr; }
  [[nodiscard]] std::size_t size() const { return size_; }
  // Return null if the list is empty.
  [[nodiscard]] T* front() const { return first_; }
  [[nodiscard]] T* back() const { return last_; }
  [[nodiscard]] static T* next(const T& element) { return (element.*hook).next; }
  [[nodiscard]] static bool linked(const T& element) { return (element.*hook).linked; }

  void push_back(T& element) { link(element, last_, nullptr); }
  void push_front(T& element) { link(element, nullptr, first_); }

  void remove(T& element) {
    ListHook<T>& h = element.*hook;
    QUIRE_CHECK(h.linked, "the element is in the list");
    (h.prev != nullptr ? (h.prev->*hook).next : first_) = h.next;
    (h.next != nullptr ? (h.next->*hook).prev : last_) = h.prev;
    h = {};
    --size_;
  }

 private:
  void link(T& element, T* prev, T* next) {
    ListHook<T>& h = element.*hook;
    QUIRE_CHECK(!h.linked, "the element is in no list");
    h = {prev, next, true};
    (prev != nullptr ? (prev->*hook).next : first_) = &element;
    (next != nullptr ? (next->*hook).prev : last_) = &element;
    ++size_;
  }

  T* first_ = nullptr;
  T* last_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace quire
