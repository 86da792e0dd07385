#pragma once
// A file of packed matrices, so that a model is packed once and read as it is afterwards.
//
// A header, the matrices, each at a multiple of 4,096 bytes, and a table that says of each what it is, where it lies and what its checksum
// is. The header comes last: a file that was not finished has none. Whoever can write to the file can make us serve other weights:
// checksums find accidents.
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
#include "runtime/model/kept/packed_table.h"

namespace quire {

class PackedMap;
class StretchWriter;

// An open descriptor and the name that it was opened by.
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

// Any thread may read. Goes on working when the file loses its name; as long as it is open, the folder counts it as in use.
class PackedFile {
 public:
  // Of a model and a way of packing it (`key`). Errors: `not_found`; `io`; `corrupt` where it is cut, damaged, of another key or another
  // version, or belongs to another user.
  static Result<PackedFile> open(const std::string& path, const Sha256Digest& key);

  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(entries_->size()); }
  [[nodiscard]] const PackedEntry& entry(std::uint32_t number) const { return (*entries_)[number]; }
  // All of the matrix. Storage that is large enough is used again. Errors: `io`; `corrupt` where bytes are not those that were written.
  [[nodiscard]] Result<void> read(std::uint32_t number, PackedMatrix& matrix) const;
  // Once, before view(). Errors: `io`.
  Result<void> map();
  // All of the matrix, where it lies in the map, which it keeps: `corrupt` where bytes are not those that were written. They are not looked
  // at again.
  [[nodiscard]] Result<void> view(std::uint32_t number, PackedMatrix& matrix) const;
  // Of the map, as PackedMap has them. What was seen before read_anew() is to be looked at again.
  [[nodiscard]] bool is_in_huge_pages() const;
  [[nodiscard]] bool read_anew() const;
  void lock() const;
  // The system may begin to read it.
  void fetch_ahead(std::uint32_t number) const;

 private:
  friend class PackedFileWriter;
  PackedFile(std::shared_ptr<const OwnedFile> file, std::shared_ptr<const std::vector<PackedEntry>> entries)
      : file_(std::move(file)), entries_(std::move(entries)) {}

  std::shared_ptr<const OwnedFile> file_;
  std::shared_ptr<const std::vector<PackedEntry>> entries_;
  std::shared_ptr<const PackedMap> map_;
};

// Writes beside the name that the file is to have, and leaves nothing behind unless it is finished.
class PackedFileWriter {
 public:
  // It never grows beyond max_bytes. Errors: `io`.
  static Result<std::unique_ptr<PackedFileWriter>> create(const std::string& path, const Sha256Digest& key, std::uint32_t num_matrices,
                                                          std::uint64_t max_bytes);
  ~PackedFileWriter();
  PackedFileWriter(const PackedFileWriter&) = delete;
  PackedFileWriter& operator=(const PackedFileWriter&) = delete;

  // Each number once, in any order; any thread. Errors: `io`, a full disk among them; `too_large` beyond max_bytes.
  Result<void> write(std::uint32_t number, const PackedMatrix& matrix);
  // When all are written: the file of that name, which may be another's who was faster. What is there and not sound gives way.
  Result<PackedFile> finish();

 private:
  PackedFileWriter(std::shared_ptr<const OwnedFile> file, std::string path, const Sha256Digest& key, std::uint32_t num_matrices,
                   std::uint64_t max_bytes);
  Result<std::uint64_t> take(std::uint64_t bytes);
  Result<PackedFile> give_name();

  std::shared_ptr<const OwnedFile> file_;  // its name is not yet the one that it is to have
  std::string path_;
  Sha256Digest key_;
  std::vector<PackedEntry> entries_;
  std::uint64_t max_bytes_;
  std::atomic<std::uint64_t> end_;
  std::unique_ptr<StretchWriter> stretches_;
  bool is_finished_ = false;
};

}  // namespace quire
