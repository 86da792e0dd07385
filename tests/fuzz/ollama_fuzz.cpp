// Reads bodies of /api/chat and /api/generate. The first byte chooses the route and the properties of the model. The result is a valid chat
// or completion, or an error with a message, also in the format of that API.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "fuzz/subject.h"
#include "server/api/ollama/ollama_answer.h"
#include "server/api/ollama/ollama_request.h"
#include "server/http/error_response.h"
#include "server/request/completion_request.h"
#include "server/request/object_reader.h"
#include "text/utf8.h"

namespace quire {

namespace {

test::FuzzSubject subject("an accepted body of Ollama's API");

void check_refusal(const Error& error) {
  QUIRE_CHECK(!error.message.empty(), "an error has a message");
  const HttpResponse response = as_ollama_error(error_response(error));
  QUIRE_CHECK(response.status >= 400 && response.body.starts_with(R"({"error":")") && is_valid_utf8(response.body),
              "an error has Ollama's form");
}

void check_body(std::string_view body, FieldApi api, const OllamaModel& model) {
  auto object = parse_object(body);
  if (!object) return check_refusal(object.error());
  std::vector<std::string> ignored;
  auto call = call_of_ollama(std::move(*object), api, model, ignored);
  if (!call) return check_refusal(call.error());
  QUIRE_CHECK(!call->model.empty(), "a call names a model");
  if (call->is_load) return;
  const auto request = parse_completion_request(call->api, std::move(call->body), {.max_choices = 16, .vocab_size = 1000});
  if (!request) return check_refusal(with_ollama_field_names(request.error(), api, call->option_names));
  subject.reached();
  QUIRE_CHECK(request->n == 1 && request->sampling.validate().has_value(), "a request has one choice with valid parameters");
}

}  // namespace
}  // namespace quire

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto api = data[0] % 2 == 0 ? quire::FieldApi::ollama_chat : quire::FieldApi::ollama_generate;
  const quire::OllamaModel model{.has_template = data[0] % 4 < 2, .supports_images = data[0] % 8 < 4, .context = 4096};
  quire::check_body({reinterpret_cast<const char*>(data) + 1, size - 1}, api, model);
  return 0;
}
