// Tests the lengths and the contents of workloads, and the errors of their options and files.
#include "traffic/workloads.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <set>

namespace quire {
namespace {

// A file that exists during a test.
class TrafficFile {
 public:
  explicit TrafficFile(std::string_view text) : path_(testing::TempDir() + "traffic_workload.json") { std::ofstream(path_) << text; }
  ~TrafficFile() { std::remove(path_.c_str()); }
  TrafficFile(const TrafficFile&) = delete;
  TrafficFile& operator=(const TrafficFile&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string talk(std::string_view question, std::string_view answer) {
  return fmt::format(R"({{"id": "x", "conversations": [{{"from": "human", "value": "{}"}}, {{"from": "gpt", "value": "{}"}}]}})", question,
                     answer);
}

TEST(RandomWorkload, HasTheGivenLengths) {
  const auto made = random_workload({.input = 50, .output = 7}, 20, 1);
  ASSERT_TRUE(made) << made.error().to_string();
  ASSERT_EQ(made->workload.requests.size(), 20U);
  std::set<std::uint64_t> ids;
  for (const WorkloadRequest& request : made->workload.requests) {
    EXPECT_EQ(request.prompt_tokens, 50U);
    EXPECT_EQ(request.output_tokens, 7U);
    ids.insert(made->workload.runs[request.first_run].first);
  }
  EXPECT_EQ(ids.size(), 20U) << "no two prompts begin with the same id";
}

TEST(RandomWorkload, DrawsLengthsFromTheRange) {
  const auto made = random_workload({.input = 100, .output = 10, .range_ratio = 0.25}, 4000, 1);
  ASSERT_TRUE(made) << made.error().to_string();
  std::set<std::uint32_t> inputs, outputs;
  for (const WorkloadRequest& request : made->workload.requests) {
    inputs.insert(request.prompt_tokens);
    outputs.insert(request.output_tokens);
  }
  EXPECT_EQ(*inputs.begin(), 75U);
  EXPECT_EQ(*inputs.rbegin(), 125U);
  EXPECT_EQ(inputs.size(), 51U);
  EXPECT_EQ(*outputs.begin(), 7U);
  EXPECT_EQ(*outputs.rbegin(), 13U);
}

TEST(PrefixWorkload, SharesEachPrefixEvenly) {
  const auto made = prefix_workload({.num_prefixes = 4, .prefix = 30, .suffix = 5, .output = 2}, 10, 1);
  ASSERT_TRUE(made) << made.error().to_string();
  std::map<std::uint64_t, std::size_t> counts;
  std::set<std::uint64_t> suffixes;
  std::vector<std::uint64_t> order;
  for (const WorkloadRequest& request : made->workload.requests) {
    EXPECT_EQ(request.prompt_tokens, 35U);
    ASSERT_EQ(request.num_runs, 2U);
    const IdRun& prefix = made->workload.runs[request.first_run];
    EXPECT_EQ(prefix.count, 30U);
    ++counts[prefix.first];
    order.push_back(prefix.first);
    suffixes.insert(made->workload.runs[request.first_run + 1].first);
  }
  EXPECT_EQ(counts.size(), 4U);
  for (const auto& [id, count] : counts) EXPECT_TRUE(count == 2 || count == 3) << count;
  EXPECT_EQ(suffixes.size(), 10U);
  EXPECT_FALSE(std::ranges::is_sorted(order.begin(), order.begin() + 4)) << "the order is random";
}

TEST(Workloads, NameTheFlagOfAWrongValue) {
  EXPECT_EQ(random_workload({.input = 0}, 1, 1).error().field, "--input-len");
  EXPECT_EQ(random_workload({.output = 0}, 1, 1).error().field, "--output-len");
  EXPECT_EQ(random_workload({.input = 1U << 30U}, 1, 1).error().field, "--input-len");
  for (const double ratio : {-0.1, 1.0, static_cast<double>(NAN)})
    EXPECT_EQ(random_workload({.range_ratio = ratio}, 1, 1).error().field, "--range-ratio");
  EXPECT_EQ(prefix_workload({.num_prefixes = 3}, 2, 1).error().field, "--num-prefixes");
  EXPECT_EQ(prefix_workload({.num_prefixes = 0}, 2, 1).error().field, "--num-prefixes");
  EXPECT_EQ(prefix_workload({.prefix = 0}, 20, 1).error().field, "--prefix-len");
  EXPECT_EQ(prefix_workload({.suffix = 0}, 20, 1).error().field, "--suffix-len");
  EXPECT_EQ(sharegpt_workload("/nowhere.json", {}, 1, 1).error().field, "--dataset-path");
}

TEST(ShareGpt, TakesTheFirstTwoTurnsOfAllowedLengths) {
  const std::string question(100, 'q'), answer(83, 'a'), braces = R"(a \"}{\" b and more of it)";
  const std::vector<std::string> entries = {talk(question, answer),
                                            talk("short", answer),                 // fewer than 4 tokens
                                            talk(question, "no"),                  // an answer of fewer than 4 tokens
                                            talk(std::string(4100, 'q'), answer),  // more than 1024 tokens
                                            talk(question, std::string(8200, 'a')),
                                            R"({"conversations": [{"value": "only one turn, which is long enough"}]})",
                                            R"({"conversations": []})",
                                            talk(braces, answer)};
  std::string as_array, as_lines;
  for (const std::string& entry : entries) {
    as_array += (as_array.empty() ? "[" : ",\n ") + entry;
    as_lines += entry + "\n";
  }
  for (const std::string& text : {as_array + "]\n", as_lines}) {
    const TrafficFile file(text);
    const auto made = sharegpt_workload(file.path(), {}, 2, 5);
    ASSERT_TRUE(made) << made.error().to_string();
    EXPECT_EQ(std::set<std::string>(made->texts.begin(), made->texts.end()),
              (std::set<std::string>{question, "a \"}{\" b and more of it"}));
    EXPECT_EQ(made->workload.requests.at(0).output_tokens, 21U);
    EXPECT_TRUE(made->workload.notes.empty());
  }
}

TEST(ShareGpt, UsesTheGivenOutputLengthAndRepeatsPrompts) {
  const TrafficFile file("[" + talk(std::string(40, 'q'), "no") + "]");
  const auto made = sharegpt_workload(file.path(), 17, 3, 5);
  ASSERT_TRUE(made) << made.error().to_string();
  EXPECT_EQ(made->texts.size(), 3U);
  EXPECT_EQ(made->workload.requests.at(2).output_tokens, 17U);
  EXPECT_EQ(made->workload.requests.at(2).prompt_tokens, 10U);
  ASSERT_EQ(made->workload.notes.size(), 1U);
  EXPECT_NE(made->workload.notes[0].find("1 usable"), std::string::npos);
}

TEST(ShareGpt, ReportsDefectsWithTheEntry) {
  const std::string good = talk(std::string(40, 'q'), std::string(40, 'a'));
  const auto error_of = [](const std::string& text) {
    const TrafficFile file(text);
    const auto made = sharegpt_workload(file.path(), {}, 1, 1);
    return made ? "no error" : made.error().to_string();
  };
  EXPECT_NE(error_of("[" + good + R"(, {"conversations": 3}])").find("no conversation in entry 2"), std::string::npos);
  EXPECT_NE(error_of("[" + good + R"(, {"text": "x"}])").find("no conversation in entry 2"), std::string::npos);
  EXPECT_NE(error_of("[" + good + R"(, {"conversations": [1, 2]}])").find("no conversation in entry 2"), std::string::npos);
  EXPECT_NE(error_of("[" + good + R"(, {"conversations": nul}])").find("error in entry 2"), std::string::npos);
  EXPECT_NE(error_of("[" + good + R"(, {"conversations": [)").find("ends in the middle of entry 2"), std::string::npos);
  EXPECT_NE(error_of("").find("no conversation with two turns"), std::string::npos);
  EXPECT_NE(error_of("TIMESTAMP,1,2\n").find("no conversation with two turns"), std::string::npos);
}

TEST(TraceWorkload, CutsASessionAtTheNumberOfPrompts) {
  const TrafficFile file(
      R"({"block_size": 4, "hash_id_scope": "local", "requests": [{"in": 8, "out": 2, "hash_runs": [[0, 2]]},)"
      R"( {"in": 12, "out": 2, "hash_runs": [[0, 3]], "think_time": 0.5}, {"in": 16, "out": 2, "hash_runs": [[0, 4]]}]})");
  const auto made = trace_workload({.path = file.path(), .max_requests = 2, .ramp_s = 0.0});
  ASSERT_TRUE(made) << made.error().to_string();
  ASSERT_EQ(made->workload.requests.size(), 2U);
  EXPECT_EQ(made->workload.requests[1].after, 0U);
  EXPECT_EQ(made->workload.requests[1].start_s, 0.5);
}

}  // namespace
}  // namespace quire
