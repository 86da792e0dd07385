// The addresses of OpenAI's API and of what vLLM has beside it. Made once, before the server runs; then the router calls the handlers on
// the server's thread, and bodies are read there or in the job pool. What a handler must wait for it answers with a PendingReply.
#include "server/api/openai/openai_routes.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>

#include "base/append_format.h"
#include "base/json_text.h"
#include "server/api/openai/cache_calls.h"
#include "server/api/openai/hidden_states_call.h"
#include "server/api/openai/open_answers.h"
#include "server/api/openai/openai_shape.h"
#include "server/api/openai/tokenize.h"
#include "server/api/serving.h"
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

// With the hidden states of its prompt in a file before, where they are asked for.
Reply start_openai(Serving& serving, PreparedCompletion prepared, const std::string& request_id, const Wake& wake) {
  if (prepared.request.cached_only) return start_if_cached(serving, std::move(prepared), request_id, wake);
  if (prepared.request.hidden_states) return start_with_states(serving, std::move(prepared), request_id, wake);
  return serving.start(std::move(prepared), request_id, wake);
}

// Of a completion, or of a chat: the one that has messages.
Result<CompletionRequest> read_either(std::string body, const RequestContext& context) {
  auto object = parse_object(std::exchange(body, {}));
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

// An adapter's root is its folder, and its parent the model, as in vLLM.
Reply list_models(Serving& serving) {
  const Engine& engine = serving.engine().engine();
  std::string data;
  const auto add = [&](const std::string& name, const std::string& root, const std::string& parent) {
    append_format(data, R"({}{{"id":{},"object":"model","created":{},"owned_by":"quire","root":{},"parent":{},"max_model_len":{}}})",
                  data.empty() ? "" : ",", json_string(name), serving.started_s(), json_string(root), parent,
                  serving.model().max_model_len());
  };
  for (const std::string& name : serving.model().names()) add(name, engine.model().name, "null");
  for (const AdapterInfo& adapter : engine.adapters()) add(adapter.name, adapter.path, json_string(serving.model().name()));
  return Serving::json_reply(fmt::format(R"({{"object":"list","data":[{}]}})", data));
}

}  // namespace

ApiRoutes openai_routes(Serving& serving) {
  const auto answers = [&serving](Result<std::string> (*answer)(std::string, const ServedModel&)) {
    return [&serving, answer](HttpRequest& request, const Wake& wake) {
      return serving.answer_body(request, wake, [&serving, answer](std::string body) { return answer(std::move(body), serving.model()); });
    };
  };
  return {.routes = {
              {"/v1/models", "GET", Access::key, [&serving](HttpRequest&, const Wake&) { return list_models(serving); }},
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
