#include "cli/kv_lines.h"

#include <gtest/gtest.h>

#include "quire/engine.h"

namespace quire {
namespace {

// Gemma 3 1B: 26 layers, of which every sixth attends to everything.
TEST(KvLines, TellWhatATokenCostsInEachGroup) {
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

}  // namespace
}  // namespace quire
