#pragma once
// Sets draft tokens: for the next plan, or in a made plan that holds placeholders for them. The rules are vLLM's update_draft_token_ids and
// update_draft_token_ids_in_output.
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

  // Sets draft tokens for the next plan. A request in the middle of its prompt gets none: its next tokens are known.
  void set(std::span<const Draft> drafts) const;
  // Fills the plan's placeholders. Their number was fixed when the plan was made: excess draft tokens are dropped, and unused placeholders
  // hold -1.
  void set_in_plan(std::span<const Draft> drafts, PlanArena& arena) const;
  // Returns whether sampled tokens must be reported to the grammar. False while a reasoning part runs, and for unconstrained output.
  [[nodiscard]] bool grammar_advances(const Request& request) const;

 private:
  // Returns the leading draft tokens that the request's grammar accepts.
  [[nodiscard]] std::span<const TokenId> fitting(const Request& request, std::span<const TokenId> drafts) const;

  const Context& context_;
  const RequestTable& table_;
};

}  // namespace quire
