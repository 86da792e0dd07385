// Tests copies between a KV cache on CPU and host memory: which pages move, which marks are written, and which jobs are refused.
#include "quire/block_copier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <vector>

namespace quire {
namespace {

// Two tensors whose pages differ in size and number. All bytes of a page are equal and follow from its tensor, side and number.
class CopierRig {
 public:
  static constexpr std::array<std::uint64_t, 2> kCopiedPageBytes{64, 48}, kDevicePages{6, 5}, kHostPages{7, 8};

  CopierRig() {
    std::vector<CopiedTensor> tensors;
    for (std::uint32_t t = 0; t < 2; ++t) {
      for (std::uint32_t page = 0; page < kDevicePages[t]; ++page)
        device[t].insert(device[t].end(), kCopiedPageBytes[t], device_byte(t, page));
      for (std::uint32_t page = 0; page < kHostPages[t]; ++page) host[t].insert(host[t].end(), kCopiedPageBytes[t], host_byte(t, page));
      tensors.push_back({.device = device[t].data(),
                         .host = host[t].data(),
                         .page_bytes = kCopiedPageBytes[t],
                         .num_device_pages = kDevicePages[t],
                         .num_host_pages = kHostPages[t]});
    }
    copier = std::make_unique<BlockCopier>(std::move(tensors), marks.data(), marks.size());
  }
  static std::byte device_byte(std::uint32_t tensor, std::uint32_t page) { return static_cast<std::byte>(1 + 16 * tensor + page); }
  static std::byte host_byte(std::uint32_t tensor, std::uint32_t page) { return static_cast<std::byte>(128 + 16 * tensor + page); }

  bool run(CopyJob job) {
    const std::uint64_t id = job.id;
    if (!copier->submit(std::move(job))) return false;
    copier->wait({&id, 1});
    return true;
  }
  // Expects that each page has its first bytes, except the pages in `changed`, which are {tensor, page, byte}.
  struct ChangedPage {
    std::uint32_t tensor, page;
    std::byte byte;
  };
  void expect_side(bool is_host, const std::vector<ChangedPage>& changed) const {
    for (std::uint32_t t = 0; t < 2; ++t) {
      const std::vector<std::byte>& side = is_host ? host[t] : device[t];
      for (std::uint32_t page = 0; page < (is_host ? kHostPages[t] : kDevicePages[t]); ++page) {
        std::byte wanted = is_host ? host_byte(t, page) : device_byte(t, page);
        for (const ChangedPage& one : changed)
          if (one.tensor == t && one.page == page) wanted = one.byte;
        const auto begin = side.begin() + static_cast<std::ptrdiff_t>(page * kCopiedPageBytes[t]);
        EXPECT_EQ(std::count(begin, begin + static_cast<std::ptrdiff_t>(kCopiedPageBytes[t]), wanted),
                  static_cast<std::ptrdiff_t>(kCopiedPageBytes[t]))
            << (is_host ? "host" : "device") << " page " << page << " of tensor " << t;
      }
    }
  }

  std::array<std::vector<std::byte>, 2> device, host;
  std::array<std::uint64_t, 3> marks{};
  std::unique_ptr<BlockCopier> copier;
};

TEST(BlockCopier, CopiesWholePagesToHostMemory) {
  CopierRig rig;
  ASSERT_TRUE(rig.run({.id = 1, .to_host = true, .device_pages = {1, 4}, .host_pages = {6, 0}, .marks = {}, .numbers = {}}));
  rig.expect_side(true, {{0, 6, CopierRig::device_byte(0, 1)},
                         {0, 0, CopierRig::device_byte(0, 4)},
                         {1, 6, CopierRig::device_byte(1, 1)},
                         {1, 0, CopierRig::device_byte(1, 4)}});
  rig.expect_side(false, {});
}

TEST(BlockCopier, CopiesWholePagesToTheDevice) {
  CopierRig rig;
  ASSERT_TRUE(rig.run({.id = 1, .to_host = false, .device_pages = {0, 3}, .host_pages = {5, 2}, .marks = {}, .numbers = {}}));
  rig.expect_side(false, {{0, 0, CopierRig::host_byte(0, 5)},
                          {0, 3, CopierRig::host_byte(0, 2)},
                          {1, 0, CopierRig::host_byte(1, 5)},
                          {1, 3, CopierRig::host_byte(1, 2)}});
  rig.expect_side(true, {});
}

TEST(BlockCopier, CopiesOnlyTheTensorsThatAJobNames) {
  CopierRig rig;
  ASSERT_TRUE(rig.run({.id = 1, .to_host = true, .device_pages = {2}, .host_pages = {3}, .tensors = {1}, .marks = {}, .numbers = {}}));
  rig.expect_side(true, {{1, 3, CopierRig::device_byte(1, 2)}});
  EXPECT_EQ(rig.copier->take_over(true).at(0).bytes, 48U) << "one page of the second tensor";
}

TEST(BlockCopier, WritesEachNumberToItsMark) {
  CopierRig rig;
  ASSERT_TRUE(rig.run({.id = 1, .to_host = true, .device_pages = {0}, .host_pages = {0}, .marks = {2, 0}, .numbers = {7, 9}}));
  EXPECT_EQ(rig.marks, (std::array<std::uint64_t, 3>{9, 0, 7}));
}

TEST(BlockCopier, ReportsEachEndOnceToItsDirection) {
  CopierRig rig;
  EXPECT_TRUE(rig.run({.id = 5, .to_host = true, .device_pages = {0, 1}, .host_pages = {0, 1}, .marks = {}, .numbers = {}}));
  EXPECT_TRUE(rig.run({.id = 6, .to_host = false, .device_pages = {0}, .host_pages = {0}, .marks = {}, .numbers = {}}));
  EXPECT_TRUE(rig.run({.id = 7, .to_host = true, .device_pages = {2}, .host_pages = {2}, .marks = {}, .numbers = {}}));
  const std::vector<CopyCompletion> to_host = rig.copier->take_over(true), to_device = rig.copier->take_over(false);
  ASSERT_EQ(to_host.size(), 2U);
  EXPECT_EQ(to_host[0].id, 5U);
  EXPECT_EQ(to_host[0].bytes, 2U * (64 + 48));
  EXPECT_EQ(to_host[1].id, 7U);
  EXPECT_EQ(to_host[1].bytes, 64U + 48);
  ASSERT_EQ(to_device.size(), 1U);
  EXPECT_EQ(to_device[0].id, 6U);
  EXPECT_GT(to_host[0].seconds, 0.0);
  EXPECT_LT(to_host[0].seconds, 1000.0);
  EXPECT_TRUE(rig.copier->take_over(true).empty() && rig.copier->take_over(false).empty());
}

TEST(BlockCopier, RefusesJobsThatAreOutOfRangeAndCopiesNothing) {
  CopierRig rig;
  struct Case {
    const char* what;
    bool is_good;
    std::function<void(CopyJob&)> change;
  };
  const Case cases[] = {
      {"the last pages, tensor and mark", true,
       [](CopyJob& job) {
         job = {.id = 1, .to_host = true, .device_pages = {4}, .host_pages = {6}, .tensors = {1}, .marks = {2}, .numbers = {1}};
       }},
      {"a device page after the last one of the second tensor", false, [](CopyJob& job) { job.device_pages = {5}; }},
      {"a device page after the last one", false, [](CopyJob& job) { job.device_pages = {6}; }},
      {"a host page after the last one of the first tensor", false, [](CopyJob& job) { job.host_pages = {7}; }},
      {"a second page that is out of range", false, [](CopyJob& job) { job.device_pages = {1, 5}, job.host_pages = {1, 1}; }},
      {"more device pages than host pages", false, [](CopyJob& job) { job.device_pages = {1, 2}; }},
      {"more host pages than device pages", false, [](CopyJob& job) { job.host_pages = {1, 2}; }},
      {"a tensor after the last one", false, [](CopyJob& job) { job.tensors = {0, 2}; }},
      {"a mark after the last one", false, [](CopyJob& job) { job.marks = {3}; }},
      {"a mark without a number", false, [](CopyJob& job) { job.numbers = {}; }},
      {"a number without a mark", false, [](CopyJob& job) { job.marks = {}; }},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.what);
    CopyJob job{.id = 1, .to_host = false, .device_pages = {1}, .host_pages = {1}, .marks = {1}, .numbers = {5}};
    one.change(job);
    EXPECT_EQ(rig.run(std::move(job)), one.is_good);
    if (!one.is_good) EXPECT_TRUE(rig.copier->take_over(false).empty());
  }
  rig.expect_side(false, {});
  EXPECT_EQ(rig.marks, (std::array<std::uint64_t, 3>{0, 0, 1}));
}

TEST(BlockCopier, CopiesWithoutMarks) {
  std::vector<std::byte> device(8, std::byte{1}), host(8, std::byte{2});
  BlockCopier copier({{.device = device.data(), .host = host.data(), .page_bytes = 8, .num_device_pages = 1, .num_host_pages = 1}}, nullptr,
                     0);
  EXPECT_FALSE(copier.submit({.id = 1, .to_host = true, .device_pages = {0}, .host_pages = {0}, .marks = {0}, .numbers = {1}}));
  ASSERT_TRUE(copier.submit({.id = 2, .to_host = true, .device_pages = {0}, .host_pages = {0}, .marks = {}, .numbers = {}}));
  const std::uint64_t ids[] = {2, 99};  // the copier does not know 99
  copier.wait(ids);
  EXPECT_EQ(host, device);
}

// The copier takes the second job without a pause after the first one, whose end wakes the caller of wait().
TEST(BlockCopier, WaitsForTheJobThatIsBeingCopied) {
  constexpr std::uint64_t kLarge = std::uint64_t{32} << 20U;
  std::vector<std::byte> device(kLarge), host(kLarge);
  std::uint64_t mark = 0;
  BlockCopier copier({{.device = device.data(), .host = host.data(), .page_bytes = kLarge, .num_device_pages = 1, .num_host_pages = 1}},
                     &mark, 1);
  for (std::uint64_t i = 1; i <= 4; ++i)
    ASSERT_TRUE(copier.submit({.id = i, .to_host = true, .device_pages = {0}, .host_pages = {0}, .marks = {0}, .numbers = {i}}));
  for (std::uint64_t i = 1; i <= 4; ++i) {
    copier.wait({&i, 1});
    EXPECT_GE(__atomic_load_n(&mark, __ATOMIC_ACQUIRE), i);
  }
  EXPECT_EQ(copier.take_over(true).size(), 4U);
}

TEST(BlockCopier, DestructorDropsRemainingCopies) {
  std::vector<std::byte> device(64 * 100), host(64 * 100);
  std::uint64_t mark = 0;
  {
    BlockCopier copier({{.device = device.data(), .host = host.data(), .page_bytes = 64, .num_device_pages = 100, .num_host_pages = 100}},
                       &mark, 1);
    for (std::uint64_t i = 1; i <= 1000; ++i)
      EXPECT_TRUE(copier.submit({.id = i, .to_host = true, .device_pages = {3}, .host_pages = {4}, .marks = {0}, .numbers = {i}}));
    EXPECT_FALSE(copier.submit({.id = 0, .to_host = true, .device_pages = {100}, .host_pages = {4}, .marks = {}, .numbers = {}}));
    const std::uint64_t ids[] = {3, 500};
    copier.wait(ids);
    EXPECT_GE(__atomic_load_n(&mark, __ATOMIC_ACQUIRE), 500U);
  }
  EXPECT_GE(mark, 500U);
}

}  // namespace
}  // namespace quire
