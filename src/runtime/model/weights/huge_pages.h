#pragma once
// Moves packed weights into pages of 2 MiB. A pass reads all weights, and with pages of 4 KiB, products wait for page table lookups.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"

namespace quire {

struct MemoryRange {
  const std::byte* data = nullptr;
  std::size_t size = 0;
};

// Returns the addresses of the huge pages that are completely within the ranges, ascending. Adjacent ranges count as one.
std::vector<std::uintptr_t> aligned_huge_pages(std::vector<MemoryRange> ranges);

// Moves the ranges to huge pages without changing their contents. Called once, when all weights are packed. Has no effect if the system has
// no such call (Linux before 6.1), forbids huge pages or has none left.
void gather_in_huge_pages(std::vector<MemoryRange> ranges, ThreadPool& pool);

}  // namespace quire
