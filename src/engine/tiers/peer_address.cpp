#include "engine/tiers/peer_address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <array>
#include <charconv>
#include <string_view>

namespace quire {

Result<RemoteAddress> parse_peer_address(const std::string& text, const char* field, bool may_be_free) {
  const auto refuse = [&](const char* problem) {
    return fail(ErrorCode::invalid_argument, field, fmt::format("'{}' {}", text, problem), "use HOST:PORT or [IPv6]:PORT");
  };
  RemoteAddress address;
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return refuse("has no host or no port");
  address.host = text.substr(0, colon);
  const bool is_bracketed = address.host.size() > 2 && address.host.starts_with('[') && address.host.ends_with(']');
  if (is_bracketed) address.host = address.host.substr(1, address.host.size() - 2);
  if (!is_bracketed && address.host.find_first_of(":[]") != std::string::npos) return refuse("is not an address");
  const char* const begin = text.data() + colon + 1;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(begin, end, address.port);
  if (begin == end || error != std::errc() || stop != end || (address.port == 0 && !may_be_free))
    return refuse("has no port from 1 to 65535");
  return address;
}

std::string canonical_host(std::string host) {
  if (host.size() > 2 && host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  std::array<unsigned char, sizeof(in6_addr)> address{};
  std::array<char, INET6_ADDRSTRLEN> text{};
  for (const int family : {AF_INET, AF_INET6})
    if (inet_pton(family, host.c_str(), address.data()) == 1)
      return inet_ntop(family, address.data(), text.data(), text.size()) == nullptr ? host : text.data();
  for (char& letter : host)
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  return host;
}

}  // namespace quire
