// Reads the API's requests. The first byte picks the route, and the rest is the body, or one header value per line. The result is a value
// or an error with a message, and accepted values stay within their limits.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "fuzz/subject.h"
#include "server/api/openai/small_requests.h"
#include "server/http/error_response.h"
#include "server/http/host_name.h"
#include "server/http/local_client.h"
#include "server/http/query.h"
#include "server/http/request_guard.h"
#include "server/http/request_head.h"
#include "server/request/completion_request.h"
#include "text/utf8.h"

namespace quire {
namespace {

test::FuzzSubject subject("an accepted completion or chat");

constexpr RequestLimits kLimits{.max_choices = 16, .vocab_size = 1000};

void check_error(const Error& error) {
  QUIRE_CHECK(!error.message.empty());
  const HttpResponse response = error_response(error);
  QUIRE_CHECK(response.status >= 400 && response.status < 600);
  QUIRE_CHECK(is_valid_utf8(response.body));
}

void check_completion(const CompletionRequest& request) {
  subject.reached();
  QUIRE_CHECK(request.n >= 1 && request.n <= kLimits.max_choices);
  QUIRE_CHECK(request.prompts.size() <= kLimits.max_choices);
  QUIRE_CHECK(request.stop.size() <= kMaxStopStrings);
  QUIRE_CHECK(request.sampling.validate().has_value());
  for (const Prompt& prompt : request.prompts) {
    const auto* tokens = std::get_if<std::vector<TokenId>>(&prompt);
    if (tokens == nullptr) continue;
    for (const TokenId token : *tokens) QUIRE_CHECK(token >= 0 && token < 1000);
  }
}

template <class T, class Check>
void check_result(const Result<T>& result, const Check& check) {
  if (result.has_value())
    check(*result);
  else
    check_error(result.error());
}

std::string next_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  std::string line(text.substr(0, end));
  text.remove_prefix(std::min(text.size(), end + 1));
  return line;
}

void check_headers(std::string_view text) {
  static const ServerOptions options{.allowed_hosts = {"api.example"}, .cors_allow_origins = {"https://page.example"}};
  HttpRequest request;
  request.method = "POST";
  request.over_loopback = true;
  request.host = next_line(text);
  request.origin = next_line(text);
  request.content_type = next_line(text);
  const auto answer = guard_request(request, options);
  const auto host = parse_host_name(request.host);
  QUIRE_CHECK(answer.has_value() || request.host.empty() ||
              (host && (host->is_loopback() || host->name == "api.example" || (host->address && host->address->is_unspecified()))));
  if (answer) QUIRE_CHECK(answer->status >= 400 && is_valid_utf8(answer->body));
  QUIRE_CHECK(is_valid_utf8(not_http_response(framing_problem(text)).body));
  request.target = request.host;
  if (take_absolute_form(request)) QUIRE_CHECK(request.target == "*" || request.target.starts_with('/'));
  const boost::asio::ip::address loopback = boost::asio::ip::address_v4::loopback();
  ClientNetworkInfo trace{
      .peer = loopback, .local = {loopback, 8000}, .host = "localhost:8000", .forwarded = {next_line(text)}, .forwarded_for = {}};
  QUIRE_CHECK(!is_local_client(trace, {}));
  [[maybe_unused]] const bool local = is_local_client(trace, {"127.0.0.1", "::1"});
  // The address that the proxy appends decides.
  trace.forwarded_for = {next_line(text) + ", 192.0.2.1"};
  QUIRE_CHECK(!is_local_client(trace, {"127.0.0.1", "::1"}));
  QueryReader query("/x?" + std::string(text));
  [[maybe_unused]] const bool flag = query.boolean("a", false);
  if (const auto done = query.finish(); !done) check_error(done.error());
}

}  // namespace
}  // namespace quire

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace quire;  // NOLINT: one function
  if (size == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 5) {
    case 0:
      check_result(parse_completion_request(Api::completion, body, kLimits), check_completion);
      break;
    case 1:
      check_result(parse_completion_request(Api::chat, body, kLimits), check_completion);
      break;
    case 2:
      check_result(parse_tokenize_request(body), [](const auto&) {});
      break;
    case 3:
      check_result(parse_detokenize_request(body, kLimits.vocab_size), [](const auto&) {});
      break;
    default:
      check_headers(body);
      break;
  }
  return 0;
}
