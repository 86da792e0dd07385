#include "hub/partial_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/digest.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kReadBytes = std::size_t{1} << 20;
constexpr mode_t kFileMode = 0666;  // the umask applies

std::string problem_of(int error) {
  return std::generic_category().message(error);
}

}  // namespace

FileDigest::FileDigest(Kind kind, std::uint64_t size) : kind_(kind), size_(size), context_(EVP_MD_CTX_new()) {
  QUIRE_CHECK(context_ != nullptr, "OpenSSL creates a digest context");
  restart();
}

FileDigest::~FileDigest() {
  EVP_MD_CTX_free(context_);
}

void FileDigest::restart() {
  QUIRE_CHECK(EVP_DigestInit_ex(context_, kind_ == Kind::sha256 ? EVP_sha256() : EVP_sha1(), nullptr) == 1, "OpenSSL starts a digest");
  if (kind_ == Kind::sha256) return;
  const std::string header = fmt::format("blob {}", size_);
  EVP_DigestUpdate(context_, header.c_str(), header.size() + 1);  // with the zero byte
}

void FileDigest::update(std::span<const std::byte> bytes) {
  EVP_DigestUpdate(context_, bytes.data(), bytes.size());
}

std::string FileDigest::finish() {
  std::array<std::uint8_t, EVP_MAX_MD_SIZE> bytes{};
  unsigned size = 0;
  EVP_DigestFinal_ex(context_, bytes.data(), &size);
  return to_hex(std::span(bytes).first(size));
}

Result<PartialFile> PartialFile::open(fs::path path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kFileMode);
  if (descriptor < 0)
    return fail(ErrorCode::io, path.string(), fmt::format("cannot be written: {}", problem_of(errno)),
                "check the folder, or set HF_HUB_CACHE");
  PartialFile file(std::move(path), descriptor);
  struct stat info{};
  if (fstat(descriptor, &info) != 0) return file.failed(errno);
  file.size_ = static_cast<std::uint64_t>(info.st_size);
  return file;
}

PartialFile::PartialFile(PartialFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_) {}

PartialFile::~PartialFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

std::unexpected<Error> PartialFile::failed(int error) const {
  const bool is_full = error == ENOSPC || error == EDQUOT;
  return fail(ErrorCode::io, path_.string(), is_full ? std::string("the disk is full") : problem_of(error),
              is_full ? "free space with quire rm, or set HF_HUB_CACHE to another disk; the next run continues the download"
                      : "check the disk; the next run continues the download");
}

Result<void> PartialFile::digest_into(FileDigest& digest) const {
  std::vector<std::byte> buffer(kReadBytes);
  for (std::uint64_t at = 0; at < size_;) {
    const ssize_t count = pread(descriptor_, buffer.data(), buffer.size(), static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return failed(count < 0 ? errno : EIO);
    digest.update(std::span(buffer).first(static_cast<std::size_t>(count)));
    at += static_cast<std::uint64_t>(count);
  }
  return {};
}

Result<void> PartialFile::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(size_));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failed(errno);
    size_ += static_cast<std::uint64_t>(count);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return {};
}

Result<void> PartialFile::truncate() {
  if (ftruncate(descriptor_, 0) != 0) return failed(errno);
  size_ = 0;
  return {};
}

Result<void> PartialFile::rename_to(const fs::path& path) {
  if (fsync(descriptor_) != 0) return failed(errno);
  std::error_code error;
  fs::rename(path_, path, error);
  if (error) return failed(error.value());
  return {};
}

void PartialFile::remove() {
  std::error_code ignored;
  fs::remove(path_, ignored);
}

Result<FileLock> FileLock::open(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kFileMode);
  if (descriptor < 0)
    return fail(ErrorCode::io, path.string(), fmt::format("cannot be created: {}", problem_of(errno)),
                "check the folder, or set HF_HUB_CACHE");
  return FileLock(descriptor);
}

FileLock::FileLock(FileLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

FileLock::~FileLock() {
  if (descriptor_ >= 0) close(descriptor_);
}

bool FileLock::try_lock() const {
  return flock(descriptor_, LOCK_EX | LOCK_NB) == 0;
}

Result<void> FileLock::wait(const fs::path& path) const {
  while (flock(descriptor_, LOCK_EX) != 0)
    if (errno != EINTR)
      return fail(ErrorCode::io, path.string(), fmt::format("cannot be locked: {}", problem_of(errno)), "use a local disk");
  return {};
}

}  // namespace quire
