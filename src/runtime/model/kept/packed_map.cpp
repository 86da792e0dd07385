// Called when a file of packed matrices is opened to be shared.
#include "runtime/model/kept/packed_map.h"

#include <sys/mman.h>

#include <cerrno>
#include <system_error>

#include "runtime/model/kept/packed_file.h"

namespace quire {
namespace {

constexpr std::uintptr_t kHugePageBytes = std::uintptr_t{2} << 20;

}  // namespace

Result<std::shared_ptr<const PackedMap>> PackedMap::make(const OwnedFile& file, std::uint64_t size) {
  const auto failed = [&] { return fail(ErrorCode::io, file.path(), "cannot be mapped: " + std::generic_category().message(errno)); };
  // More than is wanted, for what of it begins with a huge page.
  const std::size_t taken = size + kHugePageBytes;
  void* const reserved = ::mmap(nullptr, taken, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return failed();
  auto* const first = static_cast<std::uint8_t*>(reserved);
  const std::size_t skipped = (kHugePageBytes - reinterpret_cast<std::uintptr_t>(first) % kHugePageBytes) % kHugePageBytes;
  std::uint8_t* const begin = first + skipped;
  if (::mmap(begin, size, PROT_READ, MAP_SHARED | MAP_FIXED, file.descriptor(), 0) == MAP_FAILED) {
    const auto error = failed();
    ::munmap(first, taken);
    return error;
  }
  if (skipped > 0) ::munmap(first, skipped);
  const std::size_t used = (size + 4095) / 4096 * 4096;
  if (const std::size_t rest = taken - skipped - used; rest > 0) ::munmap(begin + used, rest);
  // What is read from the disk from now on comes in huge pages, where the file system has such.
  ::madvise(begin, size, MADV_HUGEPAGE);
  return std::make_shared<const PackedMap>(begin, size);
}

PackedMap::~PackedMap() {
  ::munmap(const_cast<std::uint8_t*>(bytes_.data()), bytes_.size());
}

void PackedMap::lock() const {
  ::mlock(bytes_.data(), bytes_.size());
}

}  // namespace quire
