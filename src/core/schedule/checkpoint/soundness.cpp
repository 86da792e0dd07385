// Checks a state that was read from a checkpoint before other code uses it. Every index must be in range, and counts that are stored twice
// must be equal. Called only by Core::restore(). The rules of invariants.cpp are checked afterwards.
#include <cstdlib>
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"
#include "base/rules.h"
#include "core/schedule/state.h"

namespace quire {
namespace {

constexpr std::int32_t kMostTokens = 1 << 30;  // the sum of two such counts does not overflow

bool is_count(std::int32_t value) {
  return value >= -kMostTokens && value <= kMostTokens;
}

const Rule* unsound_counts(const Request& r, const CoreConfig& config) {
  QUIRE_RULE(!r.tokens.empty() && r.tokens.size() <= kMostTokens && r.draft_tokens.size() <= kMostTokens,
             "a request has tokens, and not too many");
  QUIRE_RULE(r.num_prompt_tokens >= 0 && r.num_prompt_tokens <= r.num_tokens(), "the prompt is part of the tokens");
  QUIRE_RULE(is_count(r.num_computed_tokens) && is_count(r.num_output_placeholders), "the numbers of tokens are in range");
  QUIRE_RULE(r.slot == kNoSlot || r.slot.value < config.scheduler.max_num_seqs, "the slot of a request is in the batch");
  QUIRE_RULE(r.holders <= (static_cast<std::uint8_t>(Holder::transfer) | static_cast<std::uint8_t>(Holder::pin)),
             "the holders of a request are valid");
  return nullptr;
}

// Checks the steps and the plan index that the request stores.
const Rule* unsound_place(const Request& r, const PlanRing& plans) {
  QUIRE_RULE(r.in_flight.last_step == kNeverScheduled || r.in_flight.last_step < plans.next_step(),
             "the last step of a request was planned");
  QUIRE_RULE(r.load.last_early_query == kNeverScheduled || r.load.last_early_query < plans.next_step(),
             "the connector was queried only for planned steps");
  for (std::uint32_t i = 0; i < plans.size(); ++i) {
    const PlanArena& arena = plans.at(i);
    if (arena.schedules(r))
      QUIRE_RULE(r.in_flight.last_index < arena.requests().size() && arena.requests()[r.in_flight.last_index] == &r,
                 "a request records its index in a plan");
  }
  return nullptr;
}

const Rule* unsound_plan(const PlanArena& arena, const CoreConfig& config) {
  const auto num_groups = config.kv.groups.size();
  const auto is_of_pool = [&](BlockId block) { return block.value < config.kv.num_blocks; };
  const StepPlan& plan = arena.plan();
  QUIRE_CHECK(plan.scheduled.size() == arena.requests().size(), "a plan that was read has a request for each entry");
  for (std::size_t i = 0; i < plan.scheduled.size(); ++i) {
    const ScheduledRequest& s = plan.scheduled[i];
    QUIRE_RULE(s.id == arena.requests()[i]->id && s.slot.value < config.scheduler.max_num_seqs,
               "a plan entry refers to its request and a slot of the batch");
    QUIRE_RULE(s.num_tokens > 0 && s.num_tokens <= kMostTokens && s.num_computed_tokens <= kMostTokens,
               "a plan entry has tokens, and not too many");
    for (const std::uint32_t input : s.encoder_inputs)
      QUIRE_RULE(input < arena.requests()[i]->features.size(), "encoder inputs belong to the request");
  }
  for (const BlockTableDelta& delta : plan.table_deltas) {
    QUIRE_RULE(delta.group < num_groups && delta.slot.value < config.scheduler.max_num_seqs,
               "block table updates refer to groups and slots");
    QUIRE_RULE(std::ranges::all_of(delta.blocks, is_of_pool), "block table updates contain blocks of the pool");
  }
  for (const BlockCopy& copy : plan.copies)
    QUIRE_RULE(copy.group < num_groups && is_of_pool(copy.source) && is_of_pool(copy.destination), "copies are between blocks of the pool");
  QUIRE_RULE(std::ranges::all_of(plan.blocks_to_zero, is_of_pool), "zeroed blocks are in the pool");
  QUIRE_RULE(plan.num_common_prefix_blocks.empty() || plan.num_common_prefix_blocks.size() == num_groups,
             "there is a number of common prefix blocks for each group");
  for (const AdmittedRequest& a : plan.admitted)
    QUIRE_RULE(a.slot.value < config.scheduler.max_num_seqs, "the slot of an admitted request is in the batch");
  for (const Slot slot : plan.released) QUIRE_RULE(slot.value < config.scheduler.max_num_seqs, "a slot released by a plan is in the batch");
  for (const Transfer& transfer : plan.transfers) QUIRE_RULE(transfer.group < num_groups, "transfers belong to cache groups");
  return nullptr;
}

const Rule* unsound_plans(const PlanRing& plans, const CoreConfig& config) {
  for (std::uint32_t i = 0; i < plans.size(); ++i) {
    QUIRE_RULE(plans.at(i).plan().step.value + plans.size() - i == plans.next_step().value, "plans have consecutive steps");
    if (const Rule* unsound = unsound_plan(plans.at(i), config)) return unsound;
  }
  return nullptr;
}

const Rule* unsound_jobs(const Jobs& jobs, const RequestTable& table) {
  std::unordered_map<const Job*, std::uint32_t> num_requests;
  for (const auto& [id, request] : table.all())
    if (request->job != nullptr) ++num_requests[request->job];
  if (const Agent* agent = jobs.find_agent()) {
    bool are_counted = true;
    agent->jobs.for_each([&](const Job& job) { are_counted &= num_requests[&job] == job.num_requests; });
    QUIRE_RULE(are_counted, "the number of requests of each job is correct");
  }
  for (const Pin& pin : jobs.pins()) {
    const Request* const request = table.find(pin.request);
    QUIRE_RULE(request != nullptr && request->job == pin.job && HoldLedger::holds(*request, Holder::pin),
               "a pin belongs to a request of its job");
  }
  return nullptr;
}

const Rule* unsound_transfers(const OpenTransfers& transfers, const RequestTable& table) {
  std::unordered_map<const Request*, std::uint32_t> num_loads, num_stores;
  for (const OpenTransfers::Entry& entry : transfers.all()) {
    const Request* const request = entry.tier == kSwapTier ? nullptr : table.find(entry.request);
    if (request != nullptr) ++(entry.direction == TransferDirection::load ? num_loads : num_stores)[request];
  }
  for (const auto& [id, request] : table.all())
    QUIRE_RULE(!request->known ||
                   (request->transfers.num_open_loads == num_loads[request] && request->transfers.num_open_stores == num_stores[request]),
               "the numbers of open transfers of each request are correct");
  return nullptr;
}

const Rule* unsound_swaps(const Swap& swap, const CoreConfig& config) {
  const std::size_t num_groups = config.kv.groups.size();
  for (const std::unique_ptr<SwappedBlocks>& swapped : swap.all()) {
    QUIRE_RULE(swapped->blocks.size() == swapped->places.size(), "each swapped block has a swap slot");
    QUIRE_RULE(swapped->left.is_sound(num_groups, config.kv.num_blocks), "blocks that loads still fill are in the pool");
    for (const SwappedOutBlock& taken : swapped->blocks) {
      QUIRE_RULE(taken.group < num_groups && taken.block.value < config.kv.num_blocks,
                 "swapped blocks belong to cache groups and the pool");
      if (swapped->request == nullptr) continue;
      const std::span<const BlockId> list = swapped->request->blocks.blocks(taken.group);
      QUIRE_RULE(
          taken.index < list.size() && list[taken.index] == (swapped->stage == SwappedBlocks::Stage::loading ? taken.block : kNullBlock),
          "a swapped block has an index in the block list of its request");
    }
  }
  return nullptr;
}

const Rule* unsound_inputs(const EncoderCache& cache, const RequestTable& table) {
  bool are_sound = true;
  cache.for_each_held([&](RequestId id, std::uint32_t input) {
    const Request* const request = table.find_any(id);
    are_sound = are_sound && request != nullptr && input < request->features.size();
  });
  QUIRE_RULE(are_sound, "held encoder inputs belong to their request");
  return nullptr;
}

}  // namespace

const Rule* Core::State::unsound_rule() const {
  for (const auto& [id, request] : table.all()) {
    if (const Rule* unsound = unsound_counts(*request, context.config)) return unsound;
    if (const Rule* unsound = unsound_place(*request, plans)) return unsound;
    QUIRE_RULE(!request->structured_output || context.seams.grammar != nullptr, "a request with structured output has a grammar");
    QUIRE_RULE(request->family == 0 || (forks.families().contains(request->family)), "the family of a request is known");
  }
  for (const auto& [family, num_open] : forks.families()) QUIRE_RULE(family <= forks.last_family(), "family ids do not exceed the last id");
  std::unordered_set<const Request*> once;
  for (const Request* request : forks.sharing()) QUIRE_RULE(once.insert(request).second, "a request that shares blocks is listed once");
  for (const Request* request : ended.gone())
    QUIRE_RULE(!request->known && once.insert(request).second, "an ended request is unknown and is listed once");
  for (const Slot slot : slots.free()) QUIRE_RULE(slot.value < context.config.scheduler.max_num_seqs, "a free slot is in the batch");
  for (const Slot slot : slots.released())
    QUIRE_RULE(slot.value < context.config.scheduler.max_num_seqs, "a released slot is in the batch");
  if (const Rule* unsound = unsound_plans(plans, context.config)) return unsound;
  if (const Rule* unsound = unsound_jobs(jobs, table)) return unsound;
  if (const Rule* unsound = unsound_inputs(encoder.cache(), table)) return unsound;
  if (const Rule* unsound = unsound_transfers(open_transfers, table)) return unsound;
  return unsound_swaps(swap, context.config);
}

}  // namespace quire
