#pragma once
// Reads a text file line by line with bounded memory.
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

  // Reads the next non-empty line without its line end; line() is a view of it until the next call. Returns false at the end of the file.
  // Errors: the errors of the byte source, and a line of more than 64 MiB.
  Result<bool> next();
  [[nodiscard]] std::string_view line() const { return line_; }
  [[nodiscard]] const std::string& path() const { return path_; }

  // Returns an error that names the current line.
  [[nodiscard]] Error error(std::string_view what, std::string_view remedy) const;

 private:
  LineReader(std::unique_ptr<ByteSource> bytes, std::string path) : bytes_(std::move(bytes)), path_(std::move(path)) {}

  std::unique_ptr<ByteSource> bytes_;
  std::string path_, buffer_;
  std::string_view line_;
  std::size_t begin_ = 0;  // start of the unread part of `buffer_`
  bool ended_ = false;
  std::uint64_t number_ = 0;
};

}  // namespace quire
