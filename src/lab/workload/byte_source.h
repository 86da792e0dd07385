#pragma once
// Reads the bytes of a file, with or without gzip compression. A build without zlib refuses compressed files.
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "quire/base/error.h"

namespace quire {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Returns the number of bytes read; 0 at the end. Errors: `corrupt`, a compressed file that is cut short or damaged.
  virtual Result<std::size_t> read(std::span<char> into) = 0;
};

// Errors: `not_found`; `unsupported`, a compressed file in a build without zlib.
Result<std::unique_ptr<ByteSource>> open_bytes(const std::string& path);

}  // namespace quire
