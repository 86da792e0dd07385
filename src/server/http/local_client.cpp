#include "server/http/local_client.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/trim.h"
#include "server/http/host_name.h"

namespace quire {

namespace asio = boost::asio;

namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.push_back(trim(text.substr(0, end), " \t"));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// Parses "192.0.2.1", "192.0.2.1:80", "::1" and "[::1]:80", with or without double quotes.
std::optional<asio::ip::address> hop_address(std::string_view text) {
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') text = text.substr(1, text.size() - 2);
  boost::system::error_code code;
  const auto bare = asio::ip::make_address(std::string(text), code);
  if (!code) return plain_address(bare);
  const auto host = parse_host_name(text);
  return host ? host->address : std::nullopt;
}

// Returns the parameter `for` of one hop in a Forwarded header (RFC 7239).
std::string_view forwarded_client(std::string_view hop) {
  for (const std::string_view pair : split(hop, ';'))
    if (pair.size() > 4 && to_lower(pair.substr(0, 4)) == "for=") return pair.substr(4);
  return {};
}

std::vector<std::string_view> hops_of(const std::vector<std::string>& lines) {
  std::vector<std::string_view> hops;
  for (const std::string& line : lines)
    for (const std::string_view hop : split(line, ',')) hops.push_back(hop);
  return hops;
}

bool is_trusted(const asio::ip::address& address, const std::vector<std::string>& trusted_proxies) {
  return std::ranges::any_of(trusted_proxies, [&](const std::string& proxy) { return hop_address(proxy) == address; });
}

// Returns whether the chain of hops ends at a loopback address. Follows the hops from the last to the first. A trusted proxy at a loopback
// address must report each hop, because a loopback address that a remote proxy reports is not this machine.
bool leads_to_loopback(asio::ip::address client, const std::vector<std::string_view>& clients,
                       const std::vector<std::string>& trusted_proxies) {
  for (std::size_t i = clients.size(); i-- > 0;) {
    const auto next = hop_address(clients[i]);
    if (!client.is_loopback() || !is_trusted(client, trusted_proxies) || !next) return false;
    client = *next;
  }
  return client.is_loopback();
}

}  // namespace

std::string client_address(const ClientNetworkInfo& info, const std::vector<std::string>& trusted_proxies) {
  asio::ip::address client = plain_address(info.peer);
  std::vector<std::string_view> hops = hops_of(info.forwarded_for);
  if (hops.empty()) {
    hops = hops_of(info.forwarded);
    std::ranges::transform(hops, hops.begin(), forwarded_client);
  }
  for (std::size_t i = hops.size(); i-- > 0 && is_trusted(client, trusted_proxies);) {
    const auto next = hop_address(hops[i]);
    if (!next) break;
    client = *next;
  }
  if (!client.is_v6()) return client.to_string();
  auto bytes = client.to_v6().to_bytes();
  std::fill(bytes.begin() + 8, bytes.end(), std::uint8_t{0});
  return asio::ip::address_v6(bytes).to_string() + "/64";
}

bool is_local_client(const ClientNetworkInfo& info, const std::vector<std::string>& trusted_proxies) {
  const asio::ip::address peer = plain_address(info.peer);
  std::vector<std::string_view> forwarded = hops_of(info.forwarded);
  const std::vector<std::string_view> forwarded_for = hops_of(info.forwarded_for);
  if (is_trusted(peer, trusted_proxies)) {
    std::ranges::transform(forwarded, forwarded.begin(), forwarded_client);
    // A proxy may write only one of the two headers and pass on the client's value of the other. Both headers must therefore lead to this
    // machine.
    return (!forwarded.empty() || !forwarded_for.empty()) && leads_to_loopback(peer, forwarded, trusted_proxies) &&
           leads_to_loopback(peer, forwarded_for, trusted_proxies);
  }
  const bool passed_on = info.has_proxy_header || !forwarded.empty() || !forwarded_for.empty();
  const auto host = parse_host_name(info.host);
  // Requires HTTP/1.1: nginx uses HTTP/1.0 to its upstream servers by default, and current clients do not.
  return peer.is_loopback() && !passed_on && info.http_version >= 11 && host && host->is_loopback() && host->port == info.local.port();
}

}  // namespace quire
