#pragma once
// Sets draft tokens for the next plan, or in an existing plan that has placeholders for them. The rules are vLLM's update_draft_token_ids
// and update_draft_token_ids_in_output.
#include <cstdint>
#include <span>

#include "core/schedule/requests/context.h"
#include "core/schedule/requests/plan_arena.h"
#include "core/schedule/requests/request.h"
#include "core/schedule/requests/request_table.h"

namespace quire {

inline constexpr TokenId kDraftPlaceholder = -1;

class Drafts {
 public:
  Drafts(const Context& context, const RequestTable& table) : context_(context), table_(table) {}

  // Sets draft tokens for the next plan. A request whose prompt is not completely computed gets none, because its next tokens are known.
  void set(std::span<const Draft> drafts) const;
  // Replaces the plan's placeholders by draft tokens. The number of placeholders does not change: excess draft tokens are dropped, and
  // unused placeholders stay -1.
  void set_in_plan(std::span<const Draft> drafts, PlanArena& arena) const;
  // Returns whether sampled tokens must be reported to the grammar. Returns false during a reasoning part, and for output without a
  // grammar.
  [[nodiscard]] bool grammar_advances(const Request& request) const;

 private:
  // Returns the leading draft tokens that the request's grammar accepts.
  [[nodiscard]] std::span<const TokenId> fitting(const Request& request, std::span<const TokenId> drafts) const;

  const Context& context_;
  const RequestTable& table_;
};

}  // namespace quire
