// Tests mixtures of experts: the choice of experts against a naive model, and which rows a NaN weight affects. logits_test.cpp tests their
// logits, batch_test.cpp their bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "base/random.h"
#include "runtime/model/layers/expert_choice.h"
#include "runtime/model/model.h"
#include "runtime/model/rig.h"
#include "runtime/model/tiny_model.h"

namespace quire {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Chooses by sorting, with the softmax in double.
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

TEST(Experts, ChoosesTheBestLikeTheNaiveModel) {
  Random random(5);
  for (int round = 0; round < 3000; ++round) {
    std::vector<float> scores(1 + random.below(70));
    const auto kinds = static_cast<float>(1 + random.below(40));  // few kinds, so many scores are equal
    for (float& score : scores) score = std::floor(static_cast<float>(random.below(1000)) / 1000.0F * kinds) - kinds / 2;
    std::vector<ChosenExpert> chosen(1 + random.below(std::min<std::size_t>(scores.size(), 9)));
    const bool normalize = random.chance(0.5);
    choose_experts(scores, {.normalize = normalize}, chosen);
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

// Transformers' get_topk_indices of DeepSeek V3, and V2's group_limited_greedy, in double.
std::vector<std::uint32_t> naive_grouped_choice(const std::vector<float>& scores, const ExpertRouting& routing, std::size_t count) {
  const bool by_sigmoid = routing.scoring == ExpertScoring::sigmoid;
  std::vector<double> choice(scores.begin(), scores.end());
  for (std::size_t i = 0; i < choice.size(); ++i)
    if (by_sigmoid) choice[i] = 1.0 / (1.0 + std::exp(-choice[i])) + double{routing.choice_bias[i]};
  const std::size_t size = scores.size() / routing.num_groups;
  std::vector<std::pair<double, std::size_t>> groups;
  for (std::size_t group = 0; group < routing.num_groups; ++group) {
    std::vector<double> own(choice.begin() + static_cast<std::ptrdiff_t>(group * size),
                            choice.begin() + static_cast<std::ptrdiff_t>((group + 1) * size));
    std::ranges::sort(own, std::greater{});
    groups.emplace_back(by_sigmoid && size > 1 ? own[0] + own[1] : own[0], group);
  }
  std::ranges::sort(groups, [](const auto& a, const auto& b) { return std::pair(-a.first, a.second) < std::pair(-b.first, b.second); });
  std::vector<bool> may(scores.size(), false);
  for (std::size_t i = 0; i < routing.groups_per_token; ++i)
    for (std::size_t k = 0; k < size; ++k) may[groups[i].second * size + k] = true;
  std::vector<std::uint32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto value = [&](std::uint32_t i) { return may[i] ? choice[i] : by_sigmoid ? 0.0 : -1e30; };
  std::ranges::sort(order, [&](std::uint32_t a, std::uint32_t b) { return std::pair(-value(a), a) < std::pair(-value(b), b); });
  order.resize(count);
  return order;
}

TEST(Experts, ChoosesWithinGroupsLikeTheNaiveModel) {
  Random random(6);
  for (int round = 0; round < 3000; ++round) {
    ExpertRouting routing{.scoring = round % 2 == 0 ? ExpertScoring::sigmoid : ExpertScoring::softmax, .normalize = round % 3 == 0};
    routing.num_groups = static_cast<std::uint32_t>(1 + random.below(round % 50 == 0 ? kMaxExpertGroups : 8));
    routing.groups_per_token = static_cast<std::uint32_t>(1 + random.below(routing.num_groups));
    routing.scale = 0.5F + static_cast<float>(random.below(100)) / 25.0F;
    const std::size_t size = 1 + random.below(9);
    std::vector<float> scores(routing.num_groups * size), bias(scores.size());
    for (float& score : scores) score = static_cast<float>(random.unit() * 8.0 - 4.0);
    for (float& value : bias) value = static_cast<float>(random.unit() - 0.8);
    if (routing.scoring == ExpertScoring::sigmoid) routing.choice_bias = bias;
    std::vector<ChosenExpert> chosen(1 + random.below(std::min<std::size_t>(9, routing.groups_per_token * size)));
    choose_experts(scores, routing, chosen);
    const auto expected = naive_grouped_choice(scores, routing, chosen.size());
    double sum = 0.0;
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      ASSERT_EQ(chosen[i].expert, expected[i]) << "round " << round;
      sum += chosen[i].weight;
      const double share = 1.0 / (1.0 + std::exp(-double{scores[expected[i]]})) * double{routing.scale};
      if (routing.scoring == ExpertScoring::sigmoid && !routing.normalize) ASSERT_NEAR(chosen[i].weight, share, 1e-5);
    }
    if (routing.normalize) ASSERT_NEAR(sum, routing.scale, 1e-5 * routing.scale);
  }
}

// In ERNIE 4.5 the softmax and a bias select the experts, and the softmax alone weighs them.
TEST(Experts, ChoosesByBiasedSharesLikeTheNaiveModel) {
  Random random(8);
  for (int round = 0; round < 1000; ++round) {
    std::vector<float> scores(2 + random.below(30)), bias(scores.size());
    for (float& score : scores) score = static_cast<float>(random.unit() * 12.0 - 6.0);
    for (float& value : bias) value = static_cast<float>(random.unit() - 0.5);
    std::vector<double> shares(scores.begin(), scores.end());
    for (double& share : shares) share = std::exp(share);
    const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
    std::vector<std::uint32_t> order(scores.size());
    std::iota(order.begin(), order.end(), 0U);
    std::ranges::sort(order, std::greater{}, [&](std::uint32_t i) { return shares[i] / sum + double{bias[i]}; });
    std::vector<ChosenExpert> chosen(1 + random.below(std::min<std::size_t>(scores.size(), 6)));
    choose_experts(scores, {.normalize = true, .choice_bias = bias}, chosen);
    double of_chosen = 0.0;
    for (std::size_t i = 0; i < chosen.size(); ++i) of_chosen += shares[order[i]];
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      ASSERT_EQ(chosen[i].expert, order[i]) << "round " << round;
      ASSERT_NEAR(chosen[i].weight, shares[order[i]] / of_chosen, 1e-5) << "round " << round;
    }
  }
}

// Older GGUF files store the K and V projections of latents as one tensor.
TEST(Latents, JoinedAndSeparateTensorsGiveTheSameLogits) {
  const tiny::TempFolder folder;
  const ModelConfig config = tiny::small_deepseek("deepseek_v3");
  const auto parted = tiny::make_tensors(config, true, "F32");
  const std::size_t heads = config.num_heads, rank = config.latent.kv_rank, keys = config.latent.key_dim, values = config.latent.value_dim;
  auto joined = parted;
  for (std::uint32_t layer = 0; layer < config.num_layers; ++layer) {
    const auto of = [&](TensorRole role) {
      const auto* bytes = std::ranges::find(parted, gguf_tensor_name(role, layer), &tiny::Tensor::name)->bytes.data();
      return std::vector<float>(reinterpret_cast<const float*>(bytes),
                                reinterpret_cast<const float*>(bytes) + heads * rank * std::max(keys, values));
    };
    std::erase_if(joined, [&](const tiny::Tensor& t) {
      return t.name == gguf_tensor_name(TensorRole::k_b, layer) || t.name == gguf_tensor_name(TensorRole::v_b, layer);
    });
    const std::vector<float> k = of(TensorRole::k_b), v = of(TensorRole::v_b);
    std::vector<float> both;
    for (std::size_t head = 0; head < heads; ++head) {
      for (std::size_t d = 0; d < keys; ++d)
        for (std::size_t r = 0; r < rank; ++r) both.push_back(k[(head * rank + r) * keys + d]);
      both.insert(both.end(), v.begin() + static_cast<std::ptrdiff_t>(head * values * rank),
                  v.begin() + static_cast<std::ptrdiff_t>((head + 1) * values * rank));
    }
    std::string bytes(reinterpret_cast<const char*>(both.data()), both.size() * sizeof(float));
    joined.push_back({gguf_tensor_name(TensorRole::kv_b, layer), GgmlType::f32, {heads * (keys + values), rank}, std::move(bytes)});
  }
  const auto logits_of = [&](const tiny::GgufHeader& header, const std::vector<tiny::Tensor>& tensors) {
    const std::string path = folder.file("model.gguf");
    tiny::write_file(path, header.file(tensors));
    tiny::Rig rig(path, {});
    rig.give_blocks(Slot{0}, tiny::blocks_for(20, 16, 1));
    return rig.run(std::vector<TokenId>(20, 5), {{Slot{0}, 0, 20}});
  };
  EXPECT_EQ(logits_of(tiny::gguf_header(config, true), joined), logits_of(tiny::gguf_header(config), parted));
}

TEST(Experts, ANonFiniteScoreMakesAllWeightsNaNAndKeepsIndicesValid) {
  for (const float bad : {kNaN, std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
    std::vector<ChosenExpert> chosen(2);
    choose_experts(std::vector<float>{1.0F, bad, 0.5F}, {.normalize = true}, chosen);
    for (const ChosenExpert& expert : chosen) {
      EXPECT_TRUE(std::isnan(expert.weight));
      EXPECT_LT(expert.expert, 3U);
    }
  }
}

TEST(Experts, ASharedExpertGetsTheSigmoidOfItsScore) {
  for (float score = -100.0F; score <= 100.0F; score += 0.37F)
    EXPECT_NEAR(shared_share(score), 1.0 / (1.0 + std::exp(-double{score})), 1e-6) << score;
  EXPECT_TRUE(std::isnan(shared_share(kNaN)));
}

TEST(Experts, InspectReportsActiveParameters) {
  const tiny::TempFolder folder;
  const ModelConfig config = tiny::small_mixture("olmoe");
  tiny::write_gguf(folder.file("model.gguf"), config, "Q8_0");
  const auto info = inspect(folder.file("model.gguf"));
  ASSERT_TRUE(info) << info.error().to_string();
  EXPECT_EQ(info->num_experts, 7U);
  EXPECT_EQ(info->experts_per_token, 3U);
  EXPECT_EQ(info->num_parameters - info->num_active_parameters, std::uint64_t{2} * (7 - 3) * 3 * 96 * 256);
}

class ExpertsWithNaN : public testing::Test {
 protected:
  std::vector<float> logits_with(const std::string& with_nan, std::size_t row) {
    auto tensors = tiny::make_tensors(config_, true, "F32");
    for (tiny::Tensor& tensor : tensors)
      if (tensor.name == with_nan) std::memcpy(tensor.bytes.data() + row * tensor.shape.back() * sizeof(float), &kNaN, sizeof(float));
    const std::string path = folder_.file("model.gguf");
    tiny::write_file(path, tiny::gguf_header(config_).file(tensors));
    tiny::Rig rig(path, {});
    std::vector<BatchSequence> sequences;  // each has one token, so that no row attends to another's
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

TEST_F(ExpertsWithNaN, ANaNExpertAffectsOnlyTokensRoutedToIt) {
  const std::vector<float> whole = logits_with("", 0);
  for (const std::string part : {"blk.0.ffn_gate_exps.weight", "blk.1.ffn_up_exps.weight", "blk.0.ffn_down_exps.weight"}) {
    const std::size_t rows = part.ends_with("down_exps.weight") ? config_.hidden_size : config_.expert_size;
    const std::vector<float> with_nan = logits_with(part, 2 * rows);  // row of the third expert
    std::uint32_t num_nan = 0;
    for (std::size_t row = 0; row < kSlots; ++row) {
      const std::span now(with_nan.data() + row * config_.vocab_size, config_.vocab_size);
      if (std::isnan(now[0])) {
        ++num_nan;
        EXPECT_TRUE(std::ranges::all_of(now, [](float value) { return std::isnan(value); }));
      } else {
        EXPECT_EQ(std::memcmp(now.data(), whole.data() + row * config_.vocab_size, now.size_bytes()), 0) << part << ", row " << row;
      }
    }
    EXPECT_GT(num_nan, 5U) << part;
    EXPECT_LT(num_nan, kSlots - 5U) << part;
  }
}

TEST_F(ExpertsWithNaN, ANaNRouterOrSharedExpertAffectsAllTokens) {
  for (const char* part : {"blk.1.ffn_gate_inp.weight", "blk.0.ffn_up_shexp.weight", "blk.0.ffn_gate_inp_shexp.weight"}) {
    const std::vector<float> with_nan = logits_with(part, 0);
    EXPECT_TRUE(std::ranges::all_of(with_nan, [](float value) { return std::isnan(value); })) << part;
  }
}

}  // namespace
}  // namespace quire
