// Matrices are packed one by one, and most are no multiple of 2 MiB: pages are put together afterwards, across their borders.
#include "runtime/model/weights/huge_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace quire {
namespace {

constexpr std::uintptr_t kHugePageBytes = std::uintptr_t{2} << 20;
constexpr std::size_t kLargestGap = 4096;  // between two ranges that count as one: what an allocator keeps beside its blocks
constexpr int kCollapse = 25;              // MADV_COLLAPSE, which headers before Linux 6.1 do not name

bool may_be_huge() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;
  return static_cast<bool>(std::getline(file, line)) && line.find("[never]") == std::string::npos;
}

}  // namespace

std::vector<std::uintptr_t> whole_huge_pages(std::vector<MemoryRange> ranges) {
  std::erase_if(ranges, [](const MemoryRange& range) { return range.size == 0; });
  std::ranges::sort(ranges, {}, &MemoryRange::data);
  std::vector<std::uintptr_t> pages;
  for (std::size_t i = 0; i < ranges.size();) {
    const auto begin = reinterpret_cast<std::uintptr_t>(ranges[i].data);
    std::uintptr_t end = begin + ranges[i].size;
    for (++i; i < ranges.size() && reinterpret_cast<std::uintptr_t>(ranges[i].data) <= end + kLargestGap; ++i)
      end = std::max(end, reinterpret_cast<std::uintptr_t>(ranges[i].data) + ranges[i].size);
    const std::uintptr_t first = (begin + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
    for (std::uintptr_t page = first; page + kHugePageBytes <= end; page += kHugePageBytes) pages.push_back(page);
  }
  return pages;
}

void gather_in_huge_pages(std::vector<MemoryRange> ranges, ThreadPool& pool) {
  const std::vector<std::uintptr_t> pages = whole_huge_pages(std::move(ranges));
  if (pages.empty() || !may_be_huge()) return;
  pool.parallel_for(static_cast<std::uint32_t>(pages.size()), 1, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address that was a pointer
    for (std::uint32_t i = begin; i < end; ++i) madvise(reinterpret_cast<void*>(pages[i]), kHugePageBytes, kCollapse);
  });
}

}  // namespace quire
