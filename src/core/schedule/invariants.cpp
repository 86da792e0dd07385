// Checks the invariants that hold between any two calls. Called by tests, by fuzzers, and by the engine when it ends, but by no step,
// because the checks visit the whole state. Each count that the scheduler maintains is recomputed here in a different way.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>

#include "base/rules.h"
#include "core/schedule/state.h"

namespace quire {
namespace {

bool holds_blocks(const Request& request, std::uint32_t num_groups) {
  for (std::uint32_t group = 0; group < num_groups; ++group)
    if (!request.blocks.blocks(group).empty()) return true;
  return false;
}

// Returns whether the request's computed tokens may have no blocks: the request has ended, is swapped out, or the model has no KV cache. A
// session without its states or blocks notices this at its next input (`Sessions::has_missing_blocks`).
bool may_lack_blocks(const Request& request, const Context& context) {
  return request.finished() || request.swapped != nullptr || context.num_groups == 0 ||
         (request.resumable && context.config.kv.has_mamba_layers()) ||
         (request.status == RequestStatus::waiting_for_input && context.rules.idle_sessions_yield);
}

// Skips requests with more than max_model_len tokens, which a host can create: as in vLLM, they count blocks as cached that are never
// allocated.
const Rule* broken_rule_of_cached_blocks(const Request& request, const CoreConfig& config, std::uint32_t num_groups) {
  if (static_cast<std::uint64_t>(request.num_tokens()) > config.scheduler.max_model_len) return nullptr;
  for (std::uint32_t group = 0; group < num_groups; ++group) {
    const std::size_t num_cached = request.blocks.num_cached_blocks(group).value_or(0);
    QUIRE_RULE(num_cached <= request.blocks.blocks(group).size(), "a request holds its cached blocks");
  }
  return nullptr;
}

// Checks that a running request has blocks for its computed tokens, up to max_model_len. A block that a window has passed is a null block,
// which counts.
const Rule* broken_rule_of_room(const Request& request, const CoreConfig& config, const KvCacheManager& kv) {
  if (request.status != RequestStatus::running) return nullptr;
  const auto num_computed = static_cast<std::uint64_t>(request.num_computed_tokens);
  for (std::uint32_t group = 0; group < kv.num_groups(); ++group) {
    const LayerKvSpec& spec = config.kv.groups[group].spec;
    if (!is_full_attention(spec) && !std::holds_alternative<SlidingWindowSpec>(spec) && !std::holds_alternative<ChunkedLocalSpec>(spec))
      continue;
    const std::uint64_t num_held = request.blocks.blocks(group).size() * std::uint64_t{kv.block_size(group)};
    QUIRE_RULE(num_held >= std::min<std::uint64_t>(num_computed, config.scheduler.max_model_len), "blocks cover all computed tokens");
  }
  return nullptr;
}

const Rule* broken_rule_of_request(const Request& request, const Context& context) {
  const bool running = request.status == RequestStatus::running;
  QUIRE_RULE(running == (request.slot != kNoSlot), "a request has a slot if and only if it runs");
  QUIRE_RULE(!running || request.queue == QueueName::none, "a running request is in no queue");
  QUIRE_RULE(!request.finished() || request.queue == QueueName::none, "a finished request is in no queue");
  QUIRE_RULE(!request.finished() || (!request.is_prefilling && !request.grammar_failed),
             "a finished request is not prefilling and has no failed grammar");
  QUIRE_RULE(request.queue != QueueName::step_skipped, "the step_skipped queue is empty between steps");
  QUIRE_RULE(request.known || request.finished(), "only a finished request is unknown");
  QUIRE_RULE((request.holders != 0) == (request.known && request.finished()),
             "a request has holders if and only if it is finished and known");
  QUIRE_RULE(request.known || !holds_blocks(request, context.num_groups), "an unknown request holds no blocks");
  QUIRE_RULE(request.num_output_tokens >= 0 && request.num_output_tokens <= request.num_tokens(), "outputs are part of the tokens");
  QUIRE_RULE(request.num_computed_tokens >= 0, "the number of computed tokens is not negative");
  // Rejected draft tokens are subtracted even if the result was discarded (as in vLLM), so the number can become negative.
  QUIRE_RULE(request.num_output_placeholders >= 0 || context.config.speculation.num_spec_tokens > 0,
             "without speculative decoding, the number of placeholders is not negative");
  // A session that takes its next input while it loads keeps `load.received` (as in vLLM).
  const bool may_have_received =
      request.status == RequestStatus::waiting_for_remote_kv || request.finished() || (request.resumable && !context.rules.cut_sessions);
  QUIRE_RULE(may_have_received || (!request.load.received && request.load.failure != LoadFailure::partial),
             "only a request that waits for its blocks has received blocks");
  QUIRE_RULE(!request.grammar_failed || request.status == RequestStatus::waiting_for_grammar,
             "a request with a failed grammar waits for its grammar");
  QUIRE_RULE(request.num_computed_tokens == 0 || holds_blocks(request, context.num_groups) || may_lack_blocks(request, context),
             "a request with computed tokens holds blocks");
  if (!request.finished() && request.status != RequestStatus::waiting_for_input) {
    QUIRE_RULE(request.num_computed_tokens <= request.num_tokens() + request.num_output_placeholders +
                                                  static_cast<std::int32_t>(context.config.speculation.num_spec_tokens),
               "computed tokens do not exceed the known tokens, placeholders and draft tokens");
  }
  return nullptr;
}

struct InFlight {
  std::uint32_t num_plans = 0;
  std::uint64_t num_tokens = 0;
};

std::unordered_map<const Request*, InFlight> count_in_flight(const PlanRing& plans) {
  std::unordered_map<const Request*, InFlight> all;
  for (std::uint32_t i = 0; i < plans.size(); ++i) {
    const PlanArena& arena = plans.at(i);
    for (std::size_t at = 0; at < arena.requests().size(); ++at) {
      InFlight& one = all[arena.requests()[at]];
      ++one.num_plans;
      one.num_tokens += arena.plan().scheduled[at].num_tokens;
    }
  }
  return all;
}

}  // namespace

void Core::check_invariants() const {
  check_rules(state_->broken_rule());
  state_->kv.pool().check_lists();
}

const Rule* Core::State::broken_rule() const {
  const State& s = *this;
  std::unordered_map<const Request*, InFlight> in_flight = count_in_flight(s.plans);
  std::vector<const KvBlocks*> sequences;
  std::size_t num_running = 0;
  std::uint32_t num_waiting_for_input = 0;
  std::uint32_t num_deferred = 0;
  std::uint32_t num_loading = 0;
  std::uint32_t num_kept_by_transfers = 0;
  std::uint32_t num_kept_by_pins = 0;
  std::size_t num_gone = 0;
  std::size_t num_queued = 0;
  std::size_t num_with_family = 0;
  for (const auto& [id, request] : s.table.all()) {
    QUIRE_RULE(id == request->id, "a request is found by its id");
    if (const Rule* broken = broken_rule_of_request(*request, s.context)) return broken;
    if (const Rule* broken = broken_rule_of_room(*request, s.context.config, s.kv)) return broken;
    if (const Rule* broken = broken_rule_of_cached_blocks(*request, s.context.config, s.context.num_groups)) return broken;
    const InFlight of = in_flight[request];
    QUIRE_RULE(request->in_flight.num_plans == of.num_plans && std::cmp_equal(request->in_flight.num_tokens, of.num_tokens),
               "the numbers in flight match the outstanding plans");
    QUIRE_RULE(request->in_flight.num_stale_tokens >= 0 && request->in_flight.num_stale_tokens <= request->in_flight.num_tokens,
               "stale tokens are in flight");
    if (s.requests.hashes_blocks())
      QUIRE_RULE(request->hashes.size() >= request->tokens.size() / s.context.config.block_size, "each full block has a block hash");
    sequences.push_back(&request->blocks);
    num_running += request->status == RequestStatus::running ? 1 : 0;
    num_queued += request->queue != QueueName::none ? 1 : 0;
    num_waiting_for_input += request->status == RequestStatus::waiting_for_input ? 1 : 0;
    num_with_family += request->family != 0 ? 1 : 0;
    num_deferred += request->deferred ? 1 : 0;
    num_loading += is_loading(*request) ? 1 : 0;
    num_kept_by_transfers += HoldLedger::holds(*request, Holder::transfer) ? 1 : 0;
    num_kept_by_pins += HoldLedger::holds(*request, Holder::pin) ? 1 : 0;
    num_gone += request->known ? 0 : 1;
  }
  for (const std::unique_ptr<SwappedBlocks>& swapped : s.swap.all()) sequences.push_back(&swapped->left);
  QUIRE_RULE(num_gone == s.ended.num_gone(), "each unknown request is in the list of ended requests");
  if (const Rule* broken = s.kv.broken_rule(sequences)) return broken;
  if (const Rule* broken = s.encoder.cache().broken_rule()) return broken;
  for (const Request* request : s.forks.sharing())
    QUIRE_RULE(request->status == RequestStatus::waiting && request->num_computed_tokens > 0,
               "a waiting request that shares blocks has computed tokens");
  std::size_t num_in_families = 0;
  for (const auto& [family, num_open] : s.forks.families()) num_in_families += num_open;
  QUIRE_RULE(num_in_families == num_with_family, "family counts match the requests with a family");
  if (const Rule* broken = s.open_transfers.broken_rule()) return broken;
  if (const Rule* broken = s.swap.broken_rule()) return broken;
  QUIRE_RULE(num_running == s.queues.running.size(), "each running request is in the running list");
  QUIRE_RULE(num_queued == s.queues.num_waiting() && s.queues.step_skipped.empty(), "each queued request is in one queue");
  QUIRE_RULE(num_waiting_for_input == s.queues.num_waiting_for_input, "num_waiting_for_input counts the sessions that wait for input");
  QUIRE_RULE(num_deferred == s.queues.num_deferred, "num_deferred counts the deferred requests");
  QUIRE_RULE(num_loading == s.queues.num_loading && num_kept_by_transfers == s.ended.ledger().count(Holder::transfer),
             "the counts of loading requests and of requests held by transfers are correct");
  QUIRE_RULE(num_kept_by_pins == s.ended.ledger().count(Holder::pin) && num_kept_by_pins == s.jobs.pins().size(),
             "the counts of pinned requests are correct");

  std::unordered_set<Slot> owned(s.slots.free().begin(), s.slots.free().end());
  for (const Request* request : s.queues.running) {
    QUIRE_RULE(request->status == RequestStatus::running, "each request in the running list runs");
    owned.insert(request->slot);
  }
  QUIRE_RULE(owned.size() == s.context.config.scheduler.max_num_seqs && s.slots.free().size() + s.queues.running.size() == owned.size(),
             "each slot is free or has one owner");
  return nullptr;
}

}  // namespace quire
