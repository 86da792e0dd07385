// Reads bodies of /v1/messages. The first byte says whether only tokens are counted, and whether beta fields are allowed. The result is a
// valid chat, or an error with a message, also in the format of that API.
#include <boost/json/serialize.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "fuzz/subject.h"
#include "server/api/anthropic/messages_answer.h"
#include "server/api/anthropic/messages_request.h"
#include "server/http/error_response.h"
#include "server/request/completion_request.h"
#include "server/request/object_reader.h"
#include "text/utf8.h"

namespace quire {

namespace json = boost::json;

namespace {

test::FuzzSubject subject("an accepted message");

void check_refusal(const Error& error) {
  QUIRE_CHECK(!error.message.empty());
  const HttpResponse response = as_messages_error(error_response(error));
  QUIRE_CHECK(response.status >= 400 && response.body.starts_with(R"({"type":"error")") && is_valid_utf8(response.body));
}

void check_message(std::string_view body, MessagesCall call) {
  auto object = parse_object(body);
  if (!object) return check_refusal(object.error());
  std::vector<std::string> ignored;
  auto translated = chat_of_messages(std::move(*object), call, ignored);
  if (!translated) return check_refusal(translated.error());
  json::object& chat = translated->chat;
  const std::size_t num_messages = chat.at("messages").as_array().size();
  const auto count = [](const json::object& counted) -> Result<std::size_t> { return json::serialize(counted).size(); };
  QUIRE_CHECK(apply_context_edits(translated->edits, chat, count).has_value());
  QUIRE_CHECK(chat.at("messages").as_array().size() == num_messages);
  const auto request = parse_completion_request(Api::chat, std::move(chat), {.max_choices = 16, .vocab_size = 1000});
  if (!request) return check_refusal(request.error());
  subject.reached();
  QUIRE_CHECK(!request->chat.messages.empty() && request->n == 1 && request->sampling.validate().has_value());
}

}  // namespace
}  // namespace quire

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  quire::check_message({reinterpret_cast<const char*>(data) + 1, size - 1}, {.counts_only = data[0] % 2 == 0, .is_beta = data[0] % 4 < 2});
  return 0;
}
