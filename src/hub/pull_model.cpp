// Downloads models. Files of a repository are named by their digests, so a file that several commits share is downloaded once. The commit
// is recorded as refs/main after its last file, so that an interrupted download leaves the previous version of the model usable.
#include "hub/pull_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <fstream>

#include "base/format_bytes.h"
#include "hub/download.h"
#include "hub/hub_api.h"
#include "hub/hub_listing.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

std::uint64_t size_on_disk(const fs::path& path) {
  std::error_code error;
  const std::uint64_t size = fs::file_size(path, error);
  return error ? 0 : size;
}

fs::path with_suffix(fs::path path, const char* suffix) {
  path += suffix;
  return path;
}

// Reports the share of all bytes of a model.
class Progress {
 public:
  Progress(const HubHooks& hooks, std::string what, std::uint64_t total) : hooks_(hooks), what_(std::move(what)), total_(total) {}

  // `num_bytes` of the current file are there.
  void at(std::uint64_t num_bytes) {
    const double done = total_ == 0 ? 1.0 : static_cast<double>(earlier_ + num_bytes) / static_cast<double>(total_);
    hooks_.progress(what_, std::min(done, 1.0));
  }
  void end_file(std::uint64_t num_bytes) {
    earlier_ += num_bytes;
    at(0);
  }

 private:
  const HubHooks& hooks_;
  std::string what_;
  std::uint64_t total_, earlier_ = 0;
};

std::string describe(const HubName& name, const ChosenFiles& chosen) {
  std::string text = name.repo;
  if (!chosen.model.empty()) text += fmt::format(": {}", chosen.quant.empty() ? chosen.model : chosen.quant);
  text += fmt::format(", {} file{}, {}", chosen.files.size(), chosen.files.size() == 1 ? "" : "s", format_bytes(chosen.num_bytes()));
  if (!chosen.other_quants.empty()) text += fmt::format(" (also there: {})", fmt::join(chosen.other_quants, ", "));
  return text;
}

// The files of one repository on their way into the cache.
class RepoPull {
 public:
  RepoPull(const HubOptions& options, const HubName& name, const HubHooks& hooks)
      : name_(name), hooks_(hooks), cache_(options.cache, options.url_cache), api_(options, client_, hooks) {}

  Result<CachedModel> run() {
    auto commit = api_.main_commit(name_.repo);
    if (!commit) return std::unexpected(with_similar_names(std::move(commit.error())));
    commit_ = *std::move(commit);
    const auto listing = api_.list(name_.repo, commit_);
    if (!listing) return std::unexpected(listing.error());
    const auto chosen = choose_files(*listing, name_);
    if (!chosen) return std::unexpected(chosen.error());
    hooks_.say(describe(name_, *chosen));
    if (auto pulled = pull_files(*chosen); !pulled) return std::unexpected(std::move(pulled.error()));
    if (auto set = cache_.set_main(name_.repo, commit_); !set) return std::unexpected(std::move(set.error()));
    for (const std::string& encoder : chosen->image_encoders)
      hooks_.say(fmt::format("an image encoder is there too: add --mmproj {}:{}", name_.repo, encoder));
    const fs::path folder = cache_.snapshot_folder(name_.repo, commit_);
    return CachedModel{.name = name_.variant.empty() ? HubName{name_.repo, chosen->quant}.text() : name_.text(),
                       .path = chosen->model.empty() ? folder : folder / chosen->model,
                       .num_bytes = chosen->num_bytes(),
                       .num_files = chosen->files.size(),
                       .has_tokenizer = chosen->has_tokenizer};
  }

 private:
  Error with_similar_names(Error error) {
    if (error.code != ErrorCode::not_found) return error;
    const std::vector<std::string> names = api_.similar_names(name_.repo);
    if (!names.empty()) error.remedy += fmt::format("; the hub has {}", fmt::join(names, ", "));
    return error;
  }

  [[nodiscard]] bool is_there(const HubFile& file) const {
    std::error_code error;
    const fs::path blob = cache_.blob_path(name_.repo, file.digest);
    return fs::is_regular_file(blob, error) && size_on_disk(blob) == file.size;
  }

  Result<void> pull_files(const ChosenFiles& chosen) {
    std::uint64_t missing = 0, total = 0;
    for (const HubFile& file : chosen.files) {
      if (is_there(file)) continue;
      const std::uint64_t begun = size_on_disk(with_suffix(cache_.blob_path(name_.repo, file.digest), ".incomplete"));
      total += file.size;
      missing += file.size - std::min(file.size, begun);
    }
    if (auto enough = check_disk_space(cache_.root(), missing); !enough) return enough;
    hooks_.say(total == 0 ? fmt::format("already in {}", cache_.root().string())
                          : fmt::format("downloading {} into {}", format_bytes(missing), cache_.root().string()));
    Progress progress(hooks_, "Downloading " + name_.repo, total);
    for (const HubFile& file : chosen.files) {
      if (!is_there(file)) {
        if (auto pulled = pull_file(file, progress); !pulled) return pulled;
        progress.end_file(file.size);
      }
      if (auto linked = cache_.link(name_.repo, commit_, file); !linked) return linked;
    }
    return {};
  }

  Result<void> pull_file(const HubFile& file, Progress& progress) {
    const fs::path blob = cache_.blob_path(name_.repo, file.digest);
    std::error_code error;
    fs::create_directories(blob.parent_path(), error);
    return download(client_,
                    {.name = file.path,
                     .request = api_.file_request(name_.repo, commit_, file.path),
                     .path = blob,
                     .partial = with_suffix(blob, ".incomplete"),
                     .lock = cache_.lock_path(name_.repo, file.digest),
                     .size = file.size,
                     .digest = file.digest,
                     .digest_kind = file.is_lfs ? FileDigest::Kind::sha256 : FileDigest::Kind::git_sha1,
                     .refusal = [&](const HttpHead& head) { return api_.refusal(head, name_.repo); },
                     .progress = [&](std::uint64_t done, std::uint64_t) { progress.at(done); }},
                    hooks_);
  }

  const HubName& name_;
  const HubHooks& hooks_;
  HttpClient client_;
  HubCache cache_;
  HubApi api_;
  std::string commit_;
};

// Returns the digest in the fragment; empty: the URL has none.
Result<std::string> digest_in(const std::string& url) {
  constexpr std::size_t kNumDigits = 64;
  constexpr std::string_view kKey = "sha256=";
  const std::size_t at = url.find('#');
  if (at == std::string::npos) return std::string();
  const std::string fragment = url.substr(at + 1);
  if (!fragment.starts_with(kKey) || !is_hex(std::string_view(fragment).substr(kKey.size()), kNumDigits))
    return fail(ErrorCode::invalid_argument, "MODEL", fmt::format("the fragment '#{}' is not a digest", fragment.substr(0, 100)),
                "write #sha256= and 64 lower-case hexadecimal digits");
  return fragment.substr(kKey.size());
}

// Returns the URLs of all parts if the file's name is that of the first part of a split GGUF; else the URL itself.
std::vector<std::string> part_urls(const std::string& url) {
  constexpr std::string_view kFirst = "-00001-of-";
  constexpr std::uint64_t kMaxParts = 4096;
  const std::size_t at = url.substr(0, url.find_first_of("?#")).rfind(kFirst);
  std::uint64_t count = 0;
  if (at != std::string::npos) std::from_chars(url.data() + at + kFirst.size(), url.data() + url.size(), count);
  if (count < 2 || count > kMaxParts) return {url};
  std::vector<std::string> urls;
  for (std::uint64_t i = 1; i <= count; ++i)
    urls.push_back(url.substr(0, at) + fmt::format("-{:05}-of-", i) + url.substr(at + kFirst.size()));
  return urls;
}

Error url_refusal(const HttpHead& head, const std::string& url) {
  return {ErrorCode::not_found, "MODEL", fmt::format("{} answers with status {}", host_in(url), head.status), "check the URL"};
}

}  // namespace

Result<CachedModel> pull_model(const HubOptions& options, const HubName& name, const HubHooks& hooks) {
  return RepoPull(options, name, hooks).run();
}

Result<CachedModel> pull_url(const HubOptions& options, const std::string& url, const HubHooks& hooks) {
  const HubCache cache(options.cache, options.url_cache);
  const auto digest = digest_in(url);
  if (!digest) return std::unexpected(digest.error());
  const std::vector<std::string> parts = part_urls(url);
  hooks.say(fmt::format("downloading {} into {}", url, options.url_cache.string()));
  if (parts.size() > 1 && !digest->empty())
    return fail(ErrorCode::invalid_argument, "MODEL", "a model in several files has no single digest", "remove #sha256=");
  const fs::path first = cache.url_path(url), folder = first.parent_path();
  std::error_code error;
  fs::create_directories(folder, error);
  std::ofstream(folder / "url") << url.substr(0, url.find('#'));
  HttpClient client;
  std::uint64_t num_bytes = 0;
  // The first part is the last one, because HubCache::find_url() looks for it.
  for (std::size_t i = parts.size(); i-- > 0;) {
    const fs::path path = folder / cache.url_path(parts[i]).filename();
    const std::string name = path.filename().string();
    const auto report = [&](std::uint64_t done, std::uint64_t total) {
      if (total > 0) hooks.progress("Downloading " + name, static_cast<double>(done) / static_cast<double>(total));
    };
    const auto done = download(client,
                               {.name = name,
                                .request = {.url = parts[i], .token = options.token, .token_url = options.endpoint},
                                .path = path,
                                .partial = with_suffix(path, ".incomplete"),
                                .lock = with_suffix(path, ".lock"),
                                .digest = *digest,
                                .etag_file = with_suffix(path, ".etag"),
                                .refusal = [&](const HttpHead& head) { return url_refusal(head, parts[i]); },
                                .progress = report},
                               hooks);
    if (!done) return std::unexpected(done.error());
    num_bytes += size_on_disk(path);
  }
  return CachedModel{.name = url, .path = first, .num_bytes = num_bytes, .num_files = parts.size()};
}

}  // namespace quire
