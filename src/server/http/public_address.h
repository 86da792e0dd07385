#pragma once
// Separates the internet's public addresses from addresses in networks that strangers must not reach.
#include <boost/asio/ip/address.hpp>

namespace quire {

// Returns false for this machine, private networks, link-local addresses, shared address space, documentation, multicast and reserved
// addresses (the registries of RFC 6890). An IPv6 address that contains such an IPv4 address is not public either.
[[nodiscard]] bool is_public_address(const boost::asio::ip::address& address);

}  // namespace quire
