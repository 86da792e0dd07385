#pragma once
// Follows the core's decisions for the trace: copies the facts of a step and hands them to the thread that writes. Belongs to the engine
// thread; where the writer has no room the step is dropped, and counted.
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/trace/trace_writer.h"
#include "quire/base/events.h"
#include "quire/core.h"
#include "quire/step_trace.h"

namespace quire {

// The numbers of `options` are in range. Errors name the option.
Result<void> check_trace(const TraceOptions& options);

class Tracer final : public StepTrace {
 public:
  // Of options that check_trace() has passed. Errors: a file cannot be written.
  static Result<std::unique_ptr<Tracer>> create(const TraceOptions& options, const TraceFacts& facts);

  void follow(const Core& core) override { core_ = &core; }
  // Asked on the engine's thread at each step whose queues are written; empty: there is no tier.
  void show_tier(std::function<TracedTier()> tier) { tier_ = std::move(tier); }
  void on_event(const Event& event) override;
  void planned(const StepPlan& plan) override;
  void flush() override { writer_.flush(); }

  [[nodiscard]] std::uint64_t num_written() const override { return writer_.num_written(); }
  [[nodiscard]] std::uint64_t num_dropped() const override { return num_dropped_ + writer_.num_failed(); }

 private:
  Tracer(const TraceOptions& options, TraceFiles files, const TraceFacts& facts);
  void begin(StepId step);
  void copy_queues();
  void copy(QueueKind queue, const RequestView& view);
  void copy_lookup(const Event& event);
  std::uint32_t place_of(const RequestView& view);  // kNoPlace: its facts are not known
  void send_facts(const RequestView& view, std::uint32_t place);
  void forget_absent();
  [[nodiscard]] bool is_over() const { return max_steps_ > 0 && num_steps_ >= max_steps_; }

  static constexpr std::uint32_t kNoPlace = UINT32_MAX;
  // A request whose facts have been sent.
  struct Followed {
    RequestId id;
    std::uint32_t num_prompt_tokens = 0, num_tokens = 0;
    double arrival_time = 0.0;
    std::uint64_t last_seen = 0;  // which of the recorded steps
  };

  const std::uint32_t every_;
  const std::uint64_t max_steps_;
  const Core* core_ = nullptr;
  // May be empty.
  std::function<TracedTier()> tier_;
  TraceWriter writer_;
  // What results, ends and expiries told since the last plan: at most each block cached once, each pin begun and ended, and each fork.
  std::vector<Event> events_before_;
  bool is_planning_ = false;
  std::unique_ptr<TraceStep> step_;  // being followed; null: it is dropped, or the trace is over
  std::uint64_t num_steps_ = 0;      // with their queues
  std::vector<Followed> followed_;   // by place
  std::vector<std::uint32_t> free_places_;
  std::unordered_map<RequestId, std::uint32_t> places_;
  std::vector<std::uint32_t> order_, last_order_;  // the places in this step's and the last recorded queues,
  std::size_t cursor_ = 0;                         // and where in last_order_ the next request is likely to be
  std::uint64_t num_dropped_ = 0;
};

}  // namespace quire
