// Tests how config.json describes experts and their routers.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "runtime/model/config/model_config.h"
#include "runtime/model/json_config.h"

namespace quire {
namespace {

using tiny::from_json, tiny::json_of;

TEST(ExpertConfig, DeepSeekMatchesTransformers) {
  const std::string latents =
      R"(, "kv_lora_rank": 32, "q_lora_rank": null, "qk_nope_head_dim": 24, "qk_rope_head_dim": 16, "v_head_dim": 8)";
  const std::string experts = R"(, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_shared_experts": 2,
                                  "num_hidden_layers": 3, "first_k_dense_replace": 1)";
  const auto v2 = from_json(json_of("deepseek_v2", latents + experts));
  ASSERT_TRUE(v2) << v2.error().to_string();
  EXPECT_EQ(v2->head_dim, 48U);
  EXPECT_EQ(v2->num_kv_heads, 1U);
  EXPECT_EQ(v2->attended_size(), v2->num_heads * 8);
  EXPECT_EQ(v2->dense_layers, (std::vector{true, false, false}));
  EXPECT_EQ(v2->shared_expert_size, 64U);
  EXPECT_EQ(v2->rope_style, RopeStyle::interleaved);
  EXPECT_FLOAT_EQ(v2->attention_scale, 1.0F / std::sqrt(40.0F));
  EXPECT_FALSE(v2->has_shared_expert_gate || v2->expert_choice_bias || v2->num_expert_groups != 0);
  const std::string yarn = R"(, "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "mscale": 1.0,
                               "mscale_all_dim": 1.0})";
  for (const char* type : {"deepseek_v3", "kimi_k2"}) {
    const auto v3 =
        from_json(json_of(type, latents + experts + yarn + R"(, "n_group": 4, "topk_group": 2, "num_nextn_predict_layers": 1)"));
    ASSERT_TRUE(v3) << v3.error().to_string();
    EXPECT_EQ(v3->expert_scoring, ExpertScoring::sigmoid);
    EXPECT_TRUE(v3->expert_choice_bias && v3->normalize_experts);
    EXPECT_EQ(v3->num_draft_layers, 1U);
    EXPECT_FLOAT_EQ(v3->rope_attention_factor, 1.0F);
    const float grown = 0.1F * std::log(40.0F) + 1.0F;
    EXPECT_FLOAT_EQ(v3->attention_scale, grown * grown / std::sqrt(40.0F));
  }
  const std::string all_sparse =
      R"(, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "num_hidden_layers": 5)";
  EXPECT_EQ(from_json(json_of("deepseek_v2", latents + all_sparse))->dense_layers, std::vector<bool>(5, false));
  EXPECT_EQ(from_json(json_of("deepseek_v3", latents + all_sparse))->dense_layers, (std::vector{true, true, true, false, false}));
  const auto refused = [&](const std::string& more) { return from_json(json_of("deepseek_v3", latents + experts + more)).error().field; };
  EXPECT_EQ(refused(R"(, "topk_method": "greedy")"), "config.json: topk_method");
  EXPECT_EQ(refused(R"(, "scoring_func": "softmax")"), "config.json: scoring_func");
  EXPECT_EQ(refused(R"(, "n_group": 3)"), "n_group");
  EXPECT_EQ(refused(R"(, "moe_layer_freq": 2)"), "config.json: moe_layer_freq");
  EXPECT_EQ(refused(R"(, "attention_bias": true)"), "config.json: attention_bias");
  EXPECT_EQ(refused(R"(, "v_head_dim": 0)"), "v_head_dim");
}

// GLM-4.5 and dots.llm1 have DeepSeek's router, but other attention.
TEST(ExpertConfig, GlmAndDotsUseTheRouterOfDeepSeek) {
  const std::string experts =
      R"(, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_shared_experts": 1, "num_hidden_layers": 3)";
  const auto glm = from_json(json_of("glm4_moe", experts + R"(, "attention_bias": true, "num_nextn_predict_layers": 1)"));
  ASSERT_TRUE(glm) << glm.error().to_string();
  EXPECT_EQ(glm->expert_scoring, ExpertScoring::sigmoid);
  EXPECT_TRUE(glm->expert_choice_bias && glm->normalize_experts && glm->late_norm_name);
  EXPECT_EQ(glm->num_expert_groups, 0U) << "one group means no groups";
  EXPECT_EQ(glm->dense_layers, (std::vector{true, false, false}));
  EXPECT_EQ(glm->rotary_dim * 2, glm->head_dim);
  EXPECT_TRUE(glm->qkv_bias && !glm->output_bias);
  EXPECT_EQ(glm->num_draft_layers, 1U);
  EXPECT_EQ(glm->qk_norm, QkNorm::none);
  EXPECT_EQ(from_json(json_of("glm4_moe", experts + R"(, "use_qk_norm": true)"))->qk_norm, QkNorm::per_head);
  const auto dots = from_json(json_of("dots1", experts + R"(, "scoring_func": "noaux_tc", "topk_method": "noaux_tc")"));
  ASSERT_TRUE(dots) << dots.error().to_string();
  EXPECT_EQ(dots->qk_norm, QkNorm::per_head);
  EXPECT_FALSE(dots->normalize_experts);
  EXPECT_EQ(dots->dense_layers, (std::vector{false, false, false}));
  EXPECT_TRUE(dots->sliding_windows.empty()) << "the first 62 layers have no window";
  EXPECT_EQ(from_json(json_of("glm4_moe", experts + R"(, "scoring_func": "noaux_tc")")).error().field, "config.json: scoring_func");
}

constexpr const char* kQwenExperts = R"(, "moe_intermediate_size": 32, "num_experts": 8, "num_experts_per_tok": 2)";

TEST(ExpertConfig, ExpertsMatchTransformers) {
  const auto mixtral = from_json(json_of("mixtral", R"(, "num_local_experts": 8, "num_experts_per_tok": 2)"));
  ASSERT_TRUE(mixtral) << mixtral.error().to_string();
  EXPECT_EQ(mixtral->num_experts, 8U);
  EXPECT_EQ(mixtral->expert_size, 96U) << "the intermediate size";
  EXPECT_TRUE(mixtral->normalize_experts);
  EXPECT_EQ(mixtral->rope_theta, 1000000.0);
  const auto qwen3 = from_json(json_of("qwen3_moe", kQwenExperts));
  ASSERT_TRUE(qwen3) << qwen3.error().to_string();
  EXPECT_EQ(qwen3->expert_size, 32U);
  EXPECT_FALSE(qwen3->normalize_experts);
  EXPECT_EQ(qwen3->qk_norm, QkNorm::per_head);
  EXPECT_EQ(qwen3->head_dim, 16U);
  const auto qwen2 = from_json(json_of("qwen2_moe", std::string(kQwenExperts) + R"(, "shared_expert_intermediate_size": 64)"));
  ASSERT_TRUE(qwen2) << qwen2.error().to_string();
  EXPECT_EQ(qwen2->shared_expert_size, 64U);
  EXPECT_EQ(qwen2->parts_per_token(), 3U);
  EXPECT_TRUE(qwen2->qkv_bias);
}

TEST(ExpertConfig, NewerMoEsMatchTransformers) {
  const auto ernie =
      from_json(json_of("ernie4_5_moe", R"(, "num_hidden_layers": 6, "moe_layer_interval": 2, "moe_layer_end_index": 4)")).value();
  EXPECT_EQ(ernie.num_experts, 64U);
  EXPECT_EQ(ernie.experts_per_token, 6U);
  EXPECT_EQ(ernie.shared_expert_size, 2 * 1536U);
  EXPECT_EQ(ernie.dense_layers, (std::vector<bool>{true, false, true, false, true, true}));
  EXPECT_TRUE(ernie.expert_choice_bias && ernie.normalize_experts);
  EXPECT_EQ(ernie.expert_scoring, ExpertScoring::softmax);
  const auto hunyuan = from_json(json_of("hunyuan_v1_moe", R"(, "num_experts": [8, 8], "moe_topk": 2)")).value();
  EXPECT_EQ(hunyuan.num_experts, 8U);
  EXPECT_EQ(hunyuan.expert_size, 96U);
  EXPECT_EQ(hunyuan.shared_expert_size, 96U);
  EXPECT_EQ(from_json(json_of("hunyuan_v1_moe", R"(, "num_experts": [8, 9], "moe_topk": 2)")).error().field, "config.json: num_experts");
  const auto lfm2 =
      from_json(json_of("lfm2_moe", R"(, "num_hidden_layers": 4, "layer_types": ["conv", "full_attention", "conv", "conv"])")).value();
  EXPECT_EQ(lfm2.num_experts, 32U);
  EXPECT_EQ(lfm2.expert_scoring, ExpertScoring::sigmoid);
  EXPECT_EQ(lfm2.dense_layers, (std::vector<bool>{true, true, false, false}));
  EXPECT_EQ(lfm2.intermediate_size, 96U) << "the size is not rounded";
  EXPECT_FALSE(from_json(json_of("lfm2_moe", R"(, "use_expert_bias": false)")).value().expert_choice_bias);
  const auto granite =
      from_json(json_of("granitemoeshared", R"(, "shared_intermediate_size": 32, "num_local_experts": 4, "num_experts_per_tok": 2)"))
          .value();
  EXPECT_EQ(granite.architecture, "granitemoe");
  EXPECT_EQ(granite.shared_expert_size, 32U);
}

TEST(ExpertConfig, SomeLayersOfAMoEAreDense) {
  const auto config = from_json(json_of(
      "qwen3_moe", std::string(kQwenExperts) + R"(, "num_hidden_layers": 6, "decoder_sparse_step": 2, "mlp_only_layers": [3, 99])"));
  ASSERT_TRUE(config) << config.error().to_string();
  std::vector<std::uint32_t> experts;
  for (std::uint32_t i = 0; i < 6; ++i) experts.push_back(config->layer(i).num_experts);
  EXPECT_EQ(experts, (std::vector<std::uint32_t>{0, 8, 0, 0, 0, 8}));
}

TEST(ExpertConfig, RefusesInvalidExperts) {
  const std::string qwen = R"(, "moe_intermediate_size": 32)";
  for (const auto& [more, named] : {
           std::pair<std::string, std::string>{R"(, "num_experts": 8)", "num_experts_per_tok"},
           {R"(, "num_experts": 8, "num_experts_per_tok": 9)", "num_experts_per_tok"},
           {R"(, "num_experts": 8, "num_experts_per_tok": 0)", "num_experts_per_tok"},
           {R"(, "num_experts": 4294967295, "num_experts_per_tok": 1)", "num_experts"},
           {R"(, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 0)", "moe_intermediate_size"},
           {R"(, "num_experts": 8, "num_experts_per_tok": 2, "decoder_sparse_step": 0)", "decoder_sparse_step"},
           {R"(, "num_experts": 8, "num_experts_per_tok": 2, "mlp_only_layers": ["two"])", "mlp_only_layers"},
           {R"(, "num_experts": 8, "num_experts_per_tok": 2, "use_sliding_window": true)", "use_sliding_window"},
       }) {
    const auto config = from_json(json_of("qwen3_moe", qwen + more));
    ASSERT_FALSE(config) << more;
    EXPECT_NE(config.error().field.find(named), std::string::npos) << config.error().to_string();
  }
  const auto clipped = from_json(json_of("olmoe", R"(, "num_experts": 8, "num_experts_per_tok": 2, "clip_qkv": 8.0)"));
  ASSERT_FALSE(clipped);
  EXPECT_EQ(clipped.error().code, ErrorCode::unsupported);
}

}  // namespace
}  // namespace quire
