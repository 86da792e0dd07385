// Maps a file of packed matrices. Called when the weights of a file are shared between processes.
#include "runtime/model/packed/packed_map.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "runtime/model/packed/packed_file.h"

namespace quire {
namespace {

constexpr std::uintptr_t kHugePageBytes = std::uintptr_t{2} << 20;
constexpr std::uint64_t kFewBytes = std::uint64_t{8} << 20U;  // up to this size, page tables stay in the CPU's caches

// Number of resident bytes of a map, and how many of them are in huge pages.
struct Resident {
  std::uint64_t all = 0, huge = 0;
};

std::uint64_t parse_size_field(std::string_view line, std::string_view key) {
  if (!line.starts_with(key)) return 0;
  line.remove_prefix(std::min(line.find_first_not_of(' ', key.size()), line.size()));
  std::uint64_t kib = 0;
  std::from_chars(line.data(), line.data() + line.size(), kib);
  return kib << 10U;
}

// Sums the sizes that /proc/self/smaps lists for the parts of the map.
Resident resident_of(std::span<const std::uint8_t> map) {
  const auto begin = reinterpret_cast<std::uintptr_t>(map.data());
  std::ifstream file("/proc/self/smaps");
  Resident sum;
  bool is_inside = false;
  for (std::string line; std::getline(file, line);) {
    std::uintptr_t from = 0;
    const auto read = std::from_chars(line.data(), line.data() + line.size(), from, 16);
    if (read.ec == std::errc() && *read.ptr == '-') is_inside = from >= begin && from < begin + map.size();
    if (!is_inside) continue;
    sum.all += parse_size_field(line, "Rss:");
    sum.huge += parse_size_field(line, "FilePmdMapped:") + parse_size_field(line, "ShmemPmdMapped:");
  }
  return sum;
}

}  // namespace

Result<std::shared_ptr<const PackedMap>> PackedMap::make(std::shared_ptr<const OwnedFile> file, std::uint64_t size) {
  const auto failed = [&] {
    return fail(ErrorCode::io, file->path(), "cannot be mapped: " + std::generic_category().message(errno),
                "raise the limit of address space (ulimit -v); until then each server has its own copy of the weights");
  };
  // Reserves more address space than needed, so that the mapping can begin at a multiple of the huge page size.
  const std::size_t taken = size + kHugePageBytes;
  void* const reserved = ::mmap(nullptr, taken, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return failed();
  auto* const first = static_cast<std::uint8_t*>(reserved);
  const std::size_t skipped = (kHugePageBytes - reinterpret_cast<std::uintptr_t>(first) % kHugePageBytes) % kHugePageBytes;
  std::uint8_t* const begin = first + skipped;
  if (::mmap(begin, size, PROT_READ, MAP_SHARED | MAP_FIXED, file->descriptor(), 0) == MAP_FAILED) {
    const auto error = failed();
    ::munmap(first, taken);
    return error;
  }
  if (skipped > 0) ::munmap(first, skipped);
  const std::size_t used = (size + 4095) / 4096 * 4096;
  if (const std::size_t rest = taken - skipped - used; rest > 0) ::munmap(begin + used, rest);
  // From here on, the system reads the file into huge pages, if the file system supports them.
  ::madvise(begin, size, MADV_HUGEPAGE);
  return std::make_shared<const PackedMap>(std::move(file), std::span<const std::uint8_t>(begin, size));
}

PackedMap::~PackedMap() {
  ::munmap(const_cast<std::uint8_t*>(bytes_.data()), bytes_.size());
}

bool PackedMap::is_in_huge_pages() const {
  const Resident resident = resident_of(bytes_);
  return resident.all > 0 && resident.all - std::min(resident.all, resident.huge) <= std::max(kFewBytes, resident.all / 32);
}

bool PackedMap::reread() const {
  if (bytes_.size() < 3 * kHugePageBytes) return false;
  // Drops all pages of the map. Then drops one huge page of the page cache, to test whether the system reads it again as a huge page.
  ::madvise(const_cast<std::uint8_t*>(bytes_.data()), bytes_.size(), MADV_DONTNEED);
  ::posix_fadvise(file_->descriptor(), kHugePageBytes, kHugePageBytes, POSIX_FADV_DONTNEED);
  static_cast<void>(*static_cast<const volatile std::uint8_t*>(bytes_.data() + kHugePageBytes));
  if (resident_of(bytes_).huge < kHugePageBytes) return false;
  ::posix_fadvise(file_->descriptor(), 0, 0, POSIX_FADV_DONTNEED);
  return true;
}

void PackedMap::lock() const {
  ::mlock(bytes_.data(), bytes_.size());
}

}  // namespace quire
