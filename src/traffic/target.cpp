// Parses the URL of a server and sends single requests to it. Used on the main thread of a command.
#include "traffic/target.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/url/parse.hpp>
#include <boost/url/url_view.hpp>
#include <optional>
#include <utility>

#include "net/port.h"
#include "quire/base/version.h"
#include "traffic/http_exchange.h"

namespace quire {
namespace {

namespace urls = boost::urls;

constexpr std::uint16_t kHttpPort = 80, kHttpsPort = 443;
constexpr std::size_t kMaxKeptBytes = std::size_t{1} << 20U;

std::unexpected<Error> bad_url(std::string_view text, const char* why) {
  return fail(ErrorCode::invalid_argument, "--url", fmt::format("'{}' {}", text.substr(0, 300), why),
              "write it as http://HOST:PORT, without a path of the API");
}

std::string without_end(std::string path) {
  while (path.ends_with('/')) path.pop_back();
  if (path.ends_with("/v1")) path.resize(path.size() - 3);
  while (path.ends_with('/')) path.pop_back();
  return path;
}

}  // namespace

Result<Target> Target::create(std::string_view url, std::string api_key) {
  const auto parsed = urls::parse_uri(url);
  if (!parsed) return bad_url(url, "is not a URL");
  Target target;
  target.address_.is_tls = parsed->scheme_id() == urls::scheme::https;
  if (!target.address_.is_tls && parsed->scheme_id() != urls::scheme::http) return bad_url(url, "does not begin with http:// or https://");
  const auto port =
      parsed->has_port() ? parse_port(std::string_view(parsed->port())) : std::optional(target.address_.is_tls ? kHttpsPort : kHttpPort);
  if (!port) return bad_url(url, "has a port that is not between 1 and 65535");
  const std::string path(parsed->encoded_path());
  // The parser reads 127.0.0.1.example.org as the address 127.0.0.1 followed by a path.
  if (parsed->host_address().empty() || (!path.empty() && path.front() != '/')) return bad_url(url, "has no valid host");
  if (parsed->has_userinfo() || parsed->has_query() || parsed->has_fragment())
    return bad_url(url, "has more than a host, a port and a path");
  if (std::ranges::any_of(api_key, [](char c) { return c < ' ' || c == '\x7f'; }))
    return fail(ErrorCode::invalid_argument, "--api-key", "contains a control character or a character that is not ASCII",
                "remove it, for instance a line end");
  target.address_.host = parsed->host_address();
  target.address_.port = *port;
  target.address_.certificate_name = target.address_.host;
  target.host_ = std::string(parsed->encoded_host_and_port());
  target.path_ = without_end(path);
  target.url_ = fmt::format("{}://{}{}", target.address_.is_tls ? "https" : "http", target.host_, target.path_);
  target.api_key_ = std::move(api_key);
  auto tls = target.address_.is_tls ? NetTls::create(system_certificate_file(), "SSL_CERT_FILE")
                                    : Result<std::shared_ptr<const NetTls>>(std::make_shared<const NetTls>());
  if (!tls) return std::unexpected(std::move(tls.error()));
  target.tls_ = *std::move(tls);
  return target;
}

std::unique_ptr<NetStream> Target::connect() const {
  return std::make_unique<NetStream>(address_, tls_);
}

std::string Target::request(std::string_view method, std::string_view path, std::string_view body) const {
  std::string text =
      fmt::format("{} {}{} HTTP/1.1\r\nHost: {}\r\nUser-Agent: quire/{}\r\nAccept: */*\r\n", method, path_, path, host_, kVersion);
  if (!api_key_.empty()) text += fmt::format("Authorization: Bearer {}\r\n", api_key_);
  if (!body.empty()) text += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", body.size());
  text += "\r\n";
  text += body;
  return text;
}

Result<Target::Answer> Target::ask(std::string_view method, std::string_view path, std::string_view body,
                                   std::chrono::milliseconds timeout) {
  using Clock = HttpExchange::Clock;
  const Clock::time_point deadline = Clock::now() + timeout;
  HttpExchange exchange(connect(), request(method, path, body));
  Answer answer;
  const auto take = [&](std::string_view part, Clock::time_point /*now*/) {
    answer.body += part.substr(0, kMaxKeptBytes - std::min(kMaxKeptBytes, answer.body.size()));
  };
  std::string why;
  while (exchange.advance(take) == HttpExchange::State::running) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) {
      why = fmt::format("no answer within {} s", std::chrono::duration<double>(timeout).count());
      break;
    }
    pollfd polled = exchange.polled();
    poll(&polled, 1, static_cast<int>(std::min<std::int64_t>(left.count(), 1000)));
    if (const std::string peer = exchange.stream().peer_address(); !peer.empty()) address_.host = peer;
  }
  if (why.empty()) why = exchange.failure();
  if (!why.empty()) {
    const std::string what = exchange.has_answer() ? fmt::format("the answer of {} to {} {} cannot be read: {}", url_, method, path, why)
                                                   : fmt::format("no server answers at {}: {}", url_, why);
    return fail(ErrorCode::unavailable, "--url", what, "start the server, or correct the URL");
  }
  answer.status = exchange.status();
  return answer;
}

}  // namespace quire
