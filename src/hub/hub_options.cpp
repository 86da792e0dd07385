#include "hub/hub_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "hub/first_line.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

std::optional<std::string> value_of(const Environment& environment, const char* name) {
  auto value = environment(name);
  return value && !value->empty() ? value : std::nullopt;
}

fs::path expanded(const std::string& path, const fs::path& home) {
  if (path == "~") return home;
  return path.starts_with("~/") ? home / path.substr(2) : fs::path(path);
}

std::string trimmed(std::string text) {
  constexpr const char* kSpaces = " \t\r\n";
  text.erase(0, std::min(text.find_first_not_of(kSpaces), text.size()));
  text.erase(text.find_last_not_of(kSpaces) + 1);
  return text;
}

bool is_true(const std::optional<std::string>& value) {
  if (!value) return false;
  std::string upper = *value;
  for (char& c : upper)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return upper == "1" || upper == "TRUE" || upper == "YES" || upper == "ON";
}

}  // namespace

Result<HubOptions> read_hub_options(const Environment& environment) {
  HubOptions options;
  const fs::path home = value_of(environment, "HOME").value_or("/");
  const auto folder = [&](const char* name) -> std::optional<fs::path> {
    const auto value = value_of(environment, name);
    return value ? std::optional(expanded(*value, home)) : std::nullopt;
  };
  const fs::path caches = folder("XDG_CACHE_HOME").value_or(home / ".cache");
  const fs::path hub_home = folder("HF_HOME").value_or(caches / "huggingface");
  options.cache = folder("HF_HUB_CACHE").value_or(hub_home / "hub");
  options.url_cache = caches / "quire" / "models";
  options.is_offline = is_true(value_of(environment, "HF_HUB_OFFLINE"));
  if (auto endpoint = value_of(environment, "HF_ENDPOINT")) {
    while (endpoint->ends_with('/')) endpoint->pop_back();
    if (!endpoint->starts_with("http://") && !endpoint->starts_with("https://"))
      return fail(ErrorCode::invalid_argument, "HF_ENDPOINT", fmt::format("'{}' is not a URL", *endpoint), "use https://HOST");
    options.endpoint = *std::move(endpoint);
  }
  options.token = trimmed(value_of(environment, "HF_TOKEN").value_or(""));
  if (options.token.empty()) options.token = trimmed(first_line(folder("HF_TOKEN_PATH").value_or(hub_home / "token")));
  if (std::ranges::any_of(options.token, [](char c) { return c <= ' ' || c >= '\x7f'; }))
    return fail(ErrorCode::invalid_argument, "HF_TOKEN", "contains a space or a character that is not ASCII", "copy the token again");
  return options;
}

}  // namespace quire
