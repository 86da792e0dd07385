// Tests each rule that differs between vLLM 0.32.0 and 0.19.0, in its smallest case and under both versions.
#include "quire/base/decision_profile.h"

#include <gtest/gtest.h>

#include "core/schedule/core_driver.h"
#include "core/schedule/requests/encoder_inputs.h"

namespace quire::test {
namespace {

CoreConfig with_profile(DecisionProfile profile, CoreConfig config) {
  config.decisions = profile;
  return config;
}

constexpr auto kOld = DecisionProfile::vllm_0_19, kNew = DecisionProfile::vllm_0_32;

std::vector<BlockId> free_blocks(const CoreDriver& d) {
  CoreSnapshot snapshot;
  d.core->snapshot(snapshot);
  return snapshot.free_blocks;
}

TEST(DecisionProfile, ResolvesTheRulesFromProfileAndFixes) {
  const DecisionRules old(kOld, {}), fixed(kOld, engine_fixes(true)), newer(kNew, {});
  EXPECT_FALSE(old.hits_before_loads || old.early_loads || old.block_holders_first || old.recomputed_outputs_not_freed);
  EXPECT_TRUE(fixed.hits_before_loads && fixed.early_loads && fixed.idle_sessions_yield);
  EXPECT_FALSE(fixed.block_holders_first || fixed.recomputed_outputs_not_freed);
  EXPECT_TRUE(newer.hits_before_loads && newer.block_holders_first && newer.recomputed_outputs_not_freed);
  EXPECT_FALSE(newer.early_loads || newer.cut_sessions || newer.idle_sessions_yield);
}

TEST(DecisionProfile, IgnoresTheLongPrefillThresholdForASinglePrefill) {
  for (const auto profile : {kOld, kNew}) {
    CoreConfig config = with_profile(profile, sync_config());
    config.scheduler.long_prefill_token_threshold = 4;
    CoreDriver d(config);
    d.add(1, 20, 4);
    d.step();
    EXPECT_EQ(d.scheduled(1), profile == kOld ? 4U : 20U);
    d.add(2, 20, 4);
    d.step();
    EXPECT_EQ(d.scheduled(2), 4U) << "two requests share the step";
  }
}

TEST(DecisionProfile, ReusesUnhashedBlocksFirst) {
  for (const auto profile : {kOld, kNew}) {
    CoreDriver d(with_profile(profile, sync_config(8)));
    d.add(1, 6, 4);  // one full block, and a half one
    d.step();
    const auto blocks = d.blocks(1);
    const std::vector<BlockId> held(blocks.begin(), blocks.end());
    ASSERT_EQ(held.size(), 2U);
    EXPECT_EQ(d.core->finish(RequestId{1}, RequestStatus::finished_aborted, {.now = 9.0}), FinishEffect::retired);
    const std::vector<BlockId> free = free_blocks(d);
    EXPECT_EQ(free.back(), held[0]) << "a hashed block is reused last";
    EXPECT_EQ(profile == kOld ? free[free.size() - 2] : free.front(), held[1]);
  }
}

TEST(DecisionProfile, CountsALookupWhenItsRequestIsAdmitted) {
  for (const auto profile : {kOld, kNew}) {
    CoreDriver d(with_profile(profile, sync_config(6)));
    d.add(1, 15, 2);  // four of the five blocks
    d.add(2, 12, 2);  // waits for three blocks
    const auto outcome = d.step();
    EXPECT_EQ(outcome.stats->prefix_cache.requests, profile == kOld ? 2U : 1U);
  }
}

TEST(DecisionProfile, AppliesMinTokensToRepetitionOnly) {
  for (const auto profile : {kOld, kNew}) {
    CoreDriver d(with_profile(profile, sync_config()));
    const Tokens prompt = CoreDriver::prompt(1, 4);
    NewRequest request = CoreDriver::request(1, prompt, 8);
    request.min_tokens = 3;
    d.add(request);
    const auto outcome = d.step({{1, {kEos}}});
    EXPECT_EQ(outcome.updates.at(0).finished, profile == kNew);
  }
}

TEST(DecisionProfile, DropsPlaceholdersOfAPreemptedRequest) {
  for (const auto profile : {kOld, kNew}) {
    CoreDriver d(with_profile(profile, async_config(6)));
    d.add(1, 8, 6);
    d.add(2, 8, 6);
    d.plan();  // two blocks each
    d.plan();  // request 1 takes the last block and request 2 is preempted
    EXPECT_EQ(d.view(2).status, RequestStatus::preempted);
    EXPECT_EQ(d.view(2).num_output_placeholders, profile == kOld ? 1 : 0);
    EXPECT_EQ(d.view(2).num_stale_tokens, profile == kOld ? 0 : 8);
    const auto outcome = d.apply();
    EXPECT_EQ(outcome.updates.size(), 2U) << "its token is reported anyway";
    EXPECT_EQ(d.view(2).num_stale_tokens, 0);
    EXPECT_EQ(d.view(2).num_output_placeholders, 0);
    d.apply();
  }
}

TEST(DecisionProfile, ReportsRequestsPreemptedByAResetInTheNextPlan) {
  CoreDriver d(with_profile(kNew, async_config()));
  d.add(1, 8, 6);
  d.plan();
  ASSERT_TRUE(d.core->reset_prefix_cache(true, false, {.now = 5.0}).has_value());
  EXPECT_EQ(values(d.plan().preempted), (Ids{1}));
  EXPECT_EQ(d.scheduled(1), 8U) << "it resumes immediately";
  EXPECT_TRUE(d.apply().updates.empty()) << "this token is stale; another one replaces it";
  EXPECT_EQ(d.apply().updates.at(0).tokens.size(), 1U);
}

// Each step builds the heap of skipped requests from scratch. Its shape decides the order when arrival times change within the heap.
TEST(DecisionProfile, ReturnsSkippedRequestsByPriorityOrLastFirst) {
  for (const auto profile : {kOld, kNew}) {
    CoreConfig config = with_profile(profile, sync_config());
    config.scheduler.policy = SchedulingPolicy::priority;
    CoreDriver d(config);
    for (std::uint64_t id = 1; id <= 5; ++id) {
      const Tokens prompt = CoreDriver::prompt(id, 6);
      NewRequest session = CoreDriver::request(id, prompt, 1);
      session.resumable = true;
      d.add(session);
    }
    ASSERT_EQ(d.step().updates.size(), 5U);
    ASSERT_TRUE(d.plan().scheduled.empty()) << "all wait for their inputs";
    d.apply();
    double arrival_time = 10.0;
    for (const std::uint64_t id : {3U, 2U, 4U}) {
      const Tokens tokens = CoreDriver::prompt(id, 3);
      const SessionInput input{.tokens = tokens, .arrival_time = arrival_time++, .max_tokens = 1};
      ASSERT_TRUE(d.core->continue_session(RequestId{id}, &input, {.now = d.now}).has_value());
    }
    EXPECT_EQ(scheduled_ids(d.plan()), profile == kOld ? Ids({3, 2, 4}) : Ids({2, 3, 4}));
    d.apply();
  }
}

TEST(DecisionProfile, PadsARequestAdmittedForOneTokenWithDraftPlaceholders) {
  for (const auto profile : {kOld, kNew}) {
    CoreConfig config = with_profile(profile, sync_config());
    config.speculation.num_spec_tokens = 3;
    CoreDriver d(config);
    d.add(1, 8, 20);
    d.step();
    d.step();
    Tokens prompt = CoreDriver::prompt(1, 8);
    prompt.push_back(7);
    d.add(CoreDriver::request(2, prompt, 8));  // all but one of its tokens are cached
    d.step();
    EXPECT_EQ(d.scheduled(2), profile == kOld ? 1U : 4U);
  }
}

TEST(DecisionProfile, RefusesFeaturesThatVllm032RulesDoNotSupport) {
  const auto refused = [](auto change) {
    CoreConfig config = with_profile(kNew, sync_config());
    change(config);
    const auto valid = config.validate();
    return valid ? std::string() : valid.error().field;
  };
  EXPECT_EQ(refused([](CoreConfig&) {}), "");
  EXPECT_EQ(refused([](CoreConfig& c) { c.kv.groups[0].spec = MambaSpec{}; }), "kv.groups");
  EXPECT_EQ(refused([](CoreConfig& c) { c.block_size = 2; }), "kv.groups") << "blocks of four tokens, one hash per two tokens";
  EXPECT_EQ(refused([](CoreConfig& c) { c.scheduler.policy = SchedulingPolicy::continuum; }), "policy");
  EXPECT_EQ(refused([](CoreConfig& c) { c.fixes.early_loads = true; }), "fixes");
  EXPECT_EQ(refused([](CoreConfig& c) { c.mamba_align = true; }), "mamba_align");
  EXPECT_EQ(refused([](CoreConfig& c) { c.parallel.dcp_world_size = 2; }), "parallel.dcp_world_size");
  EXPECT_EQ(refused([](CoreConfig& c) { c.parallel.pcp_world_size = 2; }), "parallel.dcp_world_size");
  EXPECT_EQ(refused([](CoreConfig& c) { c.pressure.admission_watermark = 0.1; }), "pressure");
  EXPECT_EQ(refused([](CoreConfig& c) { c.pressure.pressure_high = c.pressure.pressure_low = 0.9; }), "pressure");
  EXPECT_EQ(refused([](CoreConfig& c) { c.swap = {.num_swap_slots = 4, .swap_choice = SwapChoice::always}; }), "swap.swap_choice");
  const auto refused_kind = [&]<class Spec>(Spec spec) {
    spec.block_size = kBlockSize;
    return refused([&](CoreConfig& c) {
      c.kv.groups[0].spec = spec;
      c.prefix_cache.enable_prefix_caching = false;
    });
  };
  EXPECT_EQ(refused_kind(MlaAttentionSpec{}), "");
  SlidingWindowSpec window;
  ChunkedLocalSpec chunks;
  window.sliding_window = chunks.attention_chunk_size = 8;
  EXPECT_EQ(refused_kind(window), "");
  EXPECT_EQ(refused_kind(chunks), "");
  EXPECT_EQ(refused_kind(CrossAttentionSpec{}), "");
  EXPECT_EQ(refused_kind(MambaSpec{}), "kv.groups");
}

// The following tests use encoder inputs. An item has as many embeddings as tokens.
struct Item {
  const char* identifier;
  std::uint32_t offset, length;
};

std::vector<MultimodalFeature> features_of(const std::vector<Item>& items) {
  std::vector<MultimodalFeature> features;
  for (const Item& item : items) features.push_back({item.identifier, PlaceholderRange(item.offset, item.length)});
  return features;
}

CoreConfig multimodal_config(DecisionProfile profile, CoreConfig config, std::uint32_t cache_embeds = 64) {
  config.decisions = profile;
  config.encoder.max_encoder_tokens = 64;
  config.encoder.encoder_cache_size = cache_embeds;
  config.prefix_cache.enable_prefix_caching = false;
  return config;
}

void add_multimodal(CoreDriver& d, std::uint64_t id, std::uint32_t num_tokens, std::uint32_t max_tokens, const std::vector<Item>& items,
                    bool resumable = false) {
  const Tokens prompt = CoreDriver::prompt(id, num_tokens);
  const std::vector<MultimodalFeature> features = features_of(items);
  NewRequest request = CoreDriver::request(id, prompt, max_tokens);
  request.multimodal = features;
  request.resumable = resumable;
  d.add(request);
}

std::vector<std::string> evictable_outputs(const CoreDriver& d) {
  std::vector<std::string> identifiers;
  for (const auto& entry : d.snapshot().encoder_freeable) identifiers.push_back(entry.identifier);
  return identifiers;
}

std::vector<std::uint32_t> inputs_of(const StepPlan& plan, std::uint64_t id) {
  for (const ScheduledRequest& s : plan.scheduled)
    if (s.id.value == id) return {s.encoder_inputs.begin(), s.encoder_inputs.end()};
  return {};
}

using Inputs = std::vector<std::uint32_t>;
using Names = std::vector<std::string>;

TEST(DecisionProfile, KeepsAnEncoderOutputUntilTheResultOfItsTokens) {
  for (const auto profile : {kOld, kNew}) {
    CoreDriver d(multimodal_config(profile, sync_config()));
    add_multimodal(d, 1, 8, 4, {{"a", 0, 4}});
    d.plan();
    EXPECT_EQ(evictable_outputs(d).size(), profile == kOld ? 1U : 0U);
    d.apply();
    EXPECT_EQ(evictable_outputs(d), Names{"a"});
  }
}

TEST(DecisionProfile, KeepsAnEncoderOutputWhileAResultMayRejectItsTokens) {
  CoreDriver d(multimodal_config(kNew, async_config()));
  add_multimodal(d, 1, 8, 6, {{"a", 4, 4}});
  d.plan();
  d.plan();
  d.apply();
  EXPECT_TRUE(evictable_outputs(d).empty()) << "nine tokens are computed; the results of two are in flight";
  d.plan();
  d.apply();
  EXPECT_EQ(evictable_outputs(d), Names{"a"});
  d.apply();
}

TEST(DecisionProfile, KeepsTheOutputOfARepeatedInputUntilItsLastUse) {
  for (const auto profile : {kOld, kNew}) {
    CoreConfig config = multimodal_config(profile, sync_config());
    config.scheduler.max_num_batched_tokens = 6;
    CoreDriver d(config);
    add_multimodal(d, 1, 12, 4, {{"a", 0, 4}, {"a", 5, 4}});
    d.step();
    EXPECT_EQ(evictable_outputs(d).size(), profile == kOld ? 1U : 0U);
    d.step();
    EXPECT_EQ(evictable_outputs(d), Names{"a"});
  }
}

TEST(DecisionProfile, ChecksWhetherAnInputFitsBeforeWhetherItIsCached) {
  for (const auto profile : {kOld, kNew}) {
    CoreConfig config = multimodal_config(profile, sync_config());
    config.scheduler.max_num_batched_tokens = 8;
    config.encoder.disable_chunked_mm_input = true;
    CoreDriver d(config);
    add_multimodal(d, 1, 5, 1, {{"a", 0, 4}});
    d.step();
    add_multimodal(d, 2, 12, 4, {{"a", 6, 4}});
    d.step();
    EXPECT_EQ(d.scheduled(2), profile == kOld ? 8U : 6U);
  }
}

TEST(DecisionProfile, SchedulesInputsThatTheDrafterReadsAhead) {
  for (const auto profile : {kOld, kNew}) {
    CoreConfig config = multimodal_config(profile, sync_config());
    config.scheduler.max_num_batched_tokens = 4;
    config.speculation = {.num_spec_tokens = 1, .num_lookahead_tokens = 1, .use_eagle = true};
    CoreDriver d(config);
    add_multimodal(d, 1, 8, 4, {{"a", 4, 4}});
    EXPECT_EQ(inputs_of(d.plan(), 1), profile == kOld ? Inputs{} : Inputs{0});
    d.apply();
    EXPECT_EQ(inputs_of(d.plan(), 1), profile == kOld ? Inputs{0} : Inputs{});
    d.apply();
  }
}

// A session gets such inputs when it stops after a failed load has reduced its computed tokens. Its next input then begins before the end
// of the previous input.
TEST(DecisionProfile, FindsInputsOutOfOrderByBisection) {
  for (const auto profile : {kOld, kNew}) {
    Context context(multimodal_config(profile, sync_config()), {});
    EncoderScheduler encoder(context);
    encoder.begin_step();
    Request session;
    session.features = features_of({{"a", 6, 2}, {"b", 1, 2}, {"c", 3, 2}});
    const auto to_compute = encoder.schedule(session, 0, 6).to_compute;
    EXPECT_EQ(Inputs(to_compute.begin(), to_compute.end()), profile == kOld ? Inputs{} : (Inputs{1, 2}));
  }
}

TEST(DecisionProfile, EndsARequestWhoseInputDiffersInSizeFromTheCachedOutput) {
  for (const auto profile : {kOld, kNew}) {
    CoreDriver d(multimodal_config(profile, sync_config()));
    add_multimodal(d, 1, 8, 4, {{"a", 0, 4}});
    d.step();
    add_multimodal(d, 2, 8, 4, {{"a", 0, 2}});
    const auto outcome = d.step();
    EXPECT_EQ(d.scheduled(2), profile == kOld ? 8U : 0U);
    EXPECT_EQ(d.known(2), profile == kOld);
    ASSERT_EQ(outcome.updates.size(), 2U);
    EXPECT_EQ(outcome.updates[1].finished, profile == kNew);
    if (profile == kNew) EXPECT_EQ(outcome.updates[1].reason, FinishReason::error);
  }
}

TEST(DecisionProfile, EndsARequestThatHasOneInputInTwoSizes) {
  CoreDriver d(multimodal_config(kNew, sync_config()));
  add_multimodal(d, 1, 12, 4, {{"a", 0, 4}, {"a", 5, 2}});
  EXPECT_EQ(d.step().retired, Ids{1});
}

TEST(DecisionProfile, RunsANewRequestWithTheIdOfARequestThatHadTwoSizes) {
  CoreDriver d(multimodal_config(kNew, sync_config()));
  add_multimodal(d, 1, 12, 4, {{"a", 0, 4}, {"a", 5, 2}});
  ASSERT_EQ(d.step().retired, Ids{1});
  d.add(1, 8, 2);
  EXPECT_TRUE(d.step().retired.empty());
  const auto outcome = d.step();
  ASSERT_EQ(outcome.updates.size(), 1U);
  EXPECT_TRUE(outcome.updates[0].finished);
  EXPECT_EQ(outcome.updates[0].reason, FinishReason::length);
}

TEST(DecisionProfile, DoesNotFreeAnOutputThatIsRecomputedInTheStepThatEvictsIt) {
  for (const auto profile : {kOld, kNew}) {
    CoreDriver d(multimodal_config(profile, sync_config(), 8));
    add_multimodal(d, 1, 8, 1, {{"a", 0, 4}, {"b", 4, 4}});
    d.step();
    ASSERT_EQ(evictable_outputs(d), (Names{"a", "b"}));
    add_multimodal(d, 2, 5, 4, {{"c", 0, 4}});
    add_multimodal(d, 3, 5, 4, {{"a", 0, 4}});
    const StepPlan& plan = d.plan();
    const Names freed(plan.freed_encoder_outputs.begin(), plan.freed_encoder_outputs.end());
    EXPECT_EQ(freed, profile == kOld ? (Names{"a", "b"}) : Names{"b"});
    d.apply();
  }
}

}  // namespace
}  // namespace quire::test
