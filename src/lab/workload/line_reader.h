#pragma once
// A text file, line by line, in bounded memory.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "lab/workload/byte_source.h"
#include "quire/base/error.h"

namespace quire {

class LineReader {
 public:
  static Result<LineReader> open(const std::string& path);

  // The next line that is not empty, without its end; a view, valid until the next call. False: there is none. Errors: those of the bytes,
  // and a line of more than 64 MiB.
  Result<bool> next();
  [[nodiscard]] std::string_view line() const { return line_; }
  [[nodiscard]] const std::string& path() const { return path_; }

  // An error about this line.
  [[nodiscard]] Error error(std::string_view what, std::string_view remedy) const;

 private:
  LineReader(std::unique_ptr<ByteSource> bytes, std::string path) : bytes_(std::move(bytes)), path_(std::move(path)) {}

  std::unique_ptr<ByteSource> bytes_;
  std::string path_, buffer_;
  std::string_view line_;
  std::size_t begin_ = 0;  // of what was not given yet
  bool ended_ = false;
  std::uint64_t number_ = 0;
};

}  // namespace quire
