#pragma once
// Parses host names and addresses in Host, Origin and lists of proxies. All of them are untrusted.
#include <boost/asio/ip/address.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quire {

struct HostName {
  std::string name;  // lower case; IPv6 without brackets
  std::uint16_t port = 0;
  std::optional<boost::asio::ip::address> address;  // set if the name is an address

  // Returns true for localhost, 127.0.0.0/8 and [::1].
  [[nodiscard]] bool is_loopback() const;
};

// Parses "name", "name:port" and "[::1]:port". Returns nullopt if the text is invalid.
[[nodiscard]] std::optional<HostName> parse_host_name(std::string_view text, std::uint16_t default_port = 80);

// Returns the IPv4 address inside an IPv4-mapped IPv6 address. Returns any other address unchanged.
[[nodiscard]] boost::asio::ip::address plain_address(const boost::asio::ip::address& address);

[[nodiscard]] std::string to_lower(std::string_view text);

}  // namespace quire
