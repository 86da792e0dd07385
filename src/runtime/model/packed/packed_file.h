#pragma once
// A file of packed matrices: a model is packed once, and later starts read the file.
//
// The file has a header, the matrices, each at a multiple of 4,096 bytes, and a table with each matrix's shape, position and checksum. The
// header is written last, so an unfinished file has no header. Checksums detect accidental damage only: a user with write access to the
// file can change the served weights.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "quire/base/error.h"
#include "runtime/model/packed/packed_table.h"

namespace quire {

class PackedMap;
class ChunkWriter;

// An open file descriptor and the path with which it was opened.
class OwnedFile {
 public:
  OwnedFile(int descriptor, std::string path) : descriptor_(descriptor), path_(std::move(path)) {}
  ~OwnedFile();
  OwnedFile(const OwnedFile&) = delete;
  OwnedFile& operator=(const OwnedFile&) = delete;

  [[nodiscard]] int descriptor() const { return descriptor_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] Result<void> read(std::span<std::byte> out, std::uint64_t offset) const;
  [[nodiscard]] Result<void> write(std::span<const std::byte> bytes, std::uint64_t offset) const;

 private:
  int descriptor_;
  std::string path_;
};

// Any thread may read. The file stays readable after it is unlinked or renamed. While the object exists, the folder treats the file as in
// use.
class PackedFile {
 public:
  // Opens the file with key `key`, which identifies a model and how it was packed. Errors: `not_found`; `io`; `corrupt` if the file is
  // truncated or damaged, has another key or version, or belongs to another user.
  static Result<PackedFile> open(const std::string& path, const Sha256Digest& key);

  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(entries_->size()); }
  [[nodiscard]] const PackedEntry& entry(std::uint32_t number) const { return (*entries_)[number]; }
  // Reads a matrix. Reuses the matrix's storage if it is large enough. Errors: `io`; `corrupt` if the bytes do not match their checksum.
  [[nodiscard]] Result<void> read(std::uint32_t number, PackedMatrix& matrix) const;
  // Maps the file into memory. Must be called once, before view(). Errors: `io`.
  Result<void> map();
  // Makes the matrix refer to its bytes in the map, which stays mapped. Returns `corrupt` if the bytes do not match their checksum; this is
  // checked only here.
  [[nodiscard]] Result<void> view(std::uint32_t number, PackedMatrix& matrix) const;
  // Same contract as the functions of PackedMap. After reread(), matrices must be viewed, and so checked, again.
  [[nodiscard]] bool is_in_huge_pages() const;
  [[nodiscard]] bool reread() const;
  void lock() const;
  // Asks the system to read ahead the matrix.
  void fetch_ahead(std::uint32_t number) const;

 private:
  friend class PackedFileWriter;
  PackedFile(std::shared_ptr<const OwnedFile> file, std::shared_ptr<const std::vector<PackedEntry>> entries)
      : file_(std::move(file)), entries_(std::move(entries)) {}

  std::shared_ptr<const OwnedFile> file_;
  std::shared_ptr<const std::vector<PackedEntry>> entries_;
  std::shared_ptr<const PackedMap> map_;
};

// Writes a temporary file next to the final one. The temporary file is removed if finish() is not called.
class PackedFileWriter {
 public:
  // Creates the writer, whose file is at most max_bytes large. Errors: `io`.
  static Result<std::unique_ptr<PackedFileWriter>> create(const std::string& path, const Sha256Digest& key, std::uint32_t num_matrices,
                                                          std::uint64_t max_bytes);
  ~PackedFileWriter();
  PackedFileWriter(const PackedFileWriter&) = delete;
  PackedFileWriter& operator=(const PackedFileWriter&) = delete;

  // Writes a matrix. Each number must be written once; the order and the thread do not matter. Errors: `io`, also if the disk is full;
  // `too_large` if the file would exceed max_bytes.
  Result<void> write(std::uint32_t number, const PackedMatrix& matrix);
  // Completes the file after all matrices were written, and opens it by its final name. If another process has completed the same file
  // first, opens that file. Replaces a damaged file of this name.
  Result<PackedFile> finish();

 private:
  PackedFileWriter(std::shared_ptr<const OwnedFile> file, std::string path, const Sha256Digest& key, std::uint32_t num_matrices,
                   std::uint64_t max_bytes);
  Result<std::uint64_t> take(std::uint64_t bytes);
  Result<PackedFile> publish();

  std::shared_ptr<const OwnedFile> file_;  // still has its temporary name
  std::string path_;
  Sha256Digest key_;
  std::vector<PackedEntry> entries_;
  std::uint64_t max_bytes_;
  std::atomic<std::uint64_t> end_;
  std::unique_ptr<ChunkWriter> chunks_;
  bool is_finished_ = false;
};

}  // namespace quire
