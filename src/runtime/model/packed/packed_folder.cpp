// Manages the folder in which packed weights are kept between starts. Called while a model is loaded. Several processes may share a folder:
// complete files appear by renaming, and a process that has a file open can still read it after it was removed.
#include "runtime/model/packed/packed_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <system_error>
#include <vector>

namespace quire {
namespace {

namespace fs = std::filesystem;

fs::path path_of(const WeightsOptions& options, const Sha256Digest& key) {
  return fs::path(options.cache_folder) / (to_hex(std::span(key).first(16)) + ".packed");
}

struct FoundFile {
  fs::path path;
  std::uint64_t bytes = 0;
  fs::file_time_type used;
};

std::vector<FoundFile> files_of(const fs::path& folder, const char* extension) {
  std::vector<FoundFile> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->path().extension() == extension && it->symlink_status(ignored).type() == fs::file_type::regular)
      found.push_back({it->path(), it->file_size(ignored), it->last_write_time(ignored)});
  }
  return found;
}

// Removes a file unless a process writes or uses it, because removing an open file would not free its space. Returns whether it was
// removed.
bool remove_unused(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (descriptor < 0) return false;
  const bool is_removed = ::flock(descriptor, LOCK_EX | LOCK_NB) == 0 && ::unlink(path.c_str()) == 0;
  ::close(descriptor);
  return is_removed;
}

void remove_abandoned(const fs::path& folder) {
  for (const FoundFile& file : files_of(folder, ".tmp")) remove_unused(file.path);
}

// Removes unused files, the least recently used first, until `wanted` more bytes fit into the budget. Returns the size of the files that
// stay, including unfinished files of other processes.
std::uint64_t make_room(const fs::path& folder, std::uint64_t wanted, std::uint64_t budget) {
  std::uint64_t sum = 0;
  for (const FoundFile& file : files_of(folder, ".tmp")) sum += file.bytes;
  std::vector<FoundFile> files = files_of(folder, ".packed");
  for (const FoundFile& file : files) sum += file.bytes;
  std::ranges::sort(files, {}, &FoundFile::used);
  for (const FoundFile& file : files) {
    if (sum + wanted <= budget) break;
    if (remove_unused(file.path)) sum -= file.bytes;
  }
  return sum;
}

}  // namespace

Result<PackedFile> find_packed(const WeightsOptions& options, const Sha256Digest& key) {
  const fs::path path = path_of(options, key);
  auto file = PackedFile::open(path.string(), key);
  std::error_code ignored;
  if (file) fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);
  if (!file && file.error().code == ErrorCode::corrupt) fs::remove(path, ignored);
  return file;
}

Result<std::unique_ptr<PackedFileWriter>> begin_packed(const WeightsOptions& options, const Sha256Digest& key, std::uint32_t num_matrices,
                                                       std::uint64_t estimated_bytes) {
  const fs::path folder(options.cache_folder);
  std::error_code error;
  if (fs::create_directories(folder, error)) fs::permissions(folder, fs::perms::owner_all, error);
  if (!fs::is_directory(folder, error))
    return fail(ErrorCode::io, "weights_cache", fmt::format("{} cannot be created", folder.string()), "use a writable folder");
  remove_abandoned(folder);
  const std::uint64_t budget = options.cache_bytes;
  if (estimated_bytes > budget) {
    return fail(ErrorCode::too_large, "weights_cache_budget", fmt::format("is {} bytes, but the weights need {}", budget, estimated_bytes),
                "increase it");
  }
  const std::uint64_t others = make_room(folder, estimated_bytes, budget);
  if (others + estimated_bytes > budget) {
    return fail(ErrorCode::too_large, "weights_cache_budget",
                fmt::format("is {} bytes, but files in use need {} and the weights need {}", budget, others, estimated_bytes),
                "increase it");
  }
  const fs::space_info space = fs::space(folder, error);
  if (!error && space.available < estimated_bytes) {
    return fail(ErrorCode::io, "weights_cache",
                fmt::format("needs {} bytes, but the file system of {} has {} free", estimated_bytes, folder.string(), space.available),
                "use a folder on a larger file system");
  }
  return PackedFileWriter::create(path_of(options, key).string(), key, num_matrices, budget - std::min(budget, others));
}

void remove_packed(const WeightsOptions& options, const Sha256Digest& key) {
  std::error_code ignored;
  fs::remove(path_of(options, key), ignored);
}

}  // namespace quire
