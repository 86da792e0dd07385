#pragma once
// A read-only memory map of a file.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "quire/base/error.h"

namespace quire {

// Owns the map; bytes() keeps its address when the object is moved. Immutable, so thread-safe.
//
// The size is the file's size when it was opened. If the file shrinks later, the operating system kills the process on the first access
// past the new end. A caller that reads much of a replaceable file must use read() and then check_unchanged().
class MappedFile {
 public:
  // Errors: `not_found`, `io` (not readable, not a regular file). An empty file gives an empty span.
  static Result<MappedFile> open(const std::string& path);

  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] bool contains(std::span<const std::byte> part) const;

  // Copies `part`, which lies in bytes(), from the file with read calls instead of through the map. Errors: `io` if the file has become too
  // short.
  [[nodiscard]] Result<void> read(std::span<const std::byte> part, std::span<std::byte> out) const;

  // Returns a text that identifies the file and its last modification. The text changes after any write to the file.
  [[nodiscard]] std::string identity() const;

  // Returns error `io` if the file has been truncated or rewritten since it was opened.
  [[nodiscard]] Result<void> check_unchanged() const;

 private:
  MappedFile() = default;
  void release() noexcept;

  std::string path_;
  std::span<const std::byte> bytes_;
  int descriptor_ = -1;
  std::int64_t modified_ns_ = 0;
};

// Reads a whole small file as text. Errors: `not_found`, `io`, `too_large` (over max_bytes).
Result<std::string> read_text_file(const std::string& path, std::uint64_t max_bytes);

}  // namespace quire
