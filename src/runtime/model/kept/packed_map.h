#pragma once
// A file of packed matrices as memory: the system's own pages of it, which all processes that map the file share.
#include <cstdint>
#include <memory>
#include <span>

#include "quire/error.h"

namespace quire {

class OwnedFile;

// Read-only, and there until it is destroyed, also when the file loses its name. Whoever cuts the file meanwhile makes the system stop the
// program on the next touch of what is gone, and whoever writes to it changes what is read.
class PackedMap {
 public:
  // The first `size` bytes, which the file has. At an address where pages of the file can be huge ones. Errors: `io`.
  static Result<std::shared_ptr<const PackedMap>> make(const OwnedFile& file, std::uint64_t size);
  PackedMap(const std::uint8_t* data, std::size_t size) : bytes_(data, size) {}
  ~PackedMap();
  PackedMap(const PackedMap&) = delete;
  PackedMap& operator=(const PackedMap&) = delete;

  [[nodiscard]] std::span<const std::uint8_t> bytes() const { return bytes_; }
  // The system keeps the pages where they are, if this process may ask for that; else it may drop some and read them again.
  void lock() const;

 private:
  std::span<const std::uint8_t> bytes_;
};

}  // namespace quire
