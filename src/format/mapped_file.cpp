// Maps files for reading. Called by the readers of file formats when a model or an adapter is opened, on any thread. If a mapped file
// shrinks, the next access past its new end kills the process. Large or replaceable files are therefore copied with read() and checked at
// the end.
#include "format/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>
#include <utility>

#include "base/check.h"

namespace quire {
namespace {

std::int64_t modified_ns(const struct stat& info) {
  return info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec;
}

std::string reason(int code) {
  return std::generic_category().message(code);
}

constexpr const char* kCheckDisk = "check the disk, and download the file again if it is corrupted";

std::unexpected<Error> open_failed(const std::string& path, int code) {
  if (code == ENOENT || code == ENOTDIR) return fail(ErrorCode::not_found, path, "no such file", "check the path");
  return fail(ErrorCode::io, path, "cannot be opened: " + reason(code), "use a file that this process can read");
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  MappedFile file;
  file.path_ = path;
  file.descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.descriptor_ < 0) return open_failed(path, errno);
  struct stat info{};
  if (::fstat(file.descriptor_, &info) != 0)
    return fail(ErrorCode::io, path, "reading the file status failed: " + reason(errno), kCheckDisk);
  if (!S_ISREG(info.st_mode)) return fail(ErrorCode::io, path, "is not a regular file", "use the path of a model file");
  file.modified_ns_ = modified_ns(info);
  if (info.st_size == 0) return file;
  const auto size = static_cast<std::size_t>(info.st_size);
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.descriptor_, 0);
  if (address == MAP_FAILED)
    return fail(ErrorCode::io, path, "mapping into memory failed: " + reason(errno),
                "raise the limit of address space (ulimit -v), or free memory");
  file.bytes_ = {static_cast<const std::byte*>(address), size};
  return file;
}

MappedFile::~MappedFile() {
  release();
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      bytes_(std::exchange(other.bytes_, {})),
      descriptor_(std::exchange(other.descriptor_, -1)),
      modified_ns_(other.modified_ns_) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this == &other) return *this;
  release();
  path_ = std::move(other.path_);
  bytes_ = std::exchange(other.bytes_, {});
  descriptor_ = std::exchange(other.descriptor_, -1);
  modified_ns_ = other.modified_ns_;
  return *this;
}

void MappedFile::release() noexcept {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<void> MappedFile::read(std::span<const std::byte> part, std::span<std::byte> out) const {
  QUIRE_CHECK(contains(part) && part.size() == out.size(), "the part lies inside the map and has the size of the output");
  const auto begin = static_cast<std::size_t>(part.data() - bytes_.data());
  for (std::size_t done = 0; done < out.size();) {
    const ssize_t got = ::pread(descriptor_, out.data() + done, out.size() - done, static_cast<off_t>(begin + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(ErrorCode::io, path_, "cannot be read: " + reason(errno), kCheckDisk);
    if (got == 0) return check_unchanged();
    done += static_cast<std::size_t>(got);
  }
  return {};
}

bool MappedFile::contains(std::span<const std::byte> part) const {
  const auto address = [](const std::byte* byte) { return reinterpret_cast<std::uintptr_t>(byte); };
  return address(part.data()) >= address(bytes_.data()) && address(part.data() + part.size()) <= address(bytes_.data() + bytes_.size());
}

std::string MappedFile::identity() const {
  struct stat info{};
  if (::fstat(descriptor_, &info) != 0) return path_;
  return fmt::format("{} {} {} {} {}.{}", info.st_dev, info.st_ino, info.st_size, modified_ns(info), info.st_ctim.tv_sec,
                     info.st_ctim.tv_nsec);
}

Result<void> MappedFile::check_unchanged() const {
  struct stat info{};
  if (::fstat(descriptor_, &info) != 0) return fail(ErrorCode::io, path_, "reading the file status failed: " + reason(errno), kCheckDisk);
  if (static_cast<std::uint64_t>(info.st_size) != bytes_.size() || modified_ns(info) != modified_ns_) {
    return fail(ErrorCode::io, path_, fmt::format("was changed while in use ({} bytes at open, {} now)", bytes_.size(), info.st_size),
                "restart the server; replace model files by renaming a new file over the old one");
  }
  return {};
}

Result<std::string> read_text_file(const std::string& path, std::uint64_t max_bytes) {
  auto file = MappedFile::open(path);
  if (!file) return std::unexpected(std::move(file.error()));
  const auto bytes = file->bytes();
  if (bytes.size() > max_bytes)
    return fail(ErrorCode::too_large, path, fmt::format("has {} bytes, more than the limit of {}", bytes.size(), max_bytes),
                "use the file that belongs to the model");
  std::string text(bytes.size(), '\0');
  std::ifstream stream(path, std::ios::binary);
  if (!stream.read(text.data(), static_cast<std::streamsize>(text.size())))
    return fail(ErrorCode::io, path, "cannot be read completely", kCheckDisk);
  return text;
}

}  // namespace quire
