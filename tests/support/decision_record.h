#pragma once
// Compares digests of the decisions of seeded runs with a record in tests/golden, so that no decision changes unnoticed. A line is the
// test, the number of the run in it, and the digest. With QUIRE_RECORD_DECISIONS=1 the lines of the tests that run are written again
// instead. Use it after an intended change.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <utility>

#include "support/rounds.h"

namespace quire::test {

class DecisionRecord {
 public:
  // `path` is read from the root of the repository.
  explicit DecisionRecord(std::string path) : path_(std::move(path)), writes_(std::getenv("QUIRE_RECORD_DECISIONS") != nullptr) {
    std::ifstream file(path_);
    std::uint32_t run = 0;
    for (std::string test, digest; file >> test >> run >> digest;) lines_[{test, run}] = digest;
  }
  ~DecisionRecord() {
    if (!writes_) return;
    std::ofstream file(path_);
    for (const auto& [run, digest] : lines_) file << run.first << ' ' << run.second << ' ' << digest << '\n';
  }
  DecisionRecord(const DecisionRecord&) = delete;
  DecisionRecord& operator=(const DecisionRecord&) = delete;

  // Checks the digest of the next run of the current test.
  void expect(std::uint64_t digest) {
    const Run run = next_run();
    const std::string text = fmt::format("{:016x}", digest);
    if (writes_) lines_[run] = text;
    const auto found = lines_.find(run);
    if (found == lines_.end() && rounds_of(100) > 100) return;  // a run beyond the record
    ASSERT_NE(found, lines_.end()) << path_ << " has no run " << run.second << " of " << run.first;
    EXPECT_EQ(text, found->second) << "run " << run.second << ": a decision has changed, see " << path_;
  }
  void pass_over() { next_run(); }

 private:
  using Run = std::pair<std::string, std::uint32_t>;
  Run next_run() {
    const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
    const std::string name = fmt::format("{}.{}", test.test_suite_name(), test.name());
    return {name, num_runs_[name]++};
  }

  std::string path_;
  bool writes_;
  std::map<Run, std::string> lines_;
  std::map<std::string, std::uint32_t> num_runs_;
};

}  // namespace quire::test
