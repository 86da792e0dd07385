#pragma once
// The bytes of a file, packed with gzip or not. In a build without zlib packed ones are refused.
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "quire/base/error.h"

namespace quire {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // How many bytes were read; 0: the end. Errors: `corrupt`, a packed file that is cut or damaged.
  virtual Result<std::size_t> read(std::span<char> into) = 0;
};

// Errors: `not_found`; `unsupported`, a packed file.
Result<std::unique_ptr<ByteSource>> open_bytes(const std::string& path);

}  // namespace quire
