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
    reader.reject("return_routed_experts", "is true, and this server tells none", "serve with --enable-return-routed-experts");
  if (asks && other != nullptr)
    reader.reject("return_routed_experts", fmt::format("is true with {}, which has none", other), "drop one of them");
  if (start && *start > 0 && !asks)
    reader.reject("routed_experts_prompt_start", "is given, and no experts are told", "send \"return_routed_experts\": true as well");
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
                  fmt::format("is {}, and a prompt has {} tokens", request.first_routed_token, tokens), "begin within each prompt");
  }
  const std::uint64_t numbers = num_tokens * request.best_of * model.experts().per_token();
  if (numbers <= options.max_routed_experts) return {};
  return fail(ErrorCode::invalid_argument, "return_routed_experts",
              fmt::format("of {} tokens in {} choices each are {} numbers, more than {}", num_tokens, request.best_of, numbers,
                          options.max_routed_experts),
              "ask for fewer choices, or of a shorter prompt");
}

}  // namespace quire
