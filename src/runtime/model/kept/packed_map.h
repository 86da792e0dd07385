#pragma once
// A file of packed matrices as memory: the system's own pages of it, which all processes that map the file share.
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "quire/base/error.h"

namespace quire {

class OwnedFile;

// Read-only, and there until it is destroyed, also when the file loses its name. Whoever cuts the file meanwhile makes the system stop the
// program on the next touch of what is gone, and whoever writes to it changes what is read.
class PackedMap {
 public:
  // The first `size` bytes, which the file has. At an address where pages of the file can be huge ones. Errors: `io`.
  static Result<std::shared_ptr<const PackedMap>> make(std::shared_ptr<const OwnedFile> file, std::uint64_t size);
  PackedMap(std::shared_ptr<const OwnedFile> file, std::span<const std::uint8_t> bytes) : file_(std::move(file)), bytes_(bytes) {}
  ~PackedMap();
  PackedMap(const PackedMap&) = delete;
  PackedMap& operator=(const PackedMap&) = delete;

  [[nodiscard]] std::span<const std::uint8_t> bytes() const { return bytes_; }
  // Whether what was touched of it lies in huge pages, but for a small part: with others products wait for the tables that say where they
  // lie.
  [[nodiscard]] bool is_in_huge_pages() const;
  // What nobody else uses is read from the disk anew at the next touch, if the system has huge pages for it then. False: it has none.
  [[nodiscard]] bool read_anew() const;
  // The system keeps the pages where they are, if this process may ask for that; else it may drop some and read them again.
  void lock() const;

 private:
  std::shared_ptr<const OwnedFile> file_;  // open, and so in use (packed_folder.cpp)
  std::span<const std::uint8_t> bytes_;
};

}  // namespace quire
