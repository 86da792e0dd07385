// One download. The partial file belongs to the process that holds the lock. All bytes that are in the partial file were received in order,
// so its size is the position at which the download continues.
#include "hub/download.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <optional>

#include "base/format_bytes.h"
#include "hub/first_line.h"
#include "hub/patient_get.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

constexpr unsigned kWholeFile = 200, kPartialContent = 206, kRangeNotSatisfiable = 416;

class Transfer {
 public:
  Transfer(HttpClient& client, const Download& file, const HubHooks& hooks, PartialFile& partial)
      : client_(client),
        file_(file),
        hooks_(hooks),
        partial_(partial),
        total_(file.size),
        digest_(file.digest_kind, file.size.value_or(0)) {}

  // Downloads the missing bytes. Does not compare the digest.
  Result<void> run() {
    if (!file_.etag_file.empty()) etag_ = first_line(file_.etag_file);
    const bool is_unusable = (total_ && partial_.size() > *total_) || (!file_.etag_file.empty() && etag_.empty());
    if (auto begun = is_unusable ? restart() : partial_.digest_into(digest_); !begun) return begun;
    report();
    while (!total_ || partial_.size() < *total_) {
      const HttpSink sink{.begin = [this](const HttpHead& head) { return begin(head); },
                          .take = [this](std::span<const std::byte> bytes) { return take(bytes); }};
      const auto head = get_patiently(client_, [this] { return next_request(); }, sink, hooks_);
      if (!head) return std::unexpected(head.error());
      if (head->status == kRangeNotSatisfiable && partial_.size() > 0) {
        if (auto restarted = restart(); !restarted) return restarted;
        continue;
      }
      if (head->status != kWholeFile && head->status != kPartialContent) return std::unexpected(file_.refusal(*head));
      if (!total_) total_ = partial_.size();
      if (partial_.size() < *total_) return wrong_size(partial_.size());
    }
    return {};
  }

  Result<void> restart() {
    digest_.restart();
    return partial_.truncate();
  }

  [[nodiscard]] std::string digest() { return digest_.finish(); }

 private:
  [[nodiscard]] HttpGet next_request() const {
    HttpGet request = file_.request;
    request.first_byte = partial_.size();
    request.if_range = etag_;
    return request;
  }

  std::unexpected<Error> wrong_size(std::uint64_t size) const {
    return fail(ErrorCode::corrupt, file_.name,
                fmt::format("{} sends {} bytes, but the file has {}", host_in(file_.request.url), size, *total_), "run the command again");
  }

  // Starts from the first byte if the host sends the whole file.
  Result<void> begin(const HttpHead& head) {
    if (head.status == kWholeFile) {
      if (auto restarted = restart(); !restarted) return restarted;
      if (!file_.size) total_ = head.content_length;
    } else if (head.first_byte != partial_.size()) {
      return fail(ErrorCode::corrupt, file_.name, fmt::format("{} sends other bytes than the requested ones", host_in(file_.request.url)),
                  "run the command again");
    } else if (!file_.size) {
      total_ = head.total_bytes;
    }
    if (total_ && head.content_length && partial_.size() + *head.content_length != *total_)
      return wrong_size(partial_.size() + *head.content_length);
    if (total_)
      if (auto enough = check_disk_space(file_.path.parent_path(), *total_ - std::min(*total_, partial_.size())); !enough) return enough;
    if (file_.etag_file.empty()) return {};
    // A weak ETag does not identify bytes.
    etag_ = head.etag.starts_with("W/") ? std::string() : head.etag;
    std::ofstream(file_.etag_file) << etag_;
    return {};
  }

  Result<void> take(std::span<const std::byte> bytes) {
    if (total_ && bytes.size() > *total_ - partial_.size()) return wrong_size(partial_.size() + bytes.size());
    if (auto appended = partial_.append(bytes); !appended) return appended;
    digest_.update(bytes);
    report();
    return {};
  }

  void report() const { file_.progress(partial_.size(), total_.value_or(0)); }

  HttpClient& client_;
  const Download& file_;
  const HubHooks& hooks_;
  PartialFile& partial_;
  std::optional<std::uint64_t> total_;
  FileDigest digest_;
  std::string etag_;
};

bool is_there(const Download& file) {
  std::error_code error;
  if (!fs::is_regular_file(file.path, error)) return false;
  return !file.size || fs::file_size(file.path, error) == *file.size;
}

}  // namespace

Result<void> check_disk_space(const fs::path& folder, std::uint64_t num_bytes) {
  fs::path existing = fs::absolute(folder);
  std::error_code error;
  while (!fs::exists(existing, error) && existing != existing.root_path()) existing = existing.parent_path();
  const fs::space_info space = fs::space(existing, error);
  if (error || space.available >= num_bytes) return {};
  return fail(ErrorCode::io, folder.string(),
              fmt::format("the download needs {}, but the disk has {} free", format_bytes(num_bytes), format_bytes(space.available)),
              "free space with quire rm, or set HF_HUB_CACHE to another disk");
}

Result<void> download(HttpClient& client, const Download& file, const HubHooks& hooks) {
  const auto lock =
      FileLock::acquire(file.lock, [&] { hooks.say(fmt::format("waiting for another process that downloads {}", file.name)); });
  if (!lock) return std::unexpected(lock.error());
  if (is_there(file)) return {};
  std::error_code error;
  fs::create_directories(file.path.parent_path(), error);
  auto partial = PartialFile::open(file.partial);
  if (!partial) return std::unexpected(std::move(partial.error()));
  bool was_begun = partial->size() > 0;
  while (true) {
    Transfer transfer(client, file, hooks, *partial);
    if (auto done = transfer.run(); !done) {
      if (partial->size() == 0) partial->remove();
      return done;
    }
    const std::string digest = transfer.digest();
    if (file.digest.empty() || digest == file.digest) break;
    // Another program may have left a partial file with a hole.
    if (was_begun) {
      was_begun = false;
      hooks.say(fmt::format("{}: the partial file does not match its digest; starting from the first byte", file.name));
      if (auto emptied = partial->truncate(); !emptied) return emptied;
      continue;
    }
    partial->remove();
    return fail(ErrorCode::corrupt, file.name,
                fmt::format("does not match its digest: {} instead of {}; the file was removed", digest, file.digest),
                "run the command again");
  }
  if (auto renamed = partial->rename_to(file.path); !renamed) return renamed;
  if (!file.etag_file.empty()) fs::remove(file.etag_file, error);
  return {};
}

}  // namespace quire
