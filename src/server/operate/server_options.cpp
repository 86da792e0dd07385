// Whether a server can run with its options. Called once, by the thread that makes it, before anything listens. What is given by who
// operates it may be wrong in any field: each error names the option, so that none is found wrong once clients are there.
#include "quire/server_options.h"

#include <fmt/format.h>

#include <boost/asio/ip/address.hpp>
#include <boost/url/parse.hpp>

#include "base/check_range.h"
#include "server/http/host_name.h"
#include "server/http/media_fetcher.h"
#include "server/http/span_exporter.h"
#include "server/http/tenants.h"

namespace quire {

namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kDayMs = 86'400'000;

Result<void> check_hosts(const std::vector<std::string>& hosts) {
  for (const std::string& host : hosts) {
    const auto parsed = parse_host_name(host, 0);
    if (host != "*" && (!parsed || parsed->port != 0))
      return fail(ErrorCode::invalid_argument, "allowed_host", fmt::format("'{}' is not a host name", host),
                  "give it without scheme and port");
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
                "give scheme, host and port only, as in https://chat.example.com");
  }
  return {};
}

Result<void> check_proxies(const std::vector<std::string>& proxies) {
  for (const std::string& proxy : proxies) {
    boost::system::error_code code;
    boost::asio::ip::make_address(proxy, code);
    if (code)
      return fail(ErrorCode::invalid_argument, "trusted_proxy", fmt::format("'{}' is not an IP address", proxy),
                  "use one, such as 127.0.0.1");
  }
  return {};
}

}  // namespace

Result<void> ServerOptions::validate() const {
  // The upper bounds keep sums of what clients may send within what text and buffers are made for.
  for (const auto& checked :
       {check_range("max_body_bytes", max_body_bytes, 1024, 256 * kMiB),
        check_range("max_body_bytes_in_flight", max_body_bytes_in_flight, 2 * max_body_bytes, 1024 * 1024 * kMiB),
        check_range("max_header_bytes", max_header_bytes, 1024, kMiB),
        check_range("max_header_fields", max_header_fields, 8, 10'000),
        check_range("max_connections", max_connections, 1, 1'000'000),
        check_range("max_choices", max_choices, 1, 65'536),
        check_range("max_pictures", max_pictures, 0, 100'000),
        check_range("max_media_bytes", max_media_bytes, 1024, 256 * kMiB),
        check_range("media_timeout_ms", media_timeout_ms, 1, 600'000),
        check_range("max_routed_experts", max_routed_experts, 0, 1024 * kMiB),
        check_range("max_parse_queue", max_parse_queue, 1, 65'536),
        check_range("max_echo_bytes", max_echo_bytes, 0, 1024 * kMiB),
        check_range("max_prompt_logprobs", max_prompt_logprobs, 0, 1024 * kMiB),
        check_range("max_hidden_numbers", max_hidden_numbers, 0, kMaxPooledNumbers),
        check_range("max_sound_seconds", max_sound_seconds, 1, 86'400),
        check_range("max_sound_bytes_in_flight", max_sound_bytes_in_flight, max_sound_seconds * std::uint64_t{64'000}, 1024 * 1024 * kMiB),
        check_range("max_response_store_bytes", max_response_store_bytes, 0, 1024 * 1024 * kMiB),
        check_range("max_stream_buffer_bytes", max_stream_buffer_bytes, 1024, 1024 * kMiB),
        check_range("idle_timeout_ms", idle_timeout_ms, 1, kDayMs),
        check_range("header_timeout_ms", header_timeout_ms, 1, kDayMs),
        check_range("body_timeout_ms", body_timeout_ms, 1, kDayMs),
        check_range("write_timeout_ms", write_timeout_ms, 1, kDayMs),
        check_range("session_timeout_ms", session_timeout_ms, 1, kDayMs),
        check_range("drain_timeout_ms", drain_timeout_ms, 0, kDayMs),
        check_range("retry_after_s", retry_after_s, 0, 3600),
        check_hosts(allowed_hosts),
        check_origins(cors_allow_origins),
        check_proxies(trusted_proxies)}) {
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
