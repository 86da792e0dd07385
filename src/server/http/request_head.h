#pragma once
// Converts the head of a request that Boost.Beast has read into an HttpRequest, and builds the responses to invalid and too large requests.
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/optional.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "quire/server_options.h"
#include "server/http/http.h"

namespace quire {

// A body type for Boost.Beast that grows as data arrives. It reserves no memory for the length that a header announces.
struct GrowingBody {
  using value_type = std::string;
  class reader {
   public:
    template <bool is_request, class Fields>
    reader(boost::beast::http::header<is_request, Fields>& /*header*/, value_type& body) : body_(&body) {}
    void init(const boost::optional<std::uint64_t>& /*length*/, boost::system::error_code& code) { code = {}; }
    template <class Buffers>
    std::size_t put(const Buffers& buffers, boost::system::error_code& code) {
      code = {};
      std::size_t size = 0;
      for (const auto& buffer : boost::beast::buffers_range_ref(buffers)) {
        body_->append(static_cast<const char*>(buffer.data()), buffer.size());
        size += buffer.size();
      }
      return size;
    }
    void finish(boost::system::error_code& code) { code = {}; }

   private:
    value_type* body_;
  };
};

using RequestParser = boost::beast::http::request_parser<GrowingBody>;
using RequestHeader = boost::beast::http::request_header<>;

inline constexpr const char* kRequestId = "X-Request-Id";

// Returns the error of a header, from its first byte to its empty line, or an empty string. Proxies and this server must agree where a
// request ends (RFC 9112, 6.3 and 11.2). Therefore refuses:
// - any Transfer-Encoding except `chunked`, and also `chunked` together with Content-Length or in HTTP/1.0;
// - a Content-Length that is repeated or not a number;
// - a folded line, an invalid field name, a bare CR or LF.
[[nodiscard]] std::string framing_problem(std::string_view header);

// Splits a target in absolute form (RFC 9112, 3.2.2) into the path and the host. Returns false if the target is invalid.
[[nodiscard]] bool take_absolute_form(HttpRequest& request);

// Sets all fields except the body. Keeps `id` if the client sends no usable id.
void fill_request_head(const RequestParser& parser, const boost::asio::ip::tcp::socket& socket, const ServerOptions& options,
                       HttpRequest& request);

[[nodiscard]] HttpResponse not_http_response(const std::string& why);
[[nodiscard]] HttpResponse body_too_slow_response();
[[nodiscard]] HttpResponse too_many_answers_response(const ServerOptions& options);
[[nodiscard]] HttpResponse too_many_bodies_response(const ServerOptions& options);
[[nodiscard]] HttpResponse body_too_large_response(const ServerOptions& options);

// Returns the response to a request that could not be read or has too many headers. Returns nullopt if the request is valid or the client
// has disconnected.
[[nodiscard]] std::optional<HttpResponse> read_error_response(const boost::system::error_code& code, const RequestHeader& header,
                                                              const ServerOptions& options);

}  // namespace quire
