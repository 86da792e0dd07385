#pragma once
// Taking a step's result: tokens are appended, drafts that were rejected are taken back, and requests stop.
//
//   running, preempted -> finished     by check_stop, or a pooled output
//   running, preempted -> waiting_*    a streaming session at the end of an input (sessions.h)
//   running, waiting_* -> finished     blocks could not be loaded and the policy is to fail (failed_loads.h)
//
// A token that comes late, for a request preempted meanwhile, is appended all the same; one for a finished request is dropped. The order
// is that of vLLM V1's update_from_output (v0.19.0): failed loads are found, results are taken in the plan's order, those that stopped
// are removed from the queues, failed ones finish, transfers are taken.
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/schedule/requests/drafts.h"
#include "core/schedule/requests/encoder_inputs.h"
#include "core/schedule/requests/foundation.h"
#include "core/schedule/requests/plan_arena.h"
#include "core/schedule/requests/request.h"
#include "core/schedule/requests/sessions.h"
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
  Results(const Foundation& base, Slots& slots, EncoderScheduler& encoder, Ending& ending, const Drafts& drafts, Sessions& sessions,
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

  // What a result must be to be taken, but for its transfers. vLLM trusts its workers and stops where they err.
  [[nodiscard]] static Result<void> check(const PlanRing& plans, const StepResult& result);
  // Of a checked one: the tokens and pooled outputs of the plan's requests.
  void take(const PlanArena& arena, const StepResult& result);

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& /*form*/, Self& self) {
    [[maybe_unused]] auto& [context, kv, requests, queues, slots, encoder, ending, drafts, sessions, updates, stats, stopped_waiting,
                            stopped_running] = self;
  }

 private:
  [[nodiscard]] bool is_late(const Request& request) const;
  // The plan's tokens of the request are in flight no more. True: they were planned before it was preempted.
  static bool end_flight(Request& request, std::uint32_t num_tokens);
  void take_one(const PlanArena& arena, std::uint32_t index, std::span<const TokenId> tokens, bool pooled, bool is_stale);
  void take_back_rejected(const PlanArena& arena, std::uint32_t index, std::uint32_t num_sampled, bool is_stale);
  [[nodiscard]] std::uint32_t num_named_tokens(const Request& request) const;
  static void drop_tokens(Request& request, std::int32_t num_drafts);
  // Cuts `tokens` behind the one that stops it.
  std::optional<Stop> take_tokens(Request& request, std::span<const TokenId>& tokens, bool is_stale);
  // The request's grammar moves on; false: it does not fit. `stop`: the tokens have stopped it.
  bool move_grammar(Request& request, std::span<const TokenId> tokens, const std::optional<Stop>& stop);
  bool handle_stopped(Request& request, const Stop& stop);  // false: a session that goes on
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
  std::vector<Request*> stopped_waiting_;  // stopped by a late token, while not running
  bool stopped_running_ = false;           // `running` has requests that run no more
};

}  // namespace quire
