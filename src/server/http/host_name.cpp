#include "server/http/host_name.h"

#include <algorithm>
#include <boost/asio/ip/address_v4.hpp>
#include <boost/url/parse.hpp>

namespace quire {

namespace asio = boost::asio;

bool HostName::is_loopback() const {
  return address ? address->is_loopback() : name == "localhost";
}

std::optional<HostName> parse_host_name(std::string_view text, std::uint16_t default_port) {
  const auto parsed = boost::urls::parse_authority(text);
  if (!parsed || parsed->has_userinfo() || parsed->host_type() == boost::urls::host_type::ipvfuture) return std::nullopt;
  HostName host;
  host.name = to_lower(parsed->host_address());
  if (host.name.empty()) return std::nullopt;
  host.port = parsed->has_port() && !parsed->port().empty() ? parsed->port_number() : default_port;
  boost::system::error_code code;
  const auto address = asio::ip::make_address(host.name, code);
  if (!code) host.address = plain_address(address);
  return host;
}

asio::ip::address plain_address(const asio::ip::address& address) {
  if (address.is_v6() && address.to_v6().is_v4_mapped()) return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
  return address;
}

std::string to_lower(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return lower;
}

}  // namespace quire
