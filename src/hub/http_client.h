#pragma once
// Sends a GET over http or https, and follows redirects. Blocks; used by commands on the main thread.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "quire/base/error.h"

namespace quire {

class NetTls;

struct HttpGet {
  std::string url;
  std::string token{};  // sent as a bearer token to the scheme, host and port of `token_url`, and to no other
  std::string token_url{};
  std::uint64_t first_byte = 0;  // above 0: asks for the bytes from this one (Range)
  std::string if_range{};        // the ETag for which first_byte is valid; empty: any
};

// The answer without its body.
struct HttpHead {
  unsigned status = 0;
  std::string url{};   // after redirects
  std::string etag{};  // as the host sent it
  std::string link{};
  std::string error_code{}, error_message{};      // the hub's X-Error-Code and X-Error-Message
  std::optional<std::uint64_t> content_length{};  // of this answer's body
  std::optional<std::uint64_t> first_byte{};      // of Content-Range
  std::optional<std::uint64_t> total_bytes{};     // of Content-Range
  std::optional<std::uint32_t> retry_after_s{};
};

// Receives the body of an answer with status 200 or 206. An error ends the request and is returned by get().
struct HttpSink {
  std::function<Result<void>(const HttpHead&)> begin;
  std::function<Result<void>(std::span<const std::byte>)> take;
};

class HttpClient {
 public:
  // Returns the last answer, after at most 10 redirects. Answers with another status than 200 and 206 have their body skipped. Errors:
  // `unavailable`: no connection, no bytes for 60 s, or the connection ended early (a retry may succeed); `invalid_argument`: a URL that is
  // not supported, a redirect from https to http, or too many redirects; `unsupported`: no certificates for https; errors of the sink.
  Result<HttpHead> get(const HttpGet& request, const HttpSink& sink);

 private:
  Result<std::shared_ptr<const NetTls>> tls_for(bool is_https);

  std::shared_ptr<const NetTls> tls_;  // created by the first https request
};

// Returns the host and port of a URL for messages; the whole text if it is not a URL.
[[nodiscard]] std::string host_in(const std::string& url);

// Returns the URL that a reference, which may be relative, has in an answer from `base`. Error: `invalid_argument`.
Result<std::string> resolve_url(const std::string& base, const std::string& reference);

// Returns the path with all bytes escaped that a URL may not contain; '/' stays.
[[nodiscard]] std::string escape_path(std::string_view path);

}  // namespace quire
