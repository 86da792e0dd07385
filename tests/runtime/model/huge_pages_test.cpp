#include "runtime/model/weights/huge_pages.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace quire {
namespace {

constexpr std::uintptr_t kMiB = std::uintptr_t{1} << 20;

MemoryRange range_of(std::uintptr_t begin, std::uintptr_t end) {
  return {reinterpret_cast<const std::byte*>(begin), end - begin};  // NOLINT(performance-no-int-to-ptr): never read
}

TEST(HugePages, AdjacentRangesShareThem) {
  using Pages = std::vector<std::uintptr_t>;
  EXPECT_EQ(aligned_huge_pages({}), Pages{});
  EXPECT_EQ(aligned_huge_pages({range_of(5 * kMiB, 6 * kMiB), range_of(8 * kMiB, 8 * kMiB)}), Pages{});
  EXPECT_EQ(aligned_huge_pages({range_of(3 * kMiB, 9 * kMiB)}), (Pages{4 * kMiB, 6 * kMiB}));
  // The two ranges are one allocation each, so an allocator's header of 16 bytes lies between them.
  EXPECT_EQ(aligned_huge_pages({range_of(7 * kMiB + 16, 8 * kMiB), range_of(6 * kMiB, 7 * kMiB)}), Pages{6 * kMiB});
  EXPECT_EQ(aligned_huge_pages({range_of(6 * kMiB, 7 * kMiB), range_of(7 * kMiB + 8192, 8 * kMiB)}), Pages{});
  EXPECT_EQ(aligned_huge_pages({range_of(2 * kMiB, 12 * kMiB), range_of(5 * kMiB, 6 * kMiB)}),
            (Pages{2 * kMiB, 4 * kMiB, 6 * kMiB, 8 * kMiB, 10 * kMiB}));
}

TEST(HugePages, KeepTheirContents) {
  Random random(3);
  std::vector<std::uint64_t> values(std::size_t{9} << 17);
  for (std::uint64_t& value : values) value = random.next();
  const std::vector<std::uint64_t> before = values;
  ThreadPool pool(2);
  gather_in_huge_pages({{reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(std::uint64_t)}}, pool);
  EXPECT_EQ(values, before);
}

}  // namespace
}  // namespace quire
