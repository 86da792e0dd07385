// Tests type, code, param and headers of error responses.
#include "server/http/error_response.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <string>
#include <utility>

#include "base/context_overflow.h"

namespace quire {
namespace {

namespace json = boost::json;

TEST(ErrorBodies, HaveTypeCodeAndParamForEachStatus) {
  const auto body = [](unsigned status, const Error& error) {
    const json::value shown_error = json::parse(error_body(error, status)).at("error");
    return std::string(shown_error.at("type").as_string()) + " " + json::serialize(shown_error.at("code")) + " " +
           json::serialize(shown_error.at("param"));
  };
  const Error plain{ErrorCode::invalid_argument, "f", "m", "r"};
  EXPECT_EQ(body(400, plain), R"(invalid_request_error null "f")");
  EXPECT_EQ(body(400, {ErrorCode::unsupported, "", "m", "r"}), R"(invalid_request_error "unsupported" null)");
  EXPECT_EQ(body(400, overflow_error("messages", {.prompt_tokens = 9, .answer_tokens = 1, .max_model_len = 8, .is_at_least = false})),
            R"(invalid_request_error "context_length_exceeded" "messages")");
  EXPECT_EQ(body(401, plain), R"(authentication_error "invalid_api_key" "f")");
  EXPECT_EQ(body(403, plain), R"(permission_error "forbidden" "f")");
  EXPECT_EQ(body(404, plain), R"(invalid_request_error "not_found" "f")");
  EXPECT_EQ(body(404, {ErrorCode::not_found, "model", "m", "r"}), R"(invalid_request_error "model_not_found" "model")");
  EXPECT_EQ(body(404, {ErrorCode::not_found, "previous_response_id", "m", "r"}),
            R"(invalid_request_error "previous_response_not_found" "previous_response_id")");
  EXPECT_EQ(body(405, plain), R"(invalid_request_error "method_not_allowed" "f")");
  EXPECT_EQ(body(413, plain), R"(invalid_request_error "too_large" "f")");
  EXPECT_EQ(body(415, plain), R"(invalid_request_error "unsupported_media_type" "f")");
  EXPECT_EQ(body(421, plain), R"(invalid_request_error "unknown_host" "f")");
  EXPECT_EQ(body(429, plain), R"(rate_limit_error "overloaded" "f")");
  EXPECT_EQ(body(431, plain), R"(invalid_request_error "headers_too_large" "f")");
  EXPECT_EQ(body(499, plain), R"(invalid_request_error null "f")");
  EXPECT_EQ(body(500, plain), R"(server_error null "f")");
  EXPECT_EQ(body(503, {ErrorCode::overloaded, "", "m", "r"}), R"(server_error "overloaded" null)");
  EXPECT_EQ(body(503, {ErrorCode::shutting_down, "", "m", "r"}), R"(server_error "shutting_down" null)");
  EXPECT_EQ(json::parse(error_body(plain, 400)).at("error").at("message"), "f: m; r");
  const std::pair<ErrorCode, unsigned> statuses[] = {
      {ErrorCode::invalid_argument, 400}, {ErrorCode::unsupported, 400},   {ErrorCode::not_found, 404}, {ErrorCode::too_large, 413},
      {ErrorCode::overloaded, 429},       {ErrorCode::shutting_down, 503}, {ErrorCode::corrupt, 500},   {ErrorCode::io, 500}};
  for (const auto& [code, status] : statuses) {
    const HttpResponse response = error_response({code, "f", "m", "r"}, 9);
    EXPECT_EQ(response.status, status);
    EXPECT_EQ(response.content_type, "application/json");
    EXPECT_EQ(response.headers, status == 429 || status == 503 ? HttpHeaders({{"Retry-After", "9"}}) : HttpHeaders());
  }
  EXPECT_EQ(error_response(401, plain).headers, (HttpHeaders{{"WWW-Authenticate", "Bearer"}}));
  EXPECT_EQ(error_response(503, plain).headers, (HttpHeaders{{"Retry-After", "1"}}));
  EXPECT_EQ(shown(std::string(101, 'x')), std::string(100, 'x'));
  EXPECT_EQ(shown("a\xFF"), "a\xEF\xBF\xBD");
}

}  // namespace
}  // namespace quire
