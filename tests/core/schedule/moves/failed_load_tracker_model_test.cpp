// Runs random rounds in which steps run on loads that later turn out to have failed (FixOptions::unloaded_begin_anew). A model records for
// each cache entry which failed loads it depends on. The core must find exactly the requests that read such an entry. It outputs none of
// their tokens, and no request reads such an entry once the failure is known.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "core/schedule/harness.h"
#include "support/rounds.h"
#include "support/scripted_connector.h"

namespace quire::test {
namespace {

constexpr std::uint32_t kLoadedBlock = 4;  // in tokens

struct UnloadedMet {
  std::uint64_t failed = 0, invalidated = 0, by_others = 0, later = 0, preempted = 0;
};

using Sources = std::set<StepId>;                             // plans whose loads failed
using InvalidatedAfter = std::map<RequestId, std::uint32_t>;  // number of tokens before the first corrupted entry

// This tier loads the first blocks of each prompt, either within the step that needs them or while the request waits.
class FailingTier final : public QuietConnector {
 public:
  FailingTier(std::uint64_t seed, UnloadedMet& met) : random_(seed), met_(met) {}

  void attach(Harness& harness) {
    h_ = &harness;
    entries_.resize(std::size_t{harness.config.kv.num_blocks} * kLoadedBlock);
    harness.move = [this](const StepPlan& plan) { load(plan); };
  }

  ExternalMatch match(const RequestView& request, std::uint32_t num_local_tokens) override {
    num_local_ = num_local_tokens;
    const auto held =
        kLoadedBlock * static_cast<std::uint32_t>(mix(request.id.value, 5) % ((request.num_prompt_tokens - 1) / kLoadedBlock + 1));
    return {.num_tokens = std::max(held, num_local_tokens) - num_local_tokens, .load_async = mix(request.id.value, 6) % 4 == 0};
  }
  void allocated(const RequestView& request, GroupBlocks groups, std::uint32_t num_external_tokens) override {
    if (num_external_tokens == 0) return;
    const auto blocks = groups[0].subspan(num_local_ / kLoadedBlock, num_external_tokens / kLoadedBlock);
    const bool is_awaited = mix(request.id.value, 6) % 4 == 0;
    wanted_.push_back({request.id, is_awaited ? TransferNeed::nothing : TransferNeed::step, {blocks.begin(), blocks.end()}});
  }
  void plan_transfers(const StepPlan& /*plan*/, TransferList& transfers) override {
    for (const Load& load : wanted_) EXPECT_TRUE(transfers.add(transfer_of(load.request, load.blocks, TransferDirection::load, load.need)));
    wanted_.clear();
  }
  void invalidated(const RequestView& request, std::uint32_t num_valid_tokens) override { told[request.id] = num_valid_tokens; }

  // Updates the model after the plan has run.
  void ran(const StepPlan& plan) {
    for (const ScheduledRequest& s : plan.scheduled)
      for (std::uint32_t i = s.num_computed_tokens; i < s.num_computed_tokens + s.num_tokens; ++i) entry(s, i).clear();
    // Some requests hit blocks that others compute in the same plan.
    for (bool has_grown = true; has_grown;) {
      has_grown = false;
      for (const ScheduledRequest& s : plan.scheduled) has_grown |= read(plan.step, s);
    }
  }

  // Returns the requests that the result of that plan invalidates.
  [[nodiscard]] InvalidatedAfter requests_invalidated_by(StepId step) const {
    InvalidatedAfter all;
    for (const auto& [run, bad] : runs_)
      if (const auto found = bad.find(step); found != bad.end()) {
        const auto [known, is_new] = all.emplace(run.second, found->second);
        known->second = std::min(known->second, found->second);
      }
    return all;
  }
  [[nodiscard]] bool is_bad(StepId step, RequestId request) const { return runs_.contains({step, request}); }
  void applied(StepId step) {
    known_.insert(step);
    std::erase_if(runs_, [&](const auto& run) { return run.first.first == step; });
    bad_blocks_.erase(step);
  }

  InvalidatedAfter told;

 private:
  struct Load {
    RequestId request;
    TransferNeed need;
    std::vector<BlockId> blocks;
  };

  void load(const StepPlan& plan) {
    met_.preempted += plan.preempted.size();
    for (const Transfer& transfer : plan.transfers) {
      std::vector<BlockId> bad;
      if (random_.chance(0.3))
        for (const BlockId block : transfer.blocks)
          if (random_.chance(0.6)) bad.push_back(block);
      for (const BlockId block : transfer.blocks)
        for (std::uint32_t i = 0; i < kLoadedBlock; ++i) {
          entries_[block.value * kLoadedBlock + i].clear();
          if (std::ranges::find(bad, block) != bad.end()) entries_[block.value * kLoadedBlock + i].insert(plan.step);
        }
      met_.failed += bad.empty() ? 0 : 1;
      std::vector<std::vector<BlockId>>& kept = bad_blocks_[plan.step];
      kept.push_back(std::move(bad));
      TransferCompletion over{.transfer = transfer.id};
      if (!kept.back().empty()) over.outcome = TransferOutcome::failed;
      over.bad_blocks = kept.back();
      h_->completions[plan.step].push_back(over);
    }
  }

  Sources& entry(const ScheduledRequest& s, std::uint32_t position) {
    const BlockId block = h_->worker.table(s.slot).at(position / kLoadedBlock);
    return entries_.at(std::size_t{block.value} * kLoadedBlock + position % kLoadedBlock);
  }

  // Marks what the request computes with the sources that it reads. Returns whether anything has changed.
  bool read(StepId step, const ScheduledRequest& s) {
    std::map<StepId, std::uint32_t> bad;
    for (std::uint32_t i = 0; i < s.num_computed_tokens; ++i)
      for (const StepId source : entry(s, i)) {
        EXPECT_FALSE(known_.contains(source)) << "request " << s.id.value << " reads at " << i << " an entry known to be corrupted";
        bad.emplace(source, i);
      }
    if (bad.empty() || runs_[{step, s.id}] == bad) return false;
    runs_[{step, s.id}] = bad;
    for (std::uint32_t i = s.num_computed_tokens; i < s.num_computed_tokens + s.num_tokens; ++i)
      for (const auto& [source, position] : bad) entry(s, i).insert(source);
    return true;
  }

  Random random_;
  UnloadedMet& met_;
  Harness* h_ = nullptr;
  std::uint32_t num_local_ = 0;
  std::vector<Load> wanted_;
  std::vector<Sources> entries_;  // by block and position in the block
  Sources known_;                 // plans whose results were applied
  // Runs that have read corrupted entries, with the first such position by source.
  std::map<std::pair<StepId, RequestId>, std::map<StepId, std::uint32_t>> runs_;
  std::map<StepId, std::vector<std::vector<BlockId>>> bad_blocks_;  // blocks that completions report
};

CoreConfig random_failing_config(Random& random) {
  CoreConfig config = small_config(random.chance(0.4) ? 30 : 200);
  config.scheduler.async_scheduling = random.chance(0.8);
  config.limits.max_outstanding_plans = config.scheduler.async_scheduling ? 2 : 1;
  config.scheduler.max_num_seqs = random.chance(0.3) ? 8 : 20;
  config.scheduler.max_num_batched_tokens = random.chance(0.7) ? 80 : 13;
  config.scheduler.reserve_full_isl = random.chance(0.5);
  config.kv_load_failure = random.chance(0.7) ? KvLoadFailurePolicy::recompute : KvLoadFailurePolicy::fail;
  config.fixes.forget_unwritten_blocks = true;
  config.fixes.discard_only_in_flight = true;
  config.fixes.unloaded_begin_anew = true;
  return config;
}

// Makes a request. Four consecutive requests share a prefix that no earlier request has.
std::unique_ptr<Expectation> random_sharing_request(Random& random, std::uint64_t id, std::uint32_t max_total) {
  auto request = random_request(random, RequestId{id}, max_total);
  for (std::size_t i = 0; i < std::min<std::size_t>(request->prompt.size(), 20); ++i)
    request->prompt[i] = static_cast<TokenId>(mix(id / 4, i) % static_cast<std::uint64_t>(kVocabulary));
  return request;
}

void apply_failing(Harness& h, FailingTier& tier, UnloadedMet& met) {
  const auto& [step, sampled] = h.results.front();
  const StepId applied = step;
  const InvalidatedAfter invalidated = tier.requests_invalidated_by(applied);
  std::set<RequestId> wanted, found;
  InvalidatedAfter wanted_told;
  for (const auto& [id, num_good] : invalidated) {
    wanted.insert(id);
    if (h.core->view(id)) wanted_told.emplace(id, num_good);
    met.later += tier.is_bad(applied, id) ? 0 : 1;
  }
  for (const RequestId id : h.core->requests_invalidated_by({.step = applied, .sampled = sampled, .completions = h.completions[applied]}))
    EXPECT_TRUE(found.insert(id).second) << "each request is listed once";
  EXPECT_EQ(found, wanted) << "step " << applied.value;
  met.invalidated += wanted.size();
  met.by_others += wanted.size() > 1 ? 1 : 0;
  tier.told.clear();
  for (const RequestUpdate& update : h.apply_oldest().updates)
    EXPECT_TRUE(update.tokens.empty() || !tier.is_bad(applied, update.id)) << "request " << update.id.value;
  EXPECT_EQ(tier.told, wanted_told);
  tier.applied(applied);
}

void run_failing(std::uint64_t seed, UnloadedMet& met) {
  Random random(seed);
  const CoreConfig config = random_failing_config(random);
  FailingTier tier(seed, met);
  Harness h(config, {.connector = &tier});
  h.worker.trust_nothing();
  h.check_outputs = config.kv_load_failure == KvLoadFailurePolicy::recompute;
  tier.attach(h);
  const auto plan = [&] { tier.ran(h.plan()); };
  std::uint64_t next_id = 0;
  for (int event = 0; event < 400; ++event) {
    const double dice = random.unit();
    if (dice < 0.25)
      h.add(random_sharing_request(random, next_id++, config.scheduler.max_model_len));
    else if (dice < 0.27 && !h.alive.empty())
      h.finish(std::next(h.alive.begin(), static_cast<std::ptrdiff_t>(random.below(h.alive.size())))->first);
    else if (dice < 0.65 && h.results.size() < config.limits.max_outstanding_plans)
      plan();
    else if (!h.results.empty())
      apply_failing(h, tier, met);
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed << ", event " << event;
  }
  for (int left = 20000; h.core->has_work() || !h.results.empty(); --left) {
    ASSERT_GT(left, 0) << "no progress";
    if (h.results.empty()) plan();
    apply_failing(h, tier, met);
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
  EXPECT_TRUE(h.alive.empty());
  EXPECT_TRUE(h.core->all_blocks_free());
}

TEST(UnloadedModel, FindsExactlyTheRequestsThatReadBlocksThatWereNotLoaded) {
  UnloadedMet met;
  for (std::uint64_t seed = 0; seed < rounds_of(70); ++seed) {
    run_failing(seed, met);
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
  EXPECT_GT(met.failed, rounds_of(500)) << "too few failed loads";
  EXPECT_GT(met.invalidated, rounds_of(300));
  EXPECT_GT(met.by_others, rounds_of(50));
  EXPECT_GT(met.later, rounds_of(5));
  EXPECT_GT(met.preempted, rounds_of(500));
}

}  // namespace
}  // namespace quire::test
