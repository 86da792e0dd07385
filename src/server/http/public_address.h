#pragma once
// Which addresses are the internet's, and which are of networks that a stranger has no business in.
#include <boost/asio/ip/address.hpp>

namespace quire {

// False of this machine, private networks, links, shared address space, documentation, multicast and what is reserved (the registries of
// RFC 6890), also where such an IPv4 address stands within an IPv6 one.
[[nodiscard]] bool is_public_address(const boost::asio::ip::address& address);

}  // namespace quire
