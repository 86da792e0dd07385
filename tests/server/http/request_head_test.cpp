// Tests the checks of a request head, and the responses that refuse a request.
#include "server/http/request_head.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <string>
#include <utility>

namespace quire {
namespace {

namespace json = boost::json;

TEST(FramingErrors, NameTheProblem) {
  const std::string get = "GET / HTTP/1.1\r\n";
  const std::pair<std::string, std::string> cases[] = {
      {get + "Host: a\r\n\r\n", ""},
      {get + "Host: a\r\nContent-Length: 10\r\n\r\n", ""},
      {get + "Host: a\r\nContent-Length:\t 09 \t\r\n\r\n", ""},
      {get + "Transfer-Encoding: \tchunked \r\n\r\n", ""},
      {"GET / HTTP/1.0\r\nContent-Length: 1\r\n\r\n", ""},
      {get + "azAZ09!#$%&'*+-.^_`|~: a\r\n\r\n", ""},
      {"\r\n" + get + "\r\n", "it begins with an empty line"},
      {get + "Host: a\r\n", "its header has no end"},
      {"", "its header has no end"},
      {get + "Host: a\rb\r\n\r\n", "a line contains a bare CR, LF or NUL"},
      {get + "Host: a\nb\r\n\r\n", "a line contains a bare CR, LF or NUL"},
      {get + "Host: a" + std::string(1, '\0') + "\r\n\r\n", "a line contains a bare CR, LF or NUL"},
      {get + " a: b\r\n\r\n", "it has a folded header line"},
      {get + "\ta: b\r\n\r\n", "it has a folded header line"},
      {get + ": b\r\n\r\n", "it has a header line without a valid name"},
      {get + "ab\r\n\r\n", "it has a header line without a valid name"},
      {get + "a b: c\r\n\r\n", "it has a header line without a valid name"},
      {get + "a@b: c\r\n\r\n", "it has a header line without a valid name"},
      {get + "a{b: c\r\n\r\n", "it has a header line without a valid name"},
      {get + "a[b: c\r\n\r\n", "it has a header line without a valid name"},
      {get + "a;b: c\r\n\r\n", "it has a header line without a valid name"},
      {get + "a/b: c\r\n\r\n", "it has a header line without a valid name"},
      {get + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", "it has two Transfer-Encoding headers"},
      {get + "Transfer-Encoding: gzip\r\n\r\n", "its Transfer-Encoding is 'gzip', but only chunked is supported"},
      {get + "Content-Length: 1\r\nContent-Length: 1\r\n\r\n", "it has two Content-Length headers"},
      {get + "Content-Length:\r\n\r\n", "its Content-Length is '', which is not a number"},
      {get + "Content-Length: 1,1\r\n\r\n", "its Content-Length is '1,1', which is not a number"},
      {get + "Content-Length: +1\r\n\r\n", "its Content-Length is '+1', which is not a number"},
      {get + "Content-Length: 1:\r\n\r\n", "its Content-Length is '1:', which is not a number"},
      {get + "Content-Length: 1/\r\n\r\n", "its Content-Length is '1/', which is not a number"},
      {get + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "it has both Transfer-Encoding and Content-Length"},
      {"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.0 does not support Transfer-Encoding"},
  };
  for (const auto& [header, problem] : cases) EXPECT_EQ(framing_problem(header), problem) << header;
  EXPECT_EQ(not_http_response("why").status, 400U);
  EXPECT_EQ(json::parse(not_http_response("why").body).at("error").at("message"),
            "the request is not valid HTTP/1.1: why; send a valid HTTP/1.1 request");
}

TEST(AbsoluteForm, BecomesHostAndPath) {
  const auto taken = [](const std::string& target) {
    HttpRequest request;
    request.host = "before";
    request.target = target;
    return take_absolute_form(request) ? request.host + " " + request.target : "refused";
  };
  EXPECT_EQ(taken("/a"), "before /a");
  EXPECT_EQ(taken("*"), "before *");
  EXPECT_EQ(taken("http://h/a?b"), "h /a?b");
  EXPECT_EQ(taken("https://h:1/a"), "h:1 /a");
  EXPECT_EQ(taken("HTTP://h"), "h /");
  EXPECT_EQ(taken("http://h?q"), "h /?q");
  EXPECT_EQ(taken("http://h#f"), "h /#f");
  EXPECT_EQ(taken("http://"), "refused");
  EXPECT_EQ(taken("https://"), "refused");
  EXPECT_EQ(taken("ftp://h/a"), "refused");
  EXPECT_EQ(taken("h/a"), "refused");
  EXPECT_EQ(taken(""), "refused");
}

TEST(RefusalResponses, HaveStatusTextAndRetryTime) {
  ServerOptions options;
  options.retry_after_s = 7;
  options.max_body_bytes = 100;
  options.max_header_bytes = 2000;
  options.max_header_fields = 3;
  const auto shown_of = [](const HttpResponse& response) {
    std::string retry;
    for (const auto& [name, value] : response.headers) retry += " " + name + "=" + value;
    const json::value error = json::parse(response.body).at("error");
    return std::to_string(response.status) + retry + " " + json::serialize(error.at("code")) + " " +
           std::string(error.at("message").as_string());
  };
  EXPECT_EQ(shown_of(body_too_slow_response()),
            "408 null the body arrived too slowly, and other requests needed its memory; send the request again, faster");
  EXPECT_EQ(shown_of(too_many_answers_response(options)),
            R"(429 Retry-After=7 "overloaded" too many requests are waiting for answers; try again, or start the server with a larger )"
            "--max-connections");
  EXPECT_EQ(shown_of(too_many_bodies_response(options)),
            R"(503 Retry-After=7 "overloaded" the memory for request bodies is full; try again, or start the server with a larger )"
            "--max-body-bytes-in-flight");
  EXPECT_EQ(shown_of(body_too_large_response(options)),
            R"(413 "too_large" the body has more than 100 bytes; send a smaller body, or raise --max-body-bytes)");
  namespace http = boost::beast::http;
  RequestHeader header;
  header.version(11);
  header.insert("Host", "a");
  header.insert("A", "b");
  header.insert("B", "b");
  EXPECT_FALSE(read_error_response({}, header, options)) << "three fields are allowed";
  header.insert("C", "b");
  const std::string too_many =
      R"(431 "headers_too_large" the request has more than 2000 bytes or 3 fields of headers; send fewer or shorter headers)";
  EXPECT_EQ(shown_of(*read_error_response({}, header, options)), too_many);
  EXPECT_EQ(shown_of(*read_error_response(http::error::header_limit, {}, options)), too_many);
  EXPECT_EQ(read_error_response(http::error::body_limit, {}, options)->status, 413U);
  EXPECT_FALSE(read_error_response(http::error::end_of_stream, {}, options));
  EXPECT_FALSE(read_error_response(http::error::partial_message, {}, options));
  EXPECT_FALSE(read_error_response(boost::asio::error::connection_reset, {}, options)) << "it is no error of HTTP";
  EXPECT_EQ(read_error_response(http::error::bad_target, {}, options)->status, 400U);
  RequestHeader old;
  old.version(10);
  EXPECT_FALSE(read_error_response({}, old, options)) << "HTTP/1.0 needs no Host";
  old.version(11);
  const std::string one_host =
      "400 null the request is not valid HTTP/1.1: it must have exactly one Host header; send a valid HTTP/1.1 request";
  EXPECT_EQ(shown_of(*read_error_response({}, old, options)), one_host);
  old.insert("Host", "a");
  EXPECT_FALSE(read_error_response({}, old, options));
  old.insert("Host", "a");
  EXPECT_EQ(shown_of(*read_error_response({}, old, options)), one_host);
}

}  // namespace
}  // namespace quire
