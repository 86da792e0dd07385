#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "runtime/model/config/model_config.h"
#include "runtime/model/json_config.h"
#include "runtime/model/tiny_model.h"

namespace quire {
namespace {

using tiny::from_json, tiny::json_of;

TEST(ModelConfig, DefaultsMatchTransformers) {
  const auto llama = from_json(json_of("llama"));
  ASSERT_TRUE(llama) << llama.error().to_string();
  EXPECT_EQ(llama->num_kv_heads, 4U);
  EXPECT_EQ(llama->head_dim, 16U);
  EXPECT_FLOAT_EQ(llama->norm_epsilon, 1e-6F);
  EXPECT_EQ(llama->rope_theta, 10000.0);
  EXPECT_FALSE(llama->qkv_bias || llama->output_bias || llama->mlp_bias || llama->tied_embeddings);
  EXPECT_EQ(llama->qk_norm, QkNorm::none);
  const auto qwen2 = from_json(json_of("qwen2"));
  ASSERT_TRUE(qwen2);
  EXPECT_TRUE(qwen2->qkv_bias);
  EXPECT_FALSE(qwen2->output_bias);
  const auto qwen3 = from_json(json_of("qwen3"));
  ASSERT_TRUE(qwen3);
  EXPECT_EQ(qwen3->qk_norm, QkNorm::per_head);
  EXPECT_EQ(qwen3->head_dim, 128U);
  EXPECT_TRUE(from_json(json_of("smollm3"))->tied_embeddings);
  EXPECT_EQ(from_json(json_of("smollm3"))->rope_theta, 2000000.0);
  EXPECT_FLOAT_EQ(from_json(json_of("olmo2"))->norm_epsilon, 1e-5F);
  EXPECT_FLOAT_EQ(from_json(json_of("phi3"))->norm_epsilon, 1e-5F);
  EXPECT_EQ(from_json(json_of("granite"))->attention_scale, 1.0F);
  const auto seed = from_json(json_of("seed_oss"));
  ASSERT_TRUE(seed) << seed.error().to_string();
  EXPECT_TRUE(seed->qkv_bias && !seed->output_bias && !seed->mlp_bias);
  EXPECT_EQ(seed->head_dim, 128U);
  EXPECT_TRUE(from_json(json_of("seed_oss", R"(, "attention_bias": false, "attention_out_bias": true)"))->output_bias);
  const auto ernie = from_json(json_of("ernie4_5"));
  ASSERT_TRUE(ernie) << ernie.error().to_string();
  EXPECT_EQ(ernie->rope_style, RopeStyle::interleaved);
  EXPECT_EQ(ernie->rope_theta, 500000.0);
  EXPECT_TRUE(ernie->tied_embeddings && !ernie->qkv_bias);
  EXPECT_TRUE(from_json(json_of("ernie4_5", R"(, "use_bias": true)"))->mlp_bias);
}

using Windows = std::vector<std::uint32_t>;

Windows windows_of(const std::string& architecture, const std::string& more) {
  const auto config = from_json(json_of(architecture, more));
  EXPECT_TRUE(config) << (config ? "" : config.error().to_string());
  EXPECT_EQ(config->context_length, 8192U) << "a window does not limit the context";
  return config->sliding_windows;
}

TEST(ModelConfig, NewerFamiliesMatchTransformers) {
  const auto glm4 = from_json(json_of("glm4")).value();
  EXPECT_EQ(glm4.norm_epsilon, 1.5625e-7F);
  EXPECT_EQ(glm4.head_dim, 128U);
  EXPECT_EQ(glm4.rotary_dim, 64U);
  EXPECT_EQ(glm4.rope_style, RopeStyle::interleaved);
  EXPECT_TRUE(glm4.qkv_bias && glm4.fused_gate_up && glm4.pre_norms && glm4.post_norms);
  EXPECT_FALSE(glm4.output_bias || from_json(json_of("glm")).value().post_norms);
  const auto exaone4 = from_json(json_of("exaone4", R"(, "sliding_window": 40, "num_hidden_layers": 5)")).value();
  EXPECT_EQ(exaone4.sliding_windows, (std::vector<std::uint32_t>{40, 40, 40, 0, 40}));
  EXPECT_EQ(exaone4.nope_layers, (std::vector<bool>{false, false, false, true, false}));
  EXPECT_FALSE(exaone4.pre_norms);
  EXPECT_TRUE(from_json(json_of("exaone4", R"(, "sliding_window": null)")).value().nope_layers.empty());
  const auto hunyuan =
      from_json(json_of("hunyuan_v1_dense", R"(, "head_dim": 128, "rope_scaling": {"type": "dynamic", "alpha": 1000.0})")).value();
  EXPECT_NEAR(hunyuan.rope_theta, 10000.0 * std::pow(1000.0, 128.0 / 126.0), 1.0);
  EXPECT_TRUE(hunyuan.late_qk_norm);
  EXPECT_EQ(from_json(json_of("llama", R"(, "rope_scaling": {"type": "dynamic", "factor": 2.0})")).error().field,
            "config.json: rope_scaling.rope_type");
  EXPECT_EQ(from_json(json_of("ministral", R"(, "sliding_window": 40)")).value().sliding_windows, (std::vector<std::uint32_t>{40, 40}));
}

TEST(ModelConfig, WindowsMatchTransformers) {
  const std::string layers = R"(, "num_hidden_layers": 4)";
  EXPECT_EQ(windows_of("mistral", layers + R"(, "sliding_window": 4096)"), Windows(4, 4096));
  EXPECT_EQ(windows_of("mistral", layers + R"(, "sliding_window": null)"), Windows());
  EXPECT_EQ(windows_of("phi3", layers + R"(, "sliding_window": 2047)"), Windows(4, 2047));
  EXPECT_EQ(windows_of("qwen2", layers + R"(, "sliding_window": 40, "use_sliding_window": false)"), Windows());
  const std::string used = layers + R"(, "sliding_window": 40, "use_sliding_window": true)";
  EXPECT_EQ(windows_of("qwen2", used), Windows()) << "the first 28 layers have no window";
  EXPECT_EQ(windows_of("qwen3", used + R"(, "max_window_layers": 1)"), (Windows{0, 40, 40, 40}));
  EXPECT_EQ(windows_of("smollm3", used), (Windows{0, 0, 0, 40})) << "the layer without rotation has the window";
  EXPECT_EQ(windows_of("gemma2", layers), (Windows{4096, 0, 4096, 0}));
  EXPECT_EQ(windows_of("olmo3", layers), (Windows{4096, 4096, 4096, 0}));
  EXPECT_EQ(windows_of("gemma3_text", R"(, "num_hidden_layers": 7, "sliding_window": 512)"), (Windows{512, 512, 512, 512, 512, 0, 512}));
  const std::string listed = R"(, "layer_types": ["full_attention", "sliding_attention", "full_attention", "full_attention"])";
  for (const char* architecture : {"qwen2", "smollm3"}) EXPECT_EQ(windows_of(architecture, used + listed), (Windows{0, 40, 0, 0}));
  EXPECT_EQ(windows_of("gemma3_text", layers + R"(, "sliding_window": 3)" + listed), (Windows{0, 3, 0, 0}))
      << "a window may be smaller than a block";
}

TEST(ModelConfig, RefusesEmptyWindowsAndListsOfTheWrongLength) {
  const auto error_of = [](const std::string& architecture, const std::string& more) {
    const auto config = from_json(json_of(architecture, more));
    EXPECT_FALSE(config);
    return config ? Error{} : config.error();
  };
  const Error zero = error_of("mistral", R"(, "sliding_window": 0)");
  EXPECT_EQ(zero.field, "config.json: sliding_window");
  EXPECT_FALSE(zero.remedy.empty());
  EXPECT_EQ(error_of("gemma2", R"(, "sliding_window": -5)").field, "config.json: sliding_window");
  EXPECT_EQ(error_of("gemma3_text", R"(, "layer_types": ["full_attention"])").field, "config.json: layer_types");
  EXPECT_EQ(error_of("gemma2", R"(, "attn_logit_softcapping": -1.0)").field, "attn_logit_softcapping");
  EXPECT_EQ(error_of("gemma2", R"(, "query_pre_attn_scalar": 0)").field, "attention_scale");
  EXPECT_EQ(error_of("gemma3_text", R"(, "rope_local_base_freq": -1.0)").field, "rope_local_base_freq");
  EXPECT_EQ(error_of("gemma3", "").field, "config.json: text_config");
  EXPECT_EQ(error_of("gemma3_text", R"(, "use_bidirectional_attention": true)").field, "config.json: use_bidirectional_attention");
}

TEST(ModelConfig, GemmaHasItsDefaults) {
  const auto gemma2 = from_json(json_of("gemma2"));
  ASSERT_TRUE(gemma2) << gemma2.error().to_string();
  EXPECT_EQ(gemma2->attention_soft_cap, 50.0F);
  EXPECT_EQ(gemma2->logit_soft_cap, 30.0F);
  EXPECT_EQ(gemma2->attention_scale, 1.0F / 16.0F);
  EXPECT_EQ(gemma2->norm_offset, 1.0F);
  EXPECT_EQ(gemma2->head_dim, 256U);
  EXPECT_EQ(gemma2->activation, GateActivation::gelu_tanh);
  EXPECT_TRUE(gemma2->pre_norms && gemma2->post_norms && gemma2->tied_embeddings);
  EXPECT_TRUE(gemma2->window_rope_frequencies().empty());
  const auto gemma3 = from_json(json_of("gemma3_text"));
  ASSERT_TRUE(gemma3) << gemma3.error().to_string();
  EXPECT_EQ(gemma3->attention_soft_cap + gemma3->logit_soft_cap, 0.0F);
  EXPECT_EQ(gemma3->rope_theta, 1e6);
  EXPECT_EQ(gemma3->window_rope_theta, 1e4);
  EXPECT_EQ(gemma3->qk_norm, QkNorm::per_head);
  const auto newer = from_json(json_of("gemma3_text", R"(, "rope_parameters": {
      "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 500000.0}, "sliding_attention": {"rope_theta": 5000.0}})"));
  ASSERT_TRUE(newer) << newer.error().to_string();
  EXPECT_EQ(newer->rope_factor, 8.0);
  EXPECT_EQ(newer->rope_theta, 5e5);
  EXPECT_EQ(newer->window_rope_theta, 5e3);
}

TEST(ModelConfig, ReadsRopeParametersOfTransformers5) {
  const auto config = from_json(json_of("llama", R"(, "rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 5000.0})"));
  ASSERT_TRUE(config);
  EXPECT_EQ(config->rope_theta, 5000.0);
  EXPECT_FLOAT_EQ(config->rope_frequencies()[0], 0.25F);
}

// The values come from transformers' _compute_llama3_parameters for Llama 3.1 8B.
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

TEST(ModelConfig, GgufAndJsonGiveTheSameModel) {
  ModelConfig config = tiny::small_llama();
  config.architecture = "qwen3";
  config.head_dim = config.rotary_dim = 128;
  config.qk_norm = QkNorm::per_head;
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
  EXPECT_EQ(gguf->qk_norm, QkNorm::per_head);
  EXPECT_FALSE(gguf->qkv_bias || gguf->tied_embeddings);
  EXPECT_EQ(gguf->vocab_size, 300U);
  EXPECT_EQ(gguf->rope_factor, 2.0);
  EXPECT_EQ(gguf->rope_style, RopeStyle::half_split);
}

Result<ModelConfig> from_gguf(const tiny::GgufHeader& header, const ModelConfig& config) {
  const std::string bytes = header.file(tiny::make_tensors(config, true, "F32"));
  const auto file = GgufFile::parse(std::as_bytes(std::span(bytes)));
  return file ? config_from_gguf(*file) : std::unexpected(file.error());
}

TEST(ModelConfig, GgufGemmaHasDefaultsForMissingKeys) {
  ModelConfig config = tiny::small_llama();
  const auto of = [&](const std::string& architecture, std::uint32_t num_layers) {
    config.architecture = architecture;
    config.num_layers = num_layers;
    ModelConfig one_layer = config;
    one_layer.num_layers = 1;
    return *from_gguf(tiny::gguf_header(config), one_layer);
  };
  const ModelConfig gemma2 = of("gemma2", 4);
  EXPECT_EQ(gemma2.sliding_windows, (Windows{4096, 0, 4096, 0}));
  EXPECT_EQ(gemma2.attention_soft_cap, 50.0F);
  EXPECT_EQ(gemma2.logit_soft_cap, 30.0F);
  EXPECT_EQ(gemma2.embedding_scale, 16.0F) << "the square root of the hidden size";
  EXPECT_EQ(gemma2.norm_offset, 0.0F) << "the converter has added the offset";
  EXPECT_EQ(gemma2.activation, GateActivation::gelu_tanh);
  EXPECT_EQ(gemma2.attention_scale, 0.125F);
  EXPECT_TRUE(gemma2.post_norms);
  config.num_heads = 16;
  EXPECT_EQ(of("gemma2", 46).attention_scale, 0.25F) << "27 billion parameters: the square root of heads / hidden size";
  EXPECT_EQ(of("gemma3", 62).attention_scale, 0.25F);
  EXPECT_EQ(of("gemma3", 46).attention_scale, 0.125F);
  const ModelConfig gemma3 = of("gemma3", 4);
  EXPECT_TRUE(gemma3.sliding_windows.empty()) << "the file has no window";
  EXPECT_EQ(gemma3.window_rope_theta, 10000.0);
  EXPECT_EQ(gemma3.qk_norm, QkNorm::per_head);
  EXPECT_EQ(gemma3.attention_soft_cap + gemma3.logit_soft_cap, 0.0F);
}

TEST(ModelConfig, GgufLayersWithWindowsAreRead) {
  ModelConfig config = tiny::small_llama();
  config.architecture = "gemma3";
  config.num_layers = 7;
  const auto of = [&](auto... pattern) {
    tiny::GgufHeader header = tiny::gguf_header(config);
    header.add("gemma3.attention.sliding_window", 17U);
    header.add("gemma3.rope.freq_base_swa", 5000.0F);
    (header.add("gemma3.attention.sliding_window_pattern", pattern), ...);
    return from_gguf(header, config);
  };
  EXPECT_EQ(of()->window_rope_theta, 5000.0);
  EXPECT_EQ(of()->sliding_windows, (Windows{17, 17, 17, 17, 17, 0, 17}));
  EXPECT_EQ(of(2U)->sliding_windows, (Windows{17, 0, 17, 0, 17, 0, 17}));
  EXPECT_EQ(of(std::vector{false, true, false, false, false, false, true})->sliding_windows, (Windows{0, 17, 0, 0, 0, 0, 17}));
  for (const auto& wrong : {of(std::vector{true, false}), of("LLG")}) {
    ASSERT_FALSE(wrong.has_value());
    EXPECT_EQ(wrong.error().field, "gemma3.attention.sliding_window_pattern");
  }
}

TEST(ModelConfig, RotationIsInterleavedWhenTheConverterPermutesRows) {
  for (const auto& [architecture, style] : {std::pair("llama", RopeStyle::interleaved),
                                            {"granite", RopeStyle::interleaved},
                                            {"smollm3", RopeStyle::interleaved},
                                            {"qwen2", RopeStyle::half_split},
                                            {"phi3", RopeStyle::half_split},
                                            {"olmo2", RopeStyle::half_split}}) {
    ModelConfig config = tiny::small_llama();
    config.architecture = architecture;
    EXPECT_EQ(from_gguf(tiny::gguf_header(config), config)->rope_style, style) << architecture;
  }
  EXPECT_EQ(from_json(json_of("llama"))->rope_style, RopeStyle::half_split);
}

std::vector<bool> rotating_layers(const ModelConfig& config) {
  std::vector<bool> rotating;
  for (std::uint32_t layer = 0; layer < config.num_layers; ++layer) rotating.push_back(config.layer_rotates(layer));
  return rotating;
}

TEST(ModelConfig, SomeLayersDoNotRotate) {
  const auto of = [](const std::string& more) {
    return rotating_layers(*from_json(json_of("smollm3", R"(, "num_hidden_layers": 5)" + more)));
  };
  EXPECT_EQ(of(""), (std::vector{true, true, true, false, true}));
  EXPECT_EQ(of(R"(, "no_rope_layer_interval": 2)"), (std::vector{true, false, true, false, true}));
  EXPECT_EQ(of(R"(, "no_rope_layers": [0, 1, 1, 0, 0])"), (std::vector{false, true, true, false, false}));
  ModelConfig config = tiny::small_llama();
  config.architecture = "smollm3";
  config.num_layers = 4;
  EXPECT_EQ(rotating_layers(*from_gguf(tiny::gguf_header(config), config)), (std::vector{true, true, true, false}));
  config.architecture = "granite";
  tiny::GgufHeader header = tiny::gguf_header(config);
  EXPECT_EQ(rotating_layers(*from_gguf(header, config)), std::vector(4, true));
  header.add("granite.rope.scaling.finetuned", false);
  EXPECT_EQ(rotating_layers(*from_gguf(header, config)), std::vector(4, false));
}

// The values come from transformers' _compute_longrope_parameters for Phi-3.5 mini: sqrt(1 + ln(131072 / 4096) / ln(4096)).
TEST(ModelConfig, LongropeScalesAttentionByTheContextExtension) {
  const std::string factors = R"("short_factor": [1, 1, 1, 1, 1, 1, 1, 1], "long_factor": [2, 2, 2, 2, 2, 2, 2, 2])";
  const auto scaled = [&](const std::string& type, const std::string& more) {
    return from_json(json_of("phi3", R"(, "max_position_embeddings": 131072, "original_max_position_embeddings": 4096)" + more +
                                         R"(, "rope_scaling": {"type": ")" + type + "\", " + factors + "}"));
  };
  for (const char* type : {"longrope", "su", "yarn"}) {
    const auto config = scaled(type, "");
    ASSERT_TRUE(config) << config.error().to_string();
    EXPECT_EQ(config->rope_scaling, RopeScaling::longrope);
    EXPECT_EQ(config->rope_original_context, 4096.0);
    EXPECT_FLOAT_EQ(config->rope_attention_factor, 1.1902381F);
    EXPECT_EQ(config->rope_long_factors, std::vector(8, 2.0F));
  }
  EXPECT_EQ(from_json(json_of("phi3", R"(, "partial_rotary_factor": 0.75)"))->rotary_dim, 12U);
  EXPECT_EQ(scaled("longrope", R"(, "partial_rotary_factor": 0.75)").error().field, "rope_scaling.short_factor");
}

// The values come from transformers' _compute_yarn_parameters for gpt-oss (which splits pairs by fractions) and for whole pairs.
TEST(ModelConfig, OnlyOlmo3LayersWithoutAWindowAreScaled) {
  const std::string yarn = R"(, "num_hidden_layers": 4, "rope_theta": 5e5,
      "rope_scaling": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 1024})";
  const auto config = from_json(json_of("olmo3", yarn));
  ASSERT_TRUE(config) << config.error().to_string();
  EXPECT_EQ(config->layer(0).rotation, Rotation::window);
  EXPECT_EQ(config->layer(3).rotation, Rotation::model);
  const auto unscaled = from_json(json_of("olmo2", R"(, "rope_theta": 5e5)"));
  ASSERT_TRUE(unscaled);
  EXPECT_EQ(config->window_rope_frequencies(), unscaled->rope_frequencies());
  EXPECT_NE(config->rope_frequencies(), unscaled->rope_frequencies());
  EXPECT_TRUE(!config->pre_norms && config->post_norms && config->qk_norm == QkNorm::whole);
}

TEST(ModelConfig, YarnStretchesSlowlyRotatingPairs) {
  const auto scaled = [](const std::string& more) {
    return from_json(json_of("llama", R"(, "head_dim": 64, "rope_theta": 150000.0, "max_position_embeddings": 131072, "rope_scaling": )"
                                      R"({"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096)" +
                                          more + "}"));
  };
  const auto by_fractions = scaled(R"(, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false)");
  ASSERT_TRUE(by_fractions) << by_fractions.error().to_string();
  EXPECT_FLOAT_EQ(by_fractions->rope_attention_factor, 1.3465736F);
  const std::vector<float> fractions = by_fractions->rope_frequencies(), whole = scaled("")->rope_frequencies();
  for (const auto& [pair, of_fractions, of_whole] : {std::tuple(0, 1.0F, 1.0F),
                                                     {7, 0.07374456524848938F, 0.07374456524848938F},
                                                     {8, 0.05081327259540558F, 0.05081327259540558F},
                                                     {9, 0.031705696135759354F, 0.031620752066373825F},
                                                     {13, 0.0038603590801358223F, 0.0040695546194911F},
                                                     {17, 0.00012931869423482567F, 0.0002279478358104825F},
                                                     {18, 3.830881178146228e-05F, 3.830881178146228e-05F},
                                                     {31, 3.023511396804679e-07F, 3.023511396804679e-07F}}) {
    EXPECT_FLOAT_EQ(fractions[pair], of_fractions) << pair;
    EXPECT_FLOAT_EQ(whole[pair], of_whole) << pair;
  }
  EXPECT_FLOAT_EQ(scaled(R"(, "mscale": 0.707, "mscale_all_dim": 1.0)")->rope_attention_factor, 0.9245892963555604F);
  EXPECT_FLOAT_EQ(scaled(R"(, "attention_factor": 2.5)")->rope_attention_factor, 2.5F);
  EXPECT_EQ(scaled(R"(, "beta_slow": -1.0)").error().field, "rope_scaling.beta_slow");
  EXPECT_EQ(scaled(R"(, "beta_fast": 0.5)").error().field, "rope_scaling");
  EXPECT_EQ(scaled(R"(, "factor": -2.0)").error().field, "rope_scaling.factor");
}

TEST(ModelConfig, GptOssMatchesTransformers) {
  const std::string experts = R"(, "num_local_experts": 8, "num_experts_per_tok": 2, "num_hidden_layers": 3)";
  const std::string rope = R"(, "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096})";
  const auto config = from_json(json_of("gpt_oss", experts + rope + R"(, "sliding_window": 16)"));
  ASSERT_TRUE(config) << config.error().to_string();
  EXPECT_EQ(config->sliding_windows, (std::vector{16U, 0U, 16U})) << "layers alternate";
  EXPECT_TRUE(config->qkv_bias && config->output_bias && config->expert_bias && config->attention_sinks && config->normalize_experts);
  EXPECT_EQ(config->activation, GateActivation::swiglu_limited);
  EXPECT_EQ(config->swiglu_limit, 7.0F);
  EXPECT_EQ(config->expert_size, 96U);
  EXPECT_EQ(from_json(json_of("gpt_oss", experts)).error().field, "config.json: rope_scaling");
  EXPECT_EQ(from_json(json_of("gpt_oss", experts + rope + R"(, "swiglu_limit": 0)")).error().field, "swiglu_limit");
}

using Memories = std::vector<LayerMemory>;
constexpr auto kAttends = LayerMemory::attention, kKeepsState = LayerMemory::state;

TEST(ModelConfig, StateLayersMatchTransformers) {
  const std::string layers = R"(, "num_hidden_layers": 3)";
  const auto lfm2 = from_json(json_of("lfm2", layers + R"(, "layer_types": ["conv", "full_attention", "conv"], "conv_bias": true)"));
  ASSERT_TRUE(lfm2) << lfm2.error().to_string();
  EXPECT_EQ(lfm2->layer_memories, (Memories{kKeepsState, kAttends, kKeepsState}));
  EXPECT_EQ(lfm2->state_shapes(), (std::vector<std::vector<std::uint64_t>>{{2, 64}}));
  EXPECT_TRUE(lfm2->tied_embeddings && lfm2->state.conv_bias && lfm2->state.input_bias && lfm2->state.output_bias);
  EXPECT_EQ(lfm2->rope_theta, 1000000.0);
  EXPECT_EQ(lfm2->intermediate_size, 256U) << "two thirds of 96, rounded up to 256";
  const auto older = from_json(json_of("lfm2", layers + R"(, "full_attn_idxs": [0, 2], "block_ff_dim": 900, "theta": 5000)"));
  ASSERT_TRUE(older) << older.error().to_string();
  EXPECT_EQ(older->layer_memories, (Memories{kAttends, kKeepsState, kAttends}));
  EXPECT_EQ(older->intermediate_size, 768U);
  EXPECT_EQ(older->rope_theta, 5000.0);
  const auto attends = from_json(json_of("lfm2", layers + R"(, "full_attn_idxs": [0, 1, 2])"));
  ASSERT_TRUE(attends) << attends.error().to_string();
  EXPECT_TRUE(attends->layer_memories.empty() && attends->state_shapes().empty()) << "an attention-only model has no states";
}

const std::string kMamba = R"(, "num_hidden_layers": 3, "mamba_n_heads": 8, "mamba_d_head": "auto", "mamba_d_state": 24)";

TEST(ModelConfig, SelectiveScansMatchTransformers) {
  const std::string turns = R"(, "layer_types": ["mamba", "attention", "mamba"])";
  const auto granite = from_json(json_of("granitemoehybrid", kMamba + turns + R"(, "num_local_experts": 0)"));
  ASSERT_TRUE(granite) << granite.error().to_string();
  EXPECT_EQ(granite->state_shapes(), (std::vector<std::vector<std::uint64_t>>{{3, 128 + 2 * 24}, {8, 16, 24}}));
  EXPECT_EQ(granite->layer_memories, (Memories{kKeepsState, kAttends, kKeepsState}));
  EXPECT_EQ(granite->intermediate_size, 1024U) << "the size of the shared expert";
  EXPECT_EQ(granite->layer(1).rotation, Rotation::none);
  const auto experts = from_json(json_of("granitemoehybrid", kMamba + turns + R"(, "position_embedding_type": "rope")"));
  ASSERT_TRUE(experts) << experts.error().to_string();
  EXPECT_EQ(experts->num_experts, 8U);
  EXPECT_EQ(experts->expert_size, 96U);
  EXPECT_EQ(experts->layer(1).rotation, Rotation::model);
  const auto bamba = from_json(json_of("bamba", kMamba + R"(, "attn_layer_indices": [2])"));
  ASSERT_TRUE(bamba) << bamba.error().to_string();
  EXPECT_EQ(bamba->layer_memories, (Memories{kKeepsState, kKeepsState, kAttends}));
  EXPECT_EQ(bamba->rotary_dim, 8U);
  const auto falcon =
      from_json(json_of("falcon_h1", kMamba + R"(, "mamba_d_ssm": 256, "key_multiplier": 0.5, "attention_in_multiplier": 3)"));
  ASSERT_TRUE(falcon) << falcon.error().to_string();
  EXPECT_EQ(falcon->layer_memories, Memories(3, LayerMemory::both));
  EXPECT_EQ(falcon->state.head_dim, 32U);
  EXPECT_FLOAT_EQ(falcon->attention_scale, 0.25F * 9.0F * 0.5F);
  EXPECT_FLOAT_EQ(falcon->attention_output_scale, 3.0F);
}

const std::string kNextExperts =
    R"(, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32)";

TEST(ModelConfig, GatedDeltaRulesMatchTransformers) {
  const auto next = from_json(json_of("qwen3_next", kNextExperts + R"(, "num_hidden_layers": 5, "head_dim": 64)"));
  ASSERT_TRUE(next) << next.error().to_string();
  EXPECT_EQ(next->layer_memories, (Memories{kKeepsState, kKeepsState, kKeepsState, kAttends, kKeepsState}));
  EXPECT_EQ(next->state_shapes(), (std::vector<std::vector<std::uint64_t>>{{3, 2 * 16 * 128 + 32 * 128}, {32, 128, 128}}));
  EXPECT_EQ(next->rotary_dim, 16U);
  EXPECT_EQ(next->norm_offset, 1.0F);
  EXPECT_TRUE(next->gated_attention && next->normalize_experts && next->has_shared_expert_gate);
}

TEST(ModelConfig, RefusesInvalidStates) {
  for (const auto& [architecture, more, named] : std::vector<std::array<std::string, 3>>{
           {"lfm2", R"(, "layer_types": ["conv", "conv"])", "layer_types"},
           {"lfm2", R"(, "layer_types": ["conv"])", "layer_types"},
           {"lfm2", R"(, "layer_types": ["conv", "sliding_attention"])", "layer_types"},
           {"lfm2", R"(, "full_attn_idxs": [2])", "full_attn_idxs"},
           {"lfm2", R"(, "full_attn_idxs": [0], "conv_L_cache": 9)", "conv_kernel"},
           {"lfm2", R"(, "full_attn_idxs": [0], "conv_L_cache": 1)", "conv_kernel"},
           {"lfm2", R"(, "full_attn_idxs": [0], "block_multiple_of": 0)", "block_ffn_dim_multiplier"},
           {"lfm2", R"(, "full_attn_idxs": [0], "block_ffn_dim_multiplier": 1e30)", "block_ffn_dim_multiplier"},
           {"bamba", R"(, "mamba_n_heads": 8)", "layer_types"},
           {"bamba", R"(, "attn_layer_indices": [0], "mamba_n_heads": 7)", "mamba_n_heads"},
           {"bamba", R"(, "attn_layer_indices": [0], "mamba_n_heads": 0)", "mamba_n_heads"},
           {"bamba", R"(, "attn_layer_indices": [0], "mamba_n_heads": 8, "mamba_d_head": 17)", "mamba_n_heads"},
           {"bamba", R"(, "attn_layer_indices": [0], "mamba_n_heads": 16)", "mamba_d_head"},
           {"bamba", R"(, "attn_layer_indices": [0], "mamba_n_heads": 8, "mamba_n_groups": 3)", "mamba_n_groups"},
           {"bamba", R"(, "attn_layer_indices": [0], "mamba_n_heads": 8, "mamba_n_groups": 0)", "mamba_n_groups"},
           {"bamba", R"(, "attn_layer_indices": [0], "mamba_n_heads": 8, "mamba_d_state": 4294967295)", "mamba_d_state"},
           {"bamba", R"(, "attn_layer_indices": [0], "mamba_n_heads": 8, "mamba_expand": -1)", "mamba_d_head"},
           {"qwen3_next", kNextExperts + R"(, "full_attention_interval": 2, "linear_num_key_heads": 5)", "linear_num_key_heads"},
           {"qwen3_next", kNextExperts + R"(, "full_attention_interval": 2, "linear_key_head_dim": 6)", "linear_key_head_dim"},
           {"qwen3_next", kNextExperts + R"(, "full_attention_interval": 2, "linear_value_head_dim": 24)", "linear_value_head_dim"},
           {"qwen3_next", kNextExperts + R"(, "full_attention_interval": 9)", "layer_types"},
           {"qwen3_next", kNextExperts + R"(, "layer_types": ["linear_attention", "mamba"])", "layer_types"},
           {"falcon_h1", R"(, "mamba_n_heads": 8, "mamba_d_ssm": 128, "ssm_multipliers": [1, 2])", "ssm_multipliers"},
           {"falcon_h1", R"(, "mamba_n_heads": 8, "mamba_d_ssm": 128, "attention_bias": true)", "attention_bias"},
       }) {
    const auto config = from_json(json_of(architecture, more));
    ASSERT_FALSE(config) << architecture << more;
    EXPECT_NE(config.error().field.find(named), std::string::npos) << more << ": " << config.error().to_string();
  }
}

}  // namespace
}  // namespace quire
