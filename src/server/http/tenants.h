#pragma once
// Checks API keys and maps them to tenants. Also computes the salts that separate the cached prefixes of tenants.
#include <array>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest.h"
#include "quire/base/error.h"
#include "quire/server_options.h"

namespace quire {

// Parses "NAME=KEY". Errors name `field` and never contain a key.
Result<TenantKey> parse_tenant_key(std::string_view text, const char* field);
// Reads a file with one NAME=KEY per line. Skips empty lines and lines that begin with '#'. Errors name the field "tenant_keys_file" and
// the line.
Result<std::vector<TenantKey>> read_tenant_keys(const std::string& path);
// Checks the tenant keys in ServerOptions, also against its `api_key`.
Result<void> check_tenant_keys(const ServerOptions& options);

// Looks up keys by digests that include a random number of this process, so the time of a lookup reveals nothing about a key.
class ApiKeys {
 public:
  explicit ApiKeys(const ServerOptions& options);
  // Returns the tenant of the key. Returns an empty string for the server's own key, and for every client if no key is required. Errors:
  // the key is missing or wrong.
  [[nodiscard]] Result<std::string> tenant_of(std::string_view authorization) const;

 private:
  [[nodiscard]] Sha256Digest digest_of(std::string_view key) const;

  std::array<std::uint32_t, 8> random_;
  std::map<Sha256Digest, std::string> tenants_;  // keys are digests of the API keys
};

// Returns the salt for a request's block hashes: the client's salt or, if there is a secret, a digest of the secret, the tenant and the
// salt.
std::string salt_of(const std::string& tenant_secret, std::string_view tenant, std::string cache_salt);

}  // namespace quire
