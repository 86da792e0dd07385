#pragma once
// Draft tokens: for the next plan, or into one that is made and holds their places. The rules are vLLM's update_draft_token_ids and
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

  // For the next plan. A request in the middle of its prompt gets none: what is next is known there.
  void set(std::span<const Draft> drafts) const;
  // Into the plan's own places, whose number was fixed when it was made: what is too many is left out, and places without a draft hold -1.
  void set_in_plan(std::span<const Draft> drafts, PlanArena& arena) const;
  // Whether sampled tokens are to be told to the grammar. Not while a reasoning part runs, and not where the output is free.
  [[nodiscard]] bool grammar_advances(const Request& request) const;

 private:
  // The leading ones that the request's grammar takes.
  [[nodiscard]] std::span<const TokenId> fitting(const Request& request, std::span<const TokenId> drafts) const;

  const Context& context_;
  const RequestTable& table_;
};

}  // namespace quire
