#include "server/api/ollama/ollama_routes.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/json_writer.h"
#include "quire/base/version.h"
#include "server/api/ollama/ollama_answer.h"
#include "server/api/ollama/ollama_embed.h"
#include "server/api/ollama/ollama_models.h"
#include "server/api/ollama/ollama_request.h"
#include "server/api/pooling/pooling_routes.h"
#include "server/api/serving.h"
#include "server/request/answer_shape.h"
#include "server/request/object_reader.h"
#include "server/request/prepare.h"
#include "server/request/served_model.h"

namespace quire {

namespace {

using ReadOrAnswered = std::variant<CompletionRequest, Serving::DirectAnswer>;

// The shape of one answer.
class OllamaShape final : public AnswerShape {
 public:
  OllamaShape(OllamaAnswerHead head, FieldApi api, std::vector<std::string> option_names)
      : head_(std::move(head)), api_(api), option_names_(std::move(option_names)) {}

  [[nodiscard]] std::string_view id_prefix() const override { return "ollama-"; }
  [[nodiscard]] bool always_has_parts() const override { return true; }
  [[nodiscard]] std::string_view stream_content_type() const override { return "application/x-ndjson"; }
  [[nodiscard]] Error with_client_field_names(Error error) const override {
    return with_ollama_field_names(std::move(error), api_, option_names_);
  }
  [[nodiscard]] std::unique_ptr<AnswerWriter> make_writer(AnswerHead head, const CompletionRequest& /*request*/,
                                                          const Tokenizer& tokenizer) const override {
    return std::make_unique<OllamaWriter>(std::move(head), head_, tokenizer);
  }

 private:
  OllamaAnswerHead head_;
  FieldApi api_;
  std::vector<std::string> option_names_;
};

// Reads a body of /api/chat or /api/generate.
Result<ReadOrAnswered> read_call(std::string body, FieldApi api, const RequestContext& context) {
  const auto received = std::chrono::steady_clock::now();
  auto object = parse_object(std::exchange(body, {}), context.cancellation);
  if (!object) return std::unexpected(std::move(object.error()));
  std::vector<std::string> ignored;
  auto call = call_of_ollama(std::move(*object), api, ollama_model(context.model), ignored);
  if (!call) return std::unexpected(std::move(call.error()));
  auto name = find_ollama_model(context.model, call->model);
  if (!name) return std::unexpected(std::move(name.error()));
  OllamaAnswerHead head{.model = call->model, .is_chat = api == FieldApi::ollama_chat, .received = received};
  if (call->is_load) return Serving::DirectAnswer{loaded_answer(head, call->is_unload), std::move(ignored)};
  const auto shape = std::make_shared<const OllamaShape>(std::move(head), api, std::move(call->option_names));
  RequestLimits limits = limits_of(context);
  limits.routed_experts = false;  // this API has no field for them
  limits.completion_tokens.reset();
  auto parsed = parse_completion_request(call->api, std::move(call->body), limits);
  if (!parsed) return std::unexpected(shape->with_client_field_names(std::move(parsed.error())));
  parsed->model = *std::move(name);
  parsed->shape = shape;
  parsed->ignored.insert(parsed->ignored.begin(), ignored.begin(), ignored.end());
  return *std::move(parsed);
}

Route answer_route(Serving& serving, std::string_view path, FieldApi api) {
  const auto read = [api](std::string body, const RequestContext& context) { return read_call(std::move(body), api, context); };
  return {path, "POST", Access::key,
          [&serving, read](HttpRequest& request, const Wake& wake) { return serving.complete(request, wake, read); }};
}

Route embed_route(Serving& serving, std::string_view path, PreparePooling prepare) {
  return {path, "POST", Access::key,
          [&serving, prepare](HttpRequest& request, const Wake& wake) { return answer_pooled(serving, request, wake, prepare); }};
}

Reply version() {
  return Serving::json_reply([](JsonWriter& json) { json.field("version", kOllamaVersion).field("quire_version", kVersion); });
}

}  // namespace

ApiRoutes ollama_routes(Serving& serving) {
  const OllamaHost host{serving.engine().engine(), serving.model(), serving.options(), serving.started_s()};
  const auto show = [&serving, host](HttpRequest& request, const Wake& wake) {
    return serving.answer_body(
        request, wake, [host](std::string body, const CancellationPoint& /*cancellation*/) { return ollama_show(std::move(body), host); });
  };
  return {
      .routes = {answer_route(serving, "/api/chat", FieldApi::ollama_chat),
                 answer_route(serving, "/api/generate", FieldApi::ollama_generate),
                 embed_route(serving, "/api/embed", prepare_ollama_embed),
                 embed_route(serving, "/api/embeddings", prepare_ollama_embeddings),
                 {"/api/show", "POST", Access::key, show},
                 {"/api/tags", "GET", Access::key, [host](HttpRequest&, const Wake&) { return Serving::json_reply(ollama_tags(host)); }},
                 {"/api/ps", "GET", Access::key, [host](HttpRequest&, const Wake&) { return Serving::json_reply(ollama_running(host)); }},
                 {"/api/version", "GET", Access::key, [](HttpRequest&, const Wake&) { return version(); }}},
      .error_path_prefix = "/api/",
      .convert_error = as_ollama_error};
}

}  // namespace quire
