// Tests each workload format in its original form, and the errors for malformed files.
#include <fmt/format.h>

#include <cstdlib>

#include "base/random.h"
#include "lab/lab_support.h"
#include "lab/workload/block_keys.h"

namespace quire {
namespace {

using test::TextFile;

constexpr std::string_view kMooncake =
    "{\"timestamp\": 1000, \"input_length\": 1100, \"output_length\": 5, \"hash_ids\": [0, 1, 2]}\n"
    "{\"timestamp\": 1000, \"input_length\": 600, \"output_length\": 7, \"hash_ids\": [0, 9]}\n"
    "\n"
    "{\"timestamp\": 4000, \"input_length\": 512, \"output_length\": 1, \"hash_ids\": [0]}\n";
constexpr std::string_view kAzure =
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-16 18:15:46.6805900,374,44\r\n"
    "2023-11-16 18:15:50.9305900,396,109\r\n";
constexpr std::string_view kTokens =
    "{\"input_toks\": 3, \"output_toks\": 2, \"arrival_time_ns\": 500000000, \"input_tok_ids\": [5, 6, 7], \"output_tok_ids\": [1, 2]}\n"
    "{\"input_toks\": 2, \"output_toks\": 1, \"arrival_time_ns\": 1500000000, \"input_tok_ids\": [5, 6], \"output_tok_ids\": [1]}\n";
constexpr std::string_view kVllmRun =
    "{\"request_id\": \"b-0\", \"input_toks\": 3, \"output_toks\": 2, \"arrival_time\": 1787267980.25, \"queued_ts\": 10.5}\n"
    "{\"request_id\": \"b-1\", \"input_toks\": 2, \"output_toks\": 1, \"arrival_time\": 1787267981.75, \"queued_ts\": 12.0}\n";
constexpr std::string_view kSessions =
    "{\"id\": \"a\", \"block_size\": 64, \"hash_id_scope\": \"global\", \"tool_tokens\": 100, \"system_tokens\": 28, \"requests\": ["
    "{\"t\": 0.0, \"type\": \"n\", \"in\": 200, \"out\": 10, \"hash_runs\": [[1, 2], [8, 2]], \"think_time\": 0.0},"
    "{\"t\": 9, \"type\": \"subagent\", \"duration_ms\": 4000, \"requests\": ["
    "{\"t\": 0, \"in\": 70, \"out\": 3, \"hash_runs\": [[50, 2]], \"think_time\": 0.0}]},"
    "{\"t\": 20.0, \"type\": \"s\", \"in\": 260, \"out\": 0, \"hash_runs\": [[1, 2], [8, 3]], \"think_time\": 6.5}]}\n";
constexpr std::string_view kMiniSwe =
    "{\"session\": \"a\", \"requests\": [{\"msg\": 2, \"t\": 10, \"prompt\": 100, \"out\": 5}, {\"msg\": 4, \"t\": 30, \"prompt\": 150, "
    "\"out\": 5}],"
    " \"messages\": []}\n"
    "{\"session\": \"b\", \"requests\": [{\"msg\": 2, \"t\": 20, \"prompt\": 90, \"out\": 5}], \"messages\": []}\n";

Workload read(std::string_view text, WorkloadOptions options = {}) {
  const TextFile file(text);
  options.path = file.path();
  auto workload = read_workload(options);
  EXPECT_TRUE(workload.has_value()) << workload.error().to_string();
  return workload.value_or(Workload{});
}

// Returns the error's text without the folder.
std::string error_of(std::string_view text, WorkloadOptions options = {}) {
  const TextFile file(text);
  options.path = file.path();
  const auto workload = read_workload(options);
  if (workload.has_value()) return "none";
  const std::string said = workload.error().to_string();
  return said.starts_with(file.path()) ? said.substr(file.path().size()) : said;
}

std::vector<BlockHash> hashes_of(const Workload& workload, std::size_t request, std::uint32_t block_size) {
  std::vector<BlockHash> names;
  BlockHasher::create(workload, block_size).value().of(workload.requests[request], names);
  return names;
}

std::size_t num_shared(const std::vector<BlockHash>& a, const std::vector<BlockHash>& b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

TEST(ReadWorkload, ReadsMooncakeTraces) {
  const Workload workload = read(kMooncake);
  ASSERT_EQ(workload.requests.size(), 3U);
  EXPECT_EQ(workload.id_tokens, 512U);
  EXPECT_EQ(workload.requests[0].start_s, 0.0);
  EXPECT_EQ(workload.requests[1].start_s, 0.0);
  EXPECT_EQ(workload.requests[2].start_s, 3.0);
  EXPECT_EQ(workload.requests[1].prompt_tokens, 600U);
  EXPECT_EQ(workload.requests[1].output_tokens, 7U);
  // Only full blocks have hashes; the first block of both requests has the same hash.
  EXPECT_EQ(hashes_of(workload, 0, 512).size(), 2U);
  EXPECT_EQ(hashes_of(workload, 1, 512).size(), 1U);
  EXPECT_EQ(num_shared(hashes_of(workload, 0, 512), hashes_of(workload, 1, 512)), 1U);
  // The prefix is also shared in blocks of 16 tokens and in blocks of two ids.
  EXPECT_EQ(num_shared(hashes_of(workload, 0, 16), hashes_of(workload, 1, 16)), 32U);
  EXPECT_EQ(hashes_of(workload, 1, 16).size(), 37U);
  EXPECT_EQ(hashes_of(workload, 0, 1024).size(), 1U);
  EXPECT_FALSE(BlockHasher::create(workload, 100).has_value());
}

TEST(ReadWorkload, BurstsCanBeSpread) {
  const Workload workload = read(kMooncake, {.spread_bursts = true});
  EXPECT_EQ(workload.requests[0].start_s, 0.0);
  EXPECT_EQ(workload.requests[1].start_s, 1.5);
  EXPECT_EQ(workload.requests[2].start_s, 3.0);
}

TEST(ReadWorkload, ArrivalsCanBeSpedUpAndCutShort) {
  EXPECT_EQ(read(kMooncake, {.rate_scale = 2.0}).requests[2].start_s, 1.5);
  EXPECT_EQ(read(kMooncake, {.max_requests = 2}).requests.size(), 2U);
}

TEST(ReadWorkload, ReadsAzureTraces) {
  const Workload workload = read(kAzure);
  ASSERT_EQ(workload.requests.size(), 2U);
  EXPECT_NEAR(workload.requests[1].start_s, 4.25, 1e-6);
  EXPECT_EQ(workload.requests[1].prompt_tokens, 396U);
  EXPECT_EQ(workload.requests[1].output_tokens, 109U);
}

// Returns the seconds between two dates, across ends of months and leap years.
TEST(ReadWorkload, AzureTimesFollowTheCalendar) {
  const auto seconds_between = [](std::string_view first, std::string_view second) {
    const Workload workload = read(fmt::format("TIMESTAMP,ContextTokens,GeneratedTokens\n{},1,1\n{},1,1\n", first, second));
    return workload.requests.at(1).start_s;
  };
  constexpr double kDay = 86'400.0;
  EXPECT_EQ(seconds_between("1970-01-01 00:00:00", "1970-01-02 00:00:00"), kDay);
  EXPECT_EQ(seconds_between("2024-02-28 23:59:59", "2024-03-01 00:00:00"), kDay + 1.0);
  EXPECT_EQ(seconds_between("2023-02-28T23:59:59", "2023-03-01T00:00:00"), 1.0);
  EXPECT_EQ(seconds_between("2000-02-01 00:00:00", "2000-03-01 00:00:00"), 29 * kDay);
  EXPECT_EQ(seconds_between("2023-12-31 23:00:59", "2024-01-01 00:01:00"), 3601.0);
  EXPECT_EQ(seconds_between("2023-01-31 00:00:00", "2023-12-31 00:00:00"), 334 * kDay);
  EXPECT_EQ(seconds_between("1970-01-01 00:00:00", "9999-12-31 23:59:61"), 253402300801.0);
  EXPECT_EQ(seconds_between("2023-01-01 00:00:00", "2023-01-01 01:01:01.25"), 3661.25);
  for (const char* time :
       {"1969-12-31 23:59:59", "2023-00-01 00:00:00", "2023-13-01 00:00:00", "2023-01-00 00:00:00", "2023-01-32 00:00:00",
        "2023-01-01 24:00:00", "2023-01-01 00:60:00", "2023-01-01 00:00:62", "2023-01-01 00:00:6x", "2023/01-01 00:00:00",
        "2023-01/01 00:00:00", "2023-01-01_00:00:00", "2023-01-01 00.00:00", "2023-01-01 00:00.00", "2023-01-01 00:00:0"})
    EXPECT_NE(error_of(fmt::format("TIMESTAMP,ContextTokens,GeneratedTokens\n{},1,1\n", time)).find("does not begin with a time"),
              std::string::npos)
        << time;
}

// The bound itself is allowed.
TEST(ReadWorkload, AcceptsOptionsAndLinesAtTheirBounds) {
  EXPECT_EQ(read(std::string(kAzure) + "2023-11-16 18:15:51,268435456,1\n").requests.back().prompt_tokens, 268435456U);
  EXPECT_NE(error_of(std::string(kAzure) + "2023-11-16 18:15:51,268435457,1\n"), "none");
  EXPECT_NE(error_of(std::string(kAzure) + "2023-11-16 18:15:51,1,0\n"), "none");
  EXPECT_TRUE(error_of(kMooncake, {.num_agents = 10'000'001}).starts_with("agents: is 10000001"));
  EXPECT_EQ(read(kMooncake, {.num_agents = 10'000'000}).requests.size(), 3U);
  EXPECT_TRUE(error_of(kMooncake, {.ramp_s = -1.0}).starts_with("ramp: is -1"));
  EXPECT_TRUE(error_of(kMooncake, {.max_think_s = -1.0}).starts_with("max_think: is -1"));
  const auto nested = [](std::size_t depth) {
    return fmt::format("{{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [7], \"x\": {}{}}}\n",
                       std::string(depth, '['), std::string(depth, ']'));
  };
  EXPECT_EQ(error_of(nested(15)), "none");
  EXPECT_NE(error_of(nested(16)).find("is not a JSON object"), std::string::npos);
}

TEST(ReadWorkload, ReadsTokensAndVllmRuns) {
  const Workload tokens = read(kTokens);
  ASSERT_EQ(tokens.tokens, (std::vector<TokenId>{5, 6, 7, 5, 6}));
  EXPECT_EQ(tokens.requests[1].start_s, 1.0);
  const TextFile prompts(kTokens);
  const Workload run = read(kVllmRun, {.prompts = prompts.path()});
  EXPECT_EQ(run.requests[1].start_s, 1.5);
  EXPECT_EQ(run.requests[1].first_token, 3U);
  EXPECT_TRUE(run.requests[1].has_tokens);
  EXPECT_FALSE(read(kVllmRun).requests[1].has_tokens);
  const TextFile others(kTokens.substr(kTokens.find('\n') + 1));
  EXPECT_NE(error_of(kVllmRun, {.prompts = others.path()}).find("line 1 is not the prompt of request 0"), std::string::npos);
}

TEST(ReadWorkload, SessionsAreClosedLoopsWithSubAgentsInOrder) {
  const Workload workload = read(kSessions, {.ramp_s = 0.0});
  ASSERT_EQ(workload.requests.size(), 3U);
  EXPECT_EQ(workload.requests[0].after, kNoRequest);
  EXPECT_EQ(workload.requests[1].after, 0U);
  EXPECT_EQ(workload.requests[1].prompt_tokens, 70U);
  EXPECT_EQ(workload.requests[2].after, 1U);
  EXPECT_EQ(workload.requests[2].start_s, 2.5);  // 6.5 s minus the sub-agent's 4 s
  EXPECT_EQ(read(kSessions, {.max_think_s = 0.5}).requests[2].start_s, 0.5);
  EXPECT_EQ(workload.requests[2].output_tokens, 1U);
  EXPECT_TRUE(workload.requests[2].ends_session);
  EXPECT_FALSE(workload.requests[1].ends_session);
  EXPECT_EQ(num_shared(hashes_of(workload, 0, 64), hashes_of(workload, 2, 64)), 3U);
}

TEST(ReadWorkload, TwoAgentsOfOneSessionShareOnlyItsPrefix) {
  const Workload workload = read(kSessions, {.num_agents = 2, .ramp_s = 10.0, .seed = 3});
  ASSERT_EQ(workload.requests.size(), 6U);
  EXPECT_EQ(workload.requests[4].after, 3U);
  EXPECT_EQ(num_shared(hashes_of(workload, 0, 64), hashes_of(workload, 3, 64)), 2U);  // 128 tokens of tools and system prompt
  EXPECT_EQ(num_shared(hashes_of(workload, 3, 64), hashes_of(workload, 5, 64)), 3U);
  EXPECT_NE(workload.requests[0].start_s, workload.requests[3].start_s);
  EXPECT_LE(workload.requests[3].start_s, 10.0);
}

TEST(ReadWorkload, MiniSweTurnsShareTheirSessionsPrefix) {
  const Workload workload = read(kMiniSwe);
  ASSERT_EQ(workload.requests.size(), 3U);
  // The requests are in order of arrival, so the other session's turn is in between.
  EXPECT_EQ(workload.requests[1].prompt_tokens, 90U);
  EXPECT_EQ(num_shared(hashes_of(workload, 0, 16), hashes_of(workload, 2, 16)), 6U);
  EXPECT_EQ(num_shared(hashes_of(workload, 0, 16), hashes_of(workload, 1, 16)), 0U);
}

TEST(ReadWorkload, SortsUnsortedTimesAndReportsIt) {
  const Workload workload = read(
      "{\"timestamp\": 4000, \"input_length\": 10, \"output_length\": 5, \"hash_ids\": [1]}\n"
      "{\"timestamp\": 1000, \"input_length\": 20, \"output_length\": 7, \"hash_ids\": [2]}\n");
  EXPECT_EQ(workload.requests[0].prompt_tokens, 20U);
  EXPECT_EQ(workload.requests[1].start_s, 3.0);
  EXPECT_NE(workload.notes.front().find("sorted by time"), std::string::npos);
}

TEST(ReadWorkload, ErrorsNameTheLineAndTheField) {
  const auto mooncake = [](std::string_view bad) { return std::string(kMooncake) + std::string(bad); };
  EXPECT_EQ(error_of(mooncake("{\"timestamp\": 1, \"input_length\": -3, \"output_length\": 1, \"hash_ids\": []}")),
            ":5: `input_length` is not a whole number from 1 to 268435456; fix or remove the line");
  EXPECT_EQ(error_of(mooncake("{\"timestamp\": -1, \"input_length\": 3, \"output_length\": 1, \"hash_ids\": [1]}")),
            ":5: `timestamp` is not a number of at least 0; fix or remove the line");
  EXPECT_EQ(error_of(mooncake("{\"timestamp\": 1, \"output_length\": 1, \"hash_ids\": [1]}")),
            ":5: `input_length` is missing; fix or remove the line");
  EXPECT_EQ(error_of(mooncake("{\"timestamp\": 1, \"input_length\": 3, \"output_length\": 1, \"hash_ids\": [1, 2]}")),
            ":5: `hash_ids` has 2 ids for 3 tokens, but needs one per 512 tokens; fix or remove the line");
  EXPECT_EQ(error_of(mooncake("{\"timestamp\": 1, \"input_len")),
            ":5: is not a JSON object (the file may be truncated); fix or remove the line");
  EXPECT_EQ(error_of(std::string(kAzure) + "2023-11-16 18:15:46,1,-2"),
            ":4: has a number of tokens outside 1 to 268435456; fix or remove the line");
  EXPECT_EQ(error_of(std::string(kAzure) + std::string(999'999, ',')), ":4: has 1000000 columns instead of 3; fix or remove the line");
  EXPECT_EQ(error_of(std::string(kAzure) + "yesterday,1,2"),
            ":4: does not begin with a time such as 2023-11-16 18:15:46.6805900; fix or remove the line");
  EXPECT_EQ(error_of("time,in,out\n1,2,3\n"), ":1: has an unknown format; use a format that docs/simulate.md lists");
  EXPECT_EQ(error_of(""), ": contains no requests; use a file with requests");
  EXPECT_EQ(error_of("TIMESTAMP,ContextTokens,GeneratedTokens\n"), ": contains no requests; use a file with requests");
  EXPECT_EQ(error_of(std::string(std::size_t{65} << 20U, 'x')), ":1: is longer than 64 MiB; use a file with one record per line");
  EXPECT_EQ(error_of(kMooncake, {.rate_scale = 0.0}), "rate_scale: is 0; use a positive number, such as 2");
}

TEST(ReadWorkload, ReturnsNotFoundForAMissingFile) {
  EXPECT_EQ(read_workload({.path = "/nowhere/trace.jsonl"}).error().code, ErrorCode::not_found);
  EXPECT_EQ(read_workload({.path = "/"}).error().code, ErrorCode::not_found);
}

// Compressed files are read, or the error explains how to decompress them.
TEST(ReadWorkload, ReadsCompressedFiles) {
  const TextFile file(kMooncake);
  const std::string packed = file.path() + ".gz";
  ASSERT_EQ(std::system(fmt::format("gzip -c '{}' > '{}'", file.path(), packed).c_str()), 0);
  const auto workload = read_workload({.path = packed});
  if (!workload) {
    EXPECT_EQ(workload.error().code, ErrorCode::unsupported);
    EXPECT_NE(workload.error().remedy.find("gzip -d"), std::string::npos);
  } else {
    EXPECT_EQ(workload->requests.size(), 3U);
    ASSERT_EQ(std::system(fmt::format("truncate -s -12 '{}'", packed).c_str()), 0);
    EXPECT_EQ(read_workload({.path = packed}).error().code, ErrorCode::corrupt);
  }
  unlink(packed.c_str());
}

// Any bytes give a valid workload or an error with a message.
TEST(ReadWorkload, ReadsOrRefusesDamagedFiles) {
  Random random(11);
  for (const std::string_view text : {kMooncake, kAzure, kTokens, kVllmRun, kSessions, kMiniSwe}) {
    for (int round = 0; round < 300; ++round) {
      std::string damaged(text);
      for (std::uint64_t i = random.between(1, 4); i > 0; --i) {
        const std::size_t at = random.below(damaged.size());
        const char digit = "0123456789-,.e[]{}\"\n"[random.below(20)];
        if (random.chance(0.2))
          damaged.resize(at + 1);
        else
          damaged[at] = digit;
      }
      const TextFile file(damaged);
      const auto workload = read_workload({.path = file.path(), .num_agents = 2});
      if (!workload) {
        EXPECT_FALSE(workload.error().message.empty());
        continue;
      }
      SimulationOptions options = test::small_options(true);
      options.block_size = 0;
      options.num_blocks = 50;
      const auto result = simulate(*workload, options);
      if (result) EXPECT_EQ(result->num_stuck, 0U);
    }
  }
}

TEST(Generator, DrawsTheRequestedDistributions) {
  const Workload workload =
      generate_workload({.num_requests = 20'000, .rate_per_s = 5.0, .input_tokens = 1000.0, .output_tokens = 200.0}).value();
  double input = 0.0, output = 0.0;
  for (const WorkloadRequest& request : workload.requests) input += request.prompt_tokens, output += request.output_tokens;
  EXPECT_NEAR(input / 20'000, 1000.0, 15.0);
  EXPECT_NEAR(output / 20'000, 200.0, 3.0);
  EXPECT_NEAR(workload.requests.back().start_s, 4000.0, 100.0);
}

TEST(Generator, SharesPrefixes) {
  const Workload workload = generate_workload({.num_requests = 40, .shared_tokens = 160, .num_prefixes = 1}).value();
  EXPECT_EQ(num_shared(hashes_of(workload, 0, 16), hashes_of(workload, 39, 16)), 10U);
}

TEST(Generator, RefusesInvalidOptions) {
  EXPECT_EQ(generate_workload({.num_requests = 0}).error().field, "requests");
  EXPECT_EQ(generate_workload({.rate_per_s = 0.0}).error().field, "rate");
  EXPECT_EQ(generate_workload({.input_tokens = -1.0}).error().field, "input-tokens");
  EXPECT_EQ(generate_workload({.spread = -1.0}).error().field, "spread");
}

}  // namespace
}  // namespace quire
