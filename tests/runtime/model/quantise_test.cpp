// Tests models whose float weights are quantised during the load (WeightsOptions::quantise).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "runtime/model/rig.h"
#include "runtime/model/tiny_model.h"

namespace quire {
namespace {

constexpr std::uint32_t kTokens = 40;

class QuantisedAtLoad : public testing::Test {
 protected:
  void write(const ModelConfig& config, std::string_view type) {
    tiny::write_gguf(path_, config, type);
    Random random(3);
    tokens_.resize(kTokens);
    for (TokenId& token : tokens_) token = static_cast<TokenId>(random.below(300));
  }
  std::vector<float> logits(WeightQuantisation quantise, const std::string& cache = {}) {
    tiny::Rig rig(path_, {.weights = {.quantise = quantise, .cache_folder = cache}});
    bytes_ = rig.model().info().weight_bytes;
    rig.give_blocks(Slot{0}, tiny::blocks_for(kTokens, 16, 1));
    return rig.run(tokens_, {{Slot{0}, 0, kTokens}});
  }
  // Returns the root mean square over the deviation of the exact logits. Single rows of an MoE may be routed to other experts.
  static double difference(const std::vector<float>& exact, const std::vector<float>& other) {
    double square = 0.0, sum = 0.0, off = 0.0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
      const auto value = static_cast<double>(exact[i]);
      sum += value;
      square += value * value;
      off += (value - static_cast<double>(other[i])) * (value - static_cast<double>(other[i]));
    }
    const auto count = static_cast<double>(exact.size());
    return std::sqrt(off / (square - sum / count * sum));
  }
  static bool same(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }

  tiny::TempFolder folder_;
  std::string path_ = folder_.file("model.gguf");
  std::vector<TokenId> tokens_;
  std::uint64_t bytes_ = 0;  // weight bytes of the last loaded model
};

TEST_F(QuantisedAtLoad, NeedsLessMemoryAndStaysClose) {
  for (const ModelConfig& config :
       {tiny::small_llama(), tiny::small_mixture("qwen2_moe"), tiny::small_deepseek("deepseek_v2"), tiny::small_lfm2()}) {
    for (const std::string_view type : {"F32", "BF16"}) {
      SCOPED_TRACE(config.architecture + " " + std::string(type));
      write(config, type);
      const std::vector<float> exact = logits(WeightQuantisation::none);
      const std::uint64_t before = bytes_;
      const double eight_bits = difference(exact, logits(WeightQuantisation::q8_0));
      EXPECT_LT(eight_bits, 0.06);
      EXPECT_LT(bytes_, before);
      const std::uint64_t eight = bytes_;
      const double four_bits = difference(exact, logits(WeightQuantisation::q4_k));
      EXPECT_LT(four_bits, 0.5);
      EXPECT_GT(four_bits, eight_bits);
      EXPECT_LT(bytes_, eight);
    }
  }
}

TEST_F(QuantisedAtLoad, LeavesQuantisedWeightsUnchanged) {
  write(tiny::small_llama(), "Q4_1");
  EXPECT_TRUE(same(logits(WeightQuantisation::none), logits(WeightQuantisation::q4_k)));
}

TEST_F(QuantisedAtLoad, CachesASeparateFileForEachQuantisation) {
  write(tiny::small_llama(), "F32");
  const std::string cache = folder_.file("cache");
  for (const WeightQuantisation quantise : {WeightQuantisation::none, WeightQuantisation::q8_0, WeightQuantisation::q4_k}) {
    const std::vector<float> expected = logits(quantise);
    for (int start = 0; start < 2; ++start) EXPECT_TRUE(same(logits(quantise, cache), expected)) << static_cast<int>(quantise);
  }
}

TEST_F(QuantisedAtLoad, ReportsTheTensorOfANaNWeight) {
  ModelConfig config = tiny::small_llama();
  auto tensors = tiny::make_tensors(config, true, "F32");
  const auto changed = std::ranges::find(tensors, std::string("blk.1.ffn_up.weight"), &tiny::Tensor::name);
  ASSERT_NE(changed, tensors.end());
  const float nan = NAN;
  std::memcpy(changed->bytes.data() + 400, &nan, sizeof nan);
  tiny::write_file(path_, tiny::gguf_header(config).file(tensors));
  ThreadPool pool(2);
  const auto model = load_model(path_, {.max_num_batched_tokens = 8,
                                        .max_num_seqs = 1,
                                        .max_model_len = 64,
                                        .pool = &pool,
                                        .weights = {.quantise = WeightQuantisation::q8_0, .cache_folder = {}}});
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().field, "blk.1.ffn_up.weight");
  EXPECT_EQ(model.error().code, ErrorCode::corrupt);
}

// An activation mode that no weight of the model supports is a user error.
TEST(Activations, Bf16RequiresBf16Weights) {
  const tiny::TempFolder folder;
  ThreadPool pool(1);
  for (const auto& [type, is_loaded] : {std::pair("BF16", true), {"Q8_0", false}, {"F32", false}}) {
    const std::string path = folder.file(std::string(type) + ".gguf");
    tiny::write_gguf(path, tiny::small_llama(), type);
    const auto model = load_model(path, {.activations = ActivationMode::bf16, .pool = &pool});
    ASSERT_EQ(model.has_value(), is_loaded) << type;
    if (is_loaded) continue;
    EXPECT_EQ(model.error().code, ErrorCode::unsupported);
    EXPECT_EQ(model.error().field, "activations");
    EXPECT_NE(model.error().to_string().find("int16"), std::string::npos);
  }
}

}  // namespace
}  // namespace quire
