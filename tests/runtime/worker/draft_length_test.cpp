#include "runtime/worker/draft_length.h"

#include <gtest/gtest.h>

#include <map>

#include "base/random.h"

namespace quire {
namespace {

constexpr std::uint32_t kMaxDrafts = 6;

// A simulated machine: seconds per pass, per row, and per pass of the draft model, and the acceptance rate of a draft whose predecessors
// were accepted.
struct Costs {
  double base_s = 0.020, row_s = 0.0005, draft_s = 0.002;
  double acceptance = 0.0;
  std::uint32_t num_requests = 1;
  std::uint32_t num_missing = 1;  // missing tokens of the probed request
};

class Machine {
 public:
  // Runs `num_steps` steps and returns how many of them had each number of drafts.
  std::map<std::uint32_t, std::uint32_t> run(const Costs& costs, std::uint32_t num_steps) {
    std::map<std::uint32_t, std::uint32_t> chosen;
    for (std::uint32_t step = 0; step < num_steps; ++step) {
      const DraftLength::Choice choice = length_.choose(costs.num_requests);
      ++chosen[choice.num_drafts];
      num_probes_ += choice.is_probe ? 1 : 0;
      const std::uint32_t drafted = choice.num_drafts == 0 ? 0 : choice.is_probe ? 1 : costs.num_requests;
      const double drafting_s = costs.draft_s * choice.num_drafts;
      if (choice.is_probe && costs.num_missing > 1) {
        length_.record_catch_up(costs.num_missing, 0.001 * costs.num_missing);
        drafting_s_ += 0.001 * costs.num_missing;
      }
      length_.record_drafting(drafted, choice.num_drafts, drafting_s);
      drafting_s_ += drafting_s;
      const std::uint32_t rows = costs.num_requests + drafted * choice.num_drafts;
      const double pass_s = (costs.base_s + costs.row_s * rows) * (0.9 + 0.2 * random_.unit());
      length_.record_pass(rows, rows, pass_s);
      pass_s_ += pass_s;
      for (std::uint32_t i = 0; i < drafted; ++i) {
        std::uint32_t right = 0;
        while (right < choice.num_drafts && random_.chance(costs.acceptance)) ++right;
        length_.record_verified(choice.num_drafts, right);
      }
    }
    return chosen;
  }
  [[nodiscard]] DraftLength& length() { return length_; }
  [[nodiscard]] double drafting_share() const { return drafting_s_ / (drafting_s_ + pass_s_); }
  [[nodiscard]] std::uint32_t num_probes() const { return num_probes_; }

 private:
  Random random_{7};
  DraftLength length_{kMaxDrafts};
  double drafting_s_ = 0.0, pass_s_ = 0.0;
  std::uint32_t num_probes_ = 0;
};

TEST(LinearTimeModel, FindsTheLineAndKeepsItsSlopeForEqualCounts) {
  LinearTimeModel line;
  EXPECT_FALSE(line.is_known());
  line.add(4.0, 14.0);
  EXPECT_EQ(line.at(1.0), 14.0) << "other counts have no samples yet";
  for (int i = 0; i < 100; ++i) line.add(1.0 + i % 5, 10.0 + 1.0 + i % 5);
  EXPECT_NEAR(line.at(1.0), 11.0, 0.05);
  EXPECT_NEAR(line.at(9.0), 19.0, 0.2);
  for (int i = 0; i < 1000; ++i) line.add(5.0, i < 500 ? 15.0 : 25.0);
  EXPECT_NEAR(line.at(5.0), 25.0, 0.01);
  EXPECT_NEAR(line.at(1.0), 21.0, 0.1);
}

TEST(LinearTimeModel, AnOutlierHasLittleInfluence) {
  LinearTimeModel line;
  for (int i = 0; i < 100; ++i) line.add(1.0 + i % 2, 1.0);
  line.add(1.0, 1000.0);
  EXPECT_LT(line.at(1.0), 1.3);
}

TEST(DraftLength, UsesTheMaximumWhenDraftsAreCheapAndAlwaysAccepted) {
  Machine machine;
  machine.run({.acceptance = 1.0}, 200);
  EXPECT_GE(machine.run({.acceptance = 1.0}, 256)[kMaxDrafts], 250U) << "all steps except the probes without drafts";
  EXPECT_GT(machine.length().acceptance(), 0.99);
}

TEST(DraftLength, StopsExceptForProbesWhenDraftsAreNeverAccepted) {
  Machine machine;
  machine.run({}, 200);
  const auto chosen = machine.run({}, 680);
  EXPECT_GE(chosen.at(0), 635U);
  EXPECT_GT(machine.num_probes(), 20U);
}

TEST(DraftLength, AlwaysDraftsWhenCostsAreIgnored) {
  DraftLength length(3, true);
  length.record_pass(1, 1, 1.0);
  for (int i = 0; i < 200; ++i) {
    length.record_drafting(1, 3, 1e6);
    length.record_verified(3, 0);
    EXPECT_EQ(length.choose(1).num_drafts, 3U);
  }
}

TEST(DraftLength, UsesSomeDraftsWhenTheyAreOftenAccepted) {
  Machine machine;
  const Costs costs{.row_s = 0.002, .acceptance = 0.6};
  machine.run(costs, 500);
  const auto chosen = machine.run(costs, 1000);
  std::uint32_t some = 0;
  for (const auto& [length, count] : chosen) some += length >= 1 && length <= 4 ? count : 0;
  EXPECT_GT(some, 900U);
}

TEST(DraftLength, StopsWhenDraftsCostAsMuchAsTheModel) {
  Machine machine;
  const Costs costs{.base_s = 0.002, .row_s = 0.004, .draft_s = 0.006, .acceptance = 0.9};
  machine.run(costs, 200);
  EXPECT_GT(machine.run(costs, 500)[0], 450U);
}

TEST(DraftLength, AdaptsWhenTheAcceptanceRateChanges) {
  Machine machine;
  machine.run({}, 500);
  machine.run({.acceptance = 0.9}, 1000);
  EXPECT_LT(machine.run({.acceptance = 0.9}, 256)[0], 10U);
  machine.run({}, 200);
  EXPECT_GT(machine.run({}, 680)[0], 600U);
}

TEST(DraftLength, StopsWhenManyRequestsHaveExpensiveRows) {
  Machine machine;
  const Costs costs{.base_s = 0.005, .row_s = 0.003, .draft_s = 0.02, .acceptance = 0.7, .num_requests = 32};
  machine.run(costs, 200);
  EXPECT_GT(machine.run(costs, 500)[0], 450U);
}

TEST(DraftLength, ProbesTakeLittleTimeHoweverManyTokensAreMissing) {
  Machine machine;
  machine.run({.num_missing = 4000}, 100000);
  EXPECT_LT(machine.drafting_share(), 0.05);
  EXPECT_GE(machine.num_probes(), 4U);
}

TEST(DraftLength, CatchingUpMustPayOffWithinTheRequest) {
  Machine machine;
  for (int i = 0; i < 100; ++i) machine.length().record_finished(100);
  machine.length().record_catch_up(1000, 1.0);  // 1 ms per token
  machine.run({.acceptance = 1.0}, 300);
  DraftLength::Choice choice = machine.length().choose(1);
  if (choice.num_drafts == 0) choice = machine.length().choose(1);
  // A token costs 20.5 ms without drafts, and (23.5 + 12) / 7 ms with six accepted drafts.
  EXPECT_NEAR(choice.max_missing, (20.5 - 35.5 / 7.0) * 100.0, 250.0);
}

}  // namespace
}  // namespace quire
