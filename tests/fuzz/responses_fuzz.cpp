// Reads bodies of /v1/responses, with one stored response. The result is a valid chat, or an error with a message that names the field that
// was sent.
#include <boost/json/parse.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "fuzz/subject.h"
#include "server/api/responses/responses_request.h"
#include "server/http/error_response.h"
#include "server/request/completion_request.h"
#include "server/request/object_reader.h"
#include "text/utf8.h"

namespace quire {
namespace {

test::FuzzSubject subject("an accepted response");

void check_response_refusal(const Error& error) {
  QUIRE_CHECK(!error.message.empty());
  const HttpResponse response = error_response(with_responses_field_names(error));
  QUIRE_CHECK(response.status >= 400 && is_valid_utf8(response.body));
}

void check_response(std::string_view body, ResponseStore& store) {
  auto object = parse_object(body);
  if (!object) return check_response_refusal(object.error());
  std::vector<std::string> ignored;
  auto translated = chat_of_response(std::move(*object), {store, ""}, ignored);
  if (!translated) return check_response_refusal(translated.error());
  QUIRE_CHECK(boost::json::parse("{" + translated->call.settings + "}", {}, {.max_depth = 256}).is_object());
  if (translated->call.is_stored) QUIRE_CHECK(boost::json::parse(translated->call.conversation, {}, {.max_depth = 256}).is_array());
  const auto request = parse_completion_request(Api::chat, std::move(translated->chat), {.max_choices = 16, .vocab_size = 1000});
  if (!request) return check_response_refusal(request.error());
  subject.reached();
  QUIRE_CHECK(!request->chat.messages.empty() && request->n == 1 && request->sampling.validate().has_value());
}

}  // namespace
}  // namespace quire

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  quire::ResponseStore store(1 << 16);
  store.put("", std::make_shared<const quire::StoredResponse>(
                    quire::StoredResponse{"resp_1",
                                          R"({"output":[{"id":"msg_1_0","type":"message","role":"assistant","content":"b"}]})",
                                          "[]",
                                          R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"}])",
                                          {1, 2}}));
  quire::check_response({reinterpret_cast<const char*>(data), size}, store);
  return 0;
}
