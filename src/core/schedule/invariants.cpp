// What must hold between any two calls, recomputed from scratch.
#include <unordered_set>

#include "base/check.h"
#include "core/schedule/state.h"

namespace quire {
namespace {

void check_request_state(const Request& request, const SchedulerConfig& config) {
  const bool running = request.state == RequestState::running;
  QUIRE_CHECK(request.queued() == RequestQueue::linked(request), "in the waiting queue exactly while it waits");
  QUIRE_CHECK(running || request.kv.blocks().empty(), "only running requests hold blocks");
  QUIRE_CHECK(running || request.state == RequestState::finished || request.num_computed_tokens == 0, "waiting requests start anew");
  QUIRE_CHECK(request.state != RequestState::finished || request.num_in_flight > 0, "a finished request is known to a plan");
  QUIRE_CHECK(request.num_computed_tokens <= request.num_tokens() && request.num_tokens() <= request.max_total_tokens);
  QUIRE_CHECK(request.num_tokens() >= request.num_prompt_tokens && request.num_prompt_tokens > 0);
  if (running) {
    QUIRE_CHECK(request.kv.blocks().size() == (request.num_computed_tokens + config.block_size - 1) / config.block_size,
                "as many blocks as the computed tokens need");
  }
  const std::size_t num_full = config.enable_prefix_caching ? request.tokens.size() / config.block_size : 0;
  QUIRE_CHECK(request.kv.hashes().size() == num_full, "a name for each full block");
}

}  // namespace

void Scheduler::check_invariants() const {
  const State& s = *state_;
  std::vector<std::uint32_t> holders(s.config.num_blocks, 0);
  std::unordered_map<const Request*, std::uint32_t> in_flight;
  for (std::uint32_t i = 0; i < s.plans.size(); ++i) {
    for (const Request* request : s.plans.at(i).requests()) {
      ++in_flight[request];
    }
  }
  std::size_t num_finished = 0;
  for (const auto& [id, request] : s.table.all()) {
    QUIRE_CHECK(id == request->id);
    check_request_state(*request, s.config);
    s.kv.check_sequence(request->kv, holders);
    QUIRE_CHECK(request->num_in_flight == in_flight[request], "counted by the outstanding plans");
    num_finished += request->state == RequestState::finished ? 1 : 0;
  }
  s.kv.pool().check_invariants(holders);
  QUIRE_CHECK(s.table.all().size() == s.running.size() + s.waiting.size() + num_finished, "each request is in one place");

  std::unordered_set<Slot> slots(s.free_slots.begin(), s.free_slots.end());
  for (const Request* request : s.running) {
    QUIRE_CHECK(request->state == RequestState::running);
    slots.insert(request->slot);
  }
  QUIRE_CHECK(slots.size() == s.config.scheduler.max_num_seqs && s.free_slots.size() + s.running.size() == slots.size(),
              "each slot is free or has one owner");
}

}  // namespace quire
