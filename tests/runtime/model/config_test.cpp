#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <string>

#include "runtime/model/model_config.h"
#include "runtime/model/tiny_model.h"

namespace quire {
namespace {

Result<ModelConfig> from_json(const std::string& text) {
  const auto json = boost::json::parse(text);
  return config_from_hf(JsonRef(json, "config.json"));
}

std::string json_of(const std::string& model_type, const std::string& more = "") {
  return R"({"model_type": ")" + model_type + R"(", "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96, "vocab_size": 100,
    "num_attention_heads": 4, "max_position_embeddings": 8192)" +
         more + "}";
}

TEST(ModelConfig, DefaultsAreThoseOfTransformers) {
  const auto llama = from_json(json_of("llama"));
  ASSERT_TRUE(llama) << llama.error().to_string();
  EXPECT_EQ(llama->num_kv_heads, 4U);
  EXPECT_EQ(llama->head_dim, 16U);
  EXPECT_FLOAT_EQ(llama->norm_epsilon, 1e-6F);
  EXPECT_EQ(llama->rope_theta, 10000.0);
  EXPECT_FALSE(llama->qkv_bias || llama->output_bias || llama->mlp_bias || llama->qk_norm || llama->tied_embeddings);
  const auto qwen2 = from_json(json_of("qwen2"));
  ASSERT_TRUE(qwen2);
  EXPECT_TRUE(qwen2->qkv_bias);
  EXPECT_FALSE(qwen2->output_bias);
  const auto qwen3 = from_json(json_of("qwen3"));
  ASSERT_TRUE(qwen3);
  EXPECT_TRUE(qwen3->qk_norm);
  EXPECT_EQ(qwen3->head_dim, 128U);
}

TEST(ModelConfig, AWindowEndsTheContext) {
  EXPECT_EQ(from_json(json_of("mistral", R"(, "sliding_window": 4096)"))->context_length, 4096U);
  EXPECT_EQ(from_json(json_of("mistral", R"(, "sliding_window": null)"))->context_length, 8192U);
  EXPECT_EQ(from_json(json_of("qwen2", R"(, "sliding_window": 4096, "use_sliding_window": false)"))->context_length, 8192U);
  EXPECT_EQ(from_json(json_of("qwen2", R"(, "sliding_window": 4096, "use_sliding_window": true)"))->context_length, 4096U);
}

TEST(ModelConfig, RopeParametersOfTransformers5AreRead) {
  const auto config = from_json(json_of("llama", R"(, "rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 5000.0})"));
  ASSERT_TRUE(config);
  EXPECT_EQ(config->rope_theta, 5000.0);
  EXPECT_FLOAT_EQ(config->rope_frequencies()[0], 0.25F);
}

// Values of transformers' _compute_llama3_parameters for Llama 3.1 8B.
TEST(ModelConfig, Llama3ScalingStretchesLongWavelengths) {
  ModelConfig config;
  config.rope_theta = 500000.0;
  config.rotary_dim = 128;
  config.rope_scaling = RopeScaling::llama3;
  config.rope_factor = 8.0;
  config.rope_original_context = 8192.0;
  const auto scaled = config.rope_frequencies();
  config.rope_scaling = RopeScaling::none;
  const auto plain = config.rope_frequencies();
  EXPECT_EQ(scaled[0], plain[0]);
  EXPECT_FLOAT_EQ(scaled[28], plain[28]);
  EXPECT_NEAR(scaled[31], 0.00085675146F, 1e-9);
  EXPECT_FLOAT_EQ(scaled[63], plain[63] / 8.0F);
}

TEST(ModelConfig, GgufAndJsonTellTheSame) {
  ModelConfig config = tiny::small_llama();
  config.architecture = "qwen3";
  config.head_dim = 128;
  config.qk_norm = true;
  config.rope_scaling = RopeScaling::linear;
  config.rope_factor = 2.0;
  const std::string bytes = tiny::gguf_header(config).file(tiny::make_tensors(config, true, "Q8_0"));
  const auto file = GgufFile::parse(std::as_bytes(std::span(bytes)));
  ASSERT_TRUE(file) << file.error().to_string();
  const auto gguf = config_from_gguf(*file);
  ASSERT_TRUE(gguf) << gguf.error().to_string();
  EXPECT_EQ(gguf->head_dim, 128U);
  EXPECT_EQ(gguf->rotary_dim, 128U);
  EXPECT_EQ(gguf->q_size(), 512U);
  EXPECT_TRUE(gguf->qk_norm);
  EXPECT_FALSE(gguf->qkv_bias || gguf->tied_embeddings);
  EXPECT_EQ(gguf->vocab_size, 300U);
  EXPECT_EQ(gguf->rope_factor, 2.0);
  EXPECT_EQ(gguf->rope_style, RopeStyle::half_split);
}

TEST(ModelConfig, OnlyGgufLlamasAreInterleaved) {
  const std::string bytes = tiny::gguf_header(tiny::small_llama()).file(tiny::make_tensors(tiny::small_llama(), true, "F32"));
  const auto file = GgufFile::parse(std::as_bytes(std::span(bytes)));
  ASSERT_TRUE(file);
  EXPECT_EQ(config_from_gguf(*file)->rope_style, RopeStyle::interleaved);
  EXPECT_EQ(from_json(json_of("llama"))->rope_style, RopeStyle::half_split);
}

}  // namespace
}  // namespace quire
