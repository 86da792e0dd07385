// Tests questions about a journal without tokens: the answers equal those with tokens, and questions that need tokens are refused.
#include "lab/replay/placeholder_tokens.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/journal/journal_writer.h"
#include "engine/simulated_engine.h"
#include "lab/replay/planted.h"
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

}  // namespace
}  // namespace quire::test
