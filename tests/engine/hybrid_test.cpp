// Tests the KV plan and the refusals of engines with state-layer models. invisible_test.cpp tests that their scheduler is invisible.
#include <gtest/gtest.h>

#include "engine/collector.h"
#include "engine/create.h"
#include "engine/kv_plan.h"
#include "engine/resolve_options.h"
#include "engine/windowed_model.h"
#include "quire/engine.h"
#include "runtime/model/rig.h"

namespace quire {
namespace {

// Keys and values of a token occupy 64 bytes per layer.
ModelInfo model_with_states(std::uint64_t state_floats) {
  ModelInfo model;
  model.name = "hybrid";
  model.num_layers = 4;
  model.num_kv_heads = 1;
  model.head_dim = 16;
  model.vocab_size = 100;
  model.context_length = 4096;
  model.layer_memories = {LayerMemory::state, LayerMemory::attention, LayerMemory::state, LayerMemory::both};
  model.state_kind = "mamba2";
  model.state_shapes = {{1, state_floats}};
  return model;
}

const MambaSpec& states_of(const KvPlan& plan) {
  for (const KvCacheGroup& group : plan.config.groups)
    if (const auto* spec = std::get_if<MambaSpec>(&group.spec)) return *spec;
  throw std::runtime_error("no group keeps states");
}

TEST(HybridPlan, EnlargesBlocksUntilAStateFits) {
  for (const auto& [floats, tokens] : {std::pair(1U, 16U), {256U, 16U}, {257U, 32U}, {5000U, 320U}}) {
    const auto plan = plan_kv(model_with_states(floats), {});
    ASSERT_TRUE(plan) << plan.error().to_string();
    EXPECT_EQ(plan->block_size, tokens);
    EXPECT_EQ(plan->states, tokens == 16 ? MambaCacheMode::all : MambaCacheMode::align);
    for (const KvCacheGroup& group : plan->config.groups) EXPECT_EQ(block_size_of(group.spec), tokens);
    for (const std::uint64_t page : plan->layout.page_bytes) EXPECT_EQ(page, tokens * 64);
    EXPECT_EQ(states_of(*plan).page_size_padded, tokens * 64);
    EXPECT_EQ(plan->layout.layers.size(), 5U) << "the last layer has keys and values and a state";
    EXPECT_EQ(plan->layout.layers[3].state_bytes, 0U);
    EXPECT_EQ(plan->layout.layers[4].state_bytes, floats * sizeof(float));
    EngineOptions options;
    const auto resolved = resolve_options(options, model_with_states(floats), {1, 0});
    ASSERT_TRUE(resolved) << resolved.error().to_string();
    EXPECT_EQ(resolved->options.cache.block_size, tokens);
    EXPECT_EQ(resolved->core.mamba_align, tokens != 16);
  }
}

TEST(HybridPlan, GivesARequestOneStateWithoutPrefixCaching) {
  EngineOptions options;
  options.cache.enable_prefix_caching = false;
  const auto plan = plan_kv(model_with_states(300), options);
  ASSERT_TRUE(plan) << plan.error().to_string();
  EXPECT_EQ(states_of(*plan).mode, MambaCacheMode::none);
  EXPECT_EQ(states_of(*plan).block_size, 4096U);
  EXPECT_EQ(kv_blocks_per_request(plan->layout, 1000, 2048), 32U + (plan->config.groups.size() - 1));
}

TEST(HybridPlan, RefusesAnImpossibleCacheMode) {
  const auto field_of = [](const ModelInfo& model, const EngineOptions& options) { return plan_kv(model, options).error().field; };
  EngineOptions options;
  options.cache.mamba_cache_mode = MambaCacheMode::none;
  EXPECT_EQ(field_of(model_with_states(100), options), "mamba_cache_mode") << "prefix caching is on";
  options.cache.enable_prefix_caching = false;
  EXPECT_TRUE(plan_kv(model_with_states(100), options));
  options.cache.mamba_cache_mode = MambaCacheMode::all;
  EXPECT_EQ(field_of(model_with_states(100), options), "mamba_cache_mode") << "prefix caching is off";
  options = {};
  options.cache.mamba_cache_mode = MambaCacheMode::align;
  options.scheduler.max_num_batched_tokens = 100;
  EXPECT_TRUE(plan_kv(model_with_states(100), options));
  EXPECT_EQ(field_of(model_with_states(5000), options), "max_num_batched_tokens");
  options.scheduler.max_num_batched_tokens = 2048;
  options.scheduler.long_prefill_token_threshold = 100;
  EXPECT_EQ(field_of(model_with_states(5000), options), "long_prefill_token_threshold");
  options.cache.mamba_cache_mode.reset();
  EXPECT_EQ(plan_kv(model_with_states(5000), options)->states, MambaCacheMode::all) << "chunks of less than a block";
  options.scheduler.long_prefill_token_threshold = 0;
  options.scheduler.max_num_seqs = 1728;
  EXPECT_EQ(plan_kv(model_with_states(5000), options)->states, MambaCacheMode::align);
  options.scheduler.max_num_seqs = 1729;
  EXPECT_EQ(plan_kv(model_with_states(5000), options)->states, MambaCacheMode::all)
      << "one token per sequence and a block of 320 tokens exceed the budget";
  options = {};
  options.cache.mamba_cache_mode = MambaCacheMode::all;
  ModelInfo attends = model_with_states(1);
  attends.layer_memories.clear();
  attends.state_shapes.clear();
  EXPECT_EQ(field_of(attends, options), "mamba_cache_mode");
  EXPECT_EQ(field_of(model_with_states(std::uint64_t{1} << 40U), {}), "block_size");
}

TEST(HybridPlan, PlansASeparateStateForEachDraftToken) {
  EngineOptions options;
  options.speculation.num_speculative_tokens = 3;
  const auto plan = plan_kv(model_with_states(100), options);
  ASSERT_TRUE(plan) << plan.error().to_string();
  EXPECT_EQ(states_of(*plan).num_speculative_blocks, 3U);
  const std::size_t num_kept = plan->config.groups.size() - 1;
  EXPECT_EQ(kv_blocks_per_request(plan->layout, 160, 2048), 10U + num_kept * (10 + 3)) << "states of all blocks, and of drafts";
  options.cache.enable_prefix_caching = false;
  const auto single = plan_kv(model_with_states(100), options);
  ASSERT_TRUE(single) << single.error().to_string();
  EXPECT_EQ(kv_blocks_per_request(single->layout, 160, 2048), 10U + num_kept * (1 + 3));
}

class HybridEngine : public testing::Test {
 protected:
  HybridEngine() { tiny::write_lfm2_weights(folder_.file("lfm2")); }
  [[nodiscard]] EngineOptions options() const {
    EngineOptions options;
    options.model = folder_.file("lfm2");
    options.cache.num_blocks = 400;
    return options;
  }
  tiny::TempFolder folder_;
};

TEST_F(HybridEngine, RefusesAKvPeer) {
  EngineSeams seams;
  seams.kv_peer = {.role = KvRole::producer, .port = 0};
  const auto made = create_engine(options(), nullptr, nullptr, seams);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().field, "kv_role") << made.error().to_string();
  EXPECT_EQ(made.error().code, ErrorCode::unsupported);
}

// Later answers find the prompt's states in the cache. The state after the last token but one has been overwritten.
TEST_F(HybridEngine, SeveralAnswersToOnePromptMatchTheirSeeds) {
  auto engine = create_engine(options(), nullptr, nullptr);
  ASSERT_TRUE(engine) << engine.error().to_string();
  Collector sink;
  EngineRequest request;
  for (TokenId token = 0; token < 70; ++token) request.prompt.push_back(token % 50);
  request.sampling.max_tokens = 20;
  request.sampling.ignore_eos = true;
  request.sampling.seed = 5;
  request.n = 4;
  const RequestId first = (*engine)->submit(request, sink).value();
  std::vector<std::vector<TokenId>> answers;
  for (std::uint32_t i = 0; i < request.n; ++i) answers.push_back(sink.wait(RequestId{first.value + i}).tokens);
  request.n = 1;
  for (const std::vector<TokenId>& answer : answers) {
    EXPECT_EQ(sink.wait((*engine)->submit(request, sink).value()).tokens, answer);
    *request.sampling.seed += 1;
  }
  EXPECT_EQ((*engine)->stop(60.0), 0U);
  const EngineStats stats = (*engine)->stats();
  EXPECT_EQ(stats.num_forks, 3U);
  EXPECT_GE(stats.prefix_cache_hits, 4U * 64U);
  EXPECT_EQ(stats.num_free_blocks, stats.num_blocks);
}

}  // namespace
}  // namespace quire
