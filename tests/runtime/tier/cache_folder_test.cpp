// Tests what can be read from a folder without its model and without changing it.
#include "quire/cache_folder.h"

#include <algorithm>
#include <fstream>

#include "runtime/tier/tier_support.h"

namespace quire::test {
namespace {

constexpr std::uint64_t kCachedBytes = 70'000;
constexpr std::uint32_t kCachedBlocks = 20;

class CacheFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    TierClient store(tier_folder(folder_.path(), TierIo::threads),
                     {.budget_bytes = 4 << 20, .block_bytes = kCachedBytes, .fingerprint = tier_fingerprint()});
    ASSERT_TRUE(store.is_open()) << store.error().to_string();
    for (std::uint32_t i = 0; i < kCachedBlocks; ++i) ASSERT_EQ(store.store((7 * i) % 31, i), TierOutcome::done);
    num_places_ = store->num_places();
  }
  std::unique_ptr<CacheFolder> open() { return CacheFolder::open(folder_.path()).value(); }
  void flip(const std::string& file, std::uint64_t at) {
    std::fstream bytes(folder_.file(file), std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekg(static_cast<std::streamoff>(at));
    const auto was = static_cast<char>(bytes.get());
    bytes.seekp(static_cast<std::streamoff>(at));
    bytes.put(static_cast<char>(was ^ 4));
  }
  std::string error() { return CacheFolder::open(folder_.path()).error().to_string(); }

  TempFolder folder_;
  std::uint32_t num_places_ = 0;
};

TEST_F(CacheFolderTest, ListsStoredBlocksInTheirOrder) {
  const std::unique_ptr<CacheFolder> folder = open();
  ASSERT_EQ(folder->blocks().size(), kCachedBlocks);
  for (std::uint32_t i = 0; i < kCachedBlocks; ++i) {
    EXPECT_EQ(folder->blocks()[i].place, 7 * i % 31);
    EXPECT_EQ(folder->blocks()[i].name, tier_name(i));
    EXPECT_EQ(folder->blocks()[i].bytes, kCachedBytes);
  }
  const CacheFolderInfo& info = folder->info();
  EXPECT_EQ(info.fingerprint.size(), 64U);
  EXPECT_EQ(info.num_openings, 1U);
  EXPECT_EQ(info.num_blocks, kCachedBlocks);
  EXPECT_EQ(info.block_bytes, kCachedBlocks * kCachedBytes);
  EXPECT_EQ(info.place_bytes, 73'728U);
  EXPECT_GE(info.num_places, num_places_);
  EXPECT_LT(info.num_places, num_places_ + 32) << "the table ends at a page boundary";
  EXPECT_EQ(info.disk_bytes, folder_.disk_bytes());
  EXPECT_EQ(info.num_damaged_entries, 0U);
}

TEST_F(CacheFolderTest, VerifyFindsChangedBlocks) {
  std::vector<CachedBlock> bad;
  double done = 0.0;
  ASSERT_TRUE(open()->verify([&](double part) { done = part; }, bad).has_value());
  EXPECT_TRUE(bad.empty());
  EXPECT_EQ(done, 1.0);
  flip("quire-blocks", 14 * 73'728 + 69'999);  // the last byte of the third block
  flip("quire-blocks", 7 * 73'728);            // the first byte of the second block
  flip("quire-blocks", 3 * 73'728);            // slot 3 is empty
  ASSERT_TRUE(open()->verify({}, bad).has_value());
  ASSERT_EQ(bad.size(), 2U);
  EXPECT_EQ(bad[0].name, tier_name(1));
  EXPECT_EQ(bad[1].name, tier_name(2));
}

TEST_F(CacheFolderTest, VerifyReportsBlocksThatCannotBeRead) {
  std::filesystem::resize_file(folder_.file("quire-blocks"), 14 * 73'728 + 4096);
  std::vector<CachedBlock> bad;
  ASSERT_TRUE(open()->verify({}, bad).has_value());
  EXPECT_EQ(bad.size(), 10U) << "blocks before slot 14 are intact";
}

TEST_F(CacheFolderTest, OmitsDamagedEntries) {
  flip("quire-table", entry_offset(7) + 20);
  const std::unique_ptr<CacheFolder> folder = open();
  EXPECT_EQ(folder->info().num_damaged_entries, 1U);
  EXPECT_EQ(folder->blocks().size(), kCachedBlocks - 1);
  EXPECT_TRUE(std::ranges::none_of(folder->blocks(), [](const CachedBlock& block) { return block.place == 7; }));
}

TEST_F(CacheFolderTest, ReadsWithoutChangingTheFolder) {
  std::vector<CachedBlock> bad;
  ASSERT_TRUE(open()->verify({}, bad).has_value());
  EXPECT_EQ(open()->info().num_openings, 1U);
  TierClient store(tier_folder(folder_.path(), TierIo::threads),
                   {.budget_bytes = 4 << 20, .block_bytes = kCachedBytes, .fingerprint = tier_fingerprint()});
  ASSERT_TRUE(store.is_open()) << store.error().to_string();
  EXPECT_EQ(store.restored().size(), kCachedBlocks);
  EXPECT_NE(error().find("process"), std::string::npos) << "a store is using the folder: " << error();
}

TEST_F(CacheFolderTest, DropRemovesAllFiles) {
  ASSERT_TRUE(open()->drop().has_value());
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
  EXPECT_NE(error().find("does not contain a disk tier"), std::string::npos) << error();
}

TEST_F(CacheFolderTest, ErrorsNameTheFolder) {
  EXPECT_EQ(CacheFolder::open("/nowhere").error().field, "folder");
  flip("quire-table", 4096 + 30);
  EXPECT_NE(error().find("the header"), std::string::npos) << error();
  std::ofstream(folder_.file("quire-table"), std::ios::trunc) << std::string(9000, 'x');
  EXPECT_NE(error().find("is not the table of a disk tier"), std::string::npos) << error();
}

}  // namespace
}  // namespace quire::test
