// Huge pages are formed after all matrices are packed, because most matrices are not a multiple of 2 MiB and a huge page may contain parts
// of two matrices.
#include "runtime/model/weights/huge_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace quire {
namespace {

constexpr std::uintptr_t kHugePageBytes = std::uintptr_t{2} << 20;
constexpr std::size_t kLargestGap = 4096;  // largest gap between two ranges that count as one: an allocator's data between its blocks
constexpr int kMadvCollapse = 25;          // MADV_COLLAPSE, which headers before Linux 6.1 do not define
constexpr std::size_t kPagesPerCall = 32;  // huge pages per call; each call interrupts all CPUs once

bool are_huge_pages_enabled() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;
  return static_cast<bool>(std::getline(file, line)) && line.find("[never]") == std::string::npos;
}

bool collapse(std::uintptr_t first, std::size_t num_pages) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address that was a pointer
  return madvise(reinterpret_cast<void*>(first), num_pages * kHugePageBytes, kMadvCollapse) == 0;
}

// A range of adjacent huge pages.
struct PageRange {
  std::uintptr_t first;
  std::size_t num_pages;
};

std::vector<PageRange> contiguous_ranges(const std::vector<std::uintptr_t>& pages) {
  std::vector<PageRange> runs;
  for (const std::uintptr_t page : pages)
    if (!runs.empty() && runs.back().num_pages < kPagesPerCall && page == runs.back().first + runs.back().num_pages * kHugePageBytes)
      ++runs.back().num_pages;
    else
      runs.push_back({page, 1});
  return runs;
}

// Makes the pages huge. A call stops at the first page that cannot become huge; then the pages are requested one by one.
void collapse(const PageRange& run) {
  if (collapse(run.first, run.num_pages) || run.num_pages == 1) return;
  for (std::size_t i = 0; i < run.num_pages; ++i) collapse(run.first + i * kHugePageBytes, 1);
}

}  // namespace

std::vector<std::uintptr_t> aligned_huge_pages(std::vector<MemoryRange> ranges) {
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
  const std::vector<std::uintptr_t> pages = aligned_huge_pages(std::move(ranges));
  if (pages.empty() || !are_huge_pages_enabled()) return;
  const std::vector<PageRange> runs = contiguous_ranges(pages);
  pool.parallel_for(static_cast<std::uint32_t>(runs.size()), 1, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
    for (std::uint32_t i = begin; i < end; ++i) collapse(runs[i]);
  });
}

}  // namespace quire
