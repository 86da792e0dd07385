// Fetches what a body names by its address. Any thread of the job pool calls this, and waits. Nothing that comes back is trusted: not the
// address that a name stands for (it may be one of this network), not where a redirect leads, not a length that a header tells. One
// connection per address, and no cookies.
#include "server/http/media_fetcher.h"

#include <fmt/format.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <boost/url/parse.hpp>
#include <boost/url/url.hpp>
#include <span>
#include <utility>

#include "quire/base/version.h"
#include "server/http/public_address.h"

namespace quire {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
namespace urls = boost::urls;
using asio::ip::tcp;

struct MediaPlace {
  urls::url url;
  HostName host;
};

// One request, and what came of it.
struct MediaExchange {
  MediaPlace at;
  std::uint64_t max_bytes;
  std::string problem = "no answer in time";  // none: empty
  bool is_too_large = false;
  unsigned status = 0;
  std::string location{}, body{};
};

namespace {

constexpr unsigned kMostRedirects = 3;
constexpr std::uint32_t kMaxHeaderBytes = 16 << 10;
constexpr const char* kElse = "send the picture itself: data:image/png;base64,...";

// The parser takes 127.0.0.1.example.org for an address and a path behind it.
bool is_plain(const urls::url& url) {
  const std::string_view path(url.encoded_path());
  return is_web_address(std::string_view(url.buffer())) && !url.has_userinfo() && (path.empty() || path.front() == '/') &&
         (!url.has_port() || url.port_number() > 0);
}

bool is_secret(const urls::url& url) {
  return url.scheme_id() == urls::scheme::https;
}

std::unexpected<Error> failed(const HostName& host, const std::string& why) {
  return fail(ErrorCode::invalid_argument, "", fmt::format("could not be fetched from {}: {}", host.name, why),
              fmt::format("send an address that gives a picture, or {}", kElse));
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

template <class Stream>
asio::awaitable<boost::system::error_code> ask(Stream& stream, MediaExchange& exchange) {
  boost::system::error_code code;
  const auto request = request_for(exchange);
  co_await http::async_write(stream, request, asio::redirect_error(asio::use_awaitable, code));
  if (code) co_return code;
  beast::flat_buffer buffer;
  http::response_parser<http::string_body> answer;
  answer.header_limit(kMaxHeaderBytes);
  answer.body_limit(exchange.max_bytes);
  co_await http::async_read_header(stream, buffer, answer, asio::redirect_error(asio::use_awaitable, code));
  exchange.is_too_large = code == http::error::body_limit;
  if (code) co_return code;
  exchange.status = answer.get().result_int();
  exchange.location = std::string(answer.get()[http::field::location]);
  // What else it says is of no use.
  if (answer.get().result() != http::status::ok) co_return code;
  co_await http::async_read(stream, buffer, answer, asio::redirect_error(asio::use_awaitable, code));
  exchange.is_too_large = code == http::error::body_limit;
  if (!code) exchange.body = std::move(answer.get().body());
  co_return code;
}

// Verified by name, as browsers do.
asio::awaitable<boost::system::error_code> ask_secretly(beast::tcp_stream plain, asio::ssl::context& context, MediaExchange& exchange) {
  beast::ssl_stream<beast::tcp_stream> stream(std::move(plain), context);
  std::string name = exchange.at.host.name;
  // SSL_set_tlsext_host_name is a macro with an old-style cast.
  if (!exchange.at.host.address) SSL_ctrl(stream.native_handle(), SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, name.data());
  stream.set_verify_callback(asio::ssl::host_name_verification(name));
  boost::system::error_code code;
  co_await stream.async_handshake(asio::ssl::stream_base::client, asio::redirect_error(asio::use_awaitable, code));
  if (!code) code = co_await ask(stream, exchange);
  co_return code;
}

template <class Reaches>
asio::awaitable<void> run(MediaExchange& exchange, beast::tcp_stream stream, asio::ssl::context& context, Reaches reaches) {
  boost::system::error_code code;
  const std::string port = exchange.at.url.has_port() ? std::string(exchange.at.url.port()) : is_secret(exchange.at.url) ? "443" : "80";
  tcp::resolver resolver(stream.get_executor());
  const auto found = co_await resolver.async_resolve(exchange.at.host.name, port, asio::redirect_error(asio::use_awaitable, code));
  if (!code) {
    // What is connected to is what has been looked at: a second look-up might give something else.
    std::vector<tcp::endpoint> endpoints;
    for (const auto& entry : found)
      if (reaches(entry.endpoint().address())) endpoints.push_back(entry.endpoint());
    if (endpoints.empty()) {
      exchange.problem = "it has no address but in a private network, and none that --allowed-media-domains names";
      co_return;
    }
    co_await stream.async_connect(endpoints, asio::redirect_error(asio::use_awaitable, code));
  }
  if (!code) {
    if (is_secret(exchange.at.url))
      code = co_await ask_secretly(std::move(stream), context, exchange);
    else
      code = co_await ask(stream, exchange);
  }
  if (code != beast::error::timeout) exchange.problem = code ? code.message() : "";
}

}  // namespace

struct MediaFetcher::Tls {
  Tls() {
    context.set_default_verify_paths();
    context.set_verify_mode(asio::ssl::verify_peer);
    SSL_CTX_set_min_proto_version(context.native_handle(), TLS1_2_VERSION);
  }
  asio::ssl::context context{asio::ssl::context::tls_client};
};

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
                  "give each host in full, without scheme and port: images.example.org");
    hosts.push_back(*std::move(host));
  }
  return hosts;
}

MediaFetcher::MediaFetcher(Options options) : options_(std::move(options)), tls_(std::make_unique<Tls>()) {}
MediaFetcher::~MediaFetcher() = default;

bool MediaFetcher::names(const HostName& host) const {
  for (const HostName& domain : options_.domains)
    if (domain.address ? domain.address == host.address : domain.name == host.name) return true;
  return false;
}

// An address that is not the internet's must be named itself; localhost names those of loopback.
bool MediaFetcher::reaches(const asio::ip::address& address) const {
  if (is_public_address(address)) return true;
  const asio::ip::address plain = plain_address(address);
  for (const HostName& domain : options_.domains)
    if (domain.address ? plain_address(*domain.address) == plain : domain.is_loopback() && plain.is_loopback()) return true;
  return false;
}

Result<MediaPlace> MediaFetcher::find_place(const MediaPlace* from, const std::string& text) const {
  const auto parsed = urls::parse_uri_reference(text);
  MediaPlace place;
  const bool is_read = parsed && (from == nullptr ? is_web_address(text) : urls::resolve(from->url, *parsed, place.url).has_value());
  if (is_read && from == nullptr) place.url = *parsed;
  const auto host = is_read ? parse_host_name(std::string(place.url.encoded_host()), 0) : std::nullopt;
  const bool falls_back = from != nullptr && is_secret(from->url) && is_read && !is_secret(place.url);
  if (!host || !is_plain(place.url) || falls_back)
    return fail(ErrorCode::invalid_argument, "",
                from == nullptr ? "is no address that is fetched" : "leads to an address that is not followed",
                fmt::format("send one of http or https without a name of a user, or {}", kElse));
  place.host = *host;
  if (names(place.host)) return place;
  return fail(ErrorCode::unsupported, "",
              fmt::format("{} {}, from where this server fetches nothing", from == nullptr ? "is at" : "leads to", place.host.name),
              fmt::format("{}, or name the host in --allowed-media-domains", kElse));
}

MediaExchange MediaFetcher::ask_at(const MediaPlace& place, const Budget& budget) const {
  MediaExchange exchange{.at = place, .max_bytes = options_.max_bytes - budget.num_bytes};
  const auto deadline = budget.deadline.value_or(std::chrono::steady_clock::now());
  asio::io_context io{1};
  beast::tcp_stream stream(io);
  stream.expires_at(deadline);
  asio::co_spawn(io, run(exchange, std::move(stream), tls_->context, [this](const auto& address) { return reaches(address); }),
                 asio::detached);
  io.run_until(deadline);
  return exchange;
}

Result<std::vector<std::byte>> MediaFetcher::fetch(std::string_view text, Budget& budget) const {
  if (!budget.deadline) budget.deadline = std::chrono::steady_clock::now() + options_.timeout;
  auto place = find_place(nullptr, std::string(text));
  for (unsigned hops = 0; place && hops <= kMostRedirects; ++hops) {
    const MediaExchange exchange = ask_at(*place, budget);
    if (exchange.is_too_large)
      return fail(ErrorCode::too_large, "", fmt::format("makes what the request has fetched larger than {} bytes", options_.max_bytes),
                  "send smaller pictures (--max-media-bytes)");
    if (!exchange.problem.empty()) return failed(place->host, exchange.problem);
    const auto status = static_cast<http::status>(exchange.status);
    if (status == http::status::ok) {
      budget.num_bytes += exchange.body.size();
      const auto bytes = std::as_bytes(std::span(exchange.body));
      return std::vector<std::byte>(bytes.begin(), bytes.end());
    }
    if (http::to_status_class(status) != http::status_class::redirection || exchange.location.empty())
      return failed(place->host, fmt::format("it answers {}", exchange.status));
    place = find_place(&*place, exchange.location);
  }
  if (!place) return std::unexpected(std::move(place.error()));
  return fail(ErrorCode::invalid_argument, "", fmt::format("leads on more than {} times", kMostRedirects), kElse);
}

}  // namespace quire
