#pragma once
// Addresses of other servers in options and requests.
#include <string>

#include "quire/base/error.h"
#include "runtime/remote/remote_address.h"

namespace quire {

// Parses HOST:PORT or [IPv6]:PORT. Port 0 (any port, or a free port) is accepted only with `may_be_free`. Errors name `field`.
Result<RemoteAddress> parse_peer_address(const std::string& text, const char* field, bool may_be_free = false);

// Returns the canonical form of a host: lower-case letters, IP addresses in their shortest form, and no brackets. Queries no name server.
std::string canonical_host(std::string host);

}  // namespace quire
