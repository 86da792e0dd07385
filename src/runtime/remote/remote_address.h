#pragma once
// Where a store in the network is, as its users write it, and how to get in there.
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
  std::string ca_file;  // certificates that are trusted; empty: those of the system

  // Nobody outside of this machine is asked.
  [[nodiscard]] bool is_local() const;
  // Without user and password: for messages.
  [[nodiscard]] std::string name() const;
};

// redis://[user:password@]host[:port][/database], rediss:// for TLS, unix:///path of a socket. Errors name `kv_remote`, and no password.
Result<RemoteAddress> parse_remote_address(std::string_view text);

}  // namespace quire
