#include "runtime/remote/remote_address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <boost/url/parse.hpp>
#include <boost/url/url_view.hpp>
#include <charconv>
#include <optional>

#include "net/port.h"

namespace quire {
namespace {

std::unexpected<Error> bad_address(const char* what) {
  return fail(ErrorCode::invalid_argument, "kv_remote", what,
              "use redis://[user:password@]host[:port][/database], rediss:// for TLS, or unix:///path");
}

template <class Number>
std::optional<Number> number_of(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

// Compares whole addresses, because a host name that begins with "127." or "localhost" may belong to another machine.
bool RemoteAddress::is_local() const {
  in_addr address{};
  const bool is_v4 = inet_pton(AF_INET, host.c_str(), &address) == 1;
  return !unix_path.empty() || host == "localhost" || host == "::1" || (is_v4 && ntohl(address.s_addr) >> 24U == IN_LOOPBACKNET);
}

std::string RemoteAddress::name() const {
  if (!unix_path.empty()) return unix_path;
  return host.contains(':') ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

Result<RemoteAddress> parse_remote_address(std::string_view text) {
  const auto url = boost::urls::parse_uri(text);
  if (!url) return bad_address("the address is not a valid URL");
  RemoteAddress address;
  const std::string_view scheme = url->scheme();
  const std::string path = url->path();
  if (url->has_query() || url->has_fragment()) return bad_address("the address must not have a query or a fragment");
  address.user = url->user();
  address.password = url->password();
  if (scheme == "unix") {
    if (!url->host().empty() || url->has_port() || path.size() < 2) return bad_address("a unix:// address must have a path and no host");
    address.unix_path = path;
    return address;
  }
  if (scheme != "redis" && scheme != "rediss") return bad_address("the address must begin with redis://, rediss:// or unix://");
  address.is_tls = scheme == "rediss";
  address.host = url->host_address();
  if (address.host.empty()) return bad_address("the address has no host");
  if (url->has_port()) {
    const auto port = parse_port(std::string_view(url->port()));
    if (!port) return bad_address("the port must be a number from 1 to 65535");
    address.port = *port;
  }
  if (path.size() > 1) {
    const auto database = number_of<std::uint32_t>(std::string_view(path).substr(1));
    if (!database) return bad_address("the path after the host must be a database number");
    address.database = *database;
  }
  return address;
}

}  // namespace quire
