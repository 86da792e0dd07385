#pragma once
// TwinRun makes random calls to a core with random features. From time to time it restores a second core from a checkpoint and makes the
// same calls to it. Both cores must report the same, and their next checkpoints must be equal.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/core_world.h"
#include "core/schedule/checkpoint/twin_seams.h"

namespace quire::test {

// Counts what was in use when a checkpoint was made.
struct TwinsMet {
  std::uint64_t checkpoints = 0, calls = 0, plans = 0;
  std::uint64_t in_flight = 0, transfers = 0, swapped = 0, pinned = 0, sessions = 0, placeholders = 0, drafts = 0, loading = 0;
  std::uint64_t encoder_outputs = 0, residency = 0, grammars = 0, stopped = 0, gone = 0, windows = 0, priorities = 0;
  CoreCounters counters;  // sums over all runs
};

class TwinRun final : public CoreWorld {
 public:
  TwinRun(std::uint64_t seed, std::uint64_t num_calls, RunOf kind = RunOf::twins)
      : CoreWorld(seed, num_calls, kind), has_all_hashes(Core::create(config).has_value()) {
    if (!has_all_hashes) config.prefix_cache.hash = {};
    first_.seams.numbers.random = Random(seed ^ 0xABCDU);
    first_.seams.numbers.block_size = config.block_size;
    moves_ = first_.seams.numbers.moves = chance(in_, 2);
    has_connector_ = !config.mamba_align && chance(in_, 2);
    has_grammar_ = chance(in_, 2);
    first_.core = Core::create(config, seams_of(first_)).value();
    sides_ = {&first_};
  }

  void run(TwinsMet& met) {
    for (; !in_.empty() && !testing::Test::HasFailure(); in_.count()) {
      one_call();
      ++met.calls;
      ASSERT_TRUE(takes_results_);
      if (second_ != nullptr) ASSERT_EQ(second_->told.digest(), first_.told.digest()) << "after call " << met.calls << ", " << last_call_;
      if (chance(in_, 20)) make_twin(met);
    }
    count_all(met);
  }

  // Replaces the core by one that restored() made of any bytes, and makes calls until a result is refused.
  void go_on(std::unique_ptr<Core> core, std::uint64_t seed, std::uint64_t num_calls) {
    second_.reset();
    sides_ = {&first_};
    first_.core = std::move(core);
    spare_.seams.numbers.wanted.clear();  // the restored core may not know their requests
    in_ = SeedSource(seed, num_calls);
    outstanding_.clear();
    open_.clear();
    takes_results_ = true;
    for (std::uint32_t i = 0; i < first_.core->num_outstanding_plans(); ++i) await(first_.core->outstanding_plan(i));
    for (; !in_.empty() && takes_results_; in_.count()) {
      one_call();
      first_.core->check_invariants();
    }
  }

  const bool has_all_hashes;  // otherwise this build makes a different run
  [[nodiscard]] std::uint64_t digest() const { return first_.told.digest(); }
  [[nodiscard]] const Core& core() const { return *first_.core; }
  // Restores a core for inspection. It uses the spare seams.
  [[nodiscard]] Result<std::unique_ptr<Core>> restored(std::span<const std::uint8_t> bytes) {
    spare_.seams.numbers = first_.seams.numbers;
    return Core::restore(config, seams_of(spare_), bytes);
  }

 private:
  struct Twin : Side {
    Twin() : Side(true) {}
    ~Twin() { core.reset(); }  // it calls the seams
    TwinSeams seams;
  };

  CoreSeams seams_of(Twin& side) const {
    CoreSeams seams{.events = &side.told};
    if (has_connector_) seams.connector = &side.seams;
    if (has_grammar_) seams.grammar = &side.seams;
    if (!is_newer_) seams.encoder_connector = &side.seams;
    seams.tools = &side.seams;
    return seams;
  }

  void make_twin(TwinsMet& met) {
    const std::vector<std::uint8_t> bytes = first_.core->checkpoint();
    if (second_ != nullptr) ASSERT_EQ(difference(second_->core->checkpoint(), bytes), "") << "both cores made the same decisions";
    auto twin = std::make_unique<Twin>();
    twin->seams.numbers = first_.seams.numbers;
    auto made = Core::restore(config, seams_of(*twin), bytes);
    ASSERT_TRUE(made.has_value()) << made.error().to_string() << " after " << last_call_;
    twin->core = std::move(*made);
    twin->core->check_invariants();
    ASSERT_EQ(difference(twin->core->checkpoint(), bytes), "") << "a restored core writes the same bytes";
    // A host continues from the outstanding plans.
    twin->told = first_.told;
    second_ = std::move(twin);
    sides_ = {&first_, second_.get()};
    on_each("checkpoint", [this](Side& side) {
      for (std::uint32_t i = 0; i < side.core->num_outstanding_plans(); ++i) tell_plan(side, side.core->outstanding_plan(i));
      tell_state(side);
    });
    count(met);
  }

  // Returns an empty string when the bytes are equal.
  static std::string difference(const std::vector<std::uint8_t>& a, const std::vector<std::uint8_t>& b) {
    if (a == b) return {};
    return fmt::format("{} and {} bytes, equal up to byte {}", a.size(), b.size(), std::ranges::mismatch(a, b).in1 - a.begin());
  }

  // Reports a plan without data that no longer exists: the lists of a finished transfer, and the tokens of a session that has continued.
  void tell_plan(Side& side, const StepPlan& plan) {
    const auto is_session = [&side](RequestId id) {
      const auto view = side.core->view(id);
      return !view || view->resumable;
    };
    std::vector<AdmittedRequest> admitted(plan.admitted.begin(), plan.admitted.end());
    std::vector<ScheduledRequest> scheduled(plan.scheduled.begin(), plan.scheduled.end());
    for (AdmittedRequest& a : admitted)
      if (is_session(a.id)) a.tokens = {};
    for (ScheduledRequest& s : scheduled)
      if (is_session(s.id)) s.new_tokens = {};
    StepPlan told = plan;
    told.admitted = admitted;
    told.scheduled = scheduled;
    told.transfers = {};
    side.told(told);
    for (const Transfer& transfer : plan.transfers) {
      const bool is_open = std::ranges::find(open_, transfer.id, &Open::id) != open_.end();
      side.told(transfer.id, transfer.request, transfer.direction, transfer.need, transfer.group, transfer.tier);
      if (is_open) side.told(transfer.blocks, transfer.places);
    }
  }

  void count(TwinsMet& met) {
    CoreSnapshot now;
    first_.core->snapshot(now);
    const CoreCounters counters = first_.core->counters();
    ++met.checkpoints;
    met.in_flight += outstanding_.empty() ? 0 : 1;
    met.transfers += counters.num_open_transfers;
    met.swapped += now.swapped.size();
    met.pinned += counters.num_pinned;
    met.encoder_outputs += now.encoder_cached.size();
    met.residency += now.residency.size();
    met.stopped += counters.is_admission_stopped ? 1 : 0;
    met.windows += config.kv.groups.size() > 1 ? 1 : 0;
    met.priorities += config.scheduler.policy == SchedulingPolicy::priority && now.waiting.size() > 2 ? 1 : 0;
    for (const CoreSnapshot::Request& request : now.requests) {
      met.sessions += request.status == RequestStatus::waiting_for_input ? 1 : 0;
      met.grammars += request.status == RequestStatus::waiting_for_grammar ? 1 : 0;
      met.loading += request.status == RequestStatus::waiting_for_remote_kv ? 1 : 0;
      met.placeholders += request.num_output_placeholders > 0 ? 1 : 0;
      met.drafts += request.draft_tokens.empty() ? 0 : 1;
    }
    for (const Outstanding& plan : outstanding_)
      for (const Scheduled& s : plan.scheduled) met.gone += first_.core->view(s.id) ? 0 : 1;
  }

  void count_all(TwinsMet& met) const {
    const CoreCounters c = first_.core->counters();
    met.counters.num_steps += c.num_steps;
    met.counters.num_preemptions += c.num_preemptions;
    met.counters.num_evicted_blocks += c.num_evicted_blocks;
    met.counters.num_forks += c.num_forks;
    met.counters.num_copied_blocks += c.num_copied_blocks;
    met.counters.num_swapped_in += c.num_swapped_in;
    met.counters.num_swaps_lost += c.num_swaps_lost;
    met.counters.prefix_hit_tokens += c.prefix_hit_tokens;
    met.counters.external_hit_tokens += c.external_hit_tokens;
  }

  bool has_grammar_ = false;
  Twin first_, spare_;
  std::unique_ptr<Twin> second_;
};

}  // namespace quire::test
