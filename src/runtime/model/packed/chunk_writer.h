#pragma once
// Writes a file to which several threads append pieces of any size. Each chunk of 2 MiB is written by one call, so that the page cache can
// store it as a huge page. Processes that map the file then read through huge pages.
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "quire/base/error.h"

namespace quire {

class OwnedFile;

class ChunkWriter {
 public:
  // The caller writes the first `first` bytes of the file. Each piece begins at the first multiple of `alignment` after the previous piece.
  // `alignment` divides 2 MiB.
  ChunkWriter(const OwnedFile& file, std::uint64_t first, std::uint64_t alignment) : file_(file), first_(first), alignment_(alignment) {}

  // Writes a piece. May be called on any thread. A chunk stays in memory until it is full. Errors: `io`.
  Result<void> write(std::span<const std::byte> bytes, std::uint64_t offset);
  // Writes the chunks that are not full.
  Result<void> finish();

 private:
  struct Chunk {
    std::vector<std::byte> bytes;
    std::uint64_t filled = 0, end = 0;  // filled: bytes with the gaps between pieces; end: of the last piece
  };

  const OwnedFile& file_;
  std::uint64_t first_, alignment_;
  std::mutex mutex_;
  std::map<std::uint64_t, Chunk> open_;  // by number of the chunk
};

}  // namespace quire
