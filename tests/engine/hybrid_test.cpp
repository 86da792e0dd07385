// Tests the KV plan and the refusals of engines with state-layer models. invisible_test.cpp tests that their scheduler is invisible.
#include <gtest/gtest.h>

#include <functional>

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

TEST(HybridPlan, AStateIsTheSumOfItsParts) {
  ModelInfo model = model_with_states(1);
  for (const auto& [floats, tokens] : {std::pair(128U, 16U), {129U, 32U}}) {
    model.state_shapes = {{4, 32}, {floats}};
    const auto plan = plan_kv(model, {});
    ASSERT_TRUE(plan) << plan.error().to_string();
    EXPECT_EQ(plan->block_size, tokens);
    EXPECT_EQ(plan->layout.layers[4].state_bytes, (128 + floats) * sizeof(float));
    EXPECT_EQ(states_of(*plan).shapes, model.state_shapes);
    EXPECT_EQ(states_of(*plan).dtypes.size(), 2U);
    EXPECT_EQ(states_of(*plan).mamba_type, "mamba2");
  }
}

// 2^20 tokens of 64 bytes.
TEST(HybridPlan, EnlargesBlocksUpToALimit) {
  constexpr std::uint64_t kMostFloats = std::uint64_t{1} << 24U;
  EngineOptions options;
  options.cache.num_blocks = 10;
  const auto largest = plan_kv(model_with_states(kMostFloats), options);
  ASSERT_TRUE(largest) << largest.error().to_string();
  EXPECT_EQ(largest->block_size, 1U << 20U);
  EXPECT_EQ(largest->states, MambaCacheMode::all) << "no step has room for a block";
  const auto refused = plan_kv(model_with_states(kMostFloats + 1), options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
  EXPECT_EQ(refused.error().to_string(),
            "block_size: a state of 67108868 bytes needs blocks larger than the limit of 1048576 tokens; use a model with smaller states");
}

TEST(HybridPlan, SaysHowToCorrectTheCacheMode) {
  struct Case {
    const char* text;
    std::function<void(EngineOptions&)> change;
  };
  const Case cases[] = {
      {"mamba_cache_mode: is none, but prefix caching is on; turn prefix caching off, or leave mamba_cache_mode out",
       [](EngineOptions& o) { o.cache.mamba_cache_mode = MambaCacheMode::none; }},
      {"mamba_cache_mode: keeps states for later requests, but prefix caching is off; turn prefix caching on, or leave mamba_cache_mode "
       "out",
       [](EngineOptions& o) {
         o.cache.mamba_cache_mode = MambaCacheMode::align;
         o.cache.enable_prefix_caching = false;
       }},
      {"max_num_batched_tokens: is 319, but the blocks that hold a state of this model have 320 tokens; use at least that many tokens, or "
       "set mamba_cache_mode to all",
       [](EngineOptions& o) {
         o.cache.mamba_cache_mode = MambaCacheMode::align;
         o.scheduler.max_num_batched_tokens = 319;
       }},
      {"long_prefill_token_threshold: is 319, but the blocks that hold a state of this model have 320 tokens; use at least that many "
       "tokens, "
       "or set mamba_cache_mode to all",
       [](EngineOptions& o) {
         o.cache.mamba_cache_mode = MambaCacheMode::align;
         o.scheduler.long_prefill_token_threshold = 319;
       }},
  };
  for (const Case& c : cases) {
    EngineOptions options;
    c.change(options);
    const auto refused = plan_kv(model_with_states(5000), options);
    ASSERT_FALSE(refused) << c.text;
    EXPECT_EQ(refused.error().to_string(), c.text);
    EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
  }
  EngineOptions options;
  options.cache.mamba_cache_mode = MambaCacheMode::align;
  options.scheduler.max_num_batched_tokens = options.scheduler.long_prefill_token_threshold = 320;
  EXPECT_EQ(plan_kv(model_with_states(5000), options)->states, MambaCacheMode::align);
  ModelInfo attends = model_with_states(1);
  attends.layer_memories.clear();
  attends.state_shapes.clear();
  EXPECT_EQ(plan_kv(attends, options).error().to_string(), "mamba_cache_mode: is set, but no layer of the model has a state; leave it out");
}

// The three states make two groups. Each group needs a block per block of the prompt, and one per draft token.
TEST(HybridPlan, AReducedContextLeavesRoomForTheStatesOfDraftTokens) {
  EngineOptions options;
  options.speculation.num_speculative_tokens = 3;
  const std::uint32_t num_groups = 3, num_spare = 2 * 3;
  for (const auto& [num_blocks, max_model_len] :
       {std::pair(1 + num_spare + 4 * num_groups, 64U), {1 + num_spare + 4 * num_groups - 1, 48U}, {1 + num_spare + num_groups, 16U}}) {
    options.cache.num_blocks = num_blocks;
    const auto plan = plan_kv(model_with_states(100), options);
    ASSERT_TRUE(plan) << plan.error().to_string();
    ASSERT_EQ(plan->layout.groups.size(), num_groups);
    EXPECT_EQ(plan->max_model_len, max_model_len);
    EXPECT_EQ(kv_blocks_per_request(plan->layout, max_model_len, 2048), max_model_len / 16 * num_groups + num_spare);
  }
  for (const std::uint32_t num_blocks : {2U, 1 + num_spare}) {
    options.cache.num_blocks = num_blocks;
    EXPECT_FALSE(plan_kv(model_with_states(100), options)) << num_blocks;
  }
}

TEST(HybridPlan, TheBlockOfASingleStateIsAsLongAsTheLongestRequest) {
  EngineOptions options;
  options.cache.enable_prefix_caching = false;
  options.scheduler.max_model_len = 500;
  EXPECT_EQ(states_of(plan_kv(model_with_states(300), options).value()).block_size, 500U);
  options.scheduler.max_model_len = 0;
  options.cache.num_blocks = 1 + 2 + 5;  // two groups of states, and five blocks of 32 tokens
  const KvPlan plan = plan_kv(model_with_states(300), options).value();
  EXPECT_EQ(plan.max_model_len, 160U);
  EXPECT_EQ(states_of(plan).block_size, 160U);
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
