#pragma once
// Memory for benchmarks in huge pages, like the engine's memory. With small pages, speed is a fifth lower.
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <new>

namespace quire {

// Zero-filled memory in huge pages, as for weights and KV caches.
struct HugeMemory {
  explicit HugeMemory(std::size_t size) : bytes(size) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    madvise(memory, bytes, MADV_HUGEPAGE);
    data = static_cast<std::byte*>(memory);
    std::fill_n(data, bytes, std::byte{0});
  }
  ~HugeMemory() { munmap(data, bytes); }
  HugeMemory(const HugeMemory&) = delete;
  HugeMemory& operator=(const HugeMemory&) = delete;

  std::byte* data;
  std::size_t bytes;
};

}  // namespace quire
