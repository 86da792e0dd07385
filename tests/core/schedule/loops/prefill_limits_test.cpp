// Tests Core::set_prefill_limits(): prompts take no more tokens of a step than the limit, share them evenly, and never stop decodes.
#include "base/random.h"
#include "core/schedule/core_driver.h"
#include "support/rounds.h"

namespace quire::test {
namespace {

CoreConfig long_prompts(CoreConfig config) {
  config.scheduler.max_model_len = 2000;
  return config;
}

CoreDriver limited(const PrefillLimits& limits, CoreConfig config = long_prompts(sync_config(2000))) {
  CoreDriver d(config);
  d.core->set_prefill_limits(limits);
  return d;
}

TEST(PrefillLimits, CutAPromptBesideADecode) {
  CoreDriver d = limited({.beside_decodes = 20, .without_decodes = 40});
  d.add(1, 10, 50);
  d.step();
  EXPECT_EQ(d.scheduled(1), 10U);
  d.add(2, 500, 5);
  for (int i = 0; i < 5; ++i) {
    d.step();
    EXPECT_EQ(d.scheduled(1), 1U) << "the decode runs in each step";
    EXPECT_EQ(d.scheduled(2), 20U);
  }
  d.core->finish(RequestId{1}, RequestStatus::finished_aborted);
  d.step();
  EXPECT_EQ(d.scheduled(2), 40U) << "nothing decodes any more";
}

TEST(PrefillLimits, AreOffByDefault) {
  CoreDriver d(long_prompts(sync_config(2000)));
  d.add(1, 500, 5);
  d.step();
  EXPECT_EQ(d.scheduled(1), 64U) << "max_num_batched_tokens";
  d.core->set_prefill_limits({.beside_decodes = 20, .without_decodes = 40});
  d.step();
  EXPECT_EQ(d.scheduled(1), 40U);
  d.core->set_prefill_limits({});
  d.step();
  EXPECT_EQ(d.scheduled(1), 64U);
}

TEST(PrefillLimits, LetAShortPromptOvertakeALongOne) {
  CoreDriver d = limited({.beside_decodes = 40, .without_decodes = 60});
  d.add(1, 1500, 5);
  d.step();
  EXPECT_EQ(d.scheduled(1), 60U);
  d.add(2, 20, 5);
  d.step();
  EXPECT_EQ(d.scheduled(1), 30U) << "half of the limit";
  EXPECT_EQ(d.scheduled(2), 20U) << "the whole prompt, one step after it arrived";
  d.step();
  EXPECT_EQ(d.scheduled(1), 40U) << "the other request decodes now";
  EXPECT_EQ(d.scheduled(2), 1U);
}

TEST(PrefillLimits, AreSharedByFourPromptsAtMost) {
  CoreDriver d = limited({.beside_decodes = 40, .without_decodes = 40});
  for (std::uint64_t id = 1; id <= 6; ++id) d.add(id, 100, 5);
  for (int i = 0; i < 10; ++i) {
    d.step();
    for (std::uint64_t id = 1; id <= 6; ++id) EXPECT_EQ(d.scheduled(id), id <= 4 ? 10U : 0U);
  }
  d.step();
  EXPECT_EQ(d.scheduled(1), 1U) << "the first prompts are computed";
  EXPECT_EQ(d.scheduled(5), 20U);
}

// A limit below two tokens still lets the first prompt continue.
TEST(PrefillLimits, LetAPromptContinueHoweverSmallTheyAre) {
  CoreDriver d = limited({.beside_decodes = 1, .without_decodes = 1});
  d.add(1, 9, 50);
  d.add(2, 9, 50);
  for (int i = 0; i < 12; ++i) d.step();
  EXPECT_FALSE(d.outputs(1).empty());
  EXPECT_FALSE(d.outputs(2).empty());
}

TEST(PrefillLimits, CutNoRequestWithEncoderInputs) {
  CoreConfig config = long_prompts(sync_config(2000));
  config.encoder.max_encoder_tokens = 64;
  config.encoder.encoder_cache_size = 64;
  CoreDriver d = limited({.beside_decodes = 8, .without_decodes = 8}, config);
  const Tokens prompt = CoreDriver::prompt(1, 60);
  NewRequest request = CoreDriver::request(1, prompt, 5);
  const MultimodalFeature image{"image", {4, 40}};
  request.multimodal = {&image, 1};
  d.add(request);
  d.step();
  EXPECT_EQ(d.scheduled(1), 60U);
}

TEST(PrefillLimits, DoNotApplyWithoutChunkedPrefill) {
  CoreConfig config = long_prompts(sync_config(2000));
  config.scheduler.enable_chunked_prefill = false;
  config.scheduler.max_num_batched_tokens = config.scheduler.max_model_len;
  CoreDriver d = limited({.beside_decodes = 8, .without_decodes = 8}, config);
  d.add(1, 300, 5);
  d.step();
  EXPECT_EQ(d.scheduled(1), 300U);
}

// Limits that change at random, preemptions and reused prefixes: each request ends, no step exceeds the limit, all decodes run, and a core
// restored from a checkpoint decides the same.
TEST(PrefillLimits, HoldInRandomRuns) {
  for (std::uint64_t seed = 0; seed < rounds_of(50); ++seed) {
    Random random(seed);
    const auto below = [&](std::uint64_t bound) { return static_cast<std::uint32_t>(random.below(bound)); };
    CoreConfig config = long_prompts(seed % 2 == 0 ? sync_config(60) : async_config(60));
    config.scheduler.tenant_turns = seed % 4 >= 2;
    CoreDriver d(config);
    std::uint64_t next_id = 1;
    for (int i = 0; i < 3000 && (i < 200 || d.core->has_work()); ++i) {
      if (i < 200 && below(6) == 0) d.add(next_id++, 1 + below(150), 1 + below(20));
      PrefillLimits limits{.beside_decodes = 1 + below(30), .without_decodes = 1 + below(60)};
      if (below(4) == 0) limits = {};
      d.core->set_prefill_limits(limits);
      const auto twin = i % 16 == 0 ? Core::restore(config, {}, d.core->checkpoint()).value() : nullptr;
      const StepPlan& plan = d.plan();
      if (twin != nullptr) EXPECT_EQ(scheduled_ids(twin->schedule({.now = d.now})), scheduled_ids(plan));
      std::uint32_t num_prompt_tokens = 0;
      for (const ScheduledRequest& s : plan.scheduled) num_prompt_tokens += s.num_tokens > 1 ? s.num_tokens : 0;
      if (limits != PrefillLimits{})
        EXPECT_LE(num_prompt_tokens, std::max({limits.beside_decodes, limits.without_decodes, 2U})) << "seed " << seed;
      d.apply();
    }
    EXPECT_FALSE(d.core->has_work()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace quire::test
