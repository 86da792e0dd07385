// Routes of OpenAI's API, of vLLM's additions and of quire's. Created once, before the server runs. The router calls the handlers on the
// server's thread; bodies are read there or in the job pool. A handler that must wait returns a PendingReply.
#include "server/api/openai/openai_routes.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/append_format.h"
#include "base/json_writer.h"
#include "server/api/openai/cache_calls.h"
#include "server/api/openai/hidden_states_call.h"
#include "server/api/openai/openai_shape.h"
#include "server/api/openai/running_answers.h"
#include "server/api/openai/tokenize.h"
#include "server/api/serving.h"
#include "server/http/error_response.h"
#include "server/http/query.h"
#include "server/request/object_reader.h"
#include "server/request/prepare.h"
#include "server/request/served_model.h"

namespace quire {

namespace {

Result<CompletionRequest> read_completion(Api api, std::string body, const RequestContext& context) {
  auto parsed = parse_completion_request(api, std::exchange(body, {}), limits_of(context));
  if (parsed) parsed->shape = std::make_shared<const OpenAiShape>(api);
  return parsed;
}

// Starts a completion. If the request asks for it, first checks whether the prompt is cached, or first writes the prompt's hidden states to
// a file.
Reply start_openai(Serving& serving, PreparedCompletion prepared, const std::string& request_id, const Wake& wake) {
  if (prepared.request.cached_only) return start_if_cached(serving, std::move(prepared), request_id, wake);
  if (prepared.request.hidden_states) return start_with_states(serving, std::move(prepared), request_id, wake);
  return serving.start(std::move(prepared), request_id, wake);
}

// Reads the body as a chat if it has messages, else as a completion.
Result<CompletionRequest> read_either(std::string body, const RequestContext& context) {
  auto object = parse_object(std::exchange(body, {}), context.cancellation);
  if (!object) return std::unexpected(object.error());
  const Api api = object->contains("messages") ? Api::chat : Api::completion;
  auto parsed = parse_completion_request(api, *std::move(object), limits_of(context));
  if (parsed) parsed->shape = std::make_shared<const OpenAiShape>(api);
  return parsed;
}

Route cache_route(Serving& serving, std::string_view path, Serving::Start begin, bool computes) {
  const auto handle = [&serving, begin, computes](HttpRequest& request, const Wake& wake) {
    return serving.complete(request, wake, read_either, begin, computes);
  };
  return {path, "POST", Access::key, handle};
}

Route completion_route(Serving& serving, std::string_view path, Api api) {
  const auto read = [api](std::string body, const RequestContext& context) { return read_completion(api, std::move(body), context); };
  const auto handle = [&serving, read](HttpRequest& request, const Wake& wake) {
    return serving.complete(request, wake, read, start_openai);
  };
  return {path, "POST", Access::key, handle};
}

struct ModelCard {
  std::string id, json;
};

// Returns the cards of the model and its adapters. As in vLLM, an adapter's root is its folder and its parent is the model. `type` and the
// fields after `type` come from Anthropic's API. `input_modalities` has OpenRouter's words; an encoder-decoder model transcribes audio
// only.
std::vector<ModelCard> model_cards(Serving& serving) {
  const Engine& engine = serving.engine().engine();
  std::vector<ModelCard> cards;
  const std::time_t started = serving.started_s();
  const ImageReading images = serving.model().image_reading();
  std::vector<std::string_view> inputs = {engine.model().has_encoder() ? "audio" : "text"};
  if (images.supports_images && images.most > 0) inputs.emplace_back("image");
  const auto add = [&](const std::string& name, const std::string& root, std::optional<std::string_view> parent) {
    cards.push_back({name, json_object([&](JsonWriter& json) {
                       json.field("id", name).field("object", "model").field("created", started).field("owned_by", "quire");
                       json.field("root", root).field("parent", parent).field("max_model_len", serving.model().max_model_len());
                       json.field("input_modalities", inputs);
                       json.field("type", "model").field("display_name", name);
                       json.field("created_at", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(started)));
                     })});
  };
  for (const std::string& name : serving.model().names()) add(name, engine.model().name, std::nullopt);
  for (const AdapterInfo& adapter : engine.adapters()) add(adapter.name, adapter.path, serving.model().name());
  return cards;
}

Reply list_models(Serving& serving) {
  const std::vector<ModelCard> cards = model_cards(serving);
  return Serving::json_reply([&](JsonWriter& json) {
    json.field("object", "list").begin_array("data");
    for (const ModelCard& card : cards) json.raw(card.json);
    json.end_array().field("has_more", false).field("first_id", cards.front().id).field("last_id", cards.back().id);
  });
}

constexpr std::string_view kModelPath = "/v1/models/**";

// Returns the card of one model. Names may contain slashes, which clients may or may not percent-encode.
Reply read_model(Serving& serving, const HttpRequest& request) {
  const std::optional<std::string> id = decoded_path(path_parameter(kModelPath, request.path()));
  if (!id) return serving.refuse({ErrorCode::invalid_argument, "model", "is not correctly percent-encoded", "percent-encode it"});
  for (const ModelCard& card : model_cards(serving))
    if (card.id == *id) return Serving::json_reply(card.json);
  return serving.refuse({ErrorCode::not_found, "model", fmt::format("'{}' is not served by this server", shown(*id)), "see /v1/models"});
}

}  // namespace

ApiRoutes openai_routes(Serving& serving) {
  const auto answers = [&serving](Result<std::string> (*answer)(std::string, const ServedModel&, const CancellationPoint*)) {
    return [&serving, answer](HttpRequest& request, const Wake& wake) {
      return serving.answer_body(request, wake, [&serving, answer](std::string body, const CancellationPoint& cancellation) {
        return answer(std::move(body), serving.model(), &cancellation);
      });
    };
  };
  return {.routes = {
              {"/v1/models", "GET", Access::key, [&serving](HttpRequest&, const Wake&) { return list_models(serving); }},
              {kModelPath, "GET", Access::key, [&serving](HttpRequest& request, const Wake&) { return read_model(serving, request); }},
              completion_route(serving, "/v1/completions", Api::completion),
              completion_route(serving, "/v1/chat/completions", Api::chat),
              cache_route(serving, kProbePath, start_probe, false),
              cache_route(serving, kWarmPath, start_warming, true),
              {"/tokenize", "POST", Access::key, answers(answer_tokenize)},
              {"/detokenize", "POST", Access::key, answers(answer_detokenize)},
              {"/tokenizer_info", "GET", Access::key,
               [&serving](HttpRequest&, const Wake&) { return Serving::json_reply(tokenizer_info(serving.model())); }},
              {kForkPath, "POST", Access::key,
               [&serving](HttpRequest& request, const Wake& wake) { return fork_answer(serving, request, wake); }},
              {kInputPath, "POST", Access::key,
               [&serving](HttpRequest& request, const Wake& wake) { return append_input(serving, request, wake); }},
          }};
}

}  // namespace quire
