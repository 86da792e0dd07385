#pragma once
// Addresses of other servers, as users and requests write them.
#include <string>

#include "quire/base/error.h"
#include "runtime/remote/remote_address.h"

namespace quire {

// Parses HOST:PORT or [IPv6]:PORT. Port 0 (a free port, or any port) is accepted only with `may_be_free`. Errors name `field`.
Result<RemoteAddress> parse_peer_address(const std::string& text, const char* field, bool may_be_free = false);

// Returns the same text for all spellings of a host: lower-case letters, IP addresses in shortest form, no brackets. Asks no name server.
std::string canonical_host(std::string host);

}  // namespace quire
