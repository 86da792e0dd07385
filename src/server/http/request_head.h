#pragma once
// What Boost.Beast has read of a request, as values, and what to answer where that is not a request or too large.
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <optional>

#include "quire/server_options.h"
#include "server/http/http.h"

namespace quire {

using RequestParser = boost::beast::http::request_parser<boost::beast::http::string_body>;
using RequestHeader = boost::beast::http::request_header<>;

inline constexpr const char* kRequestId = "X-Request-Id";

// Everything but the body. `id` stays as it is where the client gives none that can be used.
void take_head(const RequestParser& parser, const boost::asio::ip::tcp::socket& socket, const ServerOptions& options, HttpRequest& request);

[[nodiscard]] HttpResponse too_many_bodies(const ServerOptions& options);
[[nodiscard]] HttpResponse too_large_a_body(const ServerOptions& options);

// Of a request that could not be read, or has too many headers; nothing if it is fine or the client is not there to hear it.
[[nodiscard]] std::optional<HttpResponse> refusal_of(const boost::system::error_code& code, const RequestHeader& header,
                                                     const ServerOptions& options);

}  // namespace quire
