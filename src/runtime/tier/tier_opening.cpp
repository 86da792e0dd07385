// Checks a tier's folder and sets the sizes of its files. Called once, by the thread that opens a store. A folder of another model, layout
// or version is refused before anything in it is changed. The header is written alternately to two pages and synchronised, so that one
// valid page is left after a loss of power.
#include "runtime/tier/tier_opening.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <random>

#include "runtime/tier/disk_store.h"

namespace quire {
namespace {

// Maximum number of slots of a ledger (OffloadOptions::num_slots).
constexpr std::uint64_t kMostPlaces = std::uint64_t{1} << 28U;

std::uint64_t table_size(std::uint64_t num_places) {
  return padded_to_page(entry_offset(num_places));
}

// Returns the bytes that the file system may need for extent maps, the folder and the lock file. Preallocated space that is written in any
// order is split into extents: at worst two for each block and each page of the table. ext4 keeps at least 170 extents in a page.
std::uint64_t map_bytes(std::uint64_t num_places, std::uint64_t place_bytes) {
  const std::uint64_t pieces =
      2 * (num_places + table_size(num_places) / kTierPageBytes) + num_places * place_bytes / (std::uint64_t{64} << 20U);
  return (pieces / 170 + 1) * kTierPageBytes + 8 * kTierPageBytes;
}

std::uint64_t folder_size(std::uint64_t num_places, std::uint64_t place_bytes) {
  return num_places * place_bytes + table_size(num_places) + map_bytes(num_places, place_bytes);
}

TierHeader new_header(const TierShape& shape) {
  TierHeader header{.place_bytes = shape.place_bytes, .fingerprint = shape.fingerprint, .identity = {}, .incarnation = 0};
  std::random_device random;
  std::ranges::generate(header.identity, [&] { return static_cast<std::uint8_t>(random()); });
  return header;
}

Result<void> resize_files(TierFiles& files, std::uint32_t num_places, const TierShape& shape, bool is_new) {
  Result<void> sized = is_new ? files.resize(TierFile::table, 0) : Result<void>{};
  if (sized) sized = files.resize(TierFile::blocks, num_places * shape.place_bytes);
  if (sized) sized = files.resize(TierFile::table, table_size(num_places));
  if (sized) {
    const Result<std::uint64_t> taken = files.disk_bytes();
    if (!taken) return std::unexpected(taken.error());
    if (*taken > shape.budget_bytes)
      sized =
          fail(ErrorCode::too_large, "kv_disk_budget",
               fmt::format("the file system uses {} bytes for {} bytes in {} slots", *taken, num_places * shape.place_bytes, num_places),
               "use a folder on another file system");
  }
  if (!sized && is_new)
    for (const TierFile file : {TierFile::blocks, TierFile::table}) static_cast<void>(files.resize(file, 0));
  return sized;
}

}  // namespace

Result<std::optional<TierHeader>> read_tier_header(TierFiles& files) {
  const Result<std::uint64_t> size = files.table_bytes();
  if (!size) return std::unexpected(size.error());
  std::optional<TierHeader> newest;
  HeaderState worst = HeaderState::blank;
  for (std::uint64_t begin = 0; begin < std::min(*size, 2 * kTierPageBytes); begin += kTierPageBytes) {
    std::array<std::byte, kTierPageBytes> page{};
    const std::span<std::byte> there = std::span(page).first(std::min(kTierPageBytes, *size - begin));
    if (Result<void> read = files.read_table(begin, there); !read) return std::unexpected(read.error());
    TierHeader header;
    const HeaderState state = decode_header(page, header);
    worst = std::max(worst, state);
    if (state == HeaderState::good && (!newest || newest->incarnation < header.incarnation)) newest = header;
  }
  if (newest || worst <= HeaderState::damaged) return newest;
  if (worst == HeaderState::foreign)
    return fail(ErrorCode::corrupt, "kv_disk", "quire-table in the folder is not the table of a disk tier",
                "use another folder, or remove the file");
  return fail(ErrorCode::unsupported, "kv_disk",
              "the folder contains a tier of another version of quire, or a tier with another checksum algorithm",
              "use another folder, or remove its quire-* files");
}

// folder_size() grows with the number of slots, so a binary search finds the largest number of slots that fits.
std::uint32_t num_slots_within(std::uint64_t budget_bytes, std::uint64_t place_bytes) {
  std::uint64_t low = 0;
  std::uint64_t high = std::min(kMostPlaces, budget_bytes / place_bytes) + 1;
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    (folder_size(middle, place_bytes) <= budget_bytes ? low : high) = middle;
  }
  return static_cast<std::uint32_t>(low);
}

Result<OpenedTier> open_tier(TierFiles& files, const TierShape& shape) {
  OpenedTier tier{.header = {}, .num_places = num_slots_within(shape.budget_bytes, shape.place_bytes)};
  if (tier.num_places == 0)
    return fail(ErrorCode::invalid_argument, "kv_disk_budget",
                fmt::format("{} bytes are too small for one block of {} bytes", shape.budget_bytes, shape.place_bytes),
                fmt::format("use at least {} bytes", folder_size(1, shape.place_bytes)));
  const Result<std::optional<TierHeader>> found = read_tier_header(files);
  if (!found) return std::unexpected(found.error());
  const bool is_new = !found->has_value();
  tier.header = found->value_or(new_header(shape));
  if (tier.header.fingerprint != shape.fingerprint || tier.header.place_bytes != shape.place_bytes)
    return fail(ErrorCode::invalid_argument, "kv_disk", "the folder contains blocks of another model or another layout",
                "use a separate folder for each model, or remove its quire-* files");
  if (Result<void> sized = resize_files(files, tier.num_places, shape, is_new); !sized) return std::unexpected(sized.error());
  ++tier.header.incarnation;
  std::array<std::byte, kTierPageBytes> page;
  encode_header(tier.header, page);
  Result<void> written;
  // A new tier gets both pages, so that no single damaged page prevents the next start.
  if (is_new) written = files.write_table((tier.header.incarnation + 1) % 2 * kTierPageBytes, page);
  if (written) written = files.write_table(tier.header.incarnation % 2 * kTierPageBytes, page);
  if (written) written = files.sync_table();
  if (!written) return std::unexpected(written.error());
  return tier;
}

}  // namespace quire
