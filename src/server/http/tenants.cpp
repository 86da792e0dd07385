// Reads and checks tenant keys once, when the server is configured. The server's thread then looks up a key for every request. A key never
// appears in an error or a log. Keys are compared by digests that include a random number, so the time of a lookup reveals nothing about a
// key.
#include "server/http/tenants.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>
#include <utility>

#include "server/http/host_name.h"

namespace quire {

namespace {

constexpr std::size_t kMaxNameBytes = 64;
constexpr std::size_t kMaxKeyBytes = 512;
constexpr std::size_t kMaxFileBytes = 512 << 10;
constexpr const char* kFileField = "tenant_keys_file";
constexpr const char* kForm = "write NAME=KEY: NAME consists of letters, digits, '-', '_' and '.', KEY of visible ASCII characters";

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
}

// Returns the error of an entry, or an empty string. The text never contains the key.
std::string problem_of(const TenantKey& entry) {
  if (entry.tenant.empty()) return "has no tenant name";
  if (entry.tenant.size() > kMaxNameBytes)
    return fmt::format("has a tenant name of {} bytes, more than {}", entry.tenant.size(), kMaxNameBytes);
  if (!std::ranges::all_of(entry.tenant, is_name_character)) return "has a tenant name with invalid characters";
  if (entry.key.empty()) return fmt::format("has no key for '{}'", entry.tenant);
  if (entry.key.size() > kMaxKeyBytes) return fmt::format("has a key of {} bytes, more than {}", entry.key.size(), kMaxKeyBytes);
  if (!std::ranges::all_of(entry.key, [](char c) { return c > ' ' && c <= '~'; })) return "has a key with invalid characters";
  return {};
}

// Parses "NAME=KEY". `what` is the position of the entry, for errors.
Result<TenantKey> parse_entry(std::string_view text, const char* field, const std::string& what) {
  const std::size_t end = text.find('=');
  if (end == std::string_view::npos) return fail(ErrorCode::invalid_argument, field, what + "has no '='", kForm);
  TenantKey entry{std::string(text.substr(0, end)), std::string(text.substr(end + 1))};
  if (const std::string problem = problem_of(entry); !problem.empty())
    return fail(ErrorCode::invalid_argument, field, what + problem, kForm);
  return entry;
}

Result<std::string> read_bounded(const std::string& path) {
  // Reads one byte more than the limit, to detect a file that is too large.
  std::string text(kMaxFileBytes + 1, '\0');
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (in) in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!in && !in.eof())
    return fail(ErrorCode::not_found, kFileField, fmt::format("'{}' cannot be read: {}", path, std::strerror(errno)),
                "use a readable file of tenant keys");
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (text.size() > kMaxFileBytes)
    return fail(ErrorCode::invalid_argument, kFileField, fmt::format("'{}' is larger than {} KiB", path, kMaxFileBytes >> 10U),
                "write one line NAME=KEY for each tenant");
  return text;
}

}  // namespace

Result<TenantKey> parse_tenant_key(std::string_view text, const char* field) {
  return parse_entry(text, field, "");
}

Result<std::vector<TenantKey>> read_tenant_keys(const std::string& path) {
  const auto text = read_bounded(path);
  if (!text) return std::unexpected(text.error());
  std::vector<TenantKey> keys;
  std::map<std::string, std::size_t> line_of;  // keys are API keys
  std::string_view rest = *text;
  for (std::size_t number = 1; !rest.empty(); ++number) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with('#')) continue;
    auto entry = parse_entry(line, kFileField, fmt::format("line {} ", number));
    if (!entry) return std::unexpected(entry.error());
    if (const auto [first, fresh] = line_of.try_emplace(entry->key, number); !fresh)
      return fail(ErrorCode::invalid_argument, kFileField, fmt::format("line {} repeats the key of line {}", number, first->second),
                  "use each key only once");
    keys.push_back(std::move(*entry));
  }
  if (keys.empty()) return fail(ErrorCode::invalid_argument, kFileField, fmt::format("'{}' contains no key", path), kForm);
  return keys;
}

Result<void> check_tenant_keys(const ServerOptions& options) {
  std::map<std::string_view, std::string> owners;  // keys are API keys
  if (!options.api_key.empty()) owners.emplace(options.api_key, "the server itself (api_key)");
  for (std::size_t i = 0; i < options.tenant_keys.size(); ++i) {
    const TenantKey& entry = options.tenant_keys[i];
    if (const std::string problem = problem_of(entry); !problem.empty())
      return fail(ErrorCode::invalid_argument, "tenant_keys", fmt::format("entry {} {}", i + 1, problem), kForm);
    if (const auto [owner, fresh] = owners.try_emplace(entry.key, fmt::format("'{}'", entry.tenant)); !fresh)
      return fail(ErrorCode::invalid_argument, "tenant_keys",
                  fmt::format("entry {} gives '{}' a key that {} already has", i + 1, entry.tenant, owner->second),
                  "use each key only once");
  }
  return {};
}

ApiKeys::ApiKeys(const ServerOptions& options) {
  std::random_device device;
  std::ranges::generate(random_, std::ref(device));
  if (!options.api_key.empty()) tenants_.emplace(digest_of(options.api_key), "");
  for (const TenantKey& entry : options.tenant_keys) tenants_.emplace(digest_of(entry.key), entry.tenant);
}

Sha256Digest ApiKeys::digest_of(std::string_view key) const {
  Sha256 digest;
  digest.update(std::as_bytes(std::span(random_)));
  digest.update(std::as_bytes(std::span(key)));
  return digest.finish();
}

Result<std::string> ApiKeys::tenant_of(std::string_view authorization) const {
  if (tenants_.empty()) return std::string();
  // The scheme is case-insensitive (RFC 9110, 11.1), and several spaces may follow it.
  constexpr std::string_view kScheme = "bearer";
  const std::string_view rest = authorization.substr(std::min(kScheme.size(), authorization.size()));
  if (to_lower(authorization.substr(0, kScheme.size())) == kScheme && rest.starts_with(' ')) {
    const auto found = tenants_.find(digest_of(rest.substr(std::min(rest.find_first_not_of(' '), rest.size()))));
    if (found != tenants_.end()) return found->second;
  }
  return fail(ErrorCode::invalid_argument, "Authorization", authorization.empty() ? "is missing" : "does not contain a valid key",
              "send 'Authorization: Bearer KEY'");
}

std::string salt_of(const std::string& tenant_secret, std::string_view tenant, std::string cache_salt) {
  if (tenant_secret.empty()) return cache_salt;
  // The lengths ensure that different triples give different texts.
  const std::string text = fmt::format("{}:{}{}:{}{}", tenant_secret.size(), tenant_secret, tenant.size(), tenant, cache_salt);
  return to_hex(Sha256::of(std::as_bytes(std::span(text))));
}

}  // namespace quire
