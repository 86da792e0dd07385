// Stores the hidden states of a prompt's last layer in a file. Requests are read and checked where bodies are read; files are written in a
// lane of the job pool that may wait for a disk. A file is written under a temporary name and then renamed, so that no reader sees an
// incomplete file.
#include "server/request/hidden_states.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <map>
#include <system_error>
#include <utility>
#include <vector>

#include "base/json_writer.h"
#include "server/request/served_model.h"
namespace quire {

namespace json = boost::json;
namespace fs = std::filesystem;

namespace {

constexpr const char* kTenantPrefix = "tenant-";  // a tenant may be called ".."
constexpr ::mode_t kFileMode = 0600, kFolderMode = 0700;

// Returns the length of the header and the header, padded so that the values after it are aligned.
std::string safetensors_header(std::size_t num_tokens, std::size_t num_numbers) {
  const std::size_t width = num_numbers / num_tokens, rows_end = num_numbers * sizeof(float);
  using Sizes = std::vector<std::size_t>;
  std::string header = json_object([&](JsonWriter& json) {
    json.begin_object("hidden_states").field("dtype", "F32").field("shape", Sizes{num_tokens, 1, width});
    json.field("data_offsets", Sizes{0, rows_end}).end_object();
    json.begin_object("token_ids").field("dtype", "I64").field("shape", Sizes{num_tokens});
    json.field("data_offsets", Sizes{rows_end, rows_end + num_tokens * sizeof(std::int64_t)}).end_object();
  });
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string out;
  for (std::uint64_t length = header.size(), i = 0; i < 8; ++i) out += static_cast<char>(length >> 8 * i & 0xFFU);
  return out + header;
}

// Returns false on failure and sets errno.
bool write_bytes(int file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ::ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return true;
}

// Writes a new file that no other user can read. Returns 0 or errno.
int write_file(const fs::path& path, std::initializer_list<std::span<const std::byte>> parts) {
  ::unlink(path.c_str());  // left by a process that was killed
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kFileMode);
  if (file < 0) return errno;
  int cause = 0;
  for (const std::span<const std::byte> part : parts)
    if (cause == 0 && !write_bytes(file, part)) cause = errno;
  if (::close(file) != 0 && cause == 0) cause = errno;
  return cause;
}

// Creates a tenant's folder, which no other user can open. Returns 0 or errno.
int make_tenant_folder(const fs::path& home) {
  if (::mkdir(home.c_str(), kFolderMode) != 0 && errno != EEXIST) return errno;
  return ::chmod(home.c_str(), kFolderMode) == 0 ? 0 : errno;
}

struct HiddenStatesFile {
  fs::path path;
  std::uint64_t num_bytes = 0;
  fs::file_time_type written{};
};

// Returns the files in `folder` and in the tenants' folders in it, by folder.
std::map<fs::path, std::vector<HiddenStatesFile>> files_in(const fs::path& folder) {
  std::map<fs::path, std::vector<HiddenStatesFile>> files;
  const auto list = [&](const fs::path& home) {
    std::error_code code;
    for (fs::directory_iterator entry(home, code), end; !code && entry != end; entry.increment(code)) {
      std::error_code gone;
      if (entry->path().extension() != ".safetensors" || !entry->is_regular_file(gone)) continue;
      const HiddenStatesFile file{entry->path(), entry->file_size(gone), entry->last_write_time(gone)};
      if (!gone) files[home].push_back(file);
    }
  };
  list(folder);
  std::error_code code;
  for (fs::directory_iterator entry(folder, code), end; !code && entry != end; entry.increment(code))
    if (std::error_code gone; entry->path().filename().string().starts_with(kTenantPrefix) && entry->is_directory(gone))
      list(entry->path());
  return files;
}

// Removes the oldest files of the tenants with the most bytes until a file of `num_bytes` in `home` fits.
void evict_files(const HiddenStatesFolder& destination, const fs::path& home, std::uint64_t num_bytes) {
  struct TenantFolder {
    std::vector<HiddenStatesFile> files;  // the oldest is last
    std::uint64_t num_bytes = 0;
  };
  std::map<fs::path, TenantFolder> homes;
  homes[home].num_bytes = num_bytes;
  for (auto& [path, files] : files_in(destination.folder)) {
    TenantFolder& one = homes[path];
    one.files = std::move(files);
    std::ranges::sort(one.files, std::greater<>(), &HiddenStatesFile::written);
    for (const HiddenStatesFile& file : one.files) one.num_bytes += file.num_bytes;
  }
  std::uint64_t total = 0;
  for (const auto& [path, one] : homes) total += one.num_bytes;
  while (total > destination.max_bytes) {
    TenantFolder* largest = nullptr;
    for (auto& [path, one] : homes)
      if (!one.files.empty() && (largest == nullptr || one.num_bytes > largest->num_bytes)) largest = &one;
    if (largest == nullptr) return;
    std::error_code code;
    fs::remove(largest->files.back().path, code);
    largest->num_bytes -= largest->files.back().num_bytes;
    total -= largest->files.back().num_bytes;
    largest->files.pop_back();
  }
}

Error not_written(const std::string& folder, int cause) {
  return {ErrorCode::io, "kv_transfer_params",
          fmt::format("requests a file in '{}', which cannot be written: {}", folder, std::generic_category().message(cause)),
          "check the folder of --hidden-states, and send the request again"};
}

}  // namespace

bool read_hidden_states(ObjectReader& reader) {
  json::value* params = reader.find("kv_transfer_params");
  if (params == nullptr) return false;
  if (!params->is_object()) {
    reader.reject("kv_transfer_params", "must be an object, not " + describe(*params), R"(send {"hidden_states": true}, or remove it)");
    return false;
  }
  ObjectReader inner(params->get_object(), "kv_transfer_params.");
  const bool wanted = inner.boolean("hidden_states", false);
  if (auto read = inner.finish(); !read) reader.reject(std::move(read.error()));
  return wanted;
}

Result<void> check_hidden_values(std::uint64_t num_tokens, const char* field, const RequestContext& context) {
  const std::uint64_t width = context.model.hidden_size(), most = context.options.max_hidden_numbers;
  if (num_tokens * width <= most) return {};
  return fail(ErrorCode::invalid_argument, field,
              fmt::format("has at least {} tokens, whose vectors of {} numbers each exceed {} numbers in total", num_tokens, width, most),
              fmt::format("send at most {} tokens in a request", most / std::max<std::uint64_t>(width, 1)));
}

Result<void> check_hidden_states(std::uint64_t num_tokens, const char* field, const RequestContext& context) {
  if (context.options.hidden_states_folder.empty())
    return fail(ErrorCode::unsupported, "kv_transfer_params", "requests hidden states, which this server does not write",
                "start the server with --hidden-states DIR");
  return check_hidden_values(num_tokens, field, context);
}

HiddenStatesFolder make_hidden_states_folder(const ServerOptions& options, std::string tenant) {
  return {options.hidden_states_folder, std::move(tenant), options.max_hidden_states_bytes};
}

Result<std::string> write_hidden_states(const HiddenStatesFolder& destination, const std::string& name, std::span<const TokenId> tokens,
                                        std::span<const float> rows) {
  static_assert(std::endian::native == std::endian::little, "the file's numbers are little-endian");
  const fs::path home =
      destination.tenant.empty() ? fs::path(destination.folder) : fs::path(destination.folder) / (kTenantPrefix + destination.tenant);
  const fs::path path = home / (name + ".safetensors"), draft = home / ("." + name + ".tmp");
  if (const int cause = destination.tenant.empty() ? 0 : make_tenant_folder(home); cause != 0)
    return std::unexpected(not_written(home.string(), cause));
  std::error_code code;
  if (fs::exists(path, code))
    return fail(ErrorCode::invalid_argument, "X-Request-Id", "is the id of a request whose hidden states are already stored",
                "send another id, or none");
  const std::vector<std::int64_t> ids(tokens.begin(), tokens.end());
  const std::string header = safetensors_header(tokens.size(), rows.size());
  if (const std::uint64_t num_bytes = header.size() + rows.size_bytes() + ids.size() * sizeof(std::int64_t); destination.max_bytes > 0) {
    if (num_bytes > destination.max_bytes)
      return fail(
          ErrorCode::too_large, "kv_transfer_params",
          fmt::format("requests a file of {} bytes, more than the limit of {} bytes for all files", num_bytes, destination.max_bytes),
          "send a shorter prompt, or start the server with a larger --hidden-states-budget");
    evict_files(destination, home, num_bytes);
  }
  int cause = write_file(draft, {std::as_bytes(std::span(header)), std::as_bytes(rows), std::as_bytes(std::span(ids))});
  if (cause == 0) fs::rename(draft, path, code);
  if (cause == 0 && code) cause = code.value();
  if (cause == 0) return path.string();
  fs::remove(draft, code);
  return std::unexpected(not_written(home.string(), cause));
}

std::string hidden_states_params(const std::string& path) {
  return json_object([&](JsonWriter& json) { json.field("hidden_states_path", path); });
}

}  // namespace quire
