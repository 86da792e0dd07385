// What must hold between any two calls, recomputed from scratch.
// Called by tests, by the checks of the fuzzers, and by the engine when it ends; never in a step, since it walks over everything. Each rule
// that the parts keep by counting is counted here a second time, in another way.
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

// Whether what it has computed may lie in no block: elsewhere, given back, or nowhere in a model without a cache. A session whose states
// were not kept is told so when it goes on (Sessions::lacks_blocks).
bool may_lack_blocks(const Request& request, const CoreConfig& config, std::uint32_t num_groups) {
  return request.finished() || request.swapped != nullptr || num_groups == 0 || (request.resumable && config.kv.has_mamba_layers());
}

// Beyond max_model_len (a host may ask for more tokens than fit) vLLM counts blocks as cached that it never allocates.
const Rule* broken_rule_of_cached_blocks(const Request& request, const CoreConfig& config, std::uint32_t num_groups) {
  if (static_cast<std::uint64_t>(request.num_tokens()) > config.scheduler.max_model_len) return nullptr;
  for (std::uint32_t group = 0; group < num_groups; ++group) {
    const std::size_t num_cached = request.blocks.num_cached_blocks(group).value_or(0);
    QUIRE_RULE(num_cached <= request.blocks.blocks(group).size(), "cached blocks are held");
  }
  return nullptr;
}

// Nothing is allocated beyond max_model_len; what a window has passed has null blocks in its place.
const Rule* broken_rule_of_room(const Request& request, const CoreConfig& config, const KvCacheManager& kv) {
  if (request.status != RequestStatus::running) return nullptr;
  const auto num_computed = static_cast<std::uint64_t>(request.num_computed_tokens);
  for (std::uint32_t group = 0; group < kv.num_groups(); ++group) {
    const LayerKvSpec& spec = config.kv.groups[group].spec;
    if (!is_full_attention(spec) && !std::holds_alternative<SlidingWindowSpec>(spec) && !std::holds_alternative<ChunkedLocalSpec>(spec))
      continue;
    const std::uint64_t num_held = request.blocks.blocks(group).size() * std::uint64_t{kv.block_size(group)};
    QUIRE_RULE(num_held >= std::min<std::uint64_t>(num_computed, config.scheduler.max_model_len), "what is computed has room");
  }
  return nullptr;
}

const Rule* broken_rule_of_request(const Request& request, const CoreConfig& config, std::uint32_t num_groups) {
  const bool running = request.status == RequestStatus::running;
  QUIRE_RULE(running == (request.slot != kNoSlot), "a slot exactly while it runs");
  QUIRE_RULE(!running || request.queue == QueueName::none, "what runs does not wait");
  QUIRE_RULE(!request.finished() || request.queue == QueueName::none, "what is finished does not wait");
  QUIRE_RULE(!request.finished() || (!request.is_prefilling && !request.grammar_failed), "of what is finished nothing is to come");
  QUIRE_RULE(request.queue != QueueName::step_skipped, "that queue lives for one step");
  QUIRE_RULE(request.known || request.finished(), "only what has ended is forgotten");
  QUIRE_RULE((request.holders != 0) == (request.known && request.finished()),
             "a finished request is known while somebody keeps its blocks");
  QUIRE_RULE(request.known || !holds_blocks(request, num_groups), "what is forgotten holds no blocks");
  QUIRE_RULE(request.num_output_tokens >= 0 && request.num_output_tokens <= request.num_tokens(), "outputs are among the tokens");
  QUIRE_RULE(request.num_computed_tokens >= 0, "computed tokens are counted");
  // Refused drafts of a result that is discarded are taken back all the same, as in vLLM.
  QUIRE_RULE(request.num_output_placeholders >= 0 || config.speculation.num_spec_tokens > 0, "what is awaited is counted");
  // A session that vLLM moves on while it loads stays one whose blocks have come.
  const bool may_be_told =
      request.status == RequestStatus::waiting_for_remote_kv || request.finished() || (request.resumable && !config.cures.cut_sessions);
  QUIRE_RULE(may_be_told || (!request.finished_receiving && !request.failed_receiving), "whose blocks have come awaits them");
  QUIRE_RULE(!request.grammar_failed || request.status == RequestStatus::waiting_for_grammar, "who has a bad grammar waits for it");
  QUIRE_RULE(request.num_computed_tokens == 0 || holds_blocks(request, num_groups) || may_lack_blocks(request, config, num_groups),
             "what is computed lies in blocks");
  if (!request.finished() && request.status != RequestStatus::waiting_for_input) {
    QUIRE_RULE(request.num_computed_tokens <=
                   request.num_tokens() + request.num_output_placeholders + static_cast<std::int32_t>(config.speculation.num_spec_tokens),
               "no more is computed than is known or awaited");
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
    QUIRE_RULE(id == request->id, "a request is found under its id");
    if (const Rule* broken = broken_rule_of_request(*request, s.context.config, s.context.num_groups)) return broken;
    if (const Rule* broken = broken_rule_of_room(*request, s.context.config, s.kv)) return broken;
    if (const Rule* broken = broken_rule_of_cached_blocks(*request, s.context.config, s.context.num_groups)) return broken;
    const InFlight of = in_flight[request];
    QUIRE_RULE(request->num_in_flight == of.num_plans && std::cmp_equal(request->num_tokens_in_flight, of.num_tokens),
               "counted by the outstanding plans");
    QUIRE_RULE(request->num_stale_tokens >= 0 && request->num_stale_tokens <= request->num_tokens_in_flight, "what is stale is in flight");
    if (s.requests.names_blocks())
      QUIRE_RULE(request->hashes.size() >= request->tokens.size() / s.context.config.block_size, "a name for each full block");
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
  QUIRE_RULE(num_gone == s.ended.num_gone(), "what is forgotten is destroyed once no outstanding plan names it");
  if (const Rule* broken = s.kv.broken_rule(sequences)) return broken;
  if (const Rule* broken = s.encoder.cache().broken_rule()) return broken;
  for (const Request* request : s.forks.sharing())
    QUIRE_RULE(request->status == RequestStatus::waiting && request->num_computed_tokens > 0, "who shares while it waits has something");
  std::size_t num_in_families = 0;
  for (const auto& [family, num_open] : s.forks.families()) num_in_families += num_open;
  QUIRE_RULE(num_in_families == num_with_family, "relatives are counted until they end");
  if (const Rule* broken = s.open_transfers.broken_rule()) return broken;
  if (const Rule* broken = s.swap.broken_rule()) return broken;
  QUIRE_RULE(num_running == s.queues.running.size(), "everything that runs is in the batch");
  QUIRE_RULE(num_queued == s.queues.num_waiting() && s.queues.step_skipped.empty(), "each request is in one queue");
  QUIRE_RULE(num_waiting_for_input == s.queues.num_waiting_for_input, "sessions between two inputs are counted");
  QUIRE_RULE(num_deferred == s.queues.num_deferred, "who was passed over is counted");
  QUIRE_RULE(num_loading == s.queues.num_loading && num_kept_by_transfers == s.ended.ledger().count(Holder::transfer),
             "requests that a transfer holds are counted");
  QUIRE_RULE(num_kept_by_pins == s.ended.ledger().count(Holder::pin) && num_kept_by_pins == s.jobs.pins().size(),
             "requests that are pinned are counted");

  std::unordered_set<Slot> owned(s.slots.free().begin(), s.slots.free().end());
  for (const Request* request : s.queues.running) {
    QUIRE_RULE(request->status == RequestStatus::running, "who is in `running` runs");
    owned.insert(request->slot);
  }
  QUIRE_RULE(owned.size() == s.context.config.scheduler.max_num_seqs && s.slots.free().size() + s.queues.running.size() == owned.size(),
             "each slot is free or has one owner");
  return nullptr;
}

}  // namespace quire
