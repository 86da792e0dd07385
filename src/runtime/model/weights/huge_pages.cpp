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
constexpr std::size_t kPagesOfCall = 32;   // each call waits for all processors once

bool may_be_huge() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;
  return static_cast<bool>(std::getline(file, line)) && line.find("[never]") == std::string::npos;
}

bool collapse(std::uintptr_t first, std::size_t num_pages) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address that was a pointer
  return madvise(reinterpret_cast<void*>(first), num_pages * kHugePageBytes, kCollapse) == 0;
}

// Pages one behind the other.
struct Run {
  std::uintptr_t first;
  std::size_t num_pages;
};

std::vector<Run> runs_of(const std::vector<std::uintptr_t>& pages) {
  std::vector<Run> runs;
  for (const std::uintptr_t page : pages)
    if (!runs.empty() && runs.back().num_pages < kPagesOfCall && page == runs.back().first + runs.back().num_pages * kHugePageBytes)
      ++runs.back().num_pages;
    else
      runs.push_back({page, 1});
  return runs;
}

// A call ends at the first page that cannot be had: the others are asked for one by one.
void collapse(const Run& run) {
  if (collapse(run.first, run.num_pages) || run.num_pages == 1) return;
  for (std::size_t i = 0; i < run.num_pages; ++i) collapse(run.first + i * kHugePageBytes, 1);
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
  const std::vector<Run> runs = runs_of(pages);
  pool.parallel_for(static_cast<std::uint32_t>(runs.size()), 1, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
    for (std::uint32_t i = begin; i < end; ++i) collapse(runs[i]);
  });
}

}  // namespace quire
