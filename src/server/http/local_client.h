#pragma once
// Whether a request comes from this machine. A proxy here makes every client look local, so whatever shows one counts against it.
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <string>
#include <vector>

namespace quire {

// What a connection and a request's header tell about where the client is.
struct ClientTrace {
  boost::asio::ip::address peer;
  boost::asio::ip::tcp::endpoint local;  // the connection's end here
  unsigned http_version = 11;
  std::string host;                        // of the request
  std::vector<std::string> forwarded;      // lines of these headers, as they came
  std::vector<std::string> forwarded_for;  // X-Forwarded-For
  bool has_proxy_header = false;           // any other header that proxies add
};

// Directly: the peer is a loopback address, no header is a proxy's, and the client meant this very port of a loopback name (a proxy that
// adds no header was asked at another port or name). Through `trusted_proxies` (IP addresses): every hop is one of them, and all addresses
// are loopback.
[[nodiscard]] bool is_local_client(const ClientTrace& trace, const std::vector<std::string>& trusted_proxies);

}  // namespace quire
