// The files of a disk tier in a folder, used by the engine, by `quire cache` and by the threads of the I/O workers. The folder stays locked
// while the object exists, so two processes never write to one folder. Only the owner can read the files, because blocks reveal prompts.
// The blocks' file bypasses the page cache (O_DIRECT) if the file system allows it, because the KV cache already caches blocks.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "runtime/tier/block_queues.h"
#include "runtime/tier/tier_files.h"
#include "runtime/tier/tier_table.h"

namespace quire {
namespace {

constexpr const char* kFolderField = "kv_disk";
constexpr const char* kBudgetField = "kv_disk_budget";
constexpr mode_t kOwnerOnly = 0600;  // blocks reveal prompts

// Owns a file descriptor and closes it.
class Descriptor {
 public:
  explicit Descriptor(int value = -1) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) close(value_);
  }
  Descriptor(Descriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  [[nodiscard]] int get() const { return value_; }
  [[nodiscard]] bool is_open() const { return value_ >= 0; }

 private:
  int value_;
};

std::unexpected<Error> os_error(const char* field, const std::string& what, std::string remedy = {}) {
  return fail(ErrorCode::io, field, fmt::format("{}: {}", what, std::strerror(errno)), std::move(remedy));
}

// Returns the disk space that a file uses.
Result<std::uint64_t> allocated_bytes(int descriptor) {
  struct stat status{};
  if (fstat(descriptor, &status) != 0) return os_error(kFolderField, "the size of a file in the folder cannot be read");
  return static_cast<std::uint64_t>(status.st_blocks) * 512;
}

Result<Descriptor> open_in(const Descriptor& folder, const std::string& path, const char* name, int flags) {
  Descriptor file(openat(folder.get(), name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | flags, kOwnerOnly));
  if (!file.is_open())
    return os_error(kFolderField, fmt::format("{}/{} cannot be opened", path, name), "use a folder that this user can read and write");
  return file;
}

// Locks the folder until the returned descriptor is closed. Writes the ID of this process to the lock file.
Result<Descriptor> lock_folder(const Descriptor& folder, const std::string& path) {
  Result<Descriptor> lock = open_in(folder, path, "quire-lock", 0);
  if (!lock) return lock;
  if (flock(lock->get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return os_error(kFolderField, fmt::format("{} cannot be locked", path), "use a folder on a local disk");
    std::array<char, 32> owner{};
    const ssize_t size = pread(lock->get(), owner.data(), owner.size(), 0);
    return fail(
        ErrorCode::io, kFolderField,
        fmt::format("process {} is using {}", std::string_view(owner.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))), path),
        "use a separate folder for each process");
  }
  const std::string own = fmt::format("{}", getpid());
  if (ftruncate(lock->get(), 0) != 0 || pwrite(lock->get(), own.data(), own.size(), 0) != static_cast<ssize_t>(own.size()))
    return os_error(kFolderField, fmt::format("{}/quire-lock cannot be written", path), "use a writable folder on a disk with free space");
  return lock;
}

class FolderFiles final : public TierFiles {
 public:
  FolderFiles(std::string path, Descriptor folder, Descriptor lock, Descriptor blocks, Descriptor table, TierIo io)
      : path_(std::move(path)),
        folder_(std::move(folder)),
        lock_(std::move(lock)),
        blocks_(std::move(blocks)),
        table_(std::move(table)),
        io_(io) {}

  Result<std::uint64_t> disk_bytes() override {
    std::uint64_t sum = 0;
    for (const Descriptor* one : {&folder_, &lock_, &blocks_, &table_}) {
      const Result<std::uint64_t> bytes = allocated_bytes(one->get());
      if (!bytes) return bytes;
      sum += *bytes;
    }
    return sum;
  }

  Result<std::uint64_t> table_bytes() override {
    struct stat status{};
    if (fstat(table_.get(), &status) != 0) return os_error(kFolderField, fmt::format("the size of the table of {} cannot be read", path_));
    return static_cast<std::uint64_t>(status.st_size);
  }

  Result<void> resize(TierFile file, std::uint64_t bytes) override {
    const int descriptor = descriptor_of(file);
    struct stat status{};
    if (fstat(descriptor, &status) != 0) return os_error(kFolderField, fmt::format("the size of a file of {} cannot be read", path_));
    if (static_cast<std::uint64_t>(status.st_size) > bytes && ftruncate(descriptor, static_cast<off_t>(bytes)) != 0)
      return os_error(kFolderField, fmt::format("a file of {} cannot be truncated", path_));
    if (bytes == 0) return {};
    if (Result<void> room = check_room(status, bytes); !room) return room;
    if (fallocate(descriptor, 0, 0, static_cast<off_t>(bytes)) == 0) return {};
    // If the file system cannot reserve space, a later write fails when the disk is full.
    if (errno == EOPNOTSUPP && ftruncate(descriptor, static_cast<off_t>(bytes)) == 0) return {};
    const int error = errno;
    if (ftruncate(descriptor, std::min(status.st_size, static_cast<off_t>(bytes))) != 0)
      return os_error(kFolderField, fmt::format("a file of {} cannot be truncated", path_));
    errno = error;
    return os_error(kBudgetField, fmt::format("{} bytes cannot be allocated in {}", bytes, path_),
                    "use a smaller budget, or free space on the disk");
  }

  Result<void> read_table(std::uint64_t offset, std::span<std::byte> bytes) override {
    return whole(pread(table_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset)), bytes.size(), "read");
  }
  Result<void> write_table(std::uint64_t offset, std::span<const std::byte> bytes) override {
    return whole(pwrite(table_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset)), bytes.size(), "written");
  }

  Result<void> sync_table() override {
    for (const Descriptor* one : {&table_, &folder_})
      if (fsync(one->get()) != 0) return os_error(kFolderField, fmt::format("{} cannot be synchronised", path_));
    return {};
  }

  std::unique_ptr<BlockQueue> open_queue(std::uint32_t depth) override {
    std::unique_ptr<BlockQueue> queue;
    if (io_ != TierIo::threads) queue = make_uring_queue(blocks_.get(), depth);
    if (queue == nullptr && io_ != TierIo::io_uring) queue = make_thread_queue(blocks_.get(), depth);
    return queue;
  }

 private:
  [[nodiscard]] int descriptor_of(TierFile file) const { return (file == TierFile::blocks ? blocks_ : table_).get(); }

  // Returns an error if the disk has too little free space. Called before fallocate, because a failing fallocate may fill the disk first.
  Result<void> check_room(const struct stat& status, std::uint64_t bytes) const {
    struct statvfs system{};
    if (fstatvfs(folder_.get(), &system) != 0) return os_error(kFolderField, fmt::format("the free space of {} cannot be read", path_));
    const std::uint64_t room = std::uint64_t{system.f_bavail} * system.f_frsize;
    const std::uint64_t has = static_cast<std::uint64_t>(status.st_blocks) * 512;
    if (bytes <= has || bytes - has <= room) return {};
    return fail(ErrorCode::io, kBudgetField, fmt::format("{} bytes are needed in {}, but {} are free", bytes - has, path_, room),
                "use a smaller budget, or free space on the disk");
  }

  Result<void> whole(ssize_t moved, std::size_t size, const char* verb) const {
    if (moved == static_cast<ssize_t>(size)) return {};
    if (moved >= 0) errno = EIO;
    return os_error(kFolderField, fmt::format("the table of {} cannot be {}", path_, verb));
  }

  const std::string path_;
  Descriptor folder_, lock_, blocks_, table_;
  const TierIo io_;
};

// Opens the blocks' file with O_DIRECT if the file system supports the flag. Some file systems refuse O_DIRECT in open, others only in the
// first read.
Result<Descriptor> open_blocks(const Descriptor& folder, const std::string& path) {
  Descriptor direct(openat(folder.get(), "quire-blocks", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_DIRECT, kOwnerOnly));
  alignas(kTierPageBytes) std::array<std::byte, kTierPageBytes> probe;
  if (direct.is_open() && pread(direct.get(), probe.data(), probe.size(), 0) >= 0) return direct;
  return open_in(folder, path, "quire-blocks", 0);
}

}  // namespace

std::optional<FileIdentity> identity_of(const std::string& folder) {
  struct stat status{};
  if (stat((folder + "/quire-blocks").c_str(), &status) != 0) return std::nullopt;
  return FileIdentity{.device = status.st_dev, .number = status.st_ino};
}

Result<std::uint64_t> free_bytes(const std::string& folder) {
  struct statvfs system{};
  if (statvfs(folder.c_str(), &system) != 0) return os_error(kFolderField, fmt::format("the free space of {} cannot be read", folder));
  return std::uint64_t{system.f_bavail} * system.f_frsize;
}

Result<std::unique_ptr<TierFiles>> open_tier_folder(const std::string& folder, TierIo io) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    const std::filesystem::path above = std::filesystem::path(folder).parent_path();
    if (!above.empty()) std::filesystem::create_directories(above, error);
    if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
      return os_error(kFolderField, fmt::format("{} cannot be created", folder), "use a folder that this user can read and write");
  }
  Descriptor handle(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!handle.is_open())
    return os_error(kFolderField, fmt::format("{} cannot be opened", folder), "use a folder that this user can read and write");
  Result<Descriptor> lock = lock_folder(handle, folder);
  if (!lock) return std::unexpected(lock.error());
  Result<Descriptor> blocks = open_blocks(handle, folder);
  if (!blocks) return std::unexpected(blocks.error());
  Result<Descriptor> table = open_in(handle, folder, "quire-table", 0);
  if (!table) return std::unexpected(table.error());
  return std::make_unique<FolderFiles>(folder, std::move(handle), *std::move(lock), *std::move(blocks), *std::move(table), io);
}

}  // namespace quire
