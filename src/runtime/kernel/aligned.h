#pragma once
// Vector storage that starts on a cache line, so that groups of packed weights span as few cache lines as possible.
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

namespace quire {

inline constexpr std::size_t kCacheLineBytes = 64;

template <class T>
struct CacheLineAllocator {
  using value_type = T;
  CacheLineAllocator() = default;
  template <class U>
  CacheLineAllocator(const CacheLineAllocator<U>&) {}  // NOLINT(google-explicit-constructor)
  T* allocate(std::size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t{kCacheLineBytes})); }
  void deallocate(T* p, std::size_t n) { ::operator delete(p, n * sizeof(T), std::align_val_t{kCacheLineBytes}); }
  friend bool operator==(const CacheLineAllocator&, const CacheLineAllocator&) = default;
};

template <class T>
using AlignedVector = std::vector<T, CacheLineAllocator<T>>;

}  // namespace quire
