// Tests the KV layout that the engine plans for a model's layers. tests/golden/kv_layouts.txt has vLLM's results
// (tools/record/kv_layouts.py).
#include "engine/kv_plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "quire/engine.h"
#include "support/split.h"

namespace quire {
namespace {

using test::split;

ModelInfo dense_model(std::uint32_t num_layers, std::uint32_t num_kv_heads, std::uint32_t head_dim) {
  ModelInfo model;
  model.num_layers = num_layers;
  model.num_kv_heads = num_kv_heads;
  model.head_dim = head_dim;
  model.context_length = 1U << 17U;
  return model;
}

struct Planned {
  ModelInfo model;
  EngineOptions options;
};

Planned from_line(const std::string& line) {
  std::map<std::string, std::string> fields;
  for (const std::string& field : split(line, ' ')) fields[field.substr(0, field.find('='))] = field.substr(field.find('=') + 1);
  const auto number = [&](const char* key) { return static_cast<std::uint32_t>(std::stoul(fields.at(key))); };
  const auto windows = split(fields.at("windows"), ',');
  Planned planned{dense_model(static_cast<std::uint32_t>(windows.size()), number("heads"), number("head_dim")), {}};
  for (const std::string& window : windows) planned.model.sliding_windows.push_back(static_cast<std::uint32_t>(std::stoul(window)));
  planned.options.cache.block_size = number("block_size");
  planned.options.cache.kv_cache_bytes = std::stoull(fields.at("memory"));
  planned.options.scheduler.max_model_len = number("length");
  return planned;
}

std::vector<std::string> results_of(const KvLayout& layout) {
  std::vector<std::string> lines{fmt::format("blocks {}", layout.num_blocks)};
  for (const KvGroupLayout& group : layout.groups)
    lines.push_back(fmt::format("group {} {}", group.sliding_window(), fmt::join(group.layers, ",")));
  for (std::size_t tensor = 0; tensor < layout.page_bytes.size(); ++tensor) {
    std::vector<std::uint32_t> shared_by;
    for (const KvGroupLayout& group : layout.groups)
      if (tensor < group.layers.size()) shared_by.push_back(group.layers[tensor]);
    lines.push_back(fmt::format("tensor {} {}", layout.page_bytes[tensor] * layout.num_blocks, fmt::join(shared_by, ",")));
  }
  return lines;
}

TEST(KvPlan, LaysOutKnownModelsAsVllmDoes) {
  std::ifstream file("tests/golden/kv_layouts.txt");
  std::vector<std::string> wanted, found;
  std::size_t num_models = 0;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model ")) {
      wanted.push_back(line);
      continue;
    }
    ++num_models;
    const Planned planned = from_line(line);
    const auto layout = plan_kv_layout(planned.model, planned.options);
    ASSERT_TRUE(layout.has_value()) << line << "\n" << layout.error().to_string();
    std::ranges::move(results_of(*layout), std::back_inserter(found));
  }
  EXPECT_GE(num_models, 20U);
  EXPECT_EQ(found, wanted);
}

// Blog posts count "KV cache memory" for Llama 70B like this: 43 GB next to 4-bit weights are 8,201 blocks. (8,206 results from rounding a
// block to 5.24 MB.) A page has 64 KiB per layer.
TEST(KvPlan, CountsTheMemoryOfLlama70B) {
  EngineOptions options;
  options.cache.kv_cache_bytes = 43'000'000'000;
  const KvLayout layout = *plan_kv_layout(dense_model(80, 8, 128), options);
  EXPECT_EQ(layout.num_blocks, 8201U);
  EXPECT_EQ(layout.bytes_per_block(), 5'242'880U);
  EXPECT_EQ(layout.page_bytes, std::vector<std::uint64_t>(80, 65'536));
  EXPECT_EQ(layout.total_bytes(), 8201ULL * 65'536 * 80);
  EXPECT_EQ(layout.total_bytes() / 100'000'000, 429U);  // 43.0 GB
  options.cache.num_blocks = 2048;
  EXPECT_EQ(plan_kv_layout(dense_model(80, 8, 128), options)->total_bytes() / 100'000'000, 107U);  // 10.7 GB
}

// Blocks have 16 tokens of 16 bits. The table lists bytes per layer, and over all layers in hundredths of a million bytes.
TEST(KvPlan, CountsTheBlocksOfWellKnownModels) {
  struct Row {
    const char* model;
    std::uint32_t num_layers, num_kv_heads;
    std::uint64_t page_bytes, hundredths;
  };
  for (const Row& row : {Row{"Llama 7B", 32, 32, 262'144, 839},
                         {"Llama 13B", 40, 40, 327'680, 1311},
                         {"Llama 70B", 80, 8, 65'536, 524},
                         {"Mixtral 8x7B", 32, 8, 65'536, 210},
                         {"Llama 405B", 126, 8, 65'536, 826}}) {
    const KvLayout layout = *plan_kv_layout(dense_model(row.num_layers, row.num_kv_heads, 128), {});
    EXPECT_EQ(layout.page_bytes, std::vector(row.num_layers, row.page_bytes)) << row.model;
    EXPECT_EQ((layout.bytes_per_block() + 5'000) / 10'000, row.hundredths) << row.model;
  }
}

// The last block of a request wastes at most block_size - 1 tokens. Averaged over all lengths it wastes the share that tables of block
// sizes list as "internal fragmentation".
TEST(KvPlan, WastesHalfABlockOnAverage) {
  const std::map<std::uint32_t, double> average_percent{{1, 0.0}, {8, 43.75}, {16, 46.875}, {32, 48.4375}, {64, 49.21875}};
  for (const auto& [block_size, percent] : average_percent) {
    EngineOptions options;
    options.cache.block_size = block_size;
    const KvLayout layout = *plan_kv_layout(dense_model(80, 8, 128), options);
    EXPECT_EQ(layout.page_bytes.front(), 4096U * block_size);
    std::uint64_t wasted = 0, worst = 0;
    for (std::uint32_t tokens = 1; tokens <= 10 * block_size; ++tokens) {
      const std::uint64_t unused = kv_blocks_per_request(layout, tokens, 2048) * block_size - tokens;
      worst = std::max(worst, unused);
      wasted += unused;
    }
    EXPECT_EQ(worst, block_size - 1);
    EXPECT_DOUBLE_EQ(100.0 * static_cast<double>(wasted) / (10.0 * block_size * block_size), percent);
  }
}

TEST(KvPlan, AWindowedRequestHoldsNoMoreThanItsWindows) {
  ModelInfo model = dense_model(6, 1, 16);
  model.sliding_windows = {64, 64, 64, 64, 64, 0};
  const KvLayout layout = *plan_kv_layout(model, {});
  ASSERT_EQ(layout.groups.size(), 6U) << "five groups of one windowed layer, and the full group";
  // The 63 tokens before the current chunk of 32 fill 6 blocks, and 7 blocks if they do not start at a block boundary.
  EXPECT_EQ(kv_blocks_per_request(layout, 16'000, 32), 1000U + 5 * 7);
}

TEST(KvPlan, TheLongestRequestLeavesTheNullBlockFree) {
  EngineOptions options;
  options.cache.num_blocks = 5;
  EXPECT_EQ(plan_kv(dense_model(2, 1, 16), options)->max_model_len, 64U);
  options.scheduler.max_model_len = 65;
  EXPECT_EQ(plan_kv(dense_model(2, 1, 16), options).error().field, "max_model_len");
  ModelInfo windowed = dense_model(2, 1, 16);
  windowed.sliding_windows = {20, 20};
  options.scheduler.max_num_batched_tokens = 16;  // 35 tokens fill 3 blocks, and the window may begin in the middle of a block
  EXPECT_TRUE(plan_kv(windowed, options).has_value());
}

TEST(KvPlan, AcceptsFromTwoBlocksToTheMostBlocks) {
  constexpr std::uint32_t kMost = 1U << 24U;
  const ModelInfo model = dense_model(1, 1, 1);
  EngineOptions options;
  options.cache.kv_cache_bytes = 0;
  for (const std::uint32_t count : {2U, kMost}) {
    options.cache.num_blocks = count;
    EXPECT_EQ(plan_kv_layout(model, options)->num_blocks, count);
  }
  for (const std::uint32_t count : {1U, kMost + 1}) {
    options.cache.num_blocks = count;
    const auto refused = plan_kv_layout(model, options);
    ASSERT_FALSE(refused.has_value()) << count;
    EXPECT_EQ(refused.error().to_string(), fmt::format("num_blocks: is {}; use a value from 2 to 16777216", count));
    EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
  }
}

TEST(KvPlan, TakesAsManyBlocksAsTheMemoryHolds) {
  const ModelInfo model = dense_model(3, 2, 8);
  constexpr std::uint64_t kBytes = 3 * 2 * 2 * 16 * 8 * 2;  // layers, keys and values, heads, tokens, elements of 2 bytes
  EngineOptions options;
  for (const auto& [bytes, count] : {std::pair(2 * kBytes, 2U), {3 * kBytes - 1, 2U}, {3 * kBytes, 3U}, {kBytes << 25U, 1U << 24U}}) {
    options.cache.kv_cache_bytes = bytes;
    EXPECT_EQ(plan_kv_layout(model, options)->num_blocks, count) << bytes;
  }
  options.cache.kv_cache_bytes = 2 * kBytes - 1;
  const auto refused = plan_kv_layout(model, options);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().to_string(), fmt::format("kv_cache_bytes: {} bytes hold only 1 blocks of {} bytes; use at least {} bytes",
                                                     2 * kBytes - 1, kBytes, 2 * kBytes));
}

TEST(KvPlan, APageHoldsWhatAnAttentionLayerKeepsOfItsTokens) {
  const auto page_bytes = [](const ModelInfo& model, KvDtype dtype) {
    EngineOptions options;
    options.cache.dtype = dtype;
    const KvLayout layout = plan_kv_layout(model, options).value();
    EXPECT_EQ(layout.dtype, dtype);
    EXPECT_EQ(layout.layers.at(0).head_dim, 32U);
    EXPECT_EQ(layout.layers.at(0).num_kv_heads, model.num_kv_heads);
    return layout.page_bytes.at(0);
  };
  const ModelInfo plain = dense_model(1, 2, 32);
  EXPECT_EQ(page_bytes(plain, KvDtype::bf16), 2U * 2 * 16 * 32 * 2);
  EXPECT_EQ(page_bytes(plain, KvDtype::f32), 2U * 2 * 16 * 32 * 4);
  EXPECT_EQ(page_bytes(plain, KvDtype::int8), 2U * 2 * 16 * (32 + 4)) << "a float scale per row";
  ModelInfo latent = dense_model(1, 1, 32);
  latent.latent_attention = true;
  EXPECT_EQ(page_bytes(latent, KvDtype::bf16), 16U * 32 * 2) << "one vector for keys and values";
}

// Each decoder layer has self-attention and cross-attention. Both groups have two layers here.
TEST(KvPlan, KeepsBlocksForTheOutputOfAnEncoder) {
  ModelInfo model = dense_model(2, 1, 16);
  model.encoder.num_positions = 33;
  EngineOptions options;
  options.cache.num_blocks = 1 + 3 + 4;
  const auto plan = plan_kv(model, options);
  ASSERT_TRUE(plan.has_value()) << plan.error().to_string();
  ASSERT_EQ(plan->layout.groups.size(), 2U);
  EXPECT_EQ(plan->layout.layers.size(), 4U);
  std::map<bool, std::vector<std::uint32_t>> layers;
  for (const KvGroupLayout& group : plan->layout.groups) layers[group.keeps_encoder_output()] = group.layers;
  EXPECT_EQ(layers[false], (std::vector<std::uint32_t>{0, 1}));
  EXPECT_EQ(layers[true], (std::vector<std::uint32_t>{2, 3}));
  EXPECT_EQ(plan->max_model_len, 4 * 16U) << "33 positions take three blocks";
  EXPECT_EQ(num_tokens_in(plan->config, 8), 8 * 16U) << "only self-attention grows with the prompt";
}

TEST(KvPlan, CountsTheTokensThatFitIntoAllGrowingGroups) {
  const auto group_of = [](LayerKvSpec spec) { return KvCacheGroup{.layer_names = {"layer"}, .spec = std::move(spec), .layer_specs = {}}; };
  const auto attention_of = [](std::uint32_t block_size) {
    FullAttentionSpec spec;
    spec.block_size = block_size;
    return spec;
  };
  const auto states_with = [](MambaCacheMode mode) {
    return MambaSpec{.block_size = 8, .shapes = {}, .dtypes = {}, .page_size_padded = {}, .mode = mode};
  };
  KvCacheConfig config;
  EXPECT_EQ(num_tokens_in(config, 10), 0U) << "there are no groups";
  for (const MambaCacheMode mode : {MambaCacheMode::none, MambaCacheMode::align}) {
    config.groups = {group_of(states_with(mode))};
    EXPECT_EQ(num_tokens_in(config, 10), 0U) << "no group grows";
    config.groups = {group_of(attention_of(8)), group_of(states_with(mode)), group_of(CrossAttentionSpec())};
    EXPECT_EQ(num_tokens_in(config, 10), 80U) << "one group grows";
  }
  config.groups = {group_of(attention_of(8)), group_of(states_with(MambaCacheMode::all)), group_of(SlidingWindowSpec())};
  config.groups.back().spec = [&] {
    SlidingWindowSpec spec;
    spec.block_size = 8;
    return spec;
  }();
  EXPECT_EQ(num_tokens_in(config, 11), 3U * 8) << "three groups grow, and two of eleven blocks are left over";
}

}  // namespace
}  // namespace quire
