#pragma once
// The step: plan, run, apply, deliver. Belongs to one thread; tests step it by hand.
//
// States of a request here, and who moves it:
//   live      known to the core                                add
//   ended     its last output is made, a plan still names it   end
//   gone      forgotten                                        the core's `retired`
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "engine/inbox.h"
#include "quire/core.h"
#include "quire/engine.h"
#include "runtime/worker/worker.h"

namespace quire {

class StepLoop {
 public:
  // `seed` is for requests without one of their own.
  StepLoop(std::unique_ptr<Core> core, std::unique_ptr<WorkerBase> worker, std::vector<TokenId> eos_ids, std::uint64_t seed,
           std::shared_ptr<const Clock> clock);

  void add(Submission submission);
  // Unknown or ended requests are ignored.
  void finish(RequestId id, FinishReason reason);
  // Returns how many.
  std::uint32_t abort_all();

  [[nodiscard]] bool has_work() const { return core_->has_work(); }
  void step();

  // Hands each sink what has come up since the last call, in one call per sink. A sink may be gone after its request's last output.
  void deliver();

  // Since the last clear_news(): requests that entered the batch for the first time, and that ended.
  [[nodiscard]] std::span<const RequestId> entered() const { return entered_; }
  [[nodiscard]] std::span<const RequestId> ended() const { return ended_; }
  void clear_news();

  // As of now; valid until the next call of any member.
  [[nodiscard]] const EngineStats& stats();
  // Stops the program if a block is still held.
  void check_all_free() const;

 private:
  struct Live {
    SamplingParams sampling;
    OutputSink* sink = nullptr;
    std::uint32_t num_prompt_tokens = 0;
    std::uint32_t num_cached_tokens = 0;
    bool ended = false;
    double arrival_s = 0.0;
    double last_token_s = -1.0;  // negative: none yet
  };
  struct Outgoing {
    OutputSink* sink = nullptr;
    RequestOutput output;
  };

  void end_failed(const WorkerResult& result);
  void take_updates(const StepOutcome& outcome, const WorkerResult& result, double now_s);
  void take_admissions(const StepOutcome& outcome, double now_s);
  void token_times(Live& live, std::size_t num_tokens, double now_s);
  void end(RequestId id, Live& live, FinishReason reason, std::string error);
  void count_end(RequestId id, Live& live, FinishReason reason);

  std::unique_ptr<Core> core_;
  std::unique_ptr<WorkerBase> worker_;
  std::vector<TokenId> eos_ids_;
  std::uint64_t seed_;
  std::shared_ptr<const Clock> clock_;
  std::unordered_map<RequestId, Live> requests_;
  std::vector<Outgoing> outgoing_;
  std::vector<RequestId> entered_, ended_;
  EngineStats stats_;
};

}  // namespace quire
