// Writes a growing journal file and manages its disk space. Called by the thread of JournalWriter. Disk space is reserved in advance
// without making the file longer. A full disk is therefore found before a frame is written in part, and there is room for the last frame,
// which records the reason. After any failure, the file ends with a complete frame, or with a frame whose check fails.
#include "engine/journal/journal_file.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "core/journal/journal_format.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kReserve = std::uint64_t{1} << 18U;
constexpr std::uint64_t kEndBytes = 128;  // maximum size of the last frame

Result<void> cannot(const std::string& path, const std::string& why) {
  return fail(ErrorCode::invalid_argument, "journal", fmt::format("'{}' cannot be written: {}", path, why),
              "use a folder that you own, on a disk with free space");
}

constexpr std::string_view kOwn = "quire-", kSaved = "saved-";

// Suffix of a file while its beginning is being written.
constexpr std::string_view kPart = ".part";

bool is_journal(const fs::path& path) {
  return path.extension() == ".qj" && path.filename().string().starts_with(kOwn);
}

// Returns whether the file may be incomplete because its process was killed.
bool is_part(const fs::path& path) {
  return path.extension() == kPart && is_journal(path.stem());
}

// Returns whether another process is still writing the file.
bool is_locked(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return true;
  const bool is_free = ::flock(descriptor, LOCK_EX | LOCK_NB) == 0;
  ::close(descriptor);
  return !is_free;
}

// Renames `part` to `path`. Does not replace an existing file, if the file system supports hard links.
bool give_name(const std::string& part, const std::string& path) {
  if (::link(part.c_str(), path.c_str()) == 0) return ::unlink(part.c_str()) == 0;
  return errno != EEXIST && ::rename(part.c_str(), path.c_str()) == 0;
}

// Returns a file name that sorts after all earlier names.
std::string name_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto whole_s = std::chrono::floor<std::chrono::seconds>(now);
  const auto rest_ms = std::chrono::floor<std::chrono::milliseconds>(now - whole_s).count();
  return fmt::format("{:%Y%m%dT%H%M%S}.{:03}Z-{}.qj", fmt::gmtime(whole_s.count()), rest_ms, ::getpid());
}

}  // namespace

JournalFile::JournalFile(JournalFile&& other) noexcept
    : folder_(std::move(other.folder_)),
      path_(std::move(other.path_)),
      max_bytes_(other.max_bytes_),
      earlier_size_(other.earlier_size_),
      older_(std::move(other.older_)),
      older_bytes_(other.older_bytes_),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_),
      reserved_(other.reserved_),
      can_reserve_(other.can_reserve_) {}

JournalFile::~JournalFile() {
  close();
}

void JournalFile::close() {
  if (descriptor_ < 0) return;
  (void)::ftruncate(descriptor_, static_cast<off_t>(size_));
  ::close(std::exchange(descriptor_, -1));
}

bool JournalFile::open(std::string_view prefix, std::string_view suffix) {
  // Repeats if this process already has a file with the name of this millisecond.
  do {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    path_ = fmt::format("{}/{}{}", folder_, prefix, name_now());
    descriptor_ = ::open(fmt::format("{}{}", path_, suffix).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  } while (descriptor_ < 0 && errno == EEXIST);
  if (descriptor_ >= 0) (void)::flock(descriptor_, LOCK_EX | LOCK_NB);
  return descriptor_ >= 0;
}

Result<JournalFile> JournalFile::create(const std::string& folder, std::uint64_t max_bytes) {
  JournalFile file;
  file.folder_ = folder;
  file.max_bytes_ = max_bytes;
  std::error_code error;
  fs::create_directories(folder, error);
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::uint64_t size = entry->file_size(error);
    if (!error && is_journal(entry->path()) && !is_locked(entry->path())) file.older_.push_back({entry->path(), size});
    if (!error && is_part(entry->path()) && !is_locked(entry->path())) fs::remove(entry->path(), error);
    error.clear();
  }
  if (error) return std::unexpected(cannot(folder, error.message()).error());
  std::ranges::sort(file.older_, std::greater(), &Older::path);
  for (const Older& older : file.older_) file.older_bytes_ += older.size;
  if (!file.open(kOwn)) return std::unexpected(cannot(file.path_, std::strerror(errno)).error());
  return file;
}

Result<JournalFile> JournalFile::create_saved(const std::string& folder) {
  JournalFile file;
  file.folder_ = folder;
  file.max_bytes_ = UINT64_MAX;
  std::error_code error;
  fs::create_directories(folder, error);
  if (file.open(kSaved)) return file;
  return fail(ErrorCode::io, "journal", fmt::format("'{}' cannot be written: {}", file.path_, std::strerror(errno)),
              "make the folder writable for the server");
}

bool JournalFile::make_room(std::uint64_t num_bytes) {
  while (size_ + num_bytes + kEndBytes + older_bytes_ > max_bytes_ && !older_.empty()) {
    std::error_code error;
    fs::remove(older_.back().path, error);
    older_bytes_ -= older_.back().size;
    older_.pop_back();
  }
  return size_ + num_bytes + kEndBytes <= max_bytes_;
}

bool JournalFile::reserve(std::uint64_t num_bytes) {
  const std::uint64_t needed = size_ + num_bytes + kEndBytes;
  if (!can_reserve_ || needed <= reserved_) return true;
  const std::uint64_t until = needed + kReserve;
  if (::fallocate(descriptor_, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(size_), static_cast<off_t>(until - size_)) != 0) {
    can_reserve_ = errno != EOPNOTSUPP && errno != ENOSYS && errno != EINTR;
    return !can_reserve_;
  }
  reserved_ = until;
  return true;
}

bool JournalFile::write(std::span<const std::uint8_t> bytes) {
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t count = ::pwrite(descriptor_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(size_ + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      (void)::ftruncate(descriptor_, static_cast<off_t>(size_));  // leaves no partial frame
      return false;
    }
    done += static_cast<std::size_t>(count);
  }
  size_ += bytes.size();
  return true;
}

std::optional<JournalEnd> JournalFile::append(std::span<const std::uint8_t> bytes) {
  if (!make_room(bytes.size())) return JournalEnd::budget;
  return reserve(bytes.size()) && write(bytes) ? std::nullopt : std::optional(JournalEnd::disk);
}

bool JournalFile::begin_next(std::span<const std::uint8_t> beginning) {
  if (!make_room(beginning.size() + kEndBytes)) return false;
  JournalFile next;
  next.folder_ = folder_;
  next.max_bytes_ = max_bytes_;
  next.can_reserve_ = can_reserve_;
  if (!next.open(kOwn, kPart)) return false;
  const std::string part = next.path_ + std::string(kPart);
  if (!next.reserve(beginning.size()) || !next.write(beginning) || !give_name(part, next.path_)) {
    (void)::unlink(part.c_str());
    return false;
  }
  finish(JournalEnd::continued);
  close();
  older_.insert(older_.begin(), {path_, size_});
  older_bytes_ += size_;
  earlier_size_ += size_;
  path_ = std::move(next.path_);
  descriptor_ = std::exchange(next.descriptor_, -1);
  size_ = next.size_;
  reserved_ = next.reserved_;
  can_reserve_ = next.can_reserve_;
  return true;
}

void JournalFile::finish(JournalEnd end) {
  std::vector<std::uint8_t> frame;
  append_frame(frame, size_, FrameKind::end, journal_end_payload(end));
  (void)write(frame);
}

}  // namespace quire
