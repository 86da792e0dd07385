#pragma once
// Follows the core's decisions for the trace: copies the facts of a step and hands them to the thread that writes. Belongs to the engine
// thread; where the writer has no room the step is dropped, and counted.
#include <cstdint>
#include <memory>

#include "engine/trace_writer.h"
#include "quire/core.h"
#include "quire/events.h"

namespace quire {

class Tracer final : public EventSink {
 public:
  // Errors: a file cannot be written.
  static Result<std::unique_ptr<Tracer>> create(const TraceOptions& options, const TraceFacts& facts);

  // Before its first step; it must outlive this tracer's last event.
  void follow(const Core& core) { core_ = &core; }
  void on_event(const Event& event) override;
  // The step has been planned.
  void planned(const StepPlan& plan);

  [[nodiscard]] std::uint64_t num_written() const { return writer_.num_written(); }
  [[nodiscard]] std::uint64_t num_dropped() const { return num_dropped_ + writer_.num_failed(); }

 private:
  Tracer(const TraceOptions& options, TraceFiles files, const TraceFacts& facts);
  void begin(StepId step);
  void copy(QueueKind queue, const RequestView& view);
  void copy_lookup(const Event& event);
  TraceSpan copy(std::string_view text);
  TraceSpan copy(std::span<const TokenId> tokens);
  [[nodiscard]] bool is_over() const { return max_steps_ > 0 && num_steps_ >= max_steps_; }

  const std::uint32_t every_;
  const std::uint64_t max_steps_;
  const std::uint32_t num_groups_;
  const Core* core_ = nullptr;
  TraceWriter writer_;
  // What results, ends and expiries told since the last plan: at most each block cached once, each pin begun and ended, and each fork.
  std::vector<Event> events_before_;
  bool is_planning_ = false;
  std::unique_ptr<TraceStep> step_;  // being followed; null: it is dropped, or the trace is over
  std::uint64_t num_steps_ = 0;      // with their queues
  std::uint64_t num_dropped_ = 0;
};

}  // namespace quire
