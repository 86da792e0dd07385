#pragma once
// Who may ask, as which tenant, and what keeps the cached prefixes of tenants apart.
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

// "NAME=KEY". Errors name `field`, and never tell a key.
Result<TenantKey> parse_tenant_key(std::string_view text, const char* field);
// A line NAME=KEY for each, besides empty ones and those that begin with '#'. Errors name the field "tenant_keys_file" and the line.
Result<std::vector<TenantKey>> read_tenant_keys(const std::string& path);
// Of those that ServerOptions has together with its api_key.
Result<void> check_tenant_keys(const ServerOptions& options);

// Keys are looked up by digests with a random number of this run: how long that takes says nothing about a key.
class ApiKeys {
 public:
  explicit ApiKeys(const ServerOptions& options);
  // Empty: who has the server's own key, or anybody where no key is asked for. Errors: no key, or a wrong one.
  [[nodiscard]] Result<std::string> tenant_of(std::string_view authorization) const;

 private:
  [[nodiscard]] Sha256Digest digest_of(std::string_view key) const;

  std::array<std::uint32_t, 8> random_;
  std::map<Sha256Digest, std::string> tenants_;  // by key
};

// What goes into the names of a request's blocks besides its tokens: the client's own salt, or, with a secret, a digest of secret, tenant
// and salt.
std::string salt_of(const std::string& tenant_secret, std::string_view tenant, std::string cache_salt);

}  // namespace quire
