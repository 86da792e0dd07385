#pragma once
// The memory behind the outstanding plans: a ring of arenas whose vectors keep their capacity, so that a step like an earlier one
// allocates nothing.
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

// What a scheduled request is given in this step.
struct Grant {
  std::uint32_t num_tokens = 0;
  ScheduledKind kind = ScheduledKind::running;
  bool send_all_tokens = false;
};

// States of a plan, and who moves it:
//   made      begin(): the loops add to it                     step.cpp
//   sealed    seal(): its views exist; drafts may be written    step.cpp, then Core::set_drafts_in_plan()
//   applied   PlanRing::pop(): readable until the next pop()    step.cpp
// Vectors grow while a plan is made, so views into them are made at its end, from ranges.
class PlanArena {
 public:
  void reserve(std::uint32_t max_num_seqs, std::uint32_t num_blocks, std::uint32_t num_groups, std::uint32_t num_spec_tokens);
  void begin(StepId step);

  // While the plan is made.
  void release(Slot slot) { released_.push_back(slot); }
  // `tokens` of the request must not move before the plan is applied.
  void admit(const Request& request, bool first_time);
  void table_delta(const Request& request, std::uint32_t group, TableUpdate update, std::span<const BlockId> blocks);
  // A block of the request is a copy from now on.
  void copy_block(const Request& request, std::uint32_t group, const OwnCopy& copy);
  // And its table says so, where it is not written anew.
  void replace_block(const Request& request, std::uint32_t group, const OwnCopy& copy);
  // The request goes to the end of `scheduled` with the tokens after its num_computed_tokens; its last_step and last_index follow.
  void schedule(Request& request, const Grant& grant);
  // For the request scheduled last.
  void set_drafts(std::span<const TokenId> drafts);
  void set_placeholders(std::uint32_t count);  // for drafts
  void set_encoder_inputs(std::span<const std::uint32_t> inputs);
  // Of its own tokens.
  void set_new_tokens(std::span<const TokenId> tokens);
  // Takes a request scheduled in this step, with its deltas, out again; the order of the others stays.
  void unschedule(Request& request);
  [[nodiscard]] bool schedules(const Request& request) const { return request.last_step == plan_.step; }
  [[nodiscard]] std::uint32_t num_tokens(const Request& request) const {
    QUIRE_CHECK(schedules(request), "asked about this step");
    return scheduled_[request.last_index].num_tokens;
  }
  [[nodiscard]] std::uint32_t num_computed_tokens(const Request& request) const {
    QUIRE_CHECK(schedules(request), "asked where a request of this step begins");
    return scheduled_[request.last_index].num_computed_tokens;
  }
  [[nodiscard]] std::uint32_t num_drafts(const Request& request) const {
    QUIRE_CHECK(schedules(request), "asked about drafts of this step");
    return entries_[request.last_index].drafts.size;
  }
  // Of a request scheduled in this step; valid until the next change.
  [[nodiscard]] std::span<const std::uint32_t> encoder_inputs(const Request& request) const;
  void preempt(RequestId id) { preempted_.push_back(id); }
  void finish(RequestId id) { finished_.push_back(id); }
  std::span<std::uint32_t> common_prefix_blocks(std::uint32_t num_groups);
  void free_encoder_outputs(std::span<const std::string> identifiers);
  std::vector<BlockId>& blocks_to_zero() { return blocks_to_zero_; }
  // After seal(); its views stay.
  void add_transfer(const Transfer& transfer) { transfers_.push_back(transfer); }
  [[nodiscard]] std::span<const Transfer> transfers() const { return transfers_; }
  std::vector<TransferId>& fences() { return fences_; }
  void seal_transfers();

  // Makes the views; of the plan, only the flags and the drafts' content change afterwards.
  StepPlan& seal();

  [[nodiscard]] const StepPlan& plan() const { return plan_; }
  // Parallel to plan().scheduled.
  [[nodiscard]] std::span<Request* const> requests() const { return requests_; }
  [[nodiscard]] std::span<const RequestId> preempted() const { return preempted_; }
  [[nodiscard]] std::span<const FirstAdmission> first_admissions() const { return first_admissions_; }

  // After seal(): the drafts of plan().scheduled[index], to be written over in place; their number stays.
  [[nodiscard]] std::span<TokenId> drafts(std::uint32_t index);
  // How many of them the grammar refused (num_invalid_spec_tokens).
  void set_num_invalid_drafts(std::uint32_t index, std::uint32_t count) {
    QUIRE_CHECK(index < entries_.size(), "drafts of a request of this plan");
    QUIRE_CHECK(count <= entries_[index].drafts.size, "drafts of the request");
    entries_[index].num_invalid_drafts = count;
  }
  [[nodiscard]] std::uint32_t num_invalid_drafts(std::uint32_t index) const {
    QUIRE_CHECK(index < entries_.size(), "refused drafts of a request of this plan");
    return entries_[index].num_invalid_drafts;
  }
  void clear_invalid_drafts();

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
    [[maybe_unused]] auto& [plan, released, admitted, num_admitted_tokens, table_deltas, delta_ranges, blocks, copies, scheduled, entries,
                            requests, drafts, encoder_inputs, finished, preempted, first_admissions, common_prefix_blocks,
                            freed_encoder_outputs, freed_views, num_freed, blocks_to_zero, transfers, fences] = self;
    std::vector<std::string> freed(freed_encoder_outputs.begin(), freed_encoder_outputs.begin() + static_cast<std::ptrdiff_t>(num_freed));
    form(plan, requests, released, admitted, num_admitted_tokens, table_deltas, delta_ranges, blocks, copies, scheduled, entries);
    form.drafts(drafts);
    form(encoder_inputs, finished, preempted, first_admissions, common_prefix_blocks, freed, blocks_to_zero, transfers, fences);
    if constexpr (Form::kReads) {
      form.expect(self.has_sound_parts(), "parts of a plan lie in it");
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
  // Parallel lists are as long as each other, and ranges lie in their pools.
  [[nodiscard]] bool has_sound_parts() const;

  // A part of one of the pools (blocks_, drafts_, encoder_inputs_): places and not pointers, because the pools may still move.
  struct Range {
    static constexpr bool kIsRaw = true;  // all of its bytes count
    std::uint32_t begin = 0, size = 0;
  };
  // Parallel to scheduled_: where its parts lie in the pools.
  struct Entry {
    template <class Form, class Self>
    static void fields(Form& form, Self& self) {
      auto& [drafts, encoder_inputs, new_tokens, num_invalid_drafts] = self;
      form(drafts.begin, drafts.size, encoder_inputs.begin, encoder_inputs.size, new_tokens.begin, new_tokens.size, num_invalid_drafts);
    }

    Range drafts, encoder_inputs;
    Range new_tokens;  // of the request's own
    std::uint32_t num_invalid_drafts = 0;
  };

  StepPlan plan_;
  std::vector<Slot> released_;
  std::vector<AdmittedRequest> admitted_;
  std::vector<std::uint32_t> num_admitted_tokens_;  // parallel to it
  std::vector<BlockTableDelta> table_deltas_;
  std::vector<Range> delta_ranges_;
  // Of all table deltas, one behind the other, in their order.
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
  std::vector<std::string> freed_encoder_outputs_;  // the first num_freed_ count
  std::vector<std::string_view> freed_views_;
  std::size_t num_freed_ = 0;
  std::vector<BlockId> blocks_to_zero_;
  std::vector<Transfer> transfers_;
  std::vector<TransferId> fences_;
};

// First made, first applied. One arena more than there may be plans, so that the outcome of the last one applied stays readable.
class PlanRing {
 public:
  explicit PlanRing(std::uint32_t max_plans) : arenas_(std::size_t{max_plans} + 1) {}

  void reserve(std::uint32_t max_num_seqs, std::uint32_t num_blocks, std::uint32_t num_groups, std::uint32_t num_spec_tokens);

  [[nodiscard]] std::uint32_t size() const { return size_; }
  // i = 0 is the oldest outstanding plan.
  [[nodiscard]] PlanArena& at(std::uint32_t i) {
    QUIRE_CHECK(i < arenas_.size(), "no more plans than there may be");
    return arenas_[(oldest_ + i) % arenas_.size()];
  }
  [[nodiscard]] const PlanArena& at(std::uint32_t i) const {
    QUIRE_CHECK(i < size_, "an outstanding plan");
    return arenas_[(oldest_ + i) % arenas_.size()];
  }
  // There must be one.
  [[nodiscard]] PlanArena& newest() {
    QUIRE_CHECK(size_ > 0, "no plan is outstanding");
    return at(size_ - 1);
  }
  PlanArena& begin();
  // The views of the oldest stay valid until the next pop().
  PlanArena& pop();
  // Of the plan that begin() makes next.
  [[nodiscard]] StepId next_step() const { return next_step_; }

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
    [[maybe_unused]] auto& [arenas, oldest, size, next_step] = self;
    form(size, next_step);
    form.expect(size < arenas.size(), "no more plans are outstanding than may be");
    for (std::uint32_t i = 0; form.is_good() && i < size; ++i) form(self.at(i));
  }

 private:
  std::vector<PlanArena> arenas_;
  std::size_t oldest_ = 0;
  std::uint32_t size_ = 0;
  StepId next_step_{0};
};

}  // namespace quire
