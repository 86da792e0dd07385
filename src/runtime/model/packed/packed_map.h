#pragma once
// A file of packed matrices, mapped into memory. All processes that map the file share its pages in the page cache.
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "quire/base/error.h"

namespace quire {

class OwnedFile;

// Read-only; stays valid after the file is removed. If the file is truncated, an access to the missing part ends the program. If the file
// is written to, the map shows the new bytes.
class PackedMap {
 public:
  // Maps the first `size` bytes of the file, which must exist, at an address where huge pages are possible. Errors: `io`.
  static Result<std::shared_ptr<const PackedMap>> make(std::shared_ptr<const OwnedFile> file, std::uint64_t size);
  PackedMap(std::shared_ptr<const OwnedFile> file, std::span<const std::uint8_t> bytes) : file_(std::move(file)), bytes_(bytes) {}
  ~PackedMap();
  PackedMap(const PackedMap&) = delete;
  PackedMap& operator=(const PackedMap&) = delete;

  [[nodiscard]] std::span<const std::uint8_t> bytes() const { return bytes_; }
  // Returns whether nearly all resident pages of the map are huge. With small pages, products wait for page table lookups.
  [[nodiscard]] bool is_in_huge_pages() const;
  // Drops the file's pages, so that the next access reads the file again into huge pages. Pages that other processes use are kept. Returns
  // false if the system has no huge pages for the file.
  [[nodiscard]] bool reread() const;
  // Locks the pages in memory if the process has the permission. Otherwise the system may drop pages and read them again.
  void lock() const;

 private:
  std::shared_ptr<const OwnedFile> file_;  // stays open, so that packed_folder.cpp treats the file as in use
  std::span<const std::uint8_t> bytes_;
};

}  // namespace quire
