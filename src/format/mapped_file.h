#pragma once
// A read-only memory map of a file.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "quire/base/error.h"

namespace quire {

// Owns the map; bytes() keeps its address when the object is moved. Immutable, hence thread-safe.
//
// The size is the file's size at open. A file that shrinks afterwards makes the operating system stop the program on the first touch
// past its new end; who reads much of a file that others may replace uses read(), and asks check_unchanged() in the end.
class MappedFile {
 public:
  // Errors: `not_found`, `io` (not readable, not a regular file). An empty file maps to an empty span.
  static Result<MappedFile> open(const std::string& path);

  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] bool contains(std::span<const std::byte> part) const;

  // Copies a part of bytes() out of the file, not through the map. `io` where the file no longer reaches.
  [[nodiscard]] Result<void> read(std::span<const std::byte> part, std::span<std::byte> out) const;

  // Which file it is and when it was last changed, as the file system knows it: another text after any write.
  [[nodiscard]] std::string identity() const;

  // `io` if the file has been truncated or rewritten since it was opened.
  [[nodiscard]] Result<void> check_unchanged() const;

 private:
  MappedFile() = default;
  void release() noexcept;

  std::string path_;
  std::span<const std::byte> bytes_;
  int descriptor_ = -1;
  std::int64_t modified_ns_ = 0;
};

// A whole small file as text. Errors: `not_found`, `io`, `too_large` (over max_bytes).
Result<std::string> read_text_file(const std::string& path, std::uint64_t max_bytes);

}  // namespace quire
