#pragma once
// Packed weights in pages of 2 MiB: a pass reads all of them, and with pages of 4 KiB it waits for the tables that say where they lie.
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

// The whole huge pages within the ranges, by their first bytes; ranges that lie next to each other count as one. In order of address.
std::vector<std::uintptr_t> whole_huge_pages(std::vector<MemoryRange> ranges);

// Called once when all weights are there; contents stay. Where the system has no such call (Linux before 6.1), forbids huge pages or has
// none left, memory stays as it is.
void gather_in_huge_pages(std::vector<MemoryRange> ranges, ThreadPool& pool);

}  // namespace quire
