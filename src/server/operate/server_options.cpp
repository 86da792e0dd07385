// Checks whether a server can run with its options. Called once, before the server listens, on the thread that creates it. Every field is
// checked, so that no error appears only after clients have connected. Each error names the option.
#include "quire/server_options.h"

#include <fmt/format.h>

#include <boost/asio/ip/address.hpp>
#include <boost/url/parse.hpp>

#include "base/check_options.h"
#include "base/check_range.h"
#include "quire/server_option_table.h"
#include "server/http/host_name.h"
#include "server/http/media_fetcher.h"
#include "server/http/span_exporter.h"
#include "server/http/tenants.h"

namespace quire {

namespace {

Result<void> check_hosts(const std::vector<std::string>& hosts) {
  for (const std::string& host : hosts) {
    const auto parsed = parse_host_name(host, 0);
    if (host != "*" && (!parsed || parsed->port != 0))
      return fail(ErrorCode::invalid_argument, "allowed_host", fmt::format("'{}' is not a host name", host),
                  "use a host name without scheme and port");
  }
  return {};
}

Result<void> check_origins(const std::vector<std::string>& origins) {
  for (const std::string& origin : origins) {
    const auto url = boost::urls::parse_uri(origin);
    const bool plain =
        url && url->has_authority() && !url->has_userinfo() && url->encoded_path().empty() && !url->has_query() && !url->has_fragment();
    if (origin == "*" || origin == "null" || plain) continue;
    return fail(ErrorCode::invalid_argument, "cors_allow_origin", fmt::format("'{}' is not an origin", origin),
                "use only scheme, host and port, such as https://chat.example.com");
  }
  return {};
}

Result<void> check_proxies(const std::vector<std::string>& proxies) {
  for (const std::string& proxy : proxies) {
    boost::system::error_code code;
    boost::asio::ip::make_address(proxy, code);
    if (code)
      return fail(ErrorCode::invalid_argument, "trusted_proxy", fmt::format("'{}' is not an IP address", proxy),
                  "use an IP address such as 127.0.0.1");
  }
  return {};
}

}  // namespace

Result<void> ServerOptions::validate() const {
  for (const auto& checked :
       {check_options(kServerOptions, *this),
        check_range("max_body_bytes_in_flight", max_body_bytes_in_flight, 2 * max_body_bytes, kMaxServerBytes),
        check_range("max_audio_bytes_in_flight", max_audio_bytes_in_flight, max_audio_seconds * std::uint64_t{64'000}, kMaxServerBytes),
        check_hosts(allowed_hosts), check_origins(cors_allow_origins), check_proxies(trusted_proxies)}) {
    if (!checked) return checked;
  }
  if (const auto hosts = parse_media_domains(allowed_media_domains); !hosts) return std::unexpected(hosts.error());
  if (!otlp_traces_endpoint.empty())
    if (const auto parsed = parse_span_endpoint(otlp_traces_endpoint, "otlp_traces_endpoint"); !parsed)
      return std::unexpected(parsed.error());
  if (api_key.find_first_of("\r\n\t ") != std::string::npos)
    return fail(ErrorCode::invalid_argument, "api_key", "contains white space", "use a key of visible characters");
  if (const auto checked = check_tenant_keys(*this); !checked) return checked;
  if (allow_remote_admin && api_key.empty()) {
    return fail(ErrorCode::invalid_argument, "allow_remote_admin", "is set without api_key: anyone could pause the engine",
                "set --api-key as well");
  }
  return {};
}

}  // namespace quire
