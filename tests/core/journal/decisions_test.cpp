// The core's decisions in random runs, and its reports of them, must match the records in tests/golden. decisions.txt was recorded from a
// core that decides like vLLM except for the fixes that a run turns on (docs/oracle.md). A changed line means that a decision or its report
// has changed. decisions_cures.txt covers later options, and decisions_0_32.txt the rules of vLLM 0.32.0.
// QUIRE_RECORD_DECISIONS=1 core_journal_test --gtest_filter='*Decisions*' writes the records again. Use it when ./dev oracle finds no
// difference.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "core/journal/random_run.h"

namespace quire::test {
namespace {

constexpr std::uint64_t kRunsPerTest = 10;

struct Record {
  const char* path;
  RunOf kind;
  std::uint64_t num_runs;
};
constexpr Record kRecords[] = {{"tests/golden/decisions.txt", RunOf::first_rules, 200},
                               {"tests/golden/decisions_cures.txt", RunOf::fixes, 100},
                               {"tests/golden/decisions_0_32.txt", RunOf::newer_rules, 150}};

std::string line_of(std::uint64_t seed, RunOf kind) {
  const RecordedRun run(seed, kind);
  return fmt::format("{:08x}", fmt::join(run.digests, " "));
}

// Ten runs of a record.
struct Runs {
  const Record* record;
  std::uint64_t first;
};

void PrintTo(const Runs& runs, std::ostream* out) {
  *out << runs.record->path << " from " << runs.first;
}

std::vector<Runs> all_runs() {
  std::vector<Runs> all;
  for (const Record& record : kRecords)
    for (std::uint64_t first = 0; first < record.num_runs; first += kRunsPerTest) all.push_back({&record, first});
  return all;
}

class Decisions : public testing::TestWithParam<Runs> {
 protected:
  static void SetUpTestSuite() {
    if (std::getenv("QUIRE_RECORD_DECISIONS") == nullptr) return;
    for (const Record& record : kRecords) {
      std::ofstream file(record.path);
      file << "# seed, then a digest of all that was told after each 100 calls\n";
      for (std::uint64_t seed = 0; seed < record.num_runs; ++seed) file << seed << ' ' << line_of(seed, record.kind) << '\n';
    }
  }
};

TEST_P(Decisions, MatchTheRecord) {
  const auto& [record, first] = GetParam();
  std::map<std::uint64_t, std::string> recorded;
  std::ifstream file(record->path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::uint64_t seed = 0;
    if (words >> seed >> std::ws) std::getline(words, recorded[seed]);
  }
  ASSERT_EQ(recorded.size(), record->num_runs) << record->path << " is read from the root of the repository";
  for (std::uint64_t seed = first; seed < first + kRunsPerTest; ++seed)
    EXPECT_EQ(line_of(seed, record->kind), recorded[seed])
        << "run " << seed << ": the first digest that differs covers the hundred calls that differ";
}

TEST(DecisionsRecord, CoversEachKindOfDecision) {
  for (const Record& record : kRecords) {
    CoreCounters all;
    const std::uint64_t num_runs = record.kind == RunOf::first_rules ? record.num_runs : 50;
    for (std::uint64_t seed = 0; seed < num_runs; ++seed) {
      const CoreCounters met = RecordedRun(seed, record.kind).counters();
      all.num_steps += met.num_steps;
      all.num_preemptions += met.num_preemptions;
      all.num_evicted_blocks += met.num_evicted_blocks;
      all.num_forks += met.num_forks;
      all.num_copied_blocks += met.num_copied_blocks;
      all.prefix_hit_tokens += met.prefix_hit_tokens;
      all.preempted_prefix_hit_tokens += met.preempted_prefix_hit_tokens;
      all.external_hit_tokens += met.external_hit_tokens;
    }
    SCOPED_TRACE(record.path);
    EXPECT_GT(all.num_steps, 50 * num_runs);
    EXPECT_GT(all.num_preemptions, 5 * num_runs / 2);
    EXPECT_GT(all.num_evicted_blocks, 5 * num_runs);
    EXPECT_GT(all.prefix_hit_tokens, 10 * num_runs);
    EXPECT_GT(all.preempted_prefix_hit_tokens, num_runs / 2);
    EXPECT_GT(all.external_hit_tokens, 10 * num_runs);
    if (record.kind == RunOf::newer_rules) continue;  // these rules have no forks
    EXPECT_GT(all.num_forks, num_runs);
    EXPECT_GT(all.num_copied_blocks, num_runs / 20);
  }
}

INSTANTIATE_TEST_SUITE_P(Runs, Decisions, testing::ValuesIn(all_runs()));

}  // namespace
}  // namespace quire::test
