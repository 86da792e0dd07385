// The cache's folders. Other programs write to them too, so nothing is assumed about their content: links may be dead, and files may be
// missing. Only remove() deletes files, and only in the folder of one repository.
#include "hub/hub_cache.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <set>
#include <string_view>
#include <system_error>

#include "base/digest.h"
#include "hub/first_line.h"
#include "hub/hub_listing.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "models--", kSeparator = "--";
constexpr std::size_t kMaxCachedFiles = 200'000;

std::unexpected<Error> io_error(const fs::path& path, const std::error_code& error) {
  return fail(ErrorCode::io, path.string(), error.message(), "check the folder, or set HF_HUB_CACHE");
}

// Returns the files in a snapshot whose bytes are there, with their paths in the repository.
std::vector<HubFile> files_in(const fs::path& folder) {
  std::vector<HubFile> files;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end && files.size() < kMaxCachedFiles;
       at.increment(error)) {
    std::error_code missing;
    if (!fs::is_regular_file(at->path(), missing)) continue;
    const std::uint64_t size = fs::file_size(at->path(), missing);
    if (!missing) files.push_back({.path = fs::path(at->path()).lexically_relative(folder).generic_string(), .size = size});
  }
  return files;
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) entries.push_back(at->path());
  std::ranges::sort(entries);
  return entries;
}

std::uint64_t size_of(const fs::path& path) {
  std::error_code error;
  const std::uint64_t size = fs::is_regular_file(fs::symlink_status(path, error)) ? fs::file_size(path, error) : 0;
  return error ? 0 : size;
}

// Returns the bytes of the files below the folder, without the targets of links.
std::uint64_t bytes_in(const fs::path& folder) {
  std::uint64_t sum = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) sum += size_of(at->path());
  return sum;
}

CachedModel model_of(const HubName& name, const fs::path& snapshot, const ChosenFiles& chosen) {
  return {.name = name.text(),
          .path = chosen.model.empty() ? snapshot : snapshot / chosen.model,
          .num_bytes = chosen.num_bytes(),
          .num_files = chosen.files.size(),
          .has_tokenizer = chosen.has_tokenizer};
}

// Returns the models of a snapshot, by the names that the user can write.
std::vector<CachedModel> models_in(const std::string& repo, const fs::path& snapshot) {
  const std::vector<HubFile> files = files_in(snapshot);
  std::vector<CachedModel> models;
  std::map<std::string, int> num_of_quant;
  const std::vector<GgufVariant> variants = gguf_variants(files);
  for (const GgufVariant& variant : variants) ++num_of_quant[variant.quant];
  for (const GgufVariant& variant : variants) {
    const bool is_unique = !variant.quant.empty() && num_of_quant[variant.quant] == 1;
    const HubName name{repo, is_unique ? variant.quant : variant.parts.front().path};
    if (const auto chosen = choose_files(files, name)) models.push_back(model_of(name, snapshot, *chosen));
  }
  for (const HubFile& file : files)  // image encoders
    if (const auto chosen = choose_files(files, {repo, file.path}); chosen && gguf_variants(chosen->files).empty())
      models.push_back(model_of({repo, file.path}, snapshot, *chosen));
  if (!variants.empty()) return models;
  if (const auto chosen = choose_files(files, {repo})) models.push_back(model_of({repo}, snapshot, *chosen));
  return models;
}

bool is_below(const fs::path& path, const fs::path& folder) {
  const fs::path relative = path.lexically_relative(folder);
  return !relative.empty() && *relative.begin() != "..";
}

// Returns the blobs that the snapshots of a repository use, as absolute paths.
std::set<fs::path> used_blobs(const fs::path& snapshots) {
  std::set<fs::path> blobs;
  std::error_code error;
  for (fs::recursive_directory_iterator at(snapshots, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    if (at->is_symlink(ignored)) blobs.insert(fs::weakly_canonical(at->path(), ignored));
  }
  return blobs;
}

void remove_empty_folders(const fs::path& folder) {
  std::error_code ignored;
  for (const fs::path& entry : entries_of(folder))
    if (fs::is_directory(fs::symlink_status(entry, ignored))) remove_empty_folders(entry);
  if (entries_of(folder).empty()) fs::remove(folder, ignored);
}

}  // namespace

std::string cache_folder_name(const std::string& repo) {
  std::string name(kPrefix);
  for (const char c : repo) c == '/' ? name += kSeparator : name += c;
  return name;
}

fs::path HubCache::repo_folder(const std::string& repo) const {
  return root_ / cache_folder_name(repo);
}

fs::path HubCache::blob_path(const std::string& repo, const std::string& digest) const {
  return repo_folder(repo) / "blobs" / digest;
}

fs::path HubCache::lock_path(const std::string& repo, const std::string& digest) const {
  return root_ / ".locks" / cache_folder_name(repo) / (digest + ".lock");
}

fs::path HubCache::snapshot_folder(const std::string& repo, const std::string& commit) const {
  return repo_folder(repo) / "snapshots" / commit;
}

// The folder is named by the URL's digest, because two hosts may have files of one name. Part numbers stay in the file's name.
fs::path HubCache::url_path(const std::string& url) const {
  constexpr std::size_t kDigits = 16, kMaxName = 150;
  const std::string plain = url.substr(0, url.find('#'));
  std::string name = plain.substr(0, plain.find('?'));
  name = name.substr(name.rfind('/') + 1);
  for (char& c : name) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!is_plain && c != '-' && c != '_' && c != '.') c = '_';
  }
  if (name.size() > kMaxName) name.erase(0, name.size() - kMaxName);
  if (name.empty() || name.front() == '.') name.insert(0, "model");
  const std::string digest = to_hex(Sha256::of(std::as_bytes(std::span(plain))));
  return url_root_ / digest.substr(0, kDigits) / name;
}

Result<void> HubCache::link(const std::string& repo, const std::string& commit, const HubFile& file) const {
  const fs::path path = snapshot_folder(repo, commit) / file.path;
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (error) return io_error(path, error);
  const fs::path target = fs::path(blob_path(repo, file.digest)).lexically_relative(path.parent_path());
  if (fs::is_symlink(fs::symlink_status(path, error)) && fs::read_symlink(path, error) == target) return {};
  // A rename replaces an old link so that the path always exists.
  const fs::path draft = path.parent_path() / fmt::format(".{}.{}.link", path.filename().string(), getpid());
  fs::remove(draft, error);
  fs::create_symlink(target, draft, error);
  if (error) return io_error(path, error);
  fs::rename(draft, path, error);
  if (error) return io_error(path, error);
  return {};
}

Result<void> HubCache::set_main(const std::string& repo, const std::string& commit) const {
  const fs::path path = repo_folder(repo) / "refs" / "main";
  const fs::path draft = path.parent_path() / fmt::format(".main.{}", getpid());
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (error) return io_error(path, error);
  std::ofstream(draft) << commit;
  fs::rename(draft, path, error);
  if (error) return io_error(path, error);
  return {};
}

std::vector<fs::path> HubCache::snapshots(const std::string& repo) const {
  constexpr std::size_t kCommitDigits = 40;
  const fs::path folder = repo_folder(repo) / "snapshots";
  std::vector<fs::path> found = entries_of(folder);
  const auto time_of = [](const fs::path& path) {
    std::error_code ignored;
    return fs::last_write_time(path, ignored);
  };
  std::ranges::sort(found, std::ranges::greater(), time_of);
  const std::string main = first_line(repo_folder(repo) / "refs" / "main");
  if (is_hex(main, kCommitDigits)) {
    std::erase(found, folder / main);
    found.insert(found.begin(), folder / main);
  }
  return found;
}

std::optional<CachedModel> HubCache::find(const HubName& name) const {
  for (const fs::path& snapshot : snapshots(name.repo)) {
    const std::vector<HubFile> files = files_in(snapshot);
    if (const auto chosen = choose_files(files, name)) {
      CachedModel model = model_of(name, snapshot, *chosen);
      if (name.variant.empty()) model.name = HubName{name.repo, chosen->quant}.text();
      return model;
    }
  }
  return std::nullopt;
}

std::optional<CachedModel> HubCache::find_url(const std::string& url) const {
  const fs::path path = url_path(url);
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::nullopt;
  return CachedModel{.name = url, .path = path, .num_bytes = size_of(path), .num_files = 1};
}

void HubCache::list_repo(const std::string& repo, std::vector<CachedModel>& models) const {
  std::set<std::string> names;
  for (const fs::path& snapshot : snapshots(repo))
    for (CachedModel& model : models_in(repo, snapshot))
      if (names.insert(model.name).second) models.push_back(std::move(model));
  if (names.empty())
    if (const std::uint64_t bytes = bytes_in(repo_folder(repo)); bytes > 0)
      models.push_back({.name = repo, .path = repo_folder(repo), .num_bytes = bytes, .is_complete = false});
}

std::vector<CachedModel> HubCache::list() const {
  std::vector<CachedModel> models;
  for (const fs::path& folder : entries_of(root_)) {
    std::string name = folder.filename().string();
    if (!name.starts_with(kPrefix)) continue;
    name.erase(0, kPrefix.size());
    if (const std::size_t at = name.find(kSeparator); at != std::string::npos) name.replace(at, kSeparator.size(), "/");
    if (is_repo_name(name, true)) list_repo(name, models);
  }
  for (const fs::path& folder : entries_of(url_root_)) {
    const std::string url = first_line(folder / "url");
    if (url.empty() || url_path(url).parent_path() != folder) continue;
    auto model = find_url(url);
    if (!model) model = CachedModel{.name = url, .path = folder, .num_bytes = bytes_in(folder), .is_complete = false};
    models.push_back(*std::move(model));
  }
  std::ranges::sort(models, {}, &CachedModel::name);
  return models;
}

Result<std::uint64_t> HubCache::remove(const HubName& name) const {
  if (!name.variant.empty()) return remove_variant(name);
  const fs::path folder = repo_folder(name.repo);
  std::error_code error;
  if (!fs::is_directory(fs::symlink_status(folder, error)))
    return fail(ErrorCode::not_found, "MODEL", fmt::format("{} is not in {}", name.repo, root_.string()), "quire list shows what is there");
  const std::uint64_t bytes = bytes_in(folder);
  fs::remove_all(folder, error);
  if (error) return io_error(folder, error);
  fs::remove_all(root_ / ".locks" / cache_folder_name(name.repo), error);
  return bytes;
}

Result<std::uint64_t> HubCache::remove_variant(const HubName& name) const {
  const fs::path repo = repo_folder(name.repo), all = repo / "snapshots";
  std::uint64_t freed = 0;
  bool is_found = false;
  std::set<fs::path> blobs;
  std::error_code error;
  const fs::path blob_folder = fs::weakly_canonical(repo / "blobs", error);
  for (const fs::path& snapshot : snapshots(name.repo)) {
    const auto chosen = choose_files(files_in(snapshot), name);
    if (!chosen) continue;
    is_found = true;
    for (const HubFile& file : chosen->files) {
      const fs::path path = snapshot / file.path;
      if (fs::is_symlink(fs::symlink_status(path, error)))
        blobs.insert(fs::weakly_canonical(path, error));
      else
        freed += size_of(path);
      fs::remove(path, error);
      if (error) return io_error(path, error);
    }
  }
  if (!is_found)
    return fail(ErrorCode::not_found, "MODEL", fmt::format("{} is not in {}", name.text(), root_.string()),
                "quire list shows what is there");
  const std::set<fs::path> used = used_blobs(all);
  for (const fs::path& blob : blobs) {
    if (used.contains(blob) || !is_below(blob, blob_folder)) continue;
    freed += size_of(blob);
    fs::remove(blob, error);
    if (error) return io_error(blob, error);
  }
  remove_empty_folders(all);
  return freed;
}

Result<std::uint64_t> HubCache::remove_url(const std::string& url) const {
  const fs::path folder = url_path(url).parent_path();
  std::error_code error;
  if (!fs::is_directory(folder, error))
    return fail(ErrorCode::not_found, "MODEL", fmt::format("{} is not in {}", url, url_root_.string()), "quire list shows what is there");
  const std::uint64_t bytes = bytes_in(folder);
  fs::remove_all(folder, error);
  if (error) return io_error(folder, error);
  return bytes;
}

}  // namespace quire
