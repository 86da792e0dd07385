#pragma once
// A download in progress: a file that grows to its full size, is compared with its digest, and is then renamed. A later process continues
// the file where an earlier one stopped.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "quire/base/error.h"

struct evp_md_ctx_st;

namespace quire {

// Computes the digest by which the hub names a file: SHA-256, or the SHA-1 of git's blob ("blob SIZE\0" and the bytes).
class FileDigest {
 public:
  enum class Kind : std::uint8_t { sha256, git_sha1 };
  // `size` is the size of the whole file.
  FileDigest(Kind kind, std::uint64_t size);
  ~FileDigest();
  FileDigest(const FileDigest&) = delete;
  FileDigest& operator=(const FileDigest&) = delete;

  void restart();
  void update(std::span<const std::byte> bytes);
  // Returns the digest in lower-case hexadecimal. Call restart() before the next use.
  [[nodiscard]] std::string finish();

 private:
  const Kind kind_;
  const std::uint64_t size_;
  evp_md_ctx_st* context_;
};

// Used by one thread, which holds the lock of the download.
class PartialFile {
 public:
  // Opens or creates the file, and reads the bytes that an earlier download left. Error: `io`.
  static Result<PartialFile> open(std::filesystem::path path);
  PartialFile(PartialFile&& other) noexcept;
  PartialFile& operator=(PartialFile&&) = delete;
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;
  ~PartialFile();

  [[nodiscard]] std::uint64_t size() const { return size_; }
  // Passes the bytes of the file to `digest`. Error: `io`.
  Result<void> digest_into(FileDigest& digest) const;
  // Appends the bytes. Error: `io`; a full disk is named as such.
  Result<void> append(std::span<const std::byte> bytes);
  Result<void> truncate();
  // Gives the complete file its name. The file is on the disk before it has the name. Error: `io`.
  Result<void> rename_to(const std::filesystem::path& path);
  void remove();

 private:
  PartialFile(std::filesystem::path path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  [[nodiscard]] std::unexpected<Error> failed(int error) const;

  std::filesystem::path path_;
  int descriptor_;
  std::uint64_t size_ = 0;
};

// Holds an exclusive lock on a file, which huggingface_hub locks too (flock), until it is destroyed.
class FileLock {
 public:
  // Creates the file and its folders. Waits for other holders; before that calls `on_wait`. Error: `io`.
  template <class OnWait>
  static Result<FileLock> acquire(const std::filesystem::path& path, OnWait on_wait) {
    auto lock = open(path);
    if (!lock || lock->try_lock()) return lock;
    on_wait();
    if (auto locked = lock->wait(path); !locked) return std::unexpected(std::move(locked.error()));
    return lock;
  }
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&&) = delete;
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock();

 private:
  explicit FileLock(int descriptor) : descriptor_(descriptor) {}
  static Result<FileLock> open(const std::filesystem::path& path);
  [[nodiscard]] bool try_lock() const;
  [[nodiscard]] Result<void> wait(const std::filesystem::path& path) const;

  int descriptor_;
};

}  // namespace quire
