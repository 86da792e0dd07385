#include "server/api/openai/running_answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json_writer.h"
#include "server/api/openai/openai_shape.h"
#include "server/api/openai/small_requests.h"
#include "server/api/routes.h"
#include "server/request/served_model.h"
namespace quire {

namespace {

// Tokens to append to the prompt of a session.
struct SessionInput {
  std::vector<TokenId> tokens;  // may be empty
  bool is_last = false;
};

Result<SessionInput> read_input_body(const std::string& body, const ServedModel& model, const CancellationPoint& cancellation) {
  auto call = parse_input_call(body, model.tokenizer().vocab_size());
  if (!call) return std::unexpected(call.error());
  SessionInput input{.tokens = {}, .is_last = call->is_last};
  std::optional<Prompt> prompt = std::move(call->prompt);
  if (!prompt) return input;
  if (const auto* const text = std::get_if<std::string>(&*prompt)) {
    auto encoded =
        model.encode(*text, {.add_special = call->add_special_tokens, .parse_special = true, .cancellation = &cancellation}, "prompt");
    if (!encoded) return std::unexpected(encoded.error());
    input.tokens = std::move(*encoded);
  } else {
    input.tokens = std::move(std::get<std::vector<TokenId>>(*prompt));
  }
  if (input.tokens.empty()) return fail(ErrorCode::invalid_argument, "prompt", "has no tokens", R"(send some text, or only "end": true)");
  return input;
}

Reply submit_input(Serving& serving, const std::string& tenant, const std::string& id, SessionInput input) {
  const auto session = serving.find(tenant, id);
  if (!session) return serving.refuse(session.error());
  const std::size_t num_tokens = input.tokens.size();
  if (const auto given = (*session)->append(std::move(input.tokens), input.is_last); !given) return serving.refuse(given.error());
  return Serving::json_reply([&](JsonWriter& json) { json.field("id", id).field("num_tokens", num_tokens).field("end", input.is_last); });
}

}  // namespace

Reply append_input(Serving& serving, HttpRequest& request, const Wake& wake) {
  std::string id(path_parameter(kInputPath, request.path()));
  return serving.read_body(request, wake,
                           [&serving, id = std::move(id), tenant = serving.tenant_of(request)](
                               const std::string& body, const CancellationPoint& cancellation) -> Serving::RemainingWork {
                             auto input = read_input_body(body, serving.model(), cancellation);
                             if (!input) return serving.refusal(input.error());
                             return [&serving, id, tenant, input = *std::move(input)](const Wake& /*wake*/) {
                               return submit_input(serving, tenant, id, input);
                             };
                           });
}

Reply fork_answer(Serving& serving, HttpRequest& request, const Wake& wake) {
  if (serving.is_draining()) return serving.refuse({ErrorCode::shutting_down, "", "the server is shutting down", ""});
  if (request.body.size() > kMaxInlineBytes)
    return serving.refuse({ErrorCode::invalid_argument, "", fmt::format("the body is too large, with {} bytes", request.body.size()),
                           "send only choice, n, seed, max_tokens and stream"});
  auto call = parse_fork_call(request.body, serving.options().max_choices);
  if (!call) return serving.refuse(call.error());
  // Keeps the child within the server's limit of answer tokens. The parent's own limit is already within the server's limit.
  std::optional<std::uint32_t>& asked = call->fork.max_tokens;
  if (const auto most = serving.options().generation_defaults.max_limit; most && asked) asked = std::min(*asked, *most);
  const std::string id(path_parameter(kForkPath, request.path()));
  const std::string tenant = serving.tenant_of(request);
  const auto parent = serving.find(tenant, id);
  if (!parent) return serving.refuse(parent.error());
  // The child's answer has OpenAI's format, even if the parent's answer has another format.
  auto shape = std::make_shared<const OpenAiShape>(id.starts_with("cmpl-") ? Api::completion : Api::chat);
  const std::string child_id = std::string(shape->id_prefix()) + request.answer_id();
  auto forked = (*parent)->fork(*call, std::move(shape), {.prepared = {}, .id = child_id, .created_s = unix_now_s(), .wake = wake});
  if (!forked) return serving.refuse(forked.error());
  serving.remember(tenant, child_id, *forked);
  return {HttpResponse{}, std::move(*forked)};
}

}  // namespace quire
