// Implements `quire cache` (list, verify, drop) for the folder of a disk tier. Used by one thread. The folder stays locked while the object
// exists, so no server uses it at the same time. Only drop() changes the folder. A block is good if its bytes match the checksum for its
// key.
#include "quire/cache_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <new>
#include <numeric>

#include "runtime/tier/tier_files.h"
#include "runtime/tier/tier_opening.h"
#include "runtime/tier/tier_table.h"

namespace quire {
namespace {

constexpr const char* kFolder = "folder";
// Number of concurrent reads, enough to keep a disk busy; each read needs memory for one block.
constexpr std::uint32_t kReadsAtATime = 8;
constexpr std::uint64_t kEntriesAtATime = 4096;

struct AlignedDelete {
  void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t{kTierPageBytes}); }
};

// Replaces the field kv_disk in errors of the folder's files, because `quire cache` has no option --kv-disk.
Error with_folder_field(Error error) {
  if (error.field.starts_with("kv_disk")) error.field = kFolder;
  return error;
}

class OpenCacheFolder final : public CacheFolder {
 public:
  OpenCacheFolder(std::string path, std::unique_ptr<TierFiles> files, const TierHeader& header)
      : path_(std::move(path)), files_(std::move(files)), header_(header) {
    info_.fingerprint = fmt::format("{:02x}", fmt::join(header.fingerprint, ""));
    info_.num_openings = header.incarnation;
    info_.place_bytes = header.place_bytes;
  }
  Result<void> read_table();

  [[nodiscard]] const CacheFolderInfo& info() const override { return info_; }
  [[nodiscard]] const std::vector<CachedBlock>& blocks() const override { return blocks_; }
  Result<void> verify(const std::function<void(double)>& progress, std::vector<CachedBlock>& bad) override;
  Result<void> drop() override;

 private:
  const std::string path_;
  const std::unique_ptr<TierFiles> files_;
  const TierHeader header_;
  CacheFolderInfo info_;
  std::vector<CachedBlock> blocks_;
  std::vector<Checksum> checksums_;  // by slot
};

Result<void> OpenCacheFolder::read_table() {
  const Result<std::uint64_t> disk_bytes = files_->disk_bytes();
  if (!disk_bytes) return std::unexpected(with_folder_field(disk_bytes.error()));
  info_.disk_bytes = *disk_bytes;
  const Result<std::uint64_t> size = files_->table_bytes();
  if (!size) return std::unexpected(with_folder_field(size.error()));
  info_.num_places = (std::max(*size, entry_offset(0)) - entry_offset(0)) / kEntryBytes;
  checksums_.resize(info_.num_places);
  std::vector<std::byte> bytes(kEntriesAtATime * kEntryBytes);
  for (std::uint64_t first = 0; first < info_.num_places; first += kEntriesAtATime) {
    const std::uint64_t count = std::min(kEntriesAtATime, info_.num_places - first);
    const std::span<std::byte> part = std::span(bytes).first(count * kEntryBytes);
    if (Result<void> read = files_->read_table(entry_offset(first), part); !read) return std::unexpected(with_folder_field(read.error()));
    for (std::uint64_t i = 0; i < count; ++i) {
      TierEntry entry;
      const EntryState state = decode_entry(part.subspan(i * kEntryBytes, kEntryBytes), header_, first + i, entry);
      info_.num_damaged_entries += state == EntryState::damaged ? 1 : 0;
      if (state != EntryState::good) continue;
      blocks_.push_back(
          {.name = entry.name, .place = static_cast<std::uint32_t>(first + i), .bytes = entry.bytes, .sequence = entry.sequence});
      checksums_[first + i] = entry.checksum;
      info_.block_bytes += entry.bytes;
    }
  }
  info_.num_blocks = blocks_.size();
  std::ranges::sort(blocks_, {}, &CachedBlock::sequence);
  return {};
}

// Reads the blocks in the order of their slots, so that the disk is read from front to back.
Result<void> OpenCacheFolder::verify(const std::function<void(double)>& progress, std::vector<CachedBlock>& bad) {
  std::vector<CachedBlock> wanted = blocks_;
  std::ranges::sort(wanted, {}, &CachedBlock::place);
  const std::unique_ptr<std::byte[], AlignedDelete> memory(new (std::align_val_t{kTierPageBytes}, std::nothrow)
                                                               std::byte[kReadsAtATime * header_.place_bytes]);
  if (memory == nullptr)
    return fail(ErrorCode::too_large, kFolder,
                fmt::format("cannot allocate memory for {} blocks of {} bytes", kReadsAtATime, header_.place_bytes), "free memory");
  const auto buffer_of = [&](std::uint32_t tag, const CachedBlock& block) {
    return std::span(memory.get() + tag * header_.place_bytes, padded_to_page(block.bytes));
  };
  const std::unique_ptr<BlockQueue> queue = files_->open_queue(kReadsAtATime);
  std::array<CachedBlock, kReadsAtATime> reading;  // by tag
  std::vector<std::uint32_t> idle(kReadsAtATime);
  std::iota(idle.begin(), idle.end(), 0U);
  std::vector<BlockIoCompletion> over;
  for (std::size_t next = 0, num_over = 0; num_over < wanted.size(); num_over += over.size()) {
    for (; next < wanted.size() && !idle.empty(); ++next, idle.pop_back()) {
      reading[idle.back()] = wanted[next];
      queue->submit(
          {.tag = idle.back(), .offset = wanted[next].place * header_.place_bytes, .bytes = buffer_of(idle.back(), wanted[next])});
    }
    over.clear();
    queue->collect(true, over);
    for (const BlockIoCompletion& one : over) {
      const CachedBlock& block = reading[one.tag];
      const bool is_good =
          one.is_done && payload_checksum(header_, block.name, block.bytes, buffer_of(one.tag, block)) == checksums_[block.place];
      if (!is_good) bad.push_back(block);
      idle.push_back(one.tag);
    }
    if (progress) progress(static_cast<double>(num_over + over.size()) / static_cast<double>(wanted.size()));
  }
  std::ranges::sort(bad, {}, &CachedBlock::place);
  return {};
}

Result<void> OpenCacheFolder::drop() {
  for (const char* const name : {"quire-table", "quire-blocks", "quire-lock"}) {
    std::error_code error;
    std::filesystem::remove(std::filesystem::path(path_) / name, error);
    if (error)
      return fail(ErrorCode::io, kFolder, fmt::format("{}/{} cannot be removed: {}", path_, name, error.message()),
                  "use a folder that you own");
  }
  blocks_.clear();
  info_.num_blocks = info_.block_bytes = info_.disk_bytes = info_.num_damaged_entries = 0;
  return {};
}

}  // namespace

Result<std::unique_ptr<CacheFolder>> CacheFolder::open(const std::string& folder) {
  std::error_code error;
  if (!std::filesystem::exists(std::filesystem::path(folder) / "quire-table", error))
    return fail(ErrorCode::not_found, kFolder, fmt::format("'{}' does not contain a disk tier", folder),
                "use the folder of quire serve --kv-disk");
  auto files = open_tier_folder(folder, TierIo::automatic);
  if (!files) return std::unexpected(with_folder_field(std::move(files.error())));
  const auto found = read_tier_header(**files);
  if (!found) return std::unexpected(with_folder_field(found.error()));
  const TierHeader header = found->value_or(TierHeader{});
  if (header.place_bytes == 0 || header.place_bytes != padded_to_page(header.place_bytes) || header.place_bytes > kMaxTierBlockBytes)
    return fail(ErrorCode::corrupt, kFolder,
                fmt::format("the header of '{}' is corrupted: a server would start with an empty tier", folder),
                "remove its quire-* files");
  auto opened = std::make_unique<OpenCacheFolder>(folder, std::move(*files), header);
  if (Result<void> read = opened->read_table(); !read) return std::unexpected(read.error());
  return opened;
}

}  // namespace quire
