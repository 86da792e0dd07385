// What the core decides in 200 random runs, and all that it tells of it, is what tests/golden/decisions.txt holds: the record was made from
// a core whose decisions are vLLM's but for the cures that a run turns on (docs/oracle.md), so whoever changes a line of it has changed a
// decision, or what is told of one. QUIRE_RECORD_DECISIONS=1 core_journal_test --gtest_filter='*Decisions*' writes it anew, to be done when
// ./dev oracle finds no difference.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "core/journal/random_run.h"

namespace quire::test {
namespace {

constexpr const char* kDecisions = "tests/golden/decisions.txt";
constexpr std::uint64_t kNumRuns = 200, kRunsPerTest = 10;

std::string line_of(std::uint64_t seed) {
  const RecordedRun run(seed);
  return fmt::format("{:08x}", fmt::join(run.digests, " "));
}

class Decisions : public testing::TestWithParam<std::uint64_t> {
 protected:
  static void SetUpTestSuite() {
    if (std::getenv("QUIRE_RECORD_DECISIONS") == nullptr) return;
    std::ofstream file(kDecisions);
    file << "# seed, then a digest of all that was told after each 100 calls\n";
    for (std::uint64_t seed = 0; seed < kNumRuns; ++seed) file << seed << ' ' << line_of(seed) << '\n';
  }
};

TEST_P(Decisions, AreAsRecorded) {
  std::map<std::uint64_t, std::string> record;
  std::ifstream file(kDecisions);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::uint64_t seed = 0;
    if (words >> seed >> std::ws) std::getline(words, record[seed]);
  }
  ASSERT_EQ(record.size(), kNumRuns) << kDecisions << " is read from the root of the repository";
  for (std::uint64_t seed = GetParam(); seed < GetParam() + kRunsPerTest; ++seed)
    EXPECT_EQ(line_of(seed), record[seed]) << "run " << seed << ": the first digest that differs is of the hundred calls that do";
}

TEST(DecisionsRecord, MeetsWhatItIsAbout) {
  CoreCounters all;
  for (std::uint64_t seed = 0; seed < kNumRuns; ++seed) {
    const CoreCounters met = RecordedRun(seed).counters();
    all.num_steps += met.num_steps;
    all.num_preemptions += met.num_preemptions;
    all.num_evicted_blocks += met.num_evicted_blocks;
    all.num_forks += met.num_forks;
    all.num_copied_blocks += met.num_copied_blocks;
    all.prefix_hit_tokens += met.prefix_hit_tokens;
    all.preempted_prefix_hit_tokens += met.preempted_prefix_hit_tokens;
  }
  EXPECT_GT(all.num_steps, 10'000U);
  EXPECT_GT(all.num_preemptions, 500U);
  EXPECT_GT(all.num_evicted_blocks, 1000U);
  EXPECT_GT(all.num_forks, 200U);
  EXPECT_GT(all.num_copied_blocks, 10U);
  EXPECT_GT(all.prefix_hit_tokens, 2000U);
  EXPECT_GT(all.preempted_prefix_hit_tokens, 100U);
}

INSTANTIATE_TEST_SUITE_P(Runs, Decisions, testing::Range<std::uint64_t>(0, kNumRuns, kRunsPerTest));

}  // namespace
}  // namespace quire::test
