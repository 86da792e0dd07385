// Bodies of the API's requests: the first byte picks the route, the rest is the body. Whatever comes, there is a value or an error with a
// message, and what was accepted stays within its limits.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "server/openai_error.h"
#include "server/openai_request.h"
#include "text/utf8.h"

namespace quire {
namespace {

constexpr RequestLimits kLimits{.max_choices = 16, .vocab_size = 1000};

void check_error(const Error& error) {
  QUIRE_CHECK(!error.message.empty());
  const HttpResponse response = error_response(error);
  QUIRE_CHECK(response.status >= 400 && response.status < 600);
  QUIRE_CHECK(is_valid_utf8(response.body));
}

void check_completion(const CompletionRequest& request) {
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

}  // namespace
}  // namespace quire

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace quire;  // NOLINT: one function
  if (size == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0:
      check_result(parse_completion_request(Api::completion, body, kLimits), check_completion);
      break;
    case 1:
      check_result(parse_completion_request(Api::chat, body, kLimits), check_completion);
      break;
    case 2:
      check_result(parse_tokenize_request(body), [](const auto&) {});
      break;
    default:
      check_result(parse_detokenize_request(body, kLimits.vocab_size), [](const auto&) {});
      break;
  }
  return 0;
}
