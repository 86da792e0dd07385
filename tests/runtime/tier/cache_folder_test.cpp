// Tests what can be read from a folder without its model and without changing it.
#include "quire/cache_folder.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

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
  for (const int page : {0, 4096}) flip("quire-table", page + 30);
  EXPECT_NE(error().find("the header"), std::string::npos) << error();
  std::ofstream(folder_.file("quire-table"), std::ios::trunc) << std::string(9000, 'x');
  EXPECT_NE(error().find("is not the table of a disk tier"), std::string::npos) << error();
  EXPECT_TRUE(error().starts_with("folder: ")) << error();
  const auto lock = tier_folder(folder_.path(), TierIo::threads);
  EXPECT_TRUE(error().starts_with("folder: process ")) << error();
}

// A table of more entries than are read at a time, with blocks at the borders of these parts.
TEST(CacheFolderTableTest, ReadsEveryPartOfALargeTable) {
  const TempFolder folder;
  const std::vector<std::uint32_t> held = {8192, 0, 4095, 8191, 4096};
  std::uint32_t num_places = 0;
  {
    TierClient store(tier_folder(folder.path(), TierIo::threads),
                     {.budget_bytes = 40 << 20, .block_bytes = 4000, .fingerprint = tier_fingerprint(0xa5)});
    ASSERT_TRUE(store.is_open()) << store.error().to_string();
    num_places = store->num_places();
    ASSERT_GT(num_places, 9000U);
    for (const std::uint32_t place : held) ASSERT_EQ(store.store(place, place), TierOutcome::done);
    ASSERT_EQ(store.store(num_places - 1, 77), TierOutcome::done);
  }
  const auto flip = [&](const char* file, std::uint64_t at) {
    std::fstream bytes(folder.file(file), std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(static_cast<std::streamoff>(at));
    bytes.put('?');
  };
  flip("quire-table", entry_offset(4097) + 3);
  flip("quire-table", entry_offset(8191) + 3);
  flip("quire-blocks", 8192 * std::uint64_t{4096});
  flip("quire-blocks", 4095 * std::uint64_t{4096} + 3999);
  const auto opened = CacheFolder::open(folder.path());
  ASSERT_TRUE(opened) << opened.error().to_string();
  const CacheFolderInfo& info = (*opened)->info();
  std::string fingerprint;
  for (int i = 0; i < 32; ++i) fingerprint += "a5";
  EXPECT_EQ(info.fingerprint, fingerprint);
  EXPECT_EQ(info.num_places, (std::filesystem::file_size(folder.file("quire-table")) - 8192) / 128);
  EXPECT_EQ(info.num_blocks, 5U);
  EXPECT_EQ(info.block_bytes, 5U * 4000);
  EXPECT_EQ(info.num_damaged_entries, 2U);
  std::vector<std::uint32_t> places;
  for (const CachedBlock& block : (*opened)->blocks()) {
    places.push_back(block.place);
    EXPECT_EQ(block.bytes, 4000U);
    EXPECT_EQ(block.name, tier_name(block.place == num_places - 1 ? 77 : block.place));
  }
  EXPECT_EQ(places, (std::vector<std::uint32_t>{8192, 0, 4095, 4096, num_places - 1})) << "in the order in which they were stored";
  for (std::size_t i = 1; i < places.size(); ++i) EXPECT_GT((*opened)->blocks()[i].sequence, (*opened)->blocks()[i - 1].sequence);
  std::vector<CachedBlock> bad;
  std::vector<double> parts;
  ASSERT_TRUE((*opened)->verify([&](double part) { parts.push_back(part); }, bad));
  ASSERT_EQ(bad.size(), 2U);
  EXPECT_EQ(bad[0].place, 4095U);
  EXPECT_EQ(bad[1].place, 8192U);
  ASSERT_FALSE(parts.empty());
  EXPECT_TRUE(std::ranges::is_sorted(parts));
  EXPECT_GT(parts.front(), 0.0);
  EXPECT_EQ(parts.back(), 1.0);
  ASSERT_TRUE((*opened)->drop());
  EXPECT_TRUE((*opened)->blocks().empty());
  EXPECT_EQ(info.num_blocks + info.block_bytes + info.disk_bytes + info.num_damaged_entries, 0U);
}

TEST(CacheFolderTableTest, ReadsATableWithoutEntriesAsEmpty) {
  const TempFolder folder;
  std::vector<std::byte> page(kTierPageBytes);
  encode_header({.place_bytes = 4096, .fingerprint = tier_fingerprint(), .identity = {}, .incarnation = 12}, page);
  const auto write = [&](std::size_t bytes) {
    page.resize(bytes);
    std::ofstream(folder.file("quire-table"), std::ios::trunc | std::ios::binary)
        .write(reinterpret_cast<const char*>(page.data()), static_cast<std::streamsize>(bytes));
  };
  for (const auto& [bytes, places] :
       std::vector<std::pair<std::size_t, std::uint64_t>>{{4096, 0}, {8192, 0}, {8319, 0}, {8320, 1}, {8448, 2}}) {
    write(bytes);
    const auto opened = CacheFolder::open(folder.path());
    ASSERT_TRUE(opened) << opened.error().to_string();
    EXPECT_EQ((*opened)->info().num_places, places) << bytes;
    EXPECT_EQ((*opened)->info().num_openings, 12U);
    EXPECT_EQ((*opened)->info().num_blocks, 0U);
    std::vector<CachedBlock> bad;
    EXPECT_TRUE((*opened)->verify({}, bad));
    EXPECT_TRUE(bad.empty());
  }
}

TEST(CacheFolderTableTest, RefusesAHeaderThatNoTierWrites) {
  const TempFolder folder;
  for (const auto& [place_bytes, is_good] : std::vector<std::pair<std::uint64_t, bool>>{{0, false},
                                                                                        {1, false},
                                                                                        {4095, false},
                                                                                        {4096, true},
                                                                                        {4097, false},
                                                                                        {std::uint64_t{1} << 30U, true},
                                                                                        {(std::uint64_t{1} << 30U) + 4096, false}}) {
    std::vector<std::byte> page(kTierPageBytes);
    encode_header({.place_bytes = place_bytes, .fingerprint = tier_fingerprint(), .identity = {}, .incarnation = 1}, page);
    std::ofstream(folder.file("quire-table"), std::ios::trunc | std::ios::binary)
        .write(reinterpret_cast<const char*>(page.data()), static_cast<std::streamsize>(page.size()));
    const auto opened = CacheFolder::open(folder.path());
    EXPECT_EQ(opened.has_value(), is_good) << place_bytes;
    if (!opened)
      EXPECT_EQ(opened.error().to_string(), "folder: the header of '" + folder.path() +
                                                "' is corrupted: a server would start with an empty tier; remove its quire-* files");
  }
}

}  // namespace
}  // namespace quire::test
