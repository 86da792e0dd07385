// Tests the bytes of a disk tier's table, which must not change within a version, and the header and files of a folder when it is opened.
#include "runtime/tier/tier_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/xxhash.h"
#include "runtime/tier/memory_files.h"
#include "runtime/tier/tier_opening.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {
namespace {

TierHeader table_header() {
  TierHeader header{.place_bytes = 0x0000000102003000, .fingerprint = {}, .identity = {}, .incarnation = 0x0807060504030201};
  for (std::size_t i = 0; i < header.fingerprint.size(); ++i) header.fingerprint[i] = static_cast<std::uint8_t>(0x40 + i);
  for (std::size_t i = 0; i < header.identity.size(); ++i) header.identity[i] = static_cast<std::uint8_t>(0x80 + i);
  return header;
}

TierEntry table_entry() {
  TierEntry entry{.sequence = 0x0807060504030201, .name = {.hash = {}, .group = 0x14131211}, .bytes = 0x24232221, .checksum = {}};
  for (std::size_t i = 0; i < entry.name.hash.size(); ++i) entry.name.hash[i] = static_cast<std::uint8_t>(0x60 + i);
  for (std::size_t i = 0; i < entry.checksum.size(); ++i) entry.checksum[i] = static_cast<std::uint8_t>(0xa0 + i);
  return entry;
}

unsigned byte_at(std::span<const std::byte> bytes, std::size_t at) {
  return std::to_integer<unsigned>(bytes[at]);
}

TEST(TierTableBytes, PutEachFieldOfTheHeaderInItsPlace) {
  std::array<std::byte, kTierPageBytes> page;
  page.fill(std::byte{0xff});
  encode_header(table_header(), page);
  EXPECT_EQ(std::memcmp(page.data(), "quire disk tier\n", 16), 0);
  const std::vector<unsigned> numbers = {1, 0, 0, 0, xxhash_available() ? 1U : 2U, 0, 0, 0, 0x00, 0x30, 0x00, 0x02, 0x01, 0, 0, 0};
  for (std::size_t i = 0; i < numbers.size(); ++i) EXPECT_EQ(byte_at(page, 16 + i), numbers[i]) << i;
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(byte_at(page, 32 + i), 0x40 + i) << i;
  for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(byte_at(page, 64 + i), 0x80 + i) << i;
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(byte_at(page, 80 + i), 1 + i) << i;
  for (std::size_t i = 88; i < kTierPageBytes - 16; ++i) ASSERT_EQ(byte_at(page, i), 0U) << i;
  if (xxhash_available()) {
    const Checksum own = xxh3_128(std::span<const std::byte>(page).first(kTierPageBytes - 16));
    EXPECT_EQ(std::memcmp(&page[kTierPageBytes - 16], own.data(), 16), 0);
  }
  TierHeader read;
  EXPECT_EQ(decode_header(page, read), HeaderState::good);
  EXPECT_EQ(read, table_header());
}

TEST(TierTableBytes, TellTheStatesOfAHeaderApart) {
  std::array<std::byte, kTierPageBytes> good;
  encode_header(table_header(), good);
  const auto state_with = [&](std::size_t at, unsigned value) {
    std::array<std::byte, kTierPageBytes> page = good;
    page[at] = static_cast<std::byte>(value);
    TierHeader header;
    return decode_header(page, header);
  };
  for (std::size_t at = 0; at < 16; ++at) EXPECT_EQ(state_with(at, 0xee), HeaderState::foreign) << at;
  for (std::size_t at = 16; at < 24; ++at) EXPECT_EQ(state_with(at, 0xee), HeaderState::other_version) << at;
  EXPECT_EQ(state_with(16, 2), HeaderState::other_version);
  EXPECT_EQ(state_with(16, 0), HeaderState::other_version);
  EXPECT_EQ(state_with(20, 3), HeaderState::other_version);
  for (const std::size_t at : {24U, 40U, 70U, 87U, 88U, 4079U, 4080U, 4095U}) EXPECT_EQ(state_with(at, 0xee), HeaderState::damaged) << at;
  std::array<std::byte, kTierPageBytes> blank{};
  TierHeader header;
  EXPECT_EQ(decode_header(blank, header), HeaderState::blank);
  blank.back() = std::byte{1};
  EXPECT_EQ(decode_header(blank, header), HeaderState::foreign);
}

TEST(TierTableBytes, PutEachFieldOfAnEntryInItsPlace) {
  TierHeader header = table_header();
  std::array<std::byte, kEntryBytes> bytes;
  bytes.fill(std::byte{0xff});
  encode_entry(table_entry(), header, 5, bytes);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(byte_at(bytes, i), 1 + i) << i;
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(byte_at(bytes, 8 + i), 0x60 + i) << i;
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(byte_at(bytes, 40 + i), 0x11 + i) << i;
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(byte_at(bytes, 44 + i), 0x21 + i) << i;
  for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(byte_at(bytes, 48 + i), 0xa0 + i) << i;
  for (std::size_t i = 64; i < 112; ++i) EXPECT_EQ(byte_at(bytes, i), 0U) << i;
  header.place_bytes = UINT32_MAX;
  TierEntry read;
  EXPECT_EQ(decode_entry(bytes, header, 5, read), EntryState::good);
  EXPECT_EQ(read, table_entry());
  EXPECT_EQ(entry_offset(0), 8192U);
  EXPECT_EQ(entry_offset(3), 8192U + 384U);
  for (const auto& [size, padded] : std::vector<std::pair<std::uint64_t, std::uint64_t>>{{0, 0}, {1, 4096}, {4096, 4096}, {4097, 8192}})
    EXPECT_EQ(padded_to_page(size), padded);
}

TEST(TierTableBytes, AcceptAnEntryOnlyInItsSlotFolderAndModel) {
  const TierHeader header{.place_bytes = 4096, .fingerprint = tier_fingerprint(), .identity = {1}, .incarnation = 3};
  const auto state_of = [&](const TierEntry& entry, const TierHeader& reader, std::uint64_t place) {
    std::array<std::byte, kEntryBytes> bytes;
    encode_entry(entry, header, 5, bytes);
    TierEntry read;
    return decode_entry(bytes, reader, place, read);
  };
  const TierEntry entry{.sequence = 1, .name = tier_name(1), .bytes = 1, .checksum = {}};
  EXPECT_EQ(state_of(entry, header, 5), EntryState::good);
  EXPECT_EQ(state_of(entry, header, 6), EntryState::damaged);
  EXPECT_EQ(state_of(entry, header, 5 + (std::uint64_t{1} << 32U)), EntryState::damaged);
  TierHeader other = header;
  other.fingerprint[31] ^= 1U;
  EXPECT_EQ(state_of(entry, other, 5), EntryState::damaged);
  other = header;
  other.identity[15] ^= 1U;
  EXPECT_EQ(state_of(entry, other, 5), EntryState::damaged);
  other = header;
  other.incarnation = 9;
  EXPECT_EQ(state_of(entry, other, 5), EntryState::good) << "the blocks outlive an opening";
  // Values that no store writes.
  const auto with = [&](std::uint64_t sequence, std::uint32_t bytes) {
    return state_of({.sequence = sequence, .name = tier_name(1), .bytes = bytes, .checksum = {}}, header, 5);
  };
  EXPECT_EQ(with(0, 1), EntryState::damaged);
  EXPECT_EQ(with(1, 0), EntryState::damaged);
  EXPECT_EQ(with(2, 2), EntryState::good);
  EXPECT_EQ(with(1, 4096), EntryState::good) << "a block may fill its slot";
  EXPECT_EQ(with(1, 4097), EntryState::damaged);
  TierEntry read;
  std::array<std::byte, kEntryBytes> zeros{};
  EXPECT_EQ(decode_entry(zeros, header, 5, read), EntryState::empty);
  zeros.back() = std::byte{1};
  EXPECT_EQ(decode_entry(zeros, header, 5, read), EntryState::damaged);
}

template <class Value>
void append_bytes(std::vector<std::byte>& out, const Value& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

// The checksums are computed from the description in tier_table.h, so that a folder of this build verifies in the next.
TEST(TierTableBytes, HaveTheDescribedChecksums) {
  if (!xxhash_available()) GTEST_SKIP() << "this build of quire has no xxhash";
  const TierHeader header = table_header();
  const TierEntry entry = table_entry();
  std::array<std::byte, kEntryBytes> bytes;
  encode_entry(entry, header, 0x0706050403020100, bytes);
  std::vector<std::byte> bound(bytes.begin(), bytes.begin() + 112);
  bound.resize(128);
  append_bytes(bound, header.identity);
  append_bytes(bound, header.fingerprint);
  append_bytes(bound, std::uint64_t{0x0706050403020100});
  EXPECT_EQ(bound.size(), 184U);
  const Checksum of_entry = xxh3_128(bound);
  EXPECT_EQ(std::memcmp(&bytes[112], of_entry.data(), 16), 0);
  const std::vector<std::byte> payload = tier_block(3, 8192);
  std::vector<std::byte> of_block;
  append_bytes(of_block, xxh3_128(payload));
  append_bytes(of_block, header.fingerprint);
  append_bytes(of_block, header.identity);
  append_bytes(of_block, entry.name.hash);
  append_bytes(of_block, std::uint32_t{0x14131211});
  append_bytes(of_block, std::uint32_t{5000});
  EXPECT_EQ(payload_checksum(header, entry.name, 5000, payload), xxh3_128(of_block));
}

TEST(TierTableBytesDeathTest, RequireWholePagesAndEntries) {
  TierHeader header;
  TierEntry entry;
  std::vector<std::byte> page(kTierPageBytes - 1), bytes(kEntryBytes + 1);
  EXPECT_DEATH(decode_header(page, header), "size of a page");
  EXPECT_DEATH(encode_header(header, page), "size of a page");
  EXPECT_DEATH(decode_entry(bytes, header, 0, entry), "kEntryBytes bytes");
  EXPECT_DEATH(encode_entry(entry, header, 0, bytes), "kEntryBytes bytes");
}

// A folder in memory whose resizes can fail, and which reports them.
class SizedFiles final : public TierFiles {
 public:
  explicit SizedFiles(const std::shared_ptr<MemoryDisk>& disk) : files_(disk) {}
  Result<std::uint64_t> disk_bytes() override {
    if (fails_to_measure) return fail(ErrorCode::io, "kv_disk", "cannot be measured");
    Result<std::uint64_t> bytes = files_.disk_bytes();
    return *bytes + extra_bytes;
  }
  Result<std::uint64_t> table_bytes() override { return files_.table_bytes(); }
  Result<void> resize(TierFile file, std::uint64_t bytes) override {
    resizes.emplace_back(file, bytes);
    if (resizes.size() - 1 == failing_resize) return fail(ErrorCode::io, "kv_disk_budget", "no room");
    return files_.resize(file, bytes);
  }
  Result<void> read_table(std::uint64_t offset, std::span<std::byte> bytes) override { return files_.read_table(offset, bytes); }
  Result<void> write_table(std::uint64_t offset, std::span<const std::byte> bytes) override {
    writes.push_back(offset);
    return files_.write_table(offset, bytes);
  }
  Result<void> sync_table() override {
    ++num_syncs;
    return files_.sync_table();
  }
  std::unique_ptr<BlockQueue> open_queue(std::uint32_t depth) override { return files_.open_queue(depth); }

  std::vector<std::pair<TierFile, std::uint64_t>> resizes;
  std::vector<std::uint64_t> writes;
  std::size_t failing_resize = SIZE_MAX;
  std::uint64_t extra_bytes = 0;
  int num_syncs = 0;
  bool fails_to_measure = false;

 private:
  MemoryFiles files_;
};

const TierShape kOpenedShape{.budget_bytes = 1 << 20, .place_bytes = 8192, .fingerprint = tier_fingerprint()};

TEST(TierOpening, SizesTheFilesOfANewTierAndWritesItsHeader) {
  const auto disk = std::make_shared<MemoryDisk>();
  SizedFiles files(disk);
  const OpenedTier tier = open_tier(files, kOpenedShape).value();
  EXPECT_EQ(tier.header.place_bytes, 8192U);
  EXPECT_EQ(tier.header.fingerprint, tier_fingerprint());
  EXPECT_EQ(tier.header.incarnation, 1U);
  EXPECT_NE(tier.header.identity, (std::array<std::uint8_t, 16>{}));
  ASSERT_GT(tier.num_places, 100U);
  EXPECT_EQ(tier.num_places, num_slots_within(1 << 20, 8192));
  const std::uint64_t table = padded_to_page(8192 + 128 * std::uint64_t{tier.num_places});
  EXPECT_EQ(files.resizes, (std::vector<std::pair<TierFile, std::uint64_t>>{
                               {TierFile::table, 0}, {TierFile::blocks, 8192 * std::uint64_t{tier.num_places}}, {TierFile::table, table}}))
      << "entries of an earlier tier are removed";
  EXPECT_EQ(files.writes, std::vector<std::uint64_t>({0, 4096}));
  EXPECT_EQ(files.num_syncs, 1);
}

TEST(TierOpening, WritesItsHeaderToEachPageInTurnAndKeepsItsIdentity) {
  const auto disk = std::make_shared<MemoryDisk>();
  std::array<std::uint8_t, 16> identity{};
  for (std::uint64_t opening = 1; opening <= 4; ++opening) {
    SizedFiles files(disk);
    const OpenedTier tier = open_tier(files, kOpenedShape).value();
    if (opening == 1) identity = tier.header.identity;
    EXPECT_EQ(tier.header.identity, identity);
    EXPECT_EQ(tier.header.incarnation, opening);
    const std::vector<std::uint64_t> page = {opening % 2 * 4096};
    EXPECT_EQ(files.writes, opening == 1 ? std::vector<std::uint64_t>({0, 4096}) : page);
    if (opening > 1) EXPECT_EQ(files.resizes.size(), 2U) << "the entries stay";
    EXPECT_EQ(read_tier_header(files).value()->incarnation, opening) << "the newer page counts";
  }
  SizedFiles other(std::make_shared<MemoryDisk>());
  EXPECT_NE(open_tier(other, kOpenedShape).value().header.identity, identity) << "each tier draws its identity";
}

TEST(TierOpening, SurvivesADamagedPageAfterTheFirstOpening) {
  for (const std::uint64_t begin : {0, 4096}) {
    const auto disk = std::make_shared<MemoryDisk>();
    SizedFiles files(disk);
    const OpenedTier tier = open_tier(files, kOpenedShape).value();
    for (std::uint64_t i = 0; i < 64; ++i) disk->table[begin + i] ^= std::byte{0x40};
    const auto header = read_tier_header(files);
    ASSERT_TRUE(header.has_value()) << header.error().to_string();
    ASSERT_TRUE(header->has_value()) << begin;
    EXPECT_EQ((*header)->identity, tier.header.identity) << begin;
  }
}

TEST(TierOpening, LeavesEmptyFilesWhenANewTierCannotBeSized) {
  for (std::size_t failing = 0; failing < 5; ++failing) {
    const auto disk = std::make_shared<MemoryDisk>();
    SizedFiles files(disk);
    files.failing_resize = failing < 3 ? failing : SIZE_MAX;
    files.extra_bytes = failing == 3 ? 1 << 20 : 0;
    files.fails_to_measure = failing == 4;
    const auto opened = open_tier(files, kOpenedShape);
    ASSERT_FALSE(opened) << failing;
    EXPECT_TRUE(files.writes.empty()) << failing;
    if (failing < 3) EXPECT_EQ(opened.error().to_string(), "kv_disk_budget: no room");
    if (failing == 3) EXPECT_EQ(opened.error().code, ErrorCode::too_large);
    if (failing == 4) EXPECT_EQ(opened.error().to_string(), "kv_disk: cannot be measured");
    if (failing == 4) continue;
    EXPECT_EQ(disk->blocks.size() + disk->table.size(), 0U) << failing;
    EXPECT_EQ(files.resizes.back(), std::pair(TierFile::table, std::uint64_t{0}));
  }
}

TEST(TierOpening, KeepsTheFilesOfATierThatCannotBeResized) {
  for (std::size_t failing = 0; failing < 2; ++failing) {
    const auto disk = std::make_shared<MemoryDisk>();
    SizedFiles first(disk);
    ASSERT_TRUE(open_tier(first, kOpenedShape));
    const std::uint64_t blocks = disk->blocks.size(), table = disk->table.size();
    SizedFiles files(disk);
    files.failing_resize = failing;
    EXPECT_EQ(open_tier(files, kOpenedShape).error().to_string(), "kv_disk_budget: no room");
    EXPECT_EQ(disk->blocks.size(), blocks);
    EXPECT_EQ(disk->table.size(), table);
    EXPECT_EQ(files.resizes.size(), failing + 1);
  }
}

TEST(TierOpening, RefusesAFolderThatUsesMoreThanTheBudget) {
  SizedFiles files(std::make_shared<MemoryDisk>());
  const std::uint64_t used = [] {
    SizedFiles exact(std::make_shared<MemoryDisk>());
    EXPECT_TRUE(open_tier(exact, kOpenedShape));
    return exact.disk_bytes().value();
  }();
  files.extra_bytes = kOpenedShape.budget_bytes - used;
  EXPECT_TRUE(open_tier(files, kOpenedShape)) << "the folder may use the whole budget";
  SizedFiles more(std::make_shared<MemoryDisk>());
  more.extra_bytes = kOpenedShape.budget_bytes - used + 1;
  const auto opened = open_tier(more, kOpenedShape);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().field, "kv_disk_budget");
  EXPECT_TRUE(opened.error().message.starts_with("the file system uses 1048577 bytes for ")) << opened.error().message;
  EXPECT_EQ(opened.error().remedy, "use a folder on another file system");
}

TEST(TierOpening, FindsTheLargestNumberOfSlotsForABudget) {
  // The smallest budget for one slot is in the error of DiskStore.
  EXPECT_EQ(num_slots_within(1'097'728, 1 << 20), 1U);
  EXPECT_EQ(num_slots_within(1'097'727, 1 << 20), 0U);
  EXPECT_EQ(num_slots_within(0, 4096), 0U);
  EXPECT_EQ(num_slots_within(UINT64_MAX / 2, 4096), 1U << 28U) << "a ledger has no more slots";
  std::uint32_t before = 0;
  for (std::uint64_t budget = 40'000; budget < 4'000'000; budget += 9'999) {
    const std::uint32_t slots = num_slots_within(budget, 4096);
    EXPECT_GE(slots, before);
    EXPECT_LT(std::uint64_t{slots} * (4096 + 128) + 8192, budget);
    before = slots;
  }
  EXPECT_GT(before, 900U);
}

// Each version must give equal slots for an equal budget, or a folder loses blocks when it is opened again.
TEST(TierOpening, KeepsTheSmallestBudgetOfANumberOfSlots) {
  struct Case {
    std::uint64_t place_bytes;
    std::uint32_t num_slots;
    std::uint64_t budget_bytes;
  };
  const std::vector<Case> cases = {{4096, 1, 53248},
                                   {4096, 2, 57344},
                                   {4096, 79, 380928},
                                   {4096, 80, 389120},
                                   {4096, 81, 393216},
                                   {4096, 164, 749568},
                                   {4096, 1000, 4321280},
                                   {4096, 20000, 85516288},
                                   {4096, 3000000, 12821131264},
                                   {8192, 12345, 103366656},
                                   {73728, 54, 4034560},
                                   {1 << 20, 1, 1097728},
                                   {1 << 20, 63, 66113536},
                                   {1 << 20, 64, 67162112},
                                   {1 << 20, 65, 68214784},
                                   {1 << 20, 79, 82894848},
                                   {1 << 20, 161, 168898560},
                                   {1 << 20, 5000, 5243817984},
                                   {1 << 30, 1, 1073790976},
                                   {1 << 30, 9, 9663725568},
                                   {1 << 30, 10, 10737471488},
                                   {1 << 30, 28, 30064832512},
                                   {1 << 30, 1000, 1073742434304}};
  for (const Case& one : cases) {
    EXPECT_EQ(num_slots_within(one.budget_bytes, one.place_bytes), one.num_slots) << one.budget_bytes;
    EXPECT_EQ(num_slots_within(one.budget_bytes - 1, one.place_bytes), one.num_slots - 1) << one.budget_bytes;
    if (one.num_slots != 1) continue;
    MemoryFiles files(std::make_shared<MemoryDisk>());
    const auto opened = open_tier(files, {.budget_bytes = one.budget_bytes - 1, .place_bytes = one.place_bytes, .fingerprint = {}});
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().to_string(), "kv_disk_budget: " + std::to_string(one.budget_bytes - 1) +
                                              " bytes are too small for one block of " + std::to_string(one.place_bytes) +
                                              " bytes; use at least " + std::to_string(one.budget_bytes) + " bytes");
  }
}

TEST(TierOpening, ReadsTheHeaderOfAShortTable) {
  for (const std::size_t size : {0U, 1U, 100U, 4095U, 4096U, 4097U, 8191U}) {
    const auto disk = std::make_shared<MemoryDisk>();
    disk->table.resize(size);
    MemoryFiles files(disk);
    const auto header = read_tier_header(files);
    ASSERT_TRUE(header) << size;
    EXPECT_FALSE(header->has_value()) << size;
  }
  const auto disk = std::make_shared<MemoryDisk>();
  disk->table.resize(8192);
  encode_header({.place_bytes = 4096, .fingerprint = tier_fingerprint(), .identity = {}, .incarnation = 6},
                std::span(disk->table).first(4096));
  encode_header({.place_bytes = 4096, .fingerprint = tier_fingerprint(), .identity = {}, .incarnation = 5},
                std::span(disk->table).last(4096));
  MemoryFiles files(disk);
  EXPECT_EQ(read_tier_header(files).value()->incarnation, 6U);
  // One page of another version is no problem while the other one is valid.
  disk->table[4096 + 16] = std::byte{9};
  EXPECT_EQ(read_tier_header(files).value()->incarnation, 6U);
  disk->table[50] ^= std::byte{1};
  EXPECT_EQ(read_tier_header(files).error().code, ErrorCode::unsupported) << "a damaged page and another version";
  disk->table[4096] = std::byte{9};
  EXPECT_EQ(read_tier_header(files).error().code, ErrorCode::corrupt) << "a damaged page and foreign bytes";
  std::ranges::fill(std::span(disk->table).last(4096), std::byte{0});
  EXPECT_FALSE(read_tier_header(files).value().has_value()) << "a damaged page only: the tier begins empty";
  disk->refuses_reads = true;
  EXPECT_EQ(read_tier_header(files).error().to_string(), "kv_disk: the disk failed");
}

}  // namespace
}  // namespace quire::test
