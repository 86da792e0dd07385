#pragma once
// Decides whether a request comes from this machine. A proxy here makes every client look local, so any sign of a proxy counts against it.
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <string>
#include <vector>

namespace quire {

// Facts from a connection and a request's header about the client's location.
struct ClientNetworkInfo {
  boost::asio::ip::address peer;
  boost::asio::ip::tcp::endpoint local;  // the connection's local end
  unsigned http_version = 11;
  std::string host;                        // the request's Host header
  std::vector<std::string> forwarded;      // lines of the Forwarded header, as received
  std::vector<std::string> forwarded_for;  // lines of the X-Forwarded-For header
  bool has_proxy_header = false;           // any other header that proxies add
};

// Returns true if the client is on this machine. Without a proxy: the peer is a loopback address, there is no proxy header, and Host is a
// loopback name with this port (a proxy that adds no header was asked at another port or name). Through `trusted_proxies` (IP addresses):
// every hop is one of them, and all addresses are loopback.
[[nodiscard]] bool is_local_client(const ClientNetworkInfo& info, const std::vector<std::string>& trusted_proxies);

// Returns the address of a request's client: the peer or, if that is a trusted proxy, the last hop before it that is not trusted. An IPv6
// address is reduced to its network of 64 bits, because one client may have all of that.
[[nodiscard]] std::string client_address(const ClientNetworkInfo& info, const std::vector<std::string>& trusted_proxies);

}  // namespace quire
