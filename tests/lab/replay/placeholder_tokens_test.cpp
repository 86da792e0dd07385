// Tests journals without tokens: the answers to questions equal those with tokens, questions that need tokens are refused, and the
// placeholder tokens are equal in equal blocks only.
#include "lab/replay/placeholder_tokens.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "engine/journal/journal_writer.h"
#include "engine/simulated_engine.h"
#include "lab/replay/journal_runs.h"
#include "lab/replay/planted.h"
#include "lab/replay/recorded_workload.h"
#include "lab/replay/stepped_run.h"
#include "quire/journal.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {
namespace {

// Copies the calls of a run's journal into a journal without tokens.
std::string copy_without_tokens(const std::string& path, const std::string& folder) {
  const std::vector<std::uint8_t> bytes = bytes_of(path);
  const auto reader = JournalReader::open(bytes).value();
  const CoreConfig& config = reader->header().config;
  const auto journal = JournalWriter::create({.folder = folder, .tokens = false}, config, {}, {.calls_per_checkpoint = 1U << 30U}).value();
  const auto core = Core::create(config, journal->seams()).value();
  while (reader->next()) reader->play(*core);
  return journal->path();
}

void expect_same(const WhatIfRun& one, const WhatIfRun& other) {
  EXPECT_EQ(one.num_steps, other.num_steps);
  EXPECT_EQ(one.num_preemptions, other.num_preemptions);
  EXPECT_EQ(one.num_refused, other.num_refused);
  EXPECT_EQ(one.num_prompt_tokens, other.num_prompt_tokens);
  EXPECT_EQ(one.num_hit_tokens, other.num_hit_tokens);
  EXPECT_EQ(one.mean_ttft_s, other.mean_ttft_s);
  EXPECT_EQ(one.end_s, other.end_s);
}

TEST(PlaceholderTokens, GiveTheAnswersOfRealTokensForOtherConfigurations) {
  std::uint64_t num_hit_tokens = 0, num_preemptions = 0;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const TempFolder with, without;
    EngineOptions options;
    options.cache.num_blocks = 200;
    options.scheduler.max_num_seqs = 12;
    options.journal.folder = with.path();
    auto engine = start(kModes[seed % 2], {.options = options});
    Collector sink;
    Random random(seed);
    std::vector<RequestId> ids;
    for (int i = 0; i < 60; ++i) {
      EngineRequest request = random_request(random);
      if (random.chance(0.3)) request.sampling.repetition = {.min_pattern_tokens = 1, .max_pattern_tokens = 3, .min_count = 2};
      ids.push_back(engine->submit(request, sink).value());
      if (random.chance(0.1)) engine->finish(ids[random.below(ids.size())], FinishReason::abort);
    }
    for (const RequestId id : ids) (void)sink.wait(id);
    engine->stop(10.0);
    engine.reset();
    const std::string path = only_file(with.path()), copy = copy_without_tokens(path, without.path());
    for (const std::uint32_t num_blocks : {200U, 60U, 40U}) {
      for (const std::uint32_t num_seqs : {12U, 4U}) {
        const auto change = [&](CoreConfig& config) {
          config.kv.num_blocks = num_blocks;
          config.scheduler.max_num_seqs = num_seqs;
        };
        const auto told = what_if(path, change), blank = what_if(copy, change);
        ASSERT_TRUE(told.has_value()) << told.error().to_string();
        ASSERT_TRUE(blank.has_value()) << blank.error().to_string();
        expect_same(told->before, blank->before);
        expect_same(told->after, blank->after);
        EXPECT_EQ(told->first_difference, blank->first_difference);
        num_hit_tokens += blank->after.num_hit_tokens;
        num_preemptions += blank->after.num_preemptions;
      }
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(num_hit_tokens, 10'000U);
  EXPECT_GT(num_preemptions, 100U);
}

// The journal records which blocks are equal for one block size only.
TEST(PlaceholderTokens, RefuseConfigurationsThatNeedTokens) {
  const TempFolder with, without;
  EngineOptions options;
  options.cache.enable_prefix_caching = false;
  options.journal.folder = with.path();
  auto engine = start(kModes[0], {.options = options});
  Collector sink;
  (void)sink.wait(engine->submit(make_request(5, 10), sink).value());
  engine->stop(10.0);
  engine.reset();
  const std::string path = only_file(with.path()), copy = copy_without_tokens(path, without.path());
  const auto change = [](CoreConfig& config) { config.prefix_cache.enable_prefix_caching = true; };
  EXPECT_TRUE(what_if(copy, [](CoreConfig&) {}).has_value());
  EXPECT_TRUE(what_if(path, change).has_value());
  const auto answer = what_if(copy, change);
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code, ErrorCode::unsupported);
  EXPECT_NE(answer.error().message.find("has no tokens"), std::string::npos) << answer.error().message;
}

// The second prompt begins with the first prompt and its outputs. The third shares nothing.
TEST(PlaceholderTokens, AreEqualInEqualBlocksOnly) {
  SteppedRun run(sync_config(), false);
  run.add(1, CoreDriver::prompt(1, 6), 6, 100.0, 100.0);
  for (int i = 0; i < 6; ++i) run.step(100.0 + i, 101.0 + i);
  Tokens continued = CoreDriver::prompt(1, 6);
  for (TokenId token = 50; token < 56; ++token) continued.push_back(token);
  continued.push_back(77);
  run.add(2, continued, 1, 110.0, 110.0);
  run.step(110.0, 111.0);
  run.add(3, CoreDriver::prompt(3, 9), 2, 120.0, 120.0);
  run.add(4, CoreDriver::prompt(4, 9), 2, 120.0, 120.0);
  run.core().finish(RequestId{4}, RequestStatus::finished_aborted, {.now = 120.0});
  run.step(120.0, 121.0);
  run.step(121.0, 122.0);
  const std::string path = run.path();
  RecordedWorkload workload;
  const ReplayReport report = replay(path, {.also = &workload}).value();
  ASSERT_FALSE(report.difference.has_value()) << report.difference->what;
  ASSERT_TRUE(report.header.seams.omits_tokens);
  ASSERT_EQ(workload.arrivals.size(), 4U);
  for (const auto& [id, count] : {std::pair(1U, 6U), {2U, 1U}, {3U, 2U}}) ASSERT_EQ(workload.tokens[RequestId{id}].size(), count);
  fill_placeholder_tokens(workload, report.header.config);
  std::vector<Tokens> known;  // prompt and outputs of each request
  for (const RecordedWorkload::Arrival& arrival : workload.arrivals) {
    ByteReader in(arrival.call);
    RecordedCall call;
    call.read(in);
    const NewRequest& request = std::get<core_call::Add>(call.call()).request;
    EXPECT_EQ(request.id, arrival.id);
    EXPECT_EQ(request.prompt.size(), arrival.num_prompt_tokens);
    EXPECT_TRUE(request.block_hashes.empty()) << "the tokens replace them";
    known.emplace_back(request.prompt.begin(), request.prompt.end());
    EXPECT_EQ(known.back().size(), (std::vector<std::size_t>{6, 13, 9, 9}[known.size() - 1]));
    const Tokens& outputs = workload.tokens[arrival.id];
    known.back().insert(known.back().end(), outputs.begin(), outputs.end());
  }
  std::vector<std::size_t> sizes;
  std::multiset<TokenId> all;
  for (const Tokens& tokens : known) {
    sizes.push_back(tokens.size());
    all.insert(tokens.begin(), tokens.end());
  }
  EXPECT_EQ(sizes, (std::vector<std::size_t>{12, 14, 11, 9}));
  EXPECT_GE(*all.begin(), TokenId{1} << 30U) << "no token of a model is that large";
  // The last output was never computed, so two blocks of four tokens have a hash.
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(known[0][i], known[1][i]) << i;
  for (std::size_t i = 8; i < 12; ++i) EXPECT_NE(known[0][i], known[1][i]) << i;
  EXPECT_EQ(std::set<TokenId>(all.begin(), all.end()).size(), 12U + 14U - 8U + 11U + 9U) << "all other tokens differ";
  EXPECT_EQ(workload_of_journal(path).value().notes.front(),
            "the journal has no tokens: prompts get random tokens that share blocks as the recorded prompts did");
}

}  // namespace
}  // namespace quire::test
