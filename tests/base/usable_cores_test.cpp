#include "base/usable_cores.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace quire {
namespace {

// A temporary folder replaces /sys/fs/cgroup.
class CgroupQuota : public testing::Test {
 protected:
  CgroupQuota() : root_((std::filesystem::temp_directory_path() / "quire_cgroup_XXXXXX").string()) {
    EXPECT_NE(mkdtemp(root_.data()), nullptr);
  }
  ~CgroupQuota() override { std::filesystem::remove_all(root_); }
  void put(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  [[nodiscard]] std::optional<double> quota(const std::string& membership) const { return cgroup_cpu_quota(membership, root_); }

  std::string root_;
};

TEST_F(CgroupQuota, Version2ReadsCpuMax) {
  put("/user/job/cpu.max", "150000 100000\n");
  EXPECT_EQ(quota("0::/user/job\n"), 1.5);
  put("/user/job/cpu.max", "max 100000\n");
  EXPECT_EQ(quota("0::/user/job\n"), std::nullopt);
}

TEST_F(CgroupQuota, UsesTheSmallestQuotaOfAllParentGroups) {
  put("/user/cpu.max", "200000 100000\n");
  put("/user/job/cpu.max", "800000 100000\n");
  EXPECT_EQ(quota("0::/user/job\n"), 2.0);
  put("/cpu.max", "50000 100000\n");
  EXPECT_EQ(quota("0::/user/job\n"), 0.5);
}

// In a container the root of the tree is the container's own group, but the path may be the host's.
TEST_F(CgroupQuota, LooksAtTheRootWhenTheGroupIsNotVisible) {
  put("/cpu.max", "300000 100000\n");
  EXPECT_EQ(quota("0::/docker/0123456789abcdef\n"), 3.0);
  EXPECT_EQ(quota("0::/\n"), 3.0);
}

TEST_F(CgroupQuota, Version1ReadsQuotaAndPeriod) {
  const std::string membership = "9:name=systemd:/\n4:memory:/other\n2:cpu,cpuacct:/job\n";
  put("/cpu,cpuacct/job/cpu.cfs_quota_us", "250000\n");
  put("/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(membership), 2.5);
  EXPECT_EQ(quota("2:cpuacct:/job\n"), std::nullopt);
  put("/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(quota(membership), std::nullopt);
  put("/cpu/cpu.cfs_quota_us", "100000\n");
  put("/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota("2:cpu:/job\n"), 1.0);
}

TEST_F(CgroupQuota, InvalidFilesGiveNoQuota) {
  put("/cpu.max", "fast 100000\n");
  put("/a/cpu.max", "100000 0\n");
  put("/b/cpu.max", "100000\n");
  for (const std::string membership : {"", "\n\n", "0", "0:", "0::", "0::/a", "0::/b\n", "0::/../..\n", ":::::\n", "2:cpu:/none\n"})
    EXPECT_EQ(quota(membership), std::nullopt) << membership;
}

TEST(UsableCores, FollowTheAffinityOfTheProcess) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  EXPECT_GE(usable_cores(), 1U);
  EXPECT_LE(usable_cores(), static_cast<std::uint32_t>(CPU_COUNT(&before)));
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(usable_cores(), 1U);
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

}  // namespace
}  // namespace quire
