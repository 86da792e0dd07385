#pragma once
// A file of packed matrices, mapped into memory. All processes that map the file share the system's pages of it.
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "quire/base/error.h"

namespace quire {

class OwnedFile;

// Read-only, and valid until it is destroyed, even after the file is removed. If the file is truncated meanwhile, the system ends the
// program when it touches the missing part. If the file is written to, the map shows the new bytes.
class PackedMap {
 public:
  // Maps the first `size` bytes, which the file must have, at an address where pages of the file can be huge. Errors: `io`.
  static Result<std::shared_ptr<const PackedMap>> make(std::shared_ptr<const OwnedFile> file, std::uint64_t size);
  PackedMap(std::shared_ptr<const OwnedFile> file, std::span<const std::uint8_t> bytes) : file_(std::move(file)), bytes_(bytes) {}
  ~PackedMap();
  PackedMap(const PackedMap&) = delete;
  PackedMap& operator=(const PackedMap&) = delete;

  [[nodiscard]] std::span<const std::uint8_t> bytes() const { return bytes_; }
  // Returns whether nearly all resident pages of the map are huge. With small pages, products wait for page table lookups.
  [[nodiscard]] bool is_in_huge_pages() const;
  // Makes the next touch read from the disk again, in huge pages, except for pages that other processes use. Returns false if the system
  // has no huge pages for the file.
  [[nodiscard]] bool reread() const;
  // Locks the pages in memory if this process may do that. Otherwise the system may drop pages and read them again.
  void lock() const;

 private:
  std::shared_ptr<const OwnedFile> file_;  // open, and therefore in use (packed_folder.cpp)
  std::span<const std::uint8_t> bytes_;
};

}  // namespace quire
