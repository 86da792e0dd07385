#pragma once
// Distinguishes public internet addresses from addresses of internal networks, which clients must not reach through this server.
#include <boost/asio/ip/address.hpp>

namespace quire {

// Returns false for this machine, private networks, link-local addresses, shared address space, documentation, multicast and reserved
// addresses (the registries of RFC 6890). Also returns false for an IPv6 address that contains such an IPv4 address.
[[nodiscard]] bool is_public_address(const boost::asio::ip::address& address);

}  // namespace quire
