#include "server/api/llama_cpp/llama_cpp_routes.h"

#include <string>
#include <utility>

#include "base/json_writer.h"
#include "server/api/llama_cpp/props.h"
#include "server/api/serving.h"
#include "server/http/query.h"
#include "server/request/object_reader.h"
#include "server/request/prepare.h"
#include "server/request/served_model.h"

namespace quire {

namespace {

Reply slots(Serving& serving, const HttpRequest& request) {
  QueryReader query(request.target);
  const bool needs_slot = query.boolean("fail_on_no_slot", false);
  if (const auto done = query.finish(); !done) return serving.refuse(done.error());
  if (needs_slot && are_slots_taken(serving))
    return serving.refuse({ErrorCode::unavailable, "fail_on_no_slot", "is set, and each slot has a request", "try again later"});
  return Serving::json_reply(slots_body(serving));
}

// Renders the messages of a body of /v1/chat/completions with the model's template.
Result<std::string> apply_template(std::string body, const RequestContext& context) {
  auto parsed = parse_completion_request(Api::chat, std::exchange(body, {}), limits_of(context));
  if (!parsed) return std::unexpected(std::move(parsed.error()));
  if (const auto named = context.model.adapter_of(parsed->model); !named) return std::unexpected(named.error());
  if (const auto heeded = check_ignored(parsed->ignored, context.options); !heeded) return std::unexpected(heeded.error());
  auto prompt = context.model.render(std::move(parsed->chat), context.cancellation);
  if (!prompt) return prompt;
  return json_object([&](JsonWriter& json) { json.field("prompt", *prompt); });
}

}  // namespace

ApiRoutes llama_cpp_routes(Serving& serving) {
  const auto render = [&serving](HttpRequest& request, const Wake& wake) {
    return serving.answer_body(request, wake, [&serving](std::string body, const CancellationPoint& cancellation) {
      return apply_template(std::move(body), serving.context({}, &cancellation));
    });
  };
  return {.routes = {
              {"/props", "GET", Access::key, [&serving](HttpRequest&, const Wake&) { return Serving::json_reply(props_body(serving)); }},
              {"/slots", "GET", Access::server_key, [&serving](HttpRequest& request, const Wake&) { return slots(serving, request); }},
              {"/apply-template", "POST", Access::key, render},
          }};
}

}  // namespace quire
