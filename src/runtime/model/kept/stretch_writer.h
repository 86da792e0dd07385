#pragma once
// Writes a file that several threads append to in pieces of any size: in whole stretches of 2 MiB, each at once, so that the system's cache
// has them as huge pages where the file system can, and who maps the file reads through these.
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "quire/base/error.h"

namespace quire {

class OwnedFile;

class StretchWriter {
 public:
  // The file's first bytes are somebody else's. All pieces lie at multiples of `alignment`, which divides 2 MiB, and leave no gaps but
  // those up to the next one.
  StretchWriter(const OwnedFile& file, std::uint64_t first, std::uint64_t alignment) : file_(file), first_(first), alignment_(alignment) {}

  // Any thread. What does not fill a stretch is kept until others do. Errors: `io`.
  Result<void> write(std::span<const std::byte> bytes, std::uint64_t offset);
  // What is left.
  Result<void> finish();

 private:
  struct Stretch {
    std::vector<std::byte> bytes;
    std::uint64_t filled = 0, end = 0;  // with what lies between pieces; of the last piece
  };

  const OwnedFile& file_;
  std::uint64_t first_, alignment_;
  std::mutex mutex_;
  std::map<std::uint64_t, Stretch> open_;  // by number
};

}  // namespace quire
