#include "base/usable_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace quire {
namespace {

// A temporary folder replaces /sys/fs/cgroup.
class CgroupMemory : public testing::Test {
 protected:
  CgroupMemory() : root_((std::filesystem::temp_directory_path() / "quire_cgroup_XXXXXX").string()) {
    EXPECT_NE(mkdtemp(root_.data()), nullptr);
  }
  ~CgroupMemory() override { std::filesystem::remove_all(root_); }
  void put(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  [[nodiscard]] std::optional<std::uint64_t> left(const std::string& membership) const { return cgroup_memory_left(membership, root_); }

  std::string root_;
};

TEST_F(CgroupMemory, Version2CountsCachedFilesAsFree) {
  put("/job/memory.max", "1000\n");
  put("/job/memory.current", "700\n");
  EXPECT_EQ(left("0::/job\n"), 300U);
  put("/job/memory.stat", "anon 500\nfile 200\ninactive_file 150\nactive_file 50\n");
  EXPECT_EQ(left("0::/job\n"), 450U);
}

TEST_F(CgroupMemory, UsesTheTightestLimitOfAllParentGroups) {
  put("/memory.max", "100\n");
  put("/memory.current", "90\n");
  put("/job/memory.max", "5000\n");
  put("/job/memory.current", "80\n");
  EXPECT_EQ(left("0::/job\n"), 10U);
}

TEST_F(CgroupMemory, Version1ReadsLimitAndUsage) {
  const std::string membership = "4:cpu:/other\n3:memory:/job\n";
  put("/memory/job/memory.limit_in_bytes", "1000\n");
  put("/memory/job/memory.usage_in_bytes", "400\n");
  put("/memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 100\n");
  EXPECT_EQ(left(membership), 700U);
  put("/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(left(membership), std::nullopt);
}

TEST_F(CgroupMemory, NoLimitAndInvalidFilesGiveNoValue) {
  put("/a/memory.max", "max\n");
  put("/a/memory.current", "700\n");
  put("/b/memory.max", "100\n");
  for (const std::string membership : {"", "0::/a\n", "0::/b\n", "0::/none\n"}) EXPECT_EQ(left(membership), std::nullopt) << membership;
}

TEST_F(CgroupMemory, AGroupBeyondItsLimitHasNothingLeft) {
  put("/memory.max", "100\n");
  put("/memory.current", "130\n");
  EXPECT_EQ(left("0::/\n"), 0U);
}

TEST_F(CgroupMemory, TheLimitDoesNotDependOnTheUsage) {
  put("/memory.max", "7000\n");
  put("/memory.current", "6900\n");
  put("/job/memory.max", "4100\n");
  put("/job/memory.current", "5000\n");
  EXPECT_EQ(cgroup_memory_limit("0::/job\n", root_), 4100U);
  EXPECT_EQ(cgroup_memory_limit("0::/\n", root_), 7000U);
  put("/job/memory.max", "max\n");
  EXPECT_EQ(cgroup_memory_limit("0::/job\n", root_), 7000U);
  put("/memory/old/memory.limit_in_bytes", "123\n");
  EXPECT_EQ(cgroup_memory_limit("3:memory:/old\n", root_), 123U);
  put("/memory/old/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(cgroup_memory_limit("3:memory:/old\n", root_), std::nullopt);
}

TEST(UsableMemory, IsNeverMoreThanTheTotal) {
  EXPECT_GE(total_memory_bytes(), usable_memory_bytes());
  EXPECT_LE(total_memory_bytes(), static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)));
}

TEST(UsableMemory, IsAtMostTheMemoryOfTheMachine) {
  EXPECT_GT(usable_memory_bytes(), std::uint64_t{1} << 20U);
  EXPECT_LE(usable_memory_bytes(), static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)));
}

}  // namespace
}  // namespace quire
