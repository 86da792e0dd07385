// Tests where a pass reads and writes states: after the last token of each block of the request, and after the last row. batch_test.cpp and
// the engine's invisible_test.cpp test the bits of rows that depend on a state.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "runtime/model/rig.h"
#include "runtime/model/tiny_model.h"

namespace quire {
namespace {

constexpr std::uint32_t kBlockSize = 16;
constexpr std::uint32_t kStateLayer = 2;

class StatesInPages : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::string architecture = GetParam();
    if (architecture == "lfm2")
      config_ = tiny::small_lfm2();
    else
      config_ = tiny::small_mamba(architecture);
    tiny::write_gguf(path(), config_, "F32");
    for (TokenId i = 0; i < 90; ++i) prompt_.push_back(i * 7 % 300);
  }
  [[nodiscard]] std::string path() const { return folder_.file("model.gguf"); }
  // Returns the group that keeps states, and a layer of that group.
  static std::uint32_t group_of(tiny::Rig& rig) { return rig.cache().layout().groups[0].keeps_states() ? 0 : 1; }
  [[nodiscard]] std::uint32_t kept_layer() const {
    return config_.layer_memories[kStateLayer] == LayerMemory::both ? config_.num_layers + kStateLayer : kStateLayer;
  }
  static std::span<std::byte> page_of(tiny::Rig& rig, std::uint32_t layer, BlockId block) {
    const KvLayerLayout& kept = rig.cache().layout().layers[layer];
    return rig.cache().page(kept.tensor, block).first(kept.state_bytes);
  }
  // Gives the attention group consecutive blocks, and the state group these blocks.
  static void give(tiny::Rig& rig, Slot slot, std::uint32_t first, const std::vector<BlockId>& states) {
    const std::uint32_t group = group_of(rig);
    const auto blocks = tiny::blocks_for(90, kBlockSize, first);
    rig.tables().apply({.slot = slot, .group = 1 - group, .id = {}, .update = TableUpdate::replace_all, .index = 0, .blocks = blocks});
    rig.tables().apply({.slot = slot, .group = group, .id = {}, .update = TableUpdate::replace_all, .index = 0, .blocks = states});
    rig.tables().commit(256);
  }
  tiny::TempFolder folder_;
  ModelConfig config_;
  std::vector<TokenId> prompt_;
};

// Modes of the core assign a state block to every block, to some, or one to all.
TEST_P(StatesInPages, AreSavedInTheBlocksThatTheRequestHas) {
  tiny::Rig all(path(), {});
  std::vector<BlockId> every;
  for (std::uint32_t i = 0; i < 6; ++i) every.push_back(BlockId{70 + i});
  give(all, Slot{0}, 1, every);
  const std::vector<float> expected = all.run(prompt_, {{Slot{0}, 0, 90}});
  tiny::Rig some(path(), {});
  give(some, Slot{0}, 1, {kNullBlock, BlockId{80}, kNullBlock, kNullBlock, BlockId{81}, BlockId{82}});
  std::vector<float> logits = some.run(std::span(prompt_).first(80), {{Slot{0}, 0, 80}});
  const std::vector<float> rest = some.run(std::span(prompt_).subspan(80), {{Slot{0}, 80, 10}});
  logits.insert(logits.end(), rest.begin(), rest.end());
  EXPECT_EQ(std::memcmp(logits.data(), expected.data(), expected.size() * sizeof(float)), 0);
  for (const auto& [here, there] : {std::pair(80U, 71U), {81U, 74U}, {82U, 75U}})
    EXPECT_TRUE(std::ranges::equal(page_of(some, kept_layer(), BlockId{here}), page_of(all, kept_layer(), BlockId{there}))) << here;
  EXPECT_TRUE(std::ranges::all_of(page_of(some, kept_layer(), kNullBlock), [](std::byte b) { return b == std::byte{0}; }));
}

// Another request continues from the state after the second block and must not change it.
TEST_P(StatesInPages, ARequestContinuesFromAnotherRequestsState) {
  tiny::Rig rig(path(), {});
  give(rig, Slot{0}, 1, {BlockId{70}, BlockId{71}, BlockId{72}, BlockId{73}, BlockId{74}, BlockId{75}});
  const std::vector<float> expected = rig.run(prompt_, {{Slot{0}, 0, 90}});
  const std::span<std::byte> page = page_of(rig, kept_layer(), BlockId{71});
  const std::vector<std::byte> before(page.begin(), page.end());
  give(rig, Slot{1}, 1, {kNullBlock, BlockId{71}, BlockId{80}, BlockId{81}, BlockId{82}, BlockId{83}});
  const std::vector<float> logits = rig.run(std::span(prompt_).subspan(32), {{Slot{1}, 32, 58}});
  EXPECT_EQ(std::memcmp(logits.data(), expected.data() + 32 * rig.vocab(), logits.size() * sizeof(float)), 0);
  EXPECT_TRUE(std::ranges::equal(page, before));
}

// A page may hold anything when a request begins. NaN in a state must reach only requests that continue from it.
TEST_P(StatesInPages, ANaNStateAffectsOnlyTheRequestThatContinuesFromIt) {
  constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
  const auto run = [&](bool sets_nan) {
    tiny::Rig rig(path(), {});
    for (const std::uint32_t block : {70U, 71U, 72U})
      for (std::byte& byte : page_of(rig, kept_layer(), BlockId{block})) byte = std::byte{0xFF};
    for (const std::uint32_t slot : {0U, 1U}) give(rig, Slot{slot}, 1 + 6 * slot, {BlockId{70 + slot}});
    rig.run(std::span(prompt_).first(20), {{Slot{0}, 0, 10}, {Slot{1}, 0, 10}});
    const std::span<std::byte> page = page_of(rig, kept_layer(), BlockId{70});
    if (sets_nan) std::memcpy(page.data() + page.size() - sizeof(kNone), &kNone, sizeof(kNone));
    return rig.run(std::span(prompt_).first(2), {{Slot{0}, 10, 1}, {Slot{1}, 10, 1}});
  };
  const std::vector<float> clean = run(false), changed = run(true);
  const std::size_t vocab = clean.size() / 2;
  EXPECT_TRUE(std::ranges::none_of(clean, [](float value) { return std::isnan(value); }));
  EXPECT_TRUE(std::ranges::all_of(std::span(changed).first(vocab), [](float value) { return std::isnan(value); }));
  EXPECT_EQ(std::memcmp(clean.data() + vocab, changed.data() + vocab, vocab * sizeof(float)), 0);
}

INSTANTIATE_TEST_SUITE_P(Kinds, StatesInPages, testing::Values("lfm2", "granitemoehybrid", "falcon_h1"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace quire
