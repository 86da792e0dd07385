#include "server/request/routed_experts.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "server/request/prepare.h"
#include "server/request/served_model.h"

namespace quire {

void read_routed_experts(ObjectReader& reader, bool may_ask, CompletionRequest& request) {
  const std::pair<const char*, bool> others[] = {{"stream", request.stream},
                                                 {"session", request.session},
                                                 {"use_beam_search", request.beam_search.has_value()},
                                                 {"fail_if_not_cached", request.cached_only},
                                                 {"kv_transfer_params", request.hidden_states}};
  const char* other = nullptr;
  for (const auto& [field, is_given] : others)
    if (is_given) other = field;
  const bool asks = reader.boolean("return_routed_experts", may_ask && other == nullptr);
  const auto start = reader.integer("routed_experts_prompt_start", 0, std::numeric_limits<std::int32_t>::max());
  if (asks && !may_ask)
    reader.reject("return_routed_experts", "is true, but this server does not return routed experts",
                  "start the server with --enable-return-routed-experts");
  if (asks && other != nullptr)
    reader.reject("return_routed_experts", fmt::format("is not supported with {}", other), "leave one of them out");
  if (start && *start > 0 && !asks)
    reader.reject("routed_experts_prompt_start", "requires return_routed_experts", "send \"return_routed_experts\": true as well");
  request.sampling.routed_experts = asks;
  request.first_routed_token = static_cast<std::uint32_t>(start.value_or(0));
}

Result<void> check_routed_experts(const PreparedCompletion& prepared, const ServedModel& model, const ServerOptions& options) {
  const CompletionRequest& request = prepared.request;
  if (!request.sampling.routed_experts) return {};
  std::uint64_t num_tokens = 0;
  for (const std::uint64_t tokens : prepared.num_prompt_tokens) {
    num_tokens += tokens;
    if (tokens <= request.first_routed_token)
      return fail(ErrorCode::invalid_argument, "routed_experts_prompt_start",
                  fmt::format("is {}, but a prompt has {} tokens", request.first_routed_token, tokens), "start within each prompt");
  }
  const std::uint64_t numbers = num_tokens * request.best_of * model.experts().per_token();
  if (numbers <= options.max_routed_experts) return {};
  return fail(ErrorCode::invalid_argument, "return_routed_experts",
              fmt::format("would return, for {} tokens in each of {} choices, {} numbers in total, more than {}", num_tokens,
                          request.best_of, numbers, options.max_routed_experts),
              "request fewer choices, or send a shorter prompt");
}

}  // namespace quire
