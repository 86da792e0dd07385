#include "hub/model_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

namespace quire {
namespace {

constexpr std::size_t kMaxPartBytes = 96;  // the hub's limit for names

bool is_name_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
}

// The hub allows neither ".." nor "--" in a name, and the layout of the cache separates owner and name with "--".
bool is_name_part(std::string_view part) {
  const auto is_edge = [](char c) { return c == '-' || c == '.'; };
  return !part.empty() && part.size() <= kMaxPartBytes && std::ranges::all_of(part, is_name_byte) && !is_edge(part.front()) &&
         !is_edge(part.back()) && part.find("--") == std::string_view::npos && part.find("..") == std::string_view::npos;
}

std::optional<HubName> parse_repo(std::string_view text, bool may_have_no_owner) {
  const std::size_t colon = text.find(':');
  const std::string_view repo = text.substr(0, colon);
  if (!is_repo_name(repo, may_have_no_owner)) return std::nullopt;
  const std::string_view variant = colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
  if (colon != std::string_view::npos && variant.empty()) return std::nullopt;
  return HubName{std::string(repo), std::string(variant)};
}

// Returns the name of the repository if the text after the hub's address is "org/repo" or a GGUF file of its main branch.
std::optional<HubName> parse_page(std::string_view page) {
  while (page.ends_with('/')) page.remove_suffix(1);
  page = page.substr(0, page.find_first_of("?#"));
  for (const std::string_view kind : {"/resolve/main/", "/blob/main/", "/tree/main"}) {
    const std::size_t at = page.find(kind);
    if (at == std::string_view::npos || !is_repo_name(page.substr(0, at), false)) continue;
    const std::string_view file = page.substr(at + kind.size());
    if (!file.empty() && !file.ends_with(".gguf")) return std::nullopt;
    return HubName{std::string(page.substr(0, at)), std::string(file)};
  }
  return is_repo_name(page, false) ? std::optional(HubName{std::string(page)}) : std::nullopt;
}

bool is_url(std::string_view text) {
  return text.starts_with("http://") || text.starts_with("https://");
}

bool is_file_name(std::string_view text) {
  return text.ends_with(".gguf") || text.ends_with(".safetensors") || text.ends_with(".bin");
}

}  // namespace

bool is_repo_name(std::string_view text, bool may_have_no_owner) {
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos) return may_have_no_owner && is_name_part(text);
  return is_name_part(text.substr(0, slash)) && is_name_part(text.substr(slash + 1));
}

Result<ModelName> parse_model_name(std::string_view text, std::string_view endpoint) {
  if (is_url(text)) {
    const bool is_of_hub = text.starts_with(endpoint) && text.substr(endpoint.size()).starts_with('/');
    if (const auto name = is_of_hub ? parse_page(text.substr(endpoint.size() + 1)) : std::nullopt) return *name;
    return FileUrl{std::string(text)};
  }
  for (const std::string_view prefix : {"hf://", "hf.co/", "huggingface.co/"}) {
    if (!text.starts_with(prefix)) continue;
    if (auto name = parse_repo(text.substr(prefix.size()), prefix == "hf://")) return *std::move(name);
    return fail(ErrorCode::invalid_argument, "MODEL", fmt::format("'{}' does not name a repository", text.substr(0, 200)),
                "write ORG/REPO or ORG/REPO:QUANT after the prefix");
  }
  const std::string_view repo = text.substr(0, text.find(':'));
  if (auto name = is_file_name(repo) ? std::nullopt : parse_repo(text, false)) return *std::move(name);
  return LocalPath{std::string(text)};
}

}  // namespace quire
