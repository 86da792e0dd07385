#include "core/schedule/plan_arena.h"

#include "base/check.h"

namespace quire {

void PlanArena::reserve(std::uint32_t max_num_seqs, std::uint32_t num_blocks) {
  released_.reserve(max_num_seqs);
  admitted_.reserve(max_num_seqs);
  table_deltas_.reserve(max_num_seqs);
  delta_sizes_.reserve(max_num_seqs);
  blocks_.reserve(num_blocks);
  scheduled_.reserve(max_num_seqs);
  requests_.reserve(max_num_seqs);
  preempted_.reserve(max_num_seqs);
  first_admissions_.reserve(max_num_seqs);
}

void PlanArena::begin(StepId step) {
  plan_ = {};
  plan_.step = step;
  released_.clear();
  admitted_.clear();
  table_deltas_.clear();
  delta_sizes_.clear();
  blocks_.clear();
  scheduled_.clear();
  requests_.clear();
  preempted_.clear();
  first_admissions_.clear();
}

void PlanArena::admit(const Request& request, bool first_time) {
  admitted_.push_back({.id = request.id,
                       .slot = request.slot,
                       .tokens = request.tokens,
                       .num_prompt_tokens = request.num_prompt_tokens,
                       .sampling = request.sampling});
  if (first_time) {
    QUIRE_CHECK(request.num_cached_tokens.has_value(), "an admitted request knows its cached tokens");
    first_admissions_.push_back({request.id, *request.num_cached_tokens});
  }
}

void PlanArena::table_delta(Slot slot, TableUpdate update, std::span<const BlockId> blocks) {
  table_deltas_.push_back({.slot = slot, .update = update, .index = 0, .blocks = {}});
  delta_sizes_.push_back(blocks.size());
  blocks_.insert(blocks_.end(), blocks.begin(), blocks.end());
}

void PlanArena::schedule(Request& request, std::uint32_t num_tokens) {
  scheduled_.push_back({.id = request.id,
                        .slot = request.slot,
                        .num_computed_tokens = request.num_computed_tokens,
                        .num_tokens = num_tokens,
                        .samples = request.num_computed_tokens + num_tokens == request.num_tokens()});
  requests_.push_back(&request);
  plan_.num_scheduled_tokens += num_tokens;
}

const StepPlan& PlanArena::seal() {
  std::span<const BlockId> rest = blocks_;
  for (std::size_t i = 0; i < table_deltas_.size(); ++i) {
    table_deltas_[i].blocks = rest.first(delta_sizes_[i]);
    rest = rest.subspan(delta_sizes_[i]);
  }
  plan_.released = released_;
  plan_.admitted = admitted_;
  plan_.table_deltas = table_deltas_;
  plan_.scheduled = scheduled_;
  return plan_;
}

PlanRing::PlanRing(std::uint32_t max_num_seqs, std::uint32_t num_blocks) {
  for (PlanArena& arena : arenas_) {
    arena.reserve(max_num_seqs, num_blocks);
  }
}

PlanArena& PlanRing::begin() {
  QUIRE_CHECK(size_ < arenas_.size(), "apply an outstanding plan first");
  PlanArena& arena = arenas_[(oldest_ + size_) % arenas_.size()];
  arena.begin(next_step_);
  ++next_step_.value;
  ++size_;
  return arena;
}

PlanArena& PlanRing::pop() {
  QUIRE_CHECK(size_ > 0, "no plan is outstanding");
  PlanArena& arena = arenas_[oldest_];
  oldest_ = (oldest_ + 1) % arenas_.size();
  --size_;
  return arena;
}

}  // namespace quire
