#include "cli/kv_lines.h"

#include <gtest/gtest.h>

#include "quire/engine.h"

namespace quire {
namespace {

// Gemma 3 1B has 26 layers; every sixth layer has full attention.
TEST(KvLines, ShowBytesPerTokenOfEachGroup) {
  ModelInfo model;
  model.num_layers = 26;
  model.num_kv_heads = 1;
  model.head_dim = 256;
  model.context_length = 32768;
  for (std::uint32_t layer = 0; layer < model.num_layers; ++layer) model.sliding_windows.push_back(layer % 6 == 5 ? 0 : 512);
  const Result<KvLayout> layout = plan_kv_layout(model, {});
  ASSERT_TRUE(layout) << layout.error().to_string();
  EXPECT_EQ(describe_kv_cost(*layout), "26.00 KiB per token, 64.00 KiB per block of 16 tokens (bf16)");
  const std::vector<std::string> groups = describe_kv_groups(*layout);
  ASSERT_EQ(groups.size(), 7U);
  EXPECT_EQ(groups[0], "group 0: 4 layers with a window of 512 tokens: 4.00 KiB per token, 64.00 KiB per block");
  EXPECT_EQ(groups[4], "group 4: 3 layers with a window of 512 tokens: 3.00 KiB per token, 48.00 KiB per block");
  EXPECT_EQ(groups[6], "group 6: 4 layers with full attention: 4.00 KiB per token, 64.00 KiB per block");
}

// The states of LFM2 1.2B fit into a block; the states of the second model do not.
TEST(KvLines, ShowBytesOfAState) {
  ModelInfo model;
  model.num_layers = 16;
  model.num_kv_heads = 8;
  model.head_dim = 64;
  model.context_length = 32768;
  model.state_kind = "short_conv";
  model.state_shapes = {{2, 2048}};
  for (std::uint32_t layer = 0; layer < model.num_layers; ++layer)
    model.layer_memories.push_back(layer % 3 == 2 && layer < 15 ? LayerMemory::attention : LayerMemory::state);
  const Result<KvLayout> lfm2 = plan_kv_layout(model, {});
  ASSERT_TRUE(lfm2) << lfm2.error().to_string();
  EXPECT_EQ(describe_kv_cost(*lfm2), "10.00 KiB per token, 160.00 KiB per block of 16 tokens (bf16)");
  const std::vector<std::string> lines = describe_kv_groups(*lfm2);
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[0],
            "group 0: 4 layers with states (short_conv): 64.00 KiB per request, cached at the end of every block, 128.00 KiB per block");
  EXPECT_EQ(lines[3], "group 3: 5 layers with full attention: 10.00 KiB per token, 160.00 KiB per block");
  model.state_kind = "mamba2";
  model.state_shapes = {{3, 3328}, {48, 64, 128}};
  const Result<KvLayout> mamba = plan_kv_layout(model, {});
  ASSERT_TRUE(mamba) << mamba.error().to_string();
  EXPECT_EQ(mamba->groups[3].block_size, 800U) << "the block must fit a state and be a multiple of 16 tokens";
  EXPECT_NE(describe_kv_groups(*mamba)[0].find("cached at block ends while needed"), std::string::npos);
}

}  // namespace
}  // namespace quire
