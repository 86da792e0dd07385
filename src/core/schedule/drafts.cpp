// Draft tokens: for the next plan, or into one that is made and holds their places. The rules are vLLM's update_draft_token_ids and
// update_draft_token_ids_in_output.
#include <algorithm>

#include "base/check.h"
#include "core/schedule/state.h"

namespace quire {

bool Core::State::grammar_advances(const Request& request) const {
  return request.structured_output && seams.grammar != nullptr && seams.grammar->should_advance(view(request));
}

std::span<const TokenId> Core::State::fitting(const Request& request, std::span<const TokenId> drafts) const {
  if (!grammar_advances(request)) return drafts;
  return drafts.first(std::min<std::size_t>(seams.grammar->count_valid(request.id, drafts), drafts.size()));
}

void Core::set_drafts(std::span<const Draft> drafts) {
  State& s = *state_;
  for (const Draft& draft : drafts) {
    Request* request = s.table.find(draft.id);
    if (request == nullptr || request->finished()) continue;
    if (request->is_prefill_chunk) {
      request->draft_tokens.clear();
      continue;
    }
    std::span<const TokenId> tokens = s.fitting(*request, draft.tokens);
    tokens = tokens.first(std::min<std::size_t>(tokens.size(), s.config.speculation.num_spec_tokens));
    request->draft_tokens.assign(tokens.begin(), tokens.end());
  }
}

void Core::set_drafts_in_plan(std::span<const Draft> drafts) {
  State& s = *state_;
  if (s.plans.size() == 0) return;
  PlanArena& arena = s.plans.newest();
  arena.clear_invalid_drafts();
  for (const Draft& draft : drafts) {
    const Request* request = s.table.find(draft.id);
    if (request == nullptr || request->finished() || !arena.schedules(*request)) continue;
    QUIRE_CHECK(arena.requests()[request->last_index] == request, "a request knows its place in the plan");
    const std::span<TokenId> places = arena.drafts(request->last_index);
    if (places.empty()) continue;
    const std::span<const TokenId> tokens = s.fitting(*request, draft.tokens.first(std::min(draft.tokens.size(), places.size())));
    std::ranges::copy(tokens, places.begin());
    std::ranges::fill(places.subspan(tokens.size()), -1);
    arena.set_num_invalid_drafts(request->last_index, static_cast<std::uint32_t>(places.size() - tokens.size()));
  }
}

}  // namespace quire
