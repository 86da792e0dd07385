#include "engine/publish/local_endpoint.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>

namespace quire {
namespace {

struct FreeAddresses {
  void operator()(addrinfo* addresses) const { freeaddrinfo(addresses); }
  void operator()(ifaddrs* interfaces) const { freeifaddrs(interfaces); }
};

bool is_same_host(const sockaddr& one, const sockaddr& other) {
  if (one.sa_family != other.sa_family) return false;
  if (one.sa_family == AF_INET)
    return reinterpret_cast<const sockaddr_in&>(one).sin_addr.s_addr == reinterpret_cast<const sockaddr_in&>(other).sin_addr.s_addr;
  return one.sa_family == AF_INET6 && std::memcmp(&reinterpret_cast<const sockaddr_in6&>(one).sin6_addr,
                                                  &reinterpret_cast<const sockaddr_in6&>(other).sin6_addr, sizeof(in6_addr)) == 0;
}

// Returns whether the address is a wildcard or a loopback address. No interface lists all of 127.0.0.0/8.
bool is_any_or_loopback(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    const std::uint32_t host = ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr);
    return host == INADDR_ANY || host >> 24U == IN_LOOPBACKNET;
  }
  if (address.sa_family != AF_INET6) return false;
  const in6_addr& host = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  return IN6_IS_ADDR_UNSPECIFIED(&host) || IN6_IS_ADDR_LOOPBACK(&host);
}

bool is_local_address(const sockaddr& address) {
  if (is_any_or_loopback(address)) return true;
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) return false;
  const std::unique_ptr<ifaddrs, FreeAddresses> interfaces(found);
  for (const ifaddrs* at = found; at != nullptr; at = at->ifa_next)
    if (at->ifa_addr != nullptr && is_same_host(*at->ifa_addr, address)) return true;
  return false;
}

// Returns the numeric address of a host name if the name belongs to this machine; else an empty text.
std::string local_address_of(const std::string& name) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(name.c_str(), nullptr, &wanted, &found) != 0) return {};
  const std::unique_ptr<addrinfo, FreeAddresses> addresses(found);
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    std::array<char, NI_MAXHOST> text{};
    if (!is_local_address(*at->ai_addr)) continue;
    if (getnameinfo(at->ai_addr, at->ai_addrlen, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0)
      return at->ai_family == AF_INET6 ? "[" + std::string(text.data()) + "]" : text.data();
  }
  return {};
}

}  // namespace

std::string bindable_endpoint(const std::string& endpoint) {
  constexpr std::string_view kTcp = "tcp://";
  if (!endpoint.starts_with(kTcp)) return endpoint;
  const std::size_t colon = endpoint.rfind(':');
  if (colon < kTcp.size()) return endpoint;  // without a port
  const std::string written = endpoint.substr(kTcp.size(), colon - kTcp.size());
  if (written.empty() || written == "*" || if_nametoindex(written.c_str()) != 0) return endpoint;
  const bool is_bracketed = written.starts_with('[') && written.ends_with(']');
  const std::string own = local_address_of(is_bracketed ? written.substr(1, written.size() - 2) : written);
  return own.empty() ? own : std::string(kTcp) + own + endpoint.substr(colon);
}

}  // namespace quire
