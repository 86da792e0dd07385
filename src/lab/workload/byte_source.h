#pragma once
// Reads the bytes of a file that may be gzip-compressed. A build without zlib rejects compressed files.
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "quire/base/error.h"

namespace quire {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Reads bytes and returns their number; 0 at the end. Error: `corrupt`, if a compressed file is truncated or damaged.
  virtual Result<std::size_t> read(std::span<char> into) = 0;
};

// Opens a file. Errors: `not_found`; `unsupported`, for a compressed file in a build without zlib.
Result<std::unique_ptr<ByteSource>> open_bytes(const std::string& path);

}  // namespace quire
