// A GET with redirects. Each request has a separate connection. No answer is trusted: a header may give a false length, and a redirect may
// lead to any host, so a token is sent only to the origin that the caller names.
#include "hub/http_client.h"

#include <fmt/format.h>

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>
#include <boost/url/parse.hpp>
#include <boost/url/url.hpp>
#include <charconv>
#include <chrono>
#include <utility>
#include <vector>

#include "net/port.h"
#include "net/timed_stream.h"
#include "quire/base/version.h"

namespace quire {

namespace beast = boost::beast;
namespace http = beast::http;
namespace urls = boost::urls;

namespace {

constexpr unsigned kMaxRedirects = 10;
constexpr std::uint32_t kMaxHeaderBytes = 64 << 10;
constexpr std::size_t kChunkBytes = 256 << 10;
constexpr std::chrono::seconds kStallTime(60);
constexpr std::uint16_t kHttpPort = 80, kHttpsPort = 443;

struct Target {
  urls::url url;
  std::string host;
  std::uint16_t port = 0;
  bool is_https = false;

  [[nodiscard]] std::string origin() const { return fmt::format("{}://{}:{}", is_https ? "https" : "http", host, port); }
};

std::string escaped(char c) {
  return fmt::format("%{:02X}", static_cast<unsigned char>(c));
}

bool is_url_byte(char c) {
  return c > ' ' && c < '\x7f' && std::string_view("\"<>\\^`{|}").find(c) == std::string_view::npos;
}

// Escapes bytes that may not occur in a URL. Hosts of files send some of them in Location.
std::string escape_reference(std::string_view text) {
  std::string result;
  for (const char c : text) is_url_byte(c) ? result += c : result += escaped(c);
  return result;
}

std::unexpected<Error> bad_url(std::string_view text, const char* why) {
  return fail(ErrorCode::invalid_argument, "MODEL", fmt::format("'{}' {}", text.substr(0, 300), why), "use an http or https URL");
}

// Parses a URL, or with `from` the target of a redirect, which may be relative.
Result<Target> parse_target(const Target* from, std::string_view text) {
  const std::string reference = escape_reference(text);
  const auto parsed = urls::parse_uri_reference(reference);
  Target target;
  if (!parsed || (from == nullptr && !parsed->has_scheme())) return bad_url(text, "is not a URL");
  if (from == nullptr)
    target.url = *parsed;
  else if (!urls::resolve(from->url, *parsed, target.url))
    return bad_url(text, "is not a URL");
  target.is_https = target.url.scheme_id() == urls::scheme::https;
  const bool is_http = target.url.scheme_id() == urls::scheme::http;
  target.host = std::string(target.url.host_address());
  for (char& c : target.host)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  const auto port =
      target.url.has_port() ? parse_port(std::string_view(target.url.port())) : std::optional(target.is_https ? kHttpsPort : kHttpPort);
  // The parser reads 127.0.0.1.example.org as the address 127.0.0.1 followed by a path.
  const std::string path(target.url.encoded_path());
  const bool is_whole = path.empty() || path.front() == '/';
  if ((!target.is_https && !is_http) || target.host.empty() || !port || !is_whole || target.url.has_userinfo())
    return bad_url(text, "is not supported");
  if (from != nullptr && from->is_https && !target.is_https) return bad_url(text, "is a redirect from https to http, which is refused");
  target.port = *port;
  return target;
}

http::request<http::empty_body> request_for(const HttpGet& get, const Target& target) {
  constexpr unsigned kHttp11 = 11;
  const std::string path(target.url.encoded_target());
  http::request<http::empty_body> request(http::verb::get, path.empty() || path.front() != '/' ? "/" + path : path, kHttp11);
  request.set(http::field::host, std::string(target.url.encoded_host_and_port()));
  request.set(http::field::user_agent, fmt::format("quire/{}", kVersion));
  request.set(http::field::accept, "*/*");
  request.set(http::field::accept_encoding, "identity");
  if (get.first_byte > 0) request.set(http::field::range, fmt::format("bytes={}-", get.first_byte));
  if (get.first_byte > 0 && !get.if_range.empty()) request.set(http::field::if_range, get.if_range);
  const auto trusted = get.token.empty() ? Result<Target>(Target()) : parse_target(nullptr, get.token_url);
  if (!get.token.empty() && trusted && trusted->origin() == target.origin()) request.set(http::field::authorization, "Bearer " + get.token);
  request.keep_alive(false);
  return request;
}

template <class Number>
std::optional<Number> number_in(std::string_view text) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

HttpHead head_of(const http::response_header<>& answer, const Target& target, std::optional<std::uint64_t> content_length) {
  const auto text = [&](std::string_view name) { return std::string(answer[name]); };
  HttpHead head{.status = answer.result_int(), .url = std::string(std::string_view(target.url.buffer()))};
  head.etag = text("ETag");
  head.link = text("Link");
  head.error_code = text("X-Error-Code");
  head.error_message = text("X-Error-Message");
  head.content_length = content_length;
  head.retry_after_s = number_in<std::uint32_t>(text("Retry-After"));
  // "bytes 100-199/1000"
  const std::string range = text("Content-Range");
  const std::size_t dash = range.find('-'), slash = range.find('/');
  if (range.starts_with("bytes ") && dash != std::string::npos && slash != std::string::npos) {
    constexpr std::size_t kUnit = 6;
    if (dash > kUnit) head.first_byte = number_in<std::uint64_t>(std::string_view(range).substr(kUnit, dash - kUnit));
    head.total_bytes = number_in<std::uint64_t>(std::string_view(range).substr(slash + 1));
  }
  return head;
}

bool has_body(unsigned status) {
  return status == 200 || status == 206;
}

bool is_redirect(unsigned status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

// One request and its answer. The deadline moves with every read, so a slow download continues and a stalled one ends.
class Exchange {
 public:
  Exchange(const Target& target, std::shared_ptr<const NetTls> tls)
      : target_(target),
        stream_(next_deadline(), {.host = target.host, .port = target.port, .unix_path = {}, .is_tls = target.is_https}, std::move(tls)) {
    parser_.header_limit(kMaxHeaderBytes);
    parser_.body_limit(boost::none);  // the sink knows the size that it expects
  }

  Result<HttpHead> send(const HttpGet& get, std::string& location) {
    boost::system::error_code code = stream_.open();
    if (!code) http::write(stream_, request_for(get, target_), code);
    if (!code) http::read_header(stream_, buffer_, parser_, code);
    if (code) return lost(code);
    has_answered_ = true;
    location = std::string(parser_.get()[http::field::location]);
    const auto length = parser_.content_length();
    return head_of(parser_.get(), target_, length ? std::optional<std::uint64_t>(*length) : std::nullopt);
  }

  Result<void> read_body(const HttpSink& sink) {
    std::vector<std::byte> chunk(kChunkBytes);
    while (!parser_.is_done()) {
      auto& body = parser_.get().body();
      body.data = chunk.data();
      body.size = chunk.size();
      body.more = true;
      stream_.set_deadline(next_deadline());
      boost::system::error_code code;
      http::read_some(stream_, buffer_, parser_, code);
      if (code == http::error::need_buffer) code = {};
      const std::size_t num_read = chunk.size() - body.size;
      if (num_read > 0)
        if (auto taken = sink.take({chunk.data(), num_read}); !taken) return taken;
      if (code) return std::unexpected(lost(code).error());
    }
    return {};
  }

 private:
  static TimedStream::Clock::time_point next_deadline() { return TimedStream::Clock::now() + kStallTime; }

  std::unexpected<Error> lost(const boost::system::error_code& code) const {
    const std::string why = code == boost::asio::error::timed_out ? fmt::format("no answer for {} s", kStallTime.count())
                            : stream_.why().empty()               ? code.message()
                                                                  : stream_.why();
    return fail(ErrorCode::unavailable, "MODEL",
                has_answered_ ? fmt::format("the connection to {} was lost: {}", target_.origin(), why)
                              : fmt::format("{} cannot be reached: {}", target_.origin(), why),
                "check the network, and HF_ENDPOINT if it is set");
  }

  const Target& target_;
  TimedStream stream_;
  beast::flat_buffer buffer_;
  http::response_parser<http::buffer_body> parser_;
  bool has_answered_ = false;
};

}  // namespace

Result<std::shared_ptr<const NetTls>> HttpClient::tls_for(bool is_https) {
  if (!is_https) return std::make_shared<const NetTls>();
  if (tls_ == nullptr) {
    auto tls = NetTls::create(system_certificate_file(), "SSL_CERT_FILE");
    if (!tls) return tls;
    tls_ = *std::move(tls);
  }
  return tls_;
}

Result<HttpHead> HttpClient::get(const HttpGet& request, const HttpSink& sink) {
  auto target = parse_target(nullptr, request.url);
  for (unsigned hops = 0; target && hops <= kMaxRedirects; ++hops) {
    const auto tls = tls_for(target->is_https);
    if (!tls) return std::unexpected(tls.error());
    Exchange exchange(*target, *tls);
    std::string location;
    auto head = exchange.send(request, location);
    if (!head) return head;
    if (is_redirect(head->status) && !location.empty()) {
      target = parse_target(&*target, location);
      continue;
    }
    if (!has_body(head->status)) return head;
    if (auto begun = sink.begin(*head); !begun) return std::unexpected(std::move(begun.error()));
    if (auto read = exchange.read_body(sink); !read) return std::unexpected(std::move(read.error()));
    return head;
  }
  if (!target) return std::unexpected(std::move(target.error()));
  return fail(ErrorCode::invalid_argument, "MODEL", fmt::format("{} redirects more than {} times", host_in(request.url), kMaxRedirects),
              "check the URL, and HF_ENDPOINT if it is set");
}

std::string host_in(const std::string& url) {
  const auto target = parse_target(nullptr, url);
  return target ? std::string(target->url.encoded_host_and_port()) : url;
}

Result<std::string> resolve_url(const std::string& base, const std::string& reference) {
  const auto from = parse_target(nullptr, base);
  if (!from) return std::unexpected(from.error());
  const auto target = parse_target(&*from, reference);
  if (!target) return std::unexpected(target.error());
  return std::string(std::string_view(target->url.buffer()));
}

std::string escape_path(std::string_view path) {
  std::string result;
  for (const char c : path) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                          std::string_view("/-._~").find(c) != std::string_view::npos;
    is_plain ? result += c : result += escaped(c);
  }
  return result;
}

}  // namespace quire
