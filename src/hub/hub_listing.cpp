#include "hub/hub_listing.h"

#include <fmt/format.h>

#include <algorithm>

#include "format/json.h"

namespace quire {
namespace {

constexpr std::uint64_t kMaxFileBytes = std::uint64_t{16} << 40;
constexpr std::size_t kMaxPathBytes = 1024, kMaxNameBytes = 200;
constexpr std::size_t kSha1Digits = 40, kSha256Digits = 64;
constexpr JsonLimits kLimits{.max_bytes = kMaxListingBytes, .max_depth = 16};

constexpr const char* kListing = "listing of the hub";

// Returns the text without control characters and cut to a length that fits into an error.
std::string shown(std::string_view text) {
  std::string result(text.substr(0, 100));
  std::ranges::replace_if(result, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }, '?');
  return result;
}

Result<HubFile> read_file(const JsonRef& entry) {
  auto path = entry.get<std::string>("path");
  if (!path) return std::unexpected(std::move(path.error()));
  if (!is_safe_path(*path))
    return fail(ErrorCode::corrupt, kListing, fmt::format("contains the file name '{}', which is not allowed", shown(*path)),
                "use another repository");
  HubFile file{.path = *std::move(path)};
  const auto lfs = entry.find("lfs");
  file.is_lfs = lfs.has_value();
  const JsonRef& source = lfs ? *lfs : entry;
  auto digest = source.get<std::string>("oid");
  if (!digest) return std::unexpected(std::move(digest.error()));
  const auto size = source.get<std::uint64_t>("size");
  if (!size) return std::unexpected(size.error());
  if (!is_hex(*digest, file.is_lfs ? kSha256Digits : kSha1Digits)) return source.error("oid is not a digest");
  if (*size > kMaxFileBytes) return source.error(fmt::format("size is {} bytes", *size));
  file.digest = *std::move(digest);
  file.size = *size;
  return file;
}

}  // namespace

bool is_hex(std::string_view text, std::size_t num_digits) {
  return text.size() == num_digits && std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_safe_path(std::string_view path) {
  if (path.empty() || path.size() > kMaxPathBytes) return false;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view name = path.substr(begin, end - begin);
    if (name.empty() || name == "." || name == ".." || name.size() > kMaxNameBytes) return false;
    if (std::ranges::any_of(name, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; })) return false;
    begin = end + 1;
  }
  return true;
}

Result<std::string> parse_commit(std::string_view json) {
  const auto value = parse_json(json, "answer of the hub", kLimits);
  if (!value) return std::unexpected(value.error());
  const JsonRef root(*value, "answer of the hub");
  auto commit = root.get<std::string>("sha");
  if (commit && !is_hex(*commit, kSha1Digits)) return root.error("sha is not a commit");
  return commit;
}

Result<std::vector<HubFile>> parse_listing(std::string_view json) {
  const auto value = parse_json(json, kListing, kLimits);
  if (!value) return std::unexpected(value.error());
  const auto entries = JsonRef(*value, kListing).elements();
  if (!entries) return std::unexpected(entries.error());
  std::vector<HubFile> files;
  for (const JsonRef& entry : *entries) {
    const auto type = entry.get<std::string>("type");
    if (!type) return std::unexpected(type.error());
    if (*type != "file") continue;
    auto file = read_file(entry);
    if (!file) return std::unexpected(std::move(file.error()));
    files.push_back(*std::move(file));
  }
  return files;
}

Result<std::vector<std::string>> parse_names(std::string_view json) {
  const auto value = parse_json(json, "answer of the hub", kLimits);
  if (!value) return std::unexpected(value.error());
  const auto entries = JsonRef(*value, "answer of the hub").elements();
  if (!entries) return std::unexpected(entries.error());
  std::vector<std::string> names;
  for (const JsonRef& entry : *entries)
    if (auto name = entry.get<std::string>("id"); name && is_repo_name(*name, false)) names.push_back(*std::move(name));
  return names;
}

std::string next_page(std::string_view link_header) {
  while (!link_header.empty()) {
    const std::size_t open = link_header.find('<'), close = link_header.find('>', open);
    if (open == std::string_view::npos || close == std::string_view::npos) return {};
    const std::size_t end = std::min(link_header.find(',', close), link_header.size());
    const std::string_view parameters = link_header.substr(close, end - close);
    if (parameters.find("rel=\"next\"") != std::string_view::npos || parameters.find("rel=next") != std::string_view::npos)
      return std::string(link_header.substr(open + 1, close - open - 1));
    link_header.remove_prefix(end);
  }
  return {};
}

}  // namespace quire
