#pragma once
// Follows the core's decisions for the trace: copies the data of a step and hands it to the writing thread. Belongs to the engine thread.
// If the writer has no free step object, the step is dropped and counted.
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

// Checks that the numbers in `options` are in range. Errors name the option.
Result<void> check_trace(const TraceOptions& options);

class Tracer final : public StepTrace {
 public:
  // Creates a tracer. `options` must have passed check_trace(). Error: a file cannot be written.
  static Result<std::unique_ptr<Tracer>> create(const TraceOptions& options, const TraceFacts& facts);

  void follow(const Core& core) override { core_ = &core; }
  // Sets the function that returns the tier's state. It is called on the engine thread in each step that records its queues; empty: there
  // is no tier.
  void set_tier_source(std::function<TracedTier()> tier) { tier_ = std::move(tier); }
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
  std::uint32_t slot_of(const RequestView& view);  // returns kNoSlot if the request is not known
  void send_facts(const RequestView& view, std::uint32_t place);
  void forget_absent();
  [[nodiscard]] bool is_over() const { return max_steps_ > 0 && num_steps_ >= max_steps_; }

  static constexpr std::uint32_t kNoSlot = UINT32_MAX;
  // A request whose properties have been sent to the writer.
  struct TracedState {
    RequestId id;
    std::uint32_t num_prompt_tokens = 0, num_tokens = 0;
    double arrival_time = 0.0;
    std::uint64_t last_seen = 0;  // number of the last recorded step that contained the request
  };

  const std::uint32_t every_;
  const std::uint64_t max_steps_;
  const Core* core_ = nullptr;
  // Returns the tier's state; empty: there is no tier.
  std::function<TracedTier()> tier_;
  TraceWriter writer_;
  // Events of results, ends and expiries since the last plan. Their number is bounded: each block is cached once, each pin begins and ends
  // once, and each fork happens once.
  std::vector<Event> events_before_;
  bool is_planning_ = false;
  std::unique_ptr<TraceStep> step_;  // the step that is being recorded; null: it is dropped, or the trace has ended
  std::uint64_t num_steps_ = 0;      // recorded steps with queues
  std::vector<TracedState> traced_;  // by slot
  std::vector<std::uint32_t> free_slots_;
  std::unordered_map<RequestId, std::uint32_t> slots_;
  std::vector<std::uint32_t> order_, last_order_;  // slots in the queues of this step and of the last recorded step,
  std::size_t cursor_ = 0;                         // and the probable position of the next request in last_order_
  std::uint64_t num_dropped_ = 0;
};

}  // namespace quire
