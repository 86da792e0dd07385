#include "core/schedule/requests/drafts.h"

#include <algorithm>

#include "base/check.h"
#include "core/schedule/requests/requests.h"

namespace quire {

bool Drafts::grammar_advances(const Request& request) const {
  return request.structured_output && context_.seams.grammar != nullptr && context_.seams.grammar->should_advance(Requests::view(request));
}

std::span<const TokenId> Drafts::fitting(const Request& request, std::span<const TokenId> drafts) const {
  const bool is_asked = context_.rules.grammar_rejection_ends_request ? request.structured_output && context_.seams.grammar != nullptr
                                                                      : grammar_advances(request);
  if (!is_asked) return drafts;
  return drafts.first(std::min<std::size_t>(context_.seams.grammar->count_valid(request.id, drafts), drafts.size()));
}

void Drafts::set(std::span<const Draft> drafts) const {
  for (const Draft& draft : drafts) {
    Request* request = table_.find(draft.id);
    if (request == nullptr || request->finished()) continue;
    if (request->is_prefill_chunk) {
      request->draft_tokens.clear();
      continue;
    }
    std::span<const TokenId> tokens = fitting(*request, draft.tokens);
    tokens = tokens.first(std::min<std::size_t>(tokens.size(), context_.config.speculation.num_spec_tokens));
    request->draft_tokens.assign(tokens.begin(), tokens.end());
    QUIRE_CHECK(request->draft_tokens.size() <= context_.config.speculation.num_spec_tokens,
                "a request has at most num_spec_tokens draft tokens");
  }
}

void Drafts::set_in_plan(std::span<const Draft> drafts, PlanArena& arena) const {
  arena.clear_invalid_drafts();
  for (const Draft& draft : drafts) {
    const Request* request = table_.find(draft.id);
    if (request == nullptr || request->finished() || !arena.schedules(*request)) continue;
    QUIRE_CHECK(arena.requests()[request->in_flight.last_index] == request, "a request records its index in the plan");
    const std::span<TokenId> places = arena.drafts(request->in_flight.last_index);
    if (places.empty()) continue;
    const std::span<const TokenId> tokens = fitting(*request, draft.tokens.first(std::min(draft.tokens.size(), places.size())));
    QUIRE_CHECK(tokens.size() <= places.size(), "a finished plan does not grow");
    std::ranges::copy(tokens, places.begin());
    std::ranges::fill(places.subspan(tokens.size()), -1);
    arena.set_num_invalid_drafts(request->in_flight.last_index, static_cast<std::uint32_t>(places.size() - tokens.size()));
  }
}

}  // namespace quire
