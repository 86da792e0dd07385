#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace quire {

// Returns a URL that a browser or curl on this machine can use.
inline std::string server_url(const std::string& host, std::uint16_t port) {
  if (host == "0.0.0.0") return fmt::format("http://127.0.0.1:{}", port);
  if (host == "::") return fmt::format("http://[::1]:{}", port);
  const bool is_v6 = host.find(':') != std::string::npos;
  return fmt::format("http://{}{}{}:{}", is_v6 ? "[" : "", host, is_v6 ? "]" : "", port);
}

}  // namespace quire
