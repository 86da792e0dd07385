#include "base/usable_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace quire {
namespace {

// A folder in place of /sys/fs/cgroup.
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

TEST_F(CgroupMemory, TheTightestOfTheGroupsAboveCounts) {
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

TEST_F(CgroupMemory, NoLimitAndNonsenseAreNone) {
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

TEST(UsableMemory, IsWhatTheMachineHasAtMost) {
  EXPECT_GT(usable_memory_bytes(), std::uint64_t{1} << 20U);
  EXPECT_LE(usable_memory_bytes(), static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)));
}

}  // namespace
}  // namespace quire
