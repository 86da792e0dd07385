// Tests the options of read_workload(): bursts, limits, agents, think times, prompts, and the bounds of each option.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <set>

#include "lab/lab_support.h"

namespace quire {
namespace {

using test::TextFile;

std::string mooncake_at(const std::vector<int>& times_ms) {
  std::string text;
  for (std::size_t i = 0; i < times_ms.size(); ++i)
    text += fmt::format("{{\"timestamp\": {}, \"input_length\": {}, \"output_length\": 1, \"hash_ids\": [{}]}}\n", times_ms[i], i + 1, i);
  return text;
}

Workload read_text(std::string_view text, WorkloadOptions options = {}) {
  const TextFile file(text);
  options.path = file.path();
  auto workload = read_workload(options);
  EXPECT_TRUE(workload.has_value()) << workload.error().to_string();
  if (workload) EXPECT_EQ(file.path(), ::testing::TempDir() + workload->name);
  return workload.value_or(Workload{});
}

std::string starts_of(const Workload& workload) {
  std::string text;
  for (const WorkloadRequest& request : workload.requests) text += fmt::format("{}@{:g} ", request.prompt_tokens, request.start_s);
  return text;
}

TEST(ReadWorkload, SpreadsEachBurstUpToTheNextTime) {
  const std::string text = mooncake_at({500, 500, 500, 3500, 3500, 5500, 9500, 9500, 9500});
  EXPECT_EQ(starts_of(read_text(text)), "1@0 2@0 3@0 4@3 5@3 6@5 7@9 8@9 9@9 ");
  EXPECT_EQ(starts_of(read_text(text, {.spread_bursts = true})), "1@0 2@1 3@2 4@3 5@4 6@5 7@9 8@9 9@9 ");
  EXPECT_EQ(starts_of(read_text(text, {.rate_scale = 0.5, .spread_bursts = true})), "1@0 2@2 3@4 4@6 5@8 6@10 7@18 8@18 9@18 ");
  EXPECT_EQ(starts_of(read_text(mooncake_at({7}), {.spread_bursts = true})), "1@0 ");
  EXPECT_EQ(read_text(text).notes,
            (std::vector<std::string>{"requests of equal time arrive together, as bursts",
                                      "the ids cover only prompts: prompts do not hit cached blocks of earlier outputs"}));
  EXPECT_EQ(read_text(text, {.spread_bursts = true}).notes.front(), "requests of equal time are spread evenly up to the next time");
}

TEST(ReadWorkload, RequestsOfEqualTimeKeepTheirOrder) {
  const Workload workload = read_text(mooncake_at({4000, 2000, 4000, 2000, 3000}));
  EXPECT_EQ(starts_of(workload), "2@0 4@0 5@1 1@2 3@2 ");
  EXPECT_EQ(workload.notes.front(), "requests were sorted by time");
  EXPECT_EQ(workload.notes.size(), 3U);
}

TEST(ReadWorkload, ReadsAtMostTheGivenNumberOfRequests) {
  const std::string text = mooncake_at({0, 1000, 2000});
  EXPECT_EQ(starts_of(read_text(text, {.max_requests = 1})), "1@0 ");
  EXPECT_EQ(starts_of(read_text(text, {.max_requests = 3})), "1@0 2@1 3@2 ");
  EXPECT_EQ(starts_of(read_text(text, {.max_requests = 4})), "1@0 2@1 3@2 ");
  EXPECT_EQ(starts_of(read_text("TIMESTAMP,a,b\n2023-01-01 00:00:00,5,1\n2023-01-01 00:00:01,6,1\n", {.max_requests = 1})), "5@0 ");
  // A later line with another format or another header is an error.
  const TextFile twice("TIMESTAMP,a,b\n2023-01-01 00:00:00,5,1\nTIMESTAMP,a,b\n");
  EXPECT_EQ(read_workload({.path = twice.path()}).error().field, twice.path() + ":3");
}

TEST(ReadWorkload, OptionsHaveBounds) {
  const TextFile file(mooncake_at({0}));
  const auto error_of = [&](WorkloadOptions options) {
    options.path = file.path();
    const auto read = read_workload(options);
    return read ? std::string() : read.error().to_string();
  };
  EXPECT_EQ(error_of({.rate_scale = 1e-9}), "");
  EXPECT_EQ(error_of({.rate_scale = -1.0}), "rate_scale: is -1; use a positive number, such as 2");
  EXPECT_EQ(error_of({.rate_scale = INFINITY}), "rate_scale: is inf; use a positive number, such as 2");
  EXPECT_EQ(error_of({.rate_scale = NAN}), "rate_scale: is nan; use a positive number, such as 2");
  EXPECT_EQ(error_of({.ramp_s = 0.0}), "");
  EXPECT_EQ(error_of({.ramp_s = -0.5}), "ramp: is -0.5; use 0 or more seconds");
  EXPECT_EQ(error_of({.ramp_s = INFINITY}), "ramp: is inf; use 0 or more seconds");
  EXPECT_EQ(error_of({.max_think_s = 0.0}), "");
  EXPECT_EQ(error_of({.max_think_s = INFINITY}), "");
  EXPECT_EQ(error_of({.max_think_s = -0.5}), "max_think: is -0.5; use 0 or more seconds; 0 keeps the recorded times");
  EXPECT_EQ(error_of({.max_think_s = NAN}), "max_think: is nan; use 0 or more seconds; 0 keeps the recorded times");
  EXPECT_EQ(error_of({.num_agents = 10'000'001}), "agents: is 10000001; use at most 10000000");
}

std::string two_sessions() {
  std::string text;
  for (int session = 0; session < 2; ++session)
    text += fmt::format(
        "{{\"block_size\": 16, \"requests\": [{{\"in\": {0}0, \"out\": 1, \"hash_runs\": []}}, {{\"in\": {0}1, \"out\": 1, \"think_time\": "
        "8, "
        "\"hash_runs\": []}}]}}\n",
        session + 1);
  return text;
}

TEST(ReadWorkload, EachAgentPlaysASession) {
  const auto text_of_agents = [](const WorkloadOptions& options) {
    const Workload workload = read_text(two_sessions(), options);
    std::string text;
    for (const WorkloadRequest& one : workload.requests)
      text += fmt::format("{}:{}{}/{} ", one.session, one.prompt_tokens, one.after == kNoRequest ? "" : "<" + std::to_string(one.after),
                          one.name_space);
    return text;
  };
  EXPECT_EQ(text_of_agents({}), "0:10/1 0:11<0/1 1:20/2 1:21<2/2 ");
  EXPECT_EQ(text_of_agents({.num_agents = 1}), "0:10/1 0:11<0/1 ");
  EXPECT_EQ(text_of_agents({.max_requests = 1}), "0:10/1 0:11<0/1 ") << "a session is read as a whole";
  EXPECT_EQ(text_of_agents({.max_requests = 2}), "0:10/1 0:11<0/1 ");
  EXPECT_EQ(text_of_agents({.max_requests = 3}), "0:10/1 0:11<0/1 1:20/2 1:21<2/2 ");
  // Further agents draw a session, which has a separate name space.
  std::set<std::string> drawn;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    const std::string text = text_of_agents({.num_agents = 3, .seed = seed});
    EXPECT_TRUE(text.starts_with("0:10/1 0:11<0/1 1:20/2 1:21<2/2 "));
    drawn.insert(text.substr(text.find("2:")));
  }
  EXPECT_EQ(drawn, (std::set<std::string>{"2:10/5 2:11<4/5 ", "2:20/5 2:21<4/5 "}));
  EXPECT_EQ(read_text(two_sessions(), {.num_agents = 3, .ramp_s = 2.5, .seed = 4}).notes,
            (std::vector<std::string>{"3 agents, 2 sessions in the file, uniform random starts within 2.5 s (seed 4)"}));
}

TEST(ReadWorkload, ThinkTimesAreCutAndNotScaled) {
  const auto starts = [](const WorkloadOptions& options) { return starts_of(read_text(two_sessions(), options)); };
  EXPECT_EQ(starts({.ramp_s = 0.0}), "10@0 11@8 20@0 21@8 ");
  EXPECT_EQ(starts({.rate_scale = 4.0, .ramp_s = 0.0}), "10@0 11@8 20@0 21@8 ");
  EXPECT_EQ(starts({.ramp_s = 0.0, .max_think_s = 2.5}), "10@0 11@2.5 20@0 21@2.5 ");
  EXPECT_EQ(starts({.ramp_s = 0.0, .max_think_s = 9.0}), "10@0 11@8 20@0 21@8 ");
  const Workload slow = read_text(two_sessions(), {.ramp_s = 100.0, .seed = 2}),
                 fast = read_text(two_sessions(), {.rate_scale = 4.0, .ramp_s = 100.0, .seed = 2});
  for (const std::size_t first : {0U, 2U}) {
    EXPECT_GT(slow.requests[first].start_s, 1.0);
    EXPECT_LT(slow.requests[first].start_s, 100.0);
    EXPECT_EQ(fast.requests[first].start_s, slow.requests[first].start_s / 4.0);
  }
  EXPECT_NE(slow.requests[0].start_s, slow.requests[2].start_s);
}

TEST(ReadWorkload, PromptsMustMatchTheRun) {
  const TextFile run(
      "{\"queued_ts\": 1, \"arrival_time\": 1, \"input_toks\": 2, \"output_toks\": 1}\n"
      "{\"queued_ts\": 1, \"arrival_time\": 2, \"input_toks\": 1, \"output_toks\": 1}\n");
  const std::string first = "{\"arrival_time_ns\": 0, \"input_toks\": 2, \"output_toks\": 1, \"input_tok_ids\": [3, 4]}\n",
                    second = "{\"arrival_time_ns\": 0, \"input_toks\": 1, \"output_toks\": 1, \"input_tok_ids\": [5]}\n";
  const auto read_with = [&](const std::string& text) {
    const TextFile prompts(text);
    const auto read = read_workload({.path = run.path(), .prompts = prompts.path()});
    if (!read) return read.error().field == prompts.path() ? read.error().message : read.error().to_string();
    for (const WorkloadRequest& request : read->requests) EXPECT_TRUE(request.has_tokens);
    return fmt::format("{} from {} and {}", read->tokens, read->requests[0].first_token, read->requests[1].first_token);
  };
  EXPECT_EQ(read_with(first + second), "[3, 4, 5] from 0 and 2");
  EXPECT_EQ(read_with(first + second + "damaged\n"), "[3, 4, 5] from 0 and 2") << "further lines are not read";
  EXPECT_EQ(read_with(first), "line 2 is not the prompt of request 1");
  EXPECT_EQ(read_with(first + first), "line 2 is not the prompt of request 1");
  EXPECT_EQ(read_with("{\"queued_ts\": 1, \"arrival_time\": 1, \"input_toks\": 2, \"output_toks\": 1}\n"),
            "line 1 is not the prompt of request 0");
  EXPECT_EQ(read_workload({.path = run.path(), .prompts = "/nowhere"}).error().code, ErrorCode::not_found);
}

}  // namespace
}  // namespace quire
