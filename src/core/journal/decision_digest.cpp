// Computes digests of plans and outcomes. Called in each step on the core's thread by the recorder, at a few nanoseconds per request, and
// by replays. A digest must cover everything that a host uses, because otherwise a replay could differ unnoticed.
#include "core/journal/decision_digest.h"

#include <concepts>
#include <optional>
#include <span>
#include <string_view>

#include "base/check.h"
#include "core/journal/mix.h"

namespace quire {
namespace {

std::uint64_t number(std::integral auto value) {
  return static_cast<std::uint64_t>(value);
}

template <class Tag, class Rep>
std::uint64_t number(Id<Tag, Rep> id) {
  return number(id.value);
}

std::uint64_t pair(std::uint64_t low, std::uint64_t high) {
  QUIRE_CHECK(low <= UINT32_MAX && high <= UINT32_MAX, "both values fit into 32 bits");
  return low | high << 32U;
}

template <class Value>
void add(WordHasher& mix, std::span<const Value> values) {
  mix.add(values.size());
  for (const Value& value : values) mix.add(number(value));
}

void add_tokens(WordHasher& mix, std::span<const TokenId> tokens, bool with_tokens) {
  if (with_tokens)
    add(mix, tokens);
  else
    mix.add(tokens.size());
}

void add(WordHasher& mix, const ScheduledRequest& s, bool with_tokens) {
  const std::uint64_t flags = (s.samples ? 1U : 0U) | (s.pools ? 2U : 0U) | (s.send_all_tokens ? 4U : 0U) |
                              number(s.kind == ScheduledKind::fresh) << 3U | number(s.kind == ScheduledKind::resumed) << 4U;
  const std::uint64_t num_more = s.drafts.size() + s.new_tokens.size() + s.encoder_inputs.size();
  mix.add(number(s.id), pair(number(s.slot), s.num_computed_tokens), pair(s.num_tokens, static_cast<std::uint32_t>(s.num_output_tokens)),
          pair(flags, num_more));
  if (num_more == 0) return;
  add_tokens(mix, s.drafts, with_tokens);
  add_tokens(mix, s.new_tokens, with_tokens);
  add(mix, s.encoder_inputs);
}

void add(WordHasher& mix, const BlockTableDelta& d) {
  mix.add(number(d.id), pair(number(d.slot), d.group), pair(static_cast<std::uint64_t>(d.update), d.index), d.blocks.size());
  for (const BlockId block : d.blocks) mix.add(number(block));
}

void add(WordHasher& mix, const Transfer& t) {
  mix.add(number(t.id), number(t.request), pair(t.group, t.tier),
          pair(static_cast<std::uint64_t>(t.direction), static_cast<std::uint64_t>(t.need)));
  add(mix, t.blocks);
  add(mix, t.places);
}

void add(WordHasher& mix, const RequestUpdate& u, bool with_tokens) {
  const std::uint64_t flags = (u.finished ? 1U : 0U) | (u.session_waits ? 2U : 0U) | static_cast<std::uint64_t>(u.status) << 8U |
                              static_cast<std::uint64_t>(u.reason) << 16U | number(u.stop_token.has_value()) << 24U;
  mix.add(number(u.id), pair(u.client_index, u.result_index), pair(flags, static_cast<std::uint32_t>(u.stop_token.value_or(0))),
          number(u.num_cached_tokens) ^ number(u.num_external_computed_tokens) << 32U);
  add_tokens(mix, u.tokens, with_tokens);
}

template <class Value>
void add_each(WordHasher& mix, std::span<const Value> values) {
  mix.add(values.size());
  for (const Value& value : values) add(mix, value);
}

}  // namespace

std::uint64_t digest_of(const StepPlan& plan, bool with_tokens) {
  WordHasher mix;
  mix.add(number(plan.step), plan.num_scheduled_tokens, number(plan.has_structured_output), number(plan.pending_structured_output));
  add(mix, plan.released);
  mix.add(plan.admitted.size());
  for (const AdmittedRequest& a : plan.admitted) mix.add(number(a.id), number(a.slot), a.tokens.size(), a.num_prompt_tokens);
  add_each(mix, plan.table_deltas);
  for (const BlockCopy& c : plan.copies) mix.add(number(c.id), c.group, number(c.source), number(c.destination));
  mix.add(plan.scheduled.size());
  for (const ScheduledRequest& s : plan.scheduled) add(mix, s, with_tokens);
  add(mix, plan.finished);
  add(mix, plan.preempted);
  add(mix, plan.num_common_prefix_blocks);
  for (const std::string_view name : plan.freed_encoder_outputs)
    mix.bytes({reinterpret_cast<const std::uint8_t*>(name.data()), name.size()});
  add(mix, plan.blocks_to_zero);
  add_each(mix, plan.transfers);
  add(mix, plan.fences);
  return mix.digest();
}

std::uint64_t digest_of(const StepOutcome& outcome, bool with_tokens) {
  WordHasher mix;
  mix.add(number(outcome.step), outcome.kv_events.size(), outcome.first_admissions.size(), outcome.finished_sets.size());
  mix.add(outcome.updates.size());
  for (const RequestUpdate& u : outcome.updates) add(mix, u, with_tokens);
  for (const FirstAdmission& a : outcome.first_admissions) mix.add(number(a.id), a.num_cached_tokens, 0, 0);
  add(mix, outcome.preempted);
  add(mix, outcome.failed_loads);
  add(mix, outcome.retired);
  for (const FinishedSet& set : outcome.finished_sets) {
    mix.add(set.client_index);
    add(mix, set.ids);
  }
  return mix.digest();
}

}  // namespace quire
