#pragma once
// Decides whether a request comes from this machine. A proxy on this machine makes every client look local, so a client counts as remote if
// there is any sign of an untrusted proxy.
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <string>
#include <vector>

namespace quire {

// The parts of a connection and of a request's header that show where the client is.
struct ClientNetworkInfo {
  boost::asio::ip::address peer;
  boost::asio::ip::tcp::endpoint local;  // the server's end of the connection
  unsigned http_version = 11;
  std::string host;                        // the request's Host header
  std::vector<std::string> forwarded;      // lines of the Forwarded header, as received
  std::vector<std::string> forwarded_for;  // lines of the X-Forwarded-For header
  bool has_proxy_header = false;           // any other header that proxies add
};

// Returns whether the client is on this machine. There are two cases:
// - Without a proxy: the peer is a loopback address, there is no proxy header, and Host is a loopback name with this port. The check of
//   Host detects a proxy that adds no header, because clients usually call a proxy by another name or port.
// - Through `trusted_proxies` (IP addresses): every hop is a trusted proxy, and all addresses are loopback addresses.
[[nodiscard]] bool is_local_client(const ClientNetworkInfo& info, const std::vector<std::string>& trusted_proxies);

// Returns the address of a request's client: the peer or, if the peer is a trusted proxy, the last hop that is not a trusted proxy. An IPv6
// address is reduced to its /64 network, because one client may own the whole network.
[[nodiscard]] std::string client_address(const ClientNetworkInfo& info, const std::vector<std::string>& trusted_proxies);

}  // namespace quire
