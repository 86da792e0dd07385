#pragma once
// The memory behind the outstanding plans: a ring of arenas whose vectors keep their capacity, so that a step like an earlier one
// allocates nothing.
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/schedule/request.h"
#include "core/schedule/scheduler.h"
#include "quire/plan.h"

namespace quire {

class PlanArena {
 public:
  void reserve(std::uint32_t max_num_seqs, std::uint32_t num_blocks);
  void begin(StepId step);

  void release(Slot slot) { released_.push_back(slot); }
  // `tokens` of the request must not move before the plan is applied.
  void admit(const Request& request, bool first_time);
  void table_delta(Slot slot, TableUpdate update, std::span<const BlockId> blocks);
  // Tokens [num_computed_tokens, + num_tokens) of the request run in this step.
  void schedule(Request& request, std::uint32_t num_tokens);
  void preempt(RequestId id) { preempted_.push_back(id); }

  // Makes the views; nothing is added afterwards.
  const StepPlan& seal();

  [[nodiscard]] const StepPlan& plan() const { return plan_; }
  // Parallel to plan().scheduled.
  [[nodiscard]] std::span<Request* const> requests() const { return requests_; }
  [[nodiscard]] std::span<const RequestId> preempted() const { return preempted_; }
  [[nodiscard]] std::span<const FirstAdmission> first_admissions() const { return first_admissions_; }

 private:
  StepPlan plan_;
  std::vector<Slot> released_;
  std::vector<AdmittedRequest> admitted_;
  std::vector<BlockTableDelta> table_deltas_;
  std::vector<std::size_t> delta_sizes_;
  std::vector<BlockId> blocks_;
  std::vector<ScheduledRequest> scheduled_;
  std::vector<Request*> requests_;
  std::vector<RequestId> preempted_;
  std::vector<FirstAdmission> first_admissions_;
};

// First made, first applied.
class PlanRing {
 public:
  PlanRing(std::uint32_t max_num_seqs, std::uint32_t num_blocks);

  [[nodiscard]] std::uint32_t size() const { return size_; }
  // i = 0 is the oldest outstanding plan.
  [[nodiscard]] const PlanArena& at(std::uint32_t i) const { return arenas_[(oldest_ + i) % arenas_.size()]; }
  PlanArena& begin();
  // The views of the oldest stay valid until the next begin().
  PlanArena& pop();

 private:
  std::array<PlanArena, kMaxOutstandingPlans> arenas_;
  std::size_t oldest_ = 0;
  std::uint32_t size_ = 0;
  StepId next_step_{0};
};

}  // namespace quire
