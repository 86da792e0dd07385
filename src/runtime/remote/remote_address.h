#pragma once
// Address of a store in the network, with credentials, parsed from the URL that users write.
#include <cstdint>
#include <string>
#include <string_view>

#include "net/stream.h"
#include "quire/base/error.h"

namespace quire {

struct RemoteAddress : NetAddress {
  RemoteAddress() { port = 6379; }

  std::string user, password;  // empty: none
  std::uint32_t database = 0;
  std::string ca_file;  // trusted certificates; empty: the system's

  // Returns whether the host is this machine.
  [[nodiscard]] bool is_local() const;
  // Returns the address without user and password, for messages.
  [[nodiscard]] std::string name() const;
};

// Parses redis://[user:password@]host[:port][/database], rediss:// for TLS, or unix:///path of a socket. Errors name `kv_remote` and
// contain no password.
Result<RemoteAddress> parse_remote_address(std::string_view text);

}  // namespace quire
