#pragma once
// Takes a step's result: appends tokens, subtracts rejected draft tokens, and stops requests.
//
//   running, preempted -> finished     by check_stop, or a pooled output
//   running, preempted -> waiting_*    a streaming session at the end of an input (sessions.h)
//   running, waiting_* -> finished     blocks could not be loaded and the policy is to fail (failed_loads.h)
//
// A late token for a request that was preempted in the meantime is still appended; a token for a finished request is dropped. The order is
// the order of vLLM V1's update_from_output (v0.19.0): failed loads are found, results are taken in the plan's order, stopped requests are
// removed from the queues, failed requests end, transfers are taken.
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/schedule/requests/drafts.h"
#include "core/schedule/requests/encoder_inputs.h"
#include "core/schedule/requests/plan_arena.h"
#include "core/schedule/requests/request.h"
#include "core/schedule/requests/sessions.h"
#include "core/schedule/requests/shared_state.h"
#include "core/schedule/requests/slots.h"
#include "core/schedule/requests/stop_check.h"
#include "core/schedule/requests/updates.h"
#include "core/schedule/results/ending.h"
#include "core/schedule/results/stats.h"
#include "quire/base/error.h"
#include "quire/base/plan.h"

namespace quire {

class Results {
 public:
  Results(const SharedState& base, Slots& slots, EncoderScheduler& encoder, Ending& ending, const Drafts& drafts, Sessions& sessions,
          Updates& updates, Stats& stats)
      : context_(base.context),
        kv_(base.kv),
        requests_(base.requests),
        queues_(base.queues),
        slots_(slots),
        encoder_(encoder),
        ending_(ending),
        drafts_(drafts),
        sessions_(sessions),
        updates_(updates),
        stats_(stats) {}

  // Checks whether a result can be taken, except for its transfers. vLLM trusts its workers and stops on their mistakes.
  [[nodiscard]] static Result<void> check(const PlanRing& plans, const StepResult& result);
  // Takes the tokens and pooled outputs of a checked result.
  void take(const PlanArena& arena, const StepResult& result);

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it.
  template <class Archive, class Self>
  static void fields(Archive& /*form*/, Self& self) {
    [[maybe_unused]] auto& [context, kv, requests, queues, slots, encoder, ending, drafts, sessions, updates, stats, stopped_waiting,
                            stopped_running] = self;
  }

 private:
  [[nodiscard]] bool is_late(const Request& request) const;
  // Subtracts a plan's tokens from the tokens in flight. Returns whether they were planned before the request was preempted.
  static bool end_in_flight_tokens(Request& request, std::uint32_t num_tokens);
  void take_one(const PlanArena& arena, std::uint32_t index, std::span<const TokenId> tokens, bool pooled, bool is_stale);
  void subtract_rejected_drafts(const PlanArena& arena, std::uint32_t index, std::uint32_t num_sampled, bool is_stale);
  [[nodiscard]] std::uint32_t num_hashed_tokens(const Request& request) const;
  static void drop_tokens(Request& request, std::int32_t num_drafts);
  // Appends tokens until one of them stops the request, and removes the tokens after that one from `tokens`.
  std::optional<Stop> take_tokens(Request& request, std::span<const TokenId>& tokens, bool is_stale);
  // Advances the request's grammar. Returns false if the grammar rejects the tokens. `stop` is set if the tokens have stopped the request.
  bool advance_grammar(Request& request, std::span<const TokenId> tokens, const std::optional<Stop>& stop);
  bool handle_stopped(Request& request, const Stop& stop);  // returns false for a session that continues
  void remove_stopped();

  Context& context_;
  KvCacheManager& kv_;
  Requests& requests_;
  Queues& queues_;
  Slots& slots_;
  EncoderScheduler& encoder_;
  Ending& ending_;
  const Drafts& drafts_;
  Sessions& sessions_;
  Updates& updates_;
  Stats& stats_;
  std::vector<Request*> stopped_waiting_;  // stopped by a late token while not running
  bool stopped_running_ = false;           // `running` contains requests that no longer run
};

}  // namespace quire
