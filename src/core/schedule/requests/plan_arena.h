#pragma once
// The memory of the outstanding plans: a ring of arenas. Their vectors keep their capacity, so that a step allocates nothing if an earlier
// step was as large.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "core/schedule/requests/request.h"
#include "quire/base/plan.h"
#include "quire/core.h"

namespace quire {

// The tokens that a step grants to a scheduled request.
struct Grant {
  std::uint32_t num_tokens = 0;
  ScheduledKind kind = ScheduledKind::running;
  bool send_all_tokens = false;
};

// States of a plan, and the code that changes them:
//   made      begin(): the loops add to it                            step.cpp
//   sealed    seal(): its views exist; draft tokens may be written    step.cpp, then Core::set_drafts_in_plan()
//   applied   PlanRing::pop(): readable until the next pop()          step.cpp
// Vectors grow while a plan is made, so seal() creates the views at the end, from ranges.
class PlanArena {
 public:
  void reserve(std::uint32_t max_num_seqs, std::uint32_t num_blocks, std::uint32_t num_groups, std::uint32_t num_spec_tokens);
  void begin(StepId step);

  // The following functions are called while the plan is made.
  void release(Slot slot) { released_.push_back(slot); }
  // Adds an admitted request. Its `tokens` must not move in memory before the plan is applied.
  void admit(const Request& request, bool first_time);
  void table_delta(const Request& request, std::uint32_t group, TableUpdate update, std::span<const BlockId> blocks);
  // Records that a block of the request is now a copy.
  void copy_block(const Request& request, std::uint32_t group, const CopyOnWriteBlock& copy);
  // Updates one block of the request's table to the copy. Not needed if the plan replaces the whole table.
  void replace_block(const Request& request, std::uint32_t group, const CopyOnWriteBlock& copy);
  // Appends the request to `scheduled` with the tokens after its num_computed_tokens, and updates its last_step and last_index.
  void schedule(Request& request, const Grant& grant);
  // The following functions apply to the request scheduled last.
  void set_drafts(std::span<const TokenId> drafts);
  void set_placeholders(std::uint32_t count);  // placeholders for draft tokens
  void set_encoder_inputs(std::span<const std::uint32_t> inputs);
  // `tokens` must be a part of the request's own tokens.
  void set_new_tokens(std::span<const TokenId> tokens);
  // Removes a request that is scheduled in this step, with its table deltas and block copies. The other requests keep their order.
  void unschedule(Request& request);
  [[nodiscard]] bool schedules(const Request& request) const { return request.in_flight.last_step == plan_.step; }
  [[nodiscard]] std::uint32_t num_tokens(const Request& request) const {
    QUIRE_CHECK(schedules(request), "the request is in this plan");
    return scheduled_[request.in_flight.last_index].num_tokens;
  }
  [[nodiscard]] std::uint32_t num_computed_tokens(const Request& request) const {
    QUIRE_CHECK(schedules(request), "the request that begins is in this plan");
    return scheduled_[request.in_flight.last_index].num_computed_tokens;
  }
  [[nodiscard]] std::uint32_t num_drafts(const Request& request) const {
    QUIRE_CHECK(schedules(request), "the request with draft tokens is in this plan");
    return entries_[request.in_flight.last_index].drafts.size;
  }
  // Requires a request that is scheduled in this step. Valid until the next change.
  [[nodiscard]] std::span<const std::uint32_t> encoder_inputs(const Request& request) const;
  void preempt(RequestId id) { preempted_.push_back(id); }
  void finish(RequestId id) { finished_.push_back(id); }
  std::span<std::uint32_t> common_prefix_blocks(std::uint32_t num_groups);
  void free_encoder_outputs(std::span<const std::string> identifiers);
  std::vector<BlockId>& blocks_to_zero() { return blocks_to_zero_; }
  // Removes the destinations of this plan's copies from blocks_to_zero(), because the worker zeroes blocks after it has copied.
  void skip_zeroing_of_copies();
  // Called after seal(); the existing views stay valid.
  void add_transfer(const Transfer& transfer) { transfers_.push_back(transfer); }
  [[nodiscard]] std::span<const Transfer> transfers() const { return transfers_; }
  std::vector<TransferId>& fences() { return fences_; }
  void seal_transfers();

  // Creates the views. Afterwards only transfers, flags and the values of draft tokens may change.
  StepPlan& seal();

  [[nodiscard]] const StepPlan& plan() const { return plan_; }
  // Parallel to plan().scheduled.
  [[nodiscard]] std::span<Request* const> requests() const { return requests_; }
  [[nodiscard]] std::span<const RequestId> preempted() const { return preempted_; }
  [[nodiscard]] std::span<const FirstAdmission> first_admissions() const { return first_admissions_; }

  // Returns the draft tokens of plan().scheduled[index] after seal(), to be overwritten in place. Their number is fixed.
  [[nodiscard]] std::span<TokenId> drafts(std::uint32_t index);
  // Sets how many draft tokens the grammar rejected (num_invalid_spec_tokens).
  void set_num_invalid_drafts(std::uint32_t index, std::uint32_t count) {
    QUIRE_CHECK(index < entries_.size(), "the index of the draft tokens is in this plan");
    QUIRE_CHECK(count <= entries_[index].drafts.size, "refused draft tokens do not exceed those of the request");
    entries_[index].num_invalid_drafts = count;
  }
  [[nodiscard]] std::uint32_t num_invalid_drafts(std::uint32_t index) const {
    QUIRE_CHECK(index < entries_.size(), "the index of the refused draft tokens is in this plan");
    return entries_[index].num_invalid_drafts;
  }
  void clear_invalid_drafts();

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [plan, released, admitted, num_admitted_tokens, table_deltas, delta_ranges, blocks, copies, scheduled, entries,
                            requests, drafts, encoder_inputs, finished, preempted, first_admissions, common_prefix_blocks,
                            freed_encoder_outputs, freed_views, num_freed, blocks_to_zero, transfers, fences] = self;
    std::vector<std::string> freed(freed_encoder_outputs.begin(), freed_encoder_outputs.begin() + static_cast<std::ptrdiff_t>(num_freed));
    form(plan, requests, released, admitted, num_admitted_tokens, table_deltas, delta_ranges, blocks, copies, scheduled, entries);
    form.drafts(drafts);
    form(encoder_inputs, finished, preempted, first_admissions, common_prefix_blocks, freed, blocks_to_zero, transfers, fences);
    if constexpr (Archive::kIsReading) {
      form.expect(self.has_sound_parts(), "the parts of a plan lie within its lists");
      if (!form.is_good()) return;
      for (std::size_t i = 0; i < admitted.size(); ++i) admitted[i].tokens = form.tokens_of(admitted[i].id, 0, num_admitted_tokens[i]);
      for (std::size_t i = 0; i < scheduled.size(); ++i)
        scheduled[i].new_tokens = form.tokens_of(scheduled[i].id, entries[i].new_tokens.begin, entries[i].new_tokens.size);
      self.free_encoder_outputs(freed);
      self.seal();
      self.seal_transfers();
    }
  }

 private:
  // Returns whether parallel lists have the same length and ranges are within their pools.
  [[nodiscard]] bool has_sound_parts() const;

  // A range in one of the pools (blocks_, drafts_, encoder_inputs_). It consists of indices instead of pointers, because the pools may
  // still move.
  struct Range {
    static constexpr bool kIsRaw = true;  // has no padding
    std::uint32_t begin = 0, size = 0;
  };
  // Parallel to scheduled_: the ranges of the request's lists in the pools.
  struct Entry {
    Range drafts, encoder_inputs;
    Range new_tokens;  // range in the request's own tokens
    std::uint32_t num_invalid_drafts = 0;
  };

  StepPlan plan_;
  std::vector<Slot> released_;
  std::vector<AdmittedRequest> admitted_;
  std::vector<std::uint32_t> num_admitted_tokens_;  // parallel to admitted_
  std::vector<BlockTableDelta> table_deltas_;
  std::vector<Range> delta_ranges_;
  // The blocks of all table deltas, concatenated in their order.
  std::vector<BlockId> blocks_;
  std::vector<BlockCopy> copies_;
  std::vector<ScheduledRequest> scheduled_;
  std::vector<Entry> entries_;
  std::vector<Request*> requests_;
  std::vector<TokenId> drafts_;
  std::vector<std::uint32_t> encoder_inputs_;
  std::vector<RequestId> finished_, preempted_;
  std::vector<FirstAdmission> first_admissions_;
  std::vector<std::uint32_t> common_prefix_blocks_;
  std::vector<std::string> freed_encoder_outputs_;  // only the first num_freed_ are valid
  std::vector<std::string_view> freed_views_;
  std::size_t num_freed_ = 0;
  std::vector<BlockId> blocks_to_zero_;
  std::vector<Transfer> transfers_;
  std::vector<TransferId> fences_;
};

// The outstanding plans, which are applied in the order in which they were made. The ring has one arena more than the limit of plans, so
// that the outcome of the last applied plan stays readable.
class PlanRing {
 public:
  explicit PlanRing(std::uint32_t max_plans) : arenas_(std::size_t{max_plans} + 1) {}

  void reserve(std::uint32_t max_num_seqs, std::uint32_t num_blocks, std::uint32_t num_groups, std::uint32_t num_spec_tokens);

  [[nodiscard]] std::uint32_t size() const { return size_; }
  // Index 0 is the oldest outstanding plan.
  [[nodiscard]] PlanArena& at(std::uint32_t i) {
    QUIRE_CHECK(i < arenas_.size(), "the index of a plan is in the ring");
    return arenas_[(oldest_ + i) % arenas_.size()];
  }
  [[nodiscard]] const PlanArena& at(std::uint32_t i) const {
    QUIRE_CHECK(i < size_, "the plan is outstanding");
    return arenas_[(oldest_ + i) % arenas_.size()];
  }
  // Requires an outstanding plan.
  [[nodiscard]] PlanArena& newest() {
    QUIRE_CHECK(size_ > 0, "there is an outstanding plan");
    return at(size_ - 1);
  }
  PlanArena& begin();
  // Removes the oldest plan. Its views stay valid until the next pop().
  PlanArena& pop();
  // Returns the step of the plan that the next begin() makes.
  [[nodiscard]] StepId next_step() const { return next_step_; }

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [arenas, oldest, size, next_step] = self;
    form(size, next_step);
    form.expect(size < arenas.size(), "the number of outstanding plans is within the limit");
    for (std::uint32_t i = 0; form.is_good() && i < size; ++i) form(self.at(i));
  }

 private:
  std::vector<PlanArena> arenas_;
  std::size_t oldest_ = 0;
  std::uint32_t size_ = 0;
  StepId next_step_{0};
};

}  // namespace quire
