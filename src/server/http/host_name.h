#pragma once
// Names and addresses in headers: what stands in Host, in Origin and in a list of proxies. All of it comes from outside.
#include <boost/asio/ip/address.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quire {

struct HostName {
  std::string name;  // lower case; IPv6 without brackets
  std::uint16_t port = 0;
  std::optional<boost::asio::ip::address> address;  // if the name is one

  // localhost, 127.0.0.0/8 or [::1].
  [[nodiscard]] bool is_loopback() const;
};

// "name", "name:port", "[::1]:port".
[[nodiscard]] std::optional<HostName> parse_host_name(std::string_view text, std::uint16_t default_port = 80);

// An IPv4 address inside an IPv6 one is the former.
[[nodiscard]] boost::asio::ip::address plain_address(const boost::asio::ip::address& address);

[[nodiscard]] std::string to_lower(std::string_view text);

}  // namespace quire
