// Fetches images by the URLs in a body. Called on threads of the job pool, which may block. No reply is trusted: a host name may resolve to
// an address in this network, a redirect may lead to another host, and a header may give a false length. Each URL has a separate connection
// and no cookies.
#include "server/http/media_fetcher.h"

#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <boost/url/parse.hpp>
#include <boost/url/url.hpp>
#include <span>
#include <utility>

#include "net/port.h"
#include "net/timed_stream.h"
#include "quire/base/version.h"
#include "server/http/public_address.h"

namespace quire {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
namespace urls = boost::urls;

struct MediaUrl {
  urls::url url;
  HostName host;
  std::uint16_t port = 0;
};

// The data of one request and its response.
struct MediaExchange {
  MediaUrl at;
  std::uint64_t max_bytes;
  std::string problem = "no answer within the time limit";  // empty: no problem
  bool is_too_large = false;
  unsigned status = 0;
  std::string location{}, body{};
};

namespace {

constexpr unsigned kMaxRedirects = 3;
constexpr std::uint16_t kHttpPort = 80, kHttpsPort = 443;
constexpr std::uint32_t kMaxHeaderBytes = 16 << 10;
constexpr const char* kSendInlineHint = "send the image itself as data:image/png;base64,...";

bool is_https(const urls::url& url) {
  return url.scheme_id() == urls::scheme::https;
}

// Returns the port of the URL, or the default port of its scheme. Returns nullopt if the URL has an invalid port.
std::optional<std::uint16_t> port_of(const urls::url& url) {
  return url.has_port() ? parse_port(std::string_view(url.port())) : is_https(url) ? kHttpsPort : kHttpPort;
}

// Returns whether the URL has a supported scheme, no user name and a valid path. The path must be checked, because the parser reads
// 127.0.0.1.example.org as the address 127.0.0.1 followed by a path.
bool is_supported_url(const urls::url& url) {
  const std::string_view path(url.encoded_path());
  return is_web_address(std::string_view(url.buffer())) && !url.has_userinfo() && (path.empty() || path.front() == '/');
}

std::unexpected<Error> failed(const HostName& host, const std::string& why) {
  return fail(ErrorCode::invalid_argument, "", fmt::format("could not be fetched from {}: {}", host.name, why),
              fmt::format("send the URL of an image, or {}", kSendInlineHint));
}

http::request<http::empty_body> request_for(const MediaExchange& exchange) {
  constexpr unsigned kHttp11 = 11;
  const std::string target(exchange.at.url.encoded_target());
  http::request<http::empty_body> request(http::verb::get, target.empty() || target.front() != '/' ? "/" + target : target, kHttp11);
  request.set(http::field::host, std::string(exchange.at.url.encoded_host_and_port()));
  request.set(http::field::user_agent, fmt::format("quire/{}", kVersion));
  request.set(http::field::accept, "image/*");
  request.keep_alive(false);
  return request;
}

boost::system::error_code ask(TimedStream& stream, MediaExchange& exchange) {
  boost::system::error_code code = stream.open();
  if (code) return code;
  http::write(stream, request_for(exchange), code);
  if (code) return code;
  beast::flat_buffer buffer;
  http::response_parser<http::string_body> answer;
  answer.header_limit(kMaxHeaderBytes);
  answer.body_limit(exchange.max_bytes);
  http::read_header(stream, buffer, answer, code);
  exchange.is_too_large = code == http::error::body_limit;
  if (code) return code;
  exchange.status = answer.get().result_int();
  exchange.location = std::string(answer.get()[http::field::location]);
  // The body of any other response is not needed.
  if (answer.get().result() != http::status::ok) return code;
  http::read(stream, buffer, answer, code);
  exchange.is_too_large = code == http::error::body_limit;
  if (!code) exchange.body = std::move(answer.get().body());
  return code;
}

asio::ip::address address_of(const sockaddr& any) {
  if (any.sa_family == AF_INET) return asio::ip::address_v4(ntohl(reinterpret_cast<const sockaddr_in&>(any).sin_addr.s_addr));
  const auto& six = reinterpret_cast<const sockaddr_in6&>(any);
  asio::ip::address_v6::bytes_type bytes;
  std::ranges::copy(six.sin6_addr.s6_addr, bytes.begin());
  return asio::ip::address_v6(bytes, six.sin6_scope_id);
}

}  // namespace

bool is_web_address(std::string_view url) {
  return url.starts_with("http://") || url.starts_with("https://");
}

Result<std::vector<HostName>> parse_media_domains(const std::vector<std::string>& domains) {
  std::vector<HostName> hosts;
  for (const std::string& domain : domains) {
    auto host = parse_host_name(domain, 0);
    const bool is_whole = host && (domain.starts_with('[') || host->name == to_lower(domain));
    if (!is_whole || host->port != 0 || domain.find('*') != std::string::npos)
      return fail(ErrorCode::invalid_argument, "allowed_media_domains", fmt::format("'{}' is not a host name", domain),
                  "use full host names without scheme and port, such as images.example.org");
    hosts.push_back(*std::move(host));
  }
  return hosts;
}

// If the system's certificates cannot be loaded, every https URL fails with an error that states the cause.
MediaFetcher::MediaFetcher(Options options)
    : options_(std::move(options)), tls_(NetTls::create("", "").value_or(std::make_shared<const NetTls>())) {}

bool MediaFetcher::names(const HostName& host) const {
  for (const HostName& domain : options_.domains)
    if (domain.address ? domain.address == host.address : domain.name == host.name) return true;
  return false;
}

// Returns whether fetching from the address is allowed. An address that is not public must be in the list of domains; the entry localhost
// allows all loopback addresses.
bool MediaFetcher::is_allowed_address(const asio::ip::address& address) const {
  if (is_public_address(address)) return true;
  const asio::ip::address plain = plain_address(address);
  for (const HostName& domain : options_.domains)
    if (domain.address ? plain_address(*domain.address) == plain : domain.is_loopback() && plain.is_loopback()) return true;
  return false;
}

Result<MediaUrl> MediaFetcher::resolve_url(const MediaUrl* from, const std::string& text) const {
  const auto parsed = urls::parse_uri_reference(text);
  MediaUrl target;
  const bool is_read = parsed && (from == nullptr ? is_web_address(text) : urls::resolve(from->url, *parsed, target.url).has_value());
  if (is_read && from == nullptr) target.url = *parsed;
  const auto host = is_read ? parse_host_name(std::string(target.url.encoded_host()), 0) : std::nullopt;
  const auto port = is_read ? port_of(target.url) : std::nullopt;
  const bool falls_back = from != nullptr && is_https(from->url) && is_read && !is_https(target.url);
  if (!host || !port || !is_supported_url(target.url) || falls_back)
    return fail(ErrorCode::invalid_argument, "", from == nullptr ? "is not a supported URL" : "redirects to an unsupported URL",
                fmt::format("send an http or https URL without a user name, or {}", kSendInlineHint));
  target.host = *host;
  target.port = *port;
  if (names(target.host)) return target;
  return fail(ErrorCode::unsupported, "",
              fmt::format("{} {}, which this server may not fetch from", from == nullptr ? "is at" : "redirects to", target.host.name),
              fmt::format("{}, or add the host to --allowed-media-domains", kSendInlineHint));
}

MediaExchange MediaFetcher::make_exchange(const MediaUrl& target, const Budget& budget) const {
  MediaExchange exchange{.at = target, .max_bytes = options_.max_bytes - budget.num_bytes};
  const NetAddress address{.host = target.host.name, .port = target.port, .unix_path = {}, .is_tls = is_https(target.url)};
  bool is_reached = false, is_refused = false;
  TimedStream stream(budget.deadline.value_or(std::chrono::steady_clock::now()), address, tls_, [&](const sockaddr& at) {
    const bool may_be = (at.sa_family == AF_INET || at.sa_family == AF_INET6) && is_allowed_address(address_of(at));
    (may_be ? is_reached : is_refused) = true;
    return may_be;
  });
  const boost::system::error_code code = ask(stream, exchange);
  if (is_refused && !is_reached)
    exchange.problem = "all its addresses are private, and none is listed in --allowed-media-domains";
  else if (code != asio::error::timed_out)
    exchange.problem = !code ? "" : stream.why().empty() ? code.message() : stream.why();
  return exchange;
}

Result<std::vector<std::byte>> MediaFetcher::fetch(std::string_view text, Budget& budget) const {
  if (!budget.deadline) budget.deadline = std::chrono::steady_clock::now() + options_.timeout;
  auto target = resolve_url(nullptr, std::string(text));
  for (unsigned hops = 0; target && hops <= kMaxRedirects; ++hops) {
    const MediaExchange exchange = make_exchange(*target, budget);
    if (exchange.is_too_large)
      return fail(ErrorCode::too_large, "",
                  fmt::format("brings the images fetched for the request to more than {} bytes", options_.max_bytes),
                  "send smaller images, or raise --max-media-bytes");
    if (!exchange.problem.empty()) return failed(target->host, exchange.problem);
    const auto status = static_cast<http::status>(exchange.status);
    if (status == http::status::ok) {
      budget.num_bytes += exchange.body.size();
      const auto bytes = std::as_bytes(std::span(exchange.body));
      return std::vector<std::byte>(bytes.begin(), bytes.end());
    }
    if (http::to_status_class(status) != http::status_class::redirection || exchange.location.empty())
      return failed(target->host, fmt::format("it answers with status {}", exchange.status));
    target = resolve_url(&*target, exchange.location);
  }
  if (!target) return std::unexpected(std::move(target.error()));
  return fail(ErrorCode::invalid_argument, "", fmt::format("redirects more than {} times", kMaxRedirects), kSendInlineHint);
}

}  // namespace quire
