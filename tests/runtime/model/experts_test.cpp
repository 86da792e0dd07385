// Mixtures of experts: who is chosen, beside a naive model, and what a weight that is none spoils. Their logits are in logits_test.cpp,
// their bits in batch_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "base/random.h"
#include "runtime/model/expert_choice.h"
#include "runtime/model/model.h"
#include "runtime/model/rig.h"
#include "runtime/model/tiny_model.h"

namespace quire {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// A sort, and the softmax in double.
std::vector<std::pair<std::uint32_t, double>> naive_choice(const std::vector<float>& scores, bool normalize, std::size_t count) {
  std::vector<std::uint32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::sort(order, [&](std::uint32_t a, std::uint32_t b) { return std::pair(-scores[a], a) < std::pair(-scores[b], b); });
  double sum = 0.0;
  for (std::size_t i = 0; i < (normalize ? count : scores.size()); ++i) sum += std::exp(double{scores[order[i]]} - scores[order[0]]);
  std::vector<std::pair<std::uint32_t, double>> chosen;
  for (std::size_t i = 0; i < count; ++i) chosen.emplace_back(order[i], std::exp(double{scores[order[i]]} - scores[order[0]]) / sum);
  return chosen;
}

TEST(Experts, TheBestAreChosenAsByTheNaiveModel) {
  Random random(5);
  for (int round = 0; round < 3000; ++round) {
    std::vector<float> scores(1 + random.below(70));
    const auto kinds = static_cast<float>(1 + random.below(40));  // few: many are equal
    for (float& score : scores) score = std::floor(static_cast<float>(random.below(1000)) / 1000.0F * kinds) - kinds / 2;
    std::vector<ChosenExpert> chosen(1 + random.below(std::min<std::size_t>(scores.size(), 9)));
    const bool normalize = random.chance(0.5);
    choose_experts(scores, normalize, chosen);
    const auto expected = naive_choice(scores, normalize, chosen.size());
    double sum = 0.0;
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      ASSERT_EQ(chosen[i].expert, expected[i].first) << "round " << round;
      ASSERT_NEAR(chosen[i].weight, expected[i].second, 1e-6) << "round " << round;
      sum += chosen[i].weight;
    }
    if (normalize) ASSERT_NEAR(sum, 1.0, 1e-6);
  }
}

TEST(Experts, AScoreThatIsNoNumberSpoilsAllWeightsAndNoIndex) {
  for (const float bad : {kNaN, std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
    std::vector<ChosenExpert> chosen(2);
    choose_experts(std::vector<float>{1.0F, bad, 0.5F}, true, chosen);
    for (const ChosenExpert& expert : chosen) {
      EXPECT_TRUE(std::isnan(expert.weight));
      EXPECT_LT(expert.expert, 3U);
    }
  }
}

TEST(Experts, ASharedOneGetsTheSigmoidOfItsScore) {
  for (float score = -100.0F; score <= 100.0F; score += 0.37F)
    EXPECT_NEAR(shared_share(score), 1.0 / (1.0 + std::exp(-double{score})), 1e-6) << score;
  EXPECT_TRUE(std::isnan(shared_share(kNaN)));
}

TEST(Experts, InspectTellsWhatATokenUses) {
  const tiny::TempFolder folder;
  const ModelConfig config = tiny::small_mixture("olmoe");
  tiny::write_gguf(folder.file("model.gguf"), config, "Q8_0");
  const auto info = inspect(folder.file("model.gguf"));
  ASSERT_TRUE(info) << info.error().to_string();
  EXPECT_EQ(info->num_experts, 7U);
  EXPECT_EQ(info->experts_per_token, 3U);
  EXPECT_EQ(info->num_parameters - info->num_used_parameters, std::uint64_t{2} * (7 - 3) * 3 * 96 * 256);
}

class SpoiledExperts : public testing::Test {
 protected:
  std::vector<float> logits_with(const std::string& spoiled, std::size_t row) {
    auto tensors = tiny::make_tensors(config_, true, "F32");
    for (tiny::Tensor& tensor : tensors)
      if (tensor.name == spoiled) std::memcpy(tensor.bytes.data() + row * tensor.shape.back() * sizeof(float), &kNaN, sizeof(float));
    const std::string path = folder_.file("model.gguf");
    tiny::write_file(path, tiny::gguf_header(config_).file(tensors));
    tiny::Rig rig(path, {});
    std::vector<BatchSequence> sequences;  // of one token each, so that nobody attends to another's
    std::vector<TokenId> tokens;
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
      rig.give_blocks(Slot{slot}, {BlockId{1 + slot}});
      sequences.push_back({Slot{slot}, 0, 1});
      tokens.push_back(static_cast<TokenId>(slot));
    }
    return rig.run(tokens, sequences);
  }

  static constexpr std::uint32_t kSlots = 40;
  ModelConfig config_ = tiny::small_mixture("qwen2_moe");
  tiny::TempFolder folder_;
};

TEST_F(SpoiledExperts, AnExpertSpoilsThoseWhoGoThroughItAndNobodyElse) {
  const std::vector<float> whole = logits_with("", 0);
  for (const std::string part : {"blk.0.ffn_gate_exps.weight", "blk.1.ffn_up_exps.weight", "blk.0.ffn_down_exps.weight"}) {
    const std::size_t rows = part.ends_with("down_exps.weight") ? config_.hidden_size : config_.expert_size;
    const std::vector<float> spoiled = logits_with(part, 2 * rows);  // of the third expert
    std::uint32_t num_spoiled = 0;
    for (std::size_t row = 0; row < kSlots; ++row) {
      const std::span now(spoiled.data() + row * config_.vocab_size, config_.vocab_size);
      if (std::isnan(now[0])) {
        ++num_spoiled;
        EXPECT_TRUE(std::ranges::all_of(now, [](float value) { return std::isnan(value); }));
      } else {
        EXPECT_EQ(std::memcmp(now.data(), whole.data() + row * config_.vocab_size, now.size_bytes()), 0) << part << ", row " << row;
      }
    }
    EXPECT_GT(num_spoiled, 5U) << part;
    EXPECT_LT(num_spoiled, kSlots - 5U) << part;
  }
}

TEST_F(SpoiledExperts, ARouterOrASharedExpertSpoilsAll) {
  for (const char* part : {"blk.1.ffn_gate_inp.weight", "blk.0.ffn_up_shexp.weight", "blk.0.ffn_gate_inp_shexp.weight"}) {
    const std::vector<float> spoiled = logits_with(part, 0);
    EXPECT_TRUE(std::ranges::all_of(spoiled, [](float value) { return std::isnan(value); })) << part;
  }
}

}  // namespace
}  // namespace quire
