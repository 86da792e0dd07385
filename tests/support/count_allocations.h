#pragma once
// Counts every operator new of a test program. Include it in one source file of the program only: it replaces the operators.
// ThreadSanitizer's operators cannot be replaced: QUIRE_COUNTS_ALLOCATIONS is 0 there, and the tests are skipped.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define QUIRE_COUNTS_ALLOCATIONS 0
#endif
#elif defined(__SANITIZE_THREAD__)
#define QUIRE_COUNTS_ALLOCATIONS 0
#endif
#ifndef QUIRE_COUNTS_ALLOCATIONS
#define QUIRE_COUNTS_ALLOCATIONS 1
#endif

namespace quire::test {

inline std::atomic<std::uint64_t> num_allocations{0};

inline void* counted_new(std::size_t size, std::size_t alignment) {
  num_allocations.fetch_add(1);
  void* memory = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace quire::test

#if QUIRE_COUNTS_ALLOCATIONS
void* operator new(std::size_t size) {
  return quire::test::counted_new(size, alignof(std::max_align_t));
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return quire::test::counted_new(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
#endif
