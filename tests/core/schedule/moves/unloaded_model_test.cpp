// Random rounds in which steps run on loads that then turn out to have failed (CureOptions::unloaded_begin_anew). Beside them each entry of
// the cache knows which failed loads it comes from: who is found are those who read such an entry, and no one else; none of their tokens is
// given out, and nobody reads it when it is known.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "core/schedule/harness.h"
#include "support/rounds.h"

namespace quire {
namespace {

using test::Harness;
using test::mix;

constexpr std::uint32_t kLoadedBlock = 4;  // tokens

struct UnloadedMet {
  std::uint64_t failed = 0, spoiled = 0, by_others = 0, later = 0, preempted = 0;
};

using Sources = std::set<StepId>;                    // plans whose loads failed
using Spoiled = std::map<RequestId, std::uint32_t>;  // the tokens before the first bad one

// Loads the first blocks of each prompt within the step that needs them, or while the request waits.
class FailingTier final : public Connector {
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
  bool finished(const RequestView& /*request*/, GroupBlocks /*blocks*/) override { return false; }
  void planned(const StepPlan& /*plan*/) override {}
  void plan_transfers(const StepPlan& /*plan*/, TransferList& transfers) override {
    for (const Load& load : wanted_) {
      const std::vector<std::uint64_t> places(load.blocks.size(), 0);
      EXPECT_TRUE(transfers.add({.id = {}, .request = load.request, .need = load.need, .blocks = load.blocks, .places = places}));
    }
    wanted_.clear();
  }
  void spoiled(const RequestView& request, std::uint32_t num_good_tokens) override { told[request.id] = num_good_tokens; }
  void step_output() override {}
  bool reset() override { return true; }

  // When the plan has run.
  void ran(const StepPlan& plan) {
    for (const ScheduledRequest& s : plan.scheduled)
      for (std::uint32_t i = s.num_computed_tokens; i < s.num_computed_tokens + s.num_tokens; ++i) entry(s, i).clear();
    // Some find what others compute in the same plan.
    for (bool has_grown = true; has_grown;) {
      has_grown = false;
      for (const ScheduledRequest& s : plan.scheduled) has_grown |= read(plan.step, s);
    }
  }

  // By the result of that plan.
  [[nodiscard]] Spoiled spoiled_by(StepId step) const {
    Spoiled all;
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

  Spoiled told;

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

  // What it computes comes from what it reads. Whether anything has become worse.
  bool read(StepId step, const ScheduledRequest& s) {
    std::map<StepId, std::uint32_t> bad;
    for (std::uint32_t i = 0; i < s.num_computed_tokens; ++i)
      for (const StepId source : entry(s, i)) {
        EXPECT_FALSE(known_.contains(source)) << "request " << s.id.value << " reads at " << i << " what is known to be bad";
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
  std::vector<Sources> entries_;  // by block and place in it
  Sources known_;                 // whose results have come
  // Runs that have read what is bad, with the first place of it by source.
  std::map<std::pair<StepId, RequestId>, std::map<StepId, std::uint32_t>> runs_;
  std::map<StepId, std::vector<std::vector<BlockId>>> bad_blocks_;  // what completions name
};

CoreConfig random_failing_config(Random& random) {
  CoreConfig config = test::small_config(random.chance(0.4) ? 30 : 200);
  config.scheduler.async_scheduling = random.chance(0.8);
  config.limits.max_outstanding_plans = config.scheduler.async_scheduling ? 2 : 1;
  config.scheduler.max_num_seqs = random.chance(0.3) ? 8 : 20;
  config.scheduler.max_num_batched_tokens = random.chance(0.7) ? 80 : 13;
  config.scheduler.reserve_full_isl = random.chance(0.5);
  config.kv_load_failure = random.chance(0.7) ? KvLoadFailurePolicy::recompute : KvLoadFailurePolicy::fail;
  config.cures.forget_unwritten_blocks = true;
  config.cures.discard_only_in_flight = true;
  config.cures.unloaded_begin_anew = true;
  return config;
}

// Four in a row begin alike, with what nobody has computed before.
std::unique_ptr<test::Expectation> random_sharing_request(Random& random, std::uint64_t id, std::uint32_t max_total) {
  auto request = test::random_request(random, RequestId{id}, max_total);
  for (std::size_t i = 0; i < std::min<std::size_t>(request->prompt.size(), 20); ++i)
    request->prompt[i] = static_cast<TokenId>(mix(id / 4, i) % static_cast<std::uint64_t>(test::kVocabulary));
  return request;
}

void apply_failing(Harness& h, FailingTier& tier, UnloadedMet& met) {
  const auto& [step, sampled] = h.results.front();
  const StepId applied = step;
  const Spoiled spoiled = tier.spoiled_by(applied);
  std::set<RequestId> wanted, found;
  Spoiled wanted_told;
  for (const auto& [id, num_good] : spoiled) {
    wanted.insert(id);
    if (h.core->view(id)) wanted_told.emplace(id, num_good);
    met.later += tier.is_bad(applied, id) ? 0 : 1;
  }
  for (const RequestId id : h.core->spoiled_by({.step = applied, .sampled = sampled, .completions = h.completions[applied]}))
    EXPECT_TRUE(found.insert(id).second) << "each is named once";
  EXPECT_EQ(found, wanted) << "step " << applied.value;
  met.spoiled += wanted.size();
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

TEST(UnloadedModel, WhoReadWhatWasNotLoadedIsFoundAndNoOneElse) {
  UnloadedMet met;
  for (std::uint64_t seed = 0; seed < rounds_of(70); ++seed) {
    run_failing(seed, met);
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
  EXPECT_GT(met.failed, rounds_of(500)) << "too little was met";
  EXPECT_GT(met.spoiled, rounds_of(300));
  EXPECT_GT(met.by_others, rounds_of(50));
  EXPECT_GT(met.later, rounds_of(5));
  EXPECT_GT(met.preempted, rounds_of(500));
}

}  // namespace
}  // namespace quire
