// The families of dense models, and the readers of single families. Called while a model's headers are read; any thread.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/model/config/families.h"

namespace quire {
namespace {

constexpr TensorName kGlm4Others[] = {
    {TensorRole::attn_post_norm, nullptr, "post_self_attn_layernorm.weight"},
    {TensorRole::ffn_pre_norm, nullptr, "post_attention_layernorm.weight"},
    {TensorRole::ffn_post_norm, nullptr, "post_mlp_layernorm.weight"},
};
constexpr TensorNames kGlm4Names{.others = kGlm4Others};

constexpr TensorName kHunyuanOthers[] = {
    {TensorRole::q_norm, nullptr, "self_attn.query_layernorm.weight"},
    {TensorRole::k_norm, nullptr, "self_attn.key_layernorm.weight"},
    {TensorRole::router, nullptr, "mlp.gate.wg.weight"},
    {TensorRole::other_shared_gate, nullptr, "mlp.shared_mlp.gate_proj.weight"},
    {TensorRole::other_shared_up, nullptr, "mlp.shared_mlp.up_proj.weight"},
    {TensorRole::other_shared_down, nullptr, "mlp.shared_mlp.down_proj.weight"},
};

// Reads Gemma. Gemma stores its norm weights minus 1. If the key of a cap is missing, the cap is the argument's; null: no cap.
void read_gemma(JsonFields& fields, float attention_cap, float logit_cap, ModelConfig& config) {
  if (fields.get_optional<bool>("use_bidirectional_attention").value_or(false))
    refuse_key(fields, "use_bidirectional_attention", "attention to later tokens is not implemented", "use a model that generates text");
  config.norm_offset = 1.0F;
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden_size));
  config.attention_scale = 1.0F / std::sqrt(fields.get_or<float>("query_pre_attn_scalar", 256.0F));
  const auto read_cap = [&](const char* key, float usual) {
    return fields.get_optional<float>(key).value_or(fields.is_null(key) ? 0.0F : usual);
  };
  config.attention_soft_cap = read_cap("attn_logit_softcapping", attention_cap);
  config.logit_soft_cap = read_cap("final_logit_softcapping", logit_cap);
}

void read_gemma2(const JsonRef& /*json*/, JsonFields& fields, ModelConfig& config) {
  read_gemma(fields, 50.0F, 30.0F, config);
}

void read_gemma3(const JsonRef& json, JsonFields& fields, ModelConfig& config) {
  read_gemma(fields, 0.0F, 0.0F, config);
  config.window_rope_theta = fields.get_or<double>("rope_local_base_freq", 10000.0);
  const auto parameters = json.find("rope_parameters");
  if (const auto local = parameters ? parameters->find("sliding_attention") : std::nullopt) {
    JsonFields inside(*local);
    config.window_rope_theta = inside.get_or<double>("rope_theta", config.window_rope_theta);
    if (const auto& error = inside.error()) fields.refuse(*error);
  }
}

// Reads Gemma. llama.cpp's converter has already added 1 to the norm weights. It omits the query scale, which differs only in the 27B
// models; these are recognised by their number of layers.
void read_gemma(ConfigFields<GgufFile>& fields, std::uint32_t layers_of_27b, float attention_cap, float logit_cap, ModelConfig& config) {
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden_size));
  if (config.num_layers == layers_of_27b)
    config.attention_scale = std::sqrt(static_cast<float>(config.num_heads) / static_cast<float>(config.hidden_size));
  config.attention_soft_cap = fields.get_or<float>("attn_logit_softcapping", attention_cap);
  config.logit_soft_cap = fields.get_or<float>("final_logit_softcapping", logit_cap);
}

void read_gemma2(const GgufFile& /*file*/, ConfigFields<GgufFile>& fields, ModelConfig& config) {
  read_gemma(fields, 46, 50.0F, 30.0F, config);
}

void read_gemma3(const GgufFile& /*file*/, ConfigFields<GgufFile>& fields, ModelConfig& config) {
  read_gemma(fields, 62, 0.0F, 0.0F, config);
  config.window_rope_theta = fields.get_or<double>("rope.freq_base_swa", 10000.0);
}

constexpr HfTraits qwen_vl(std::string_view name, std::string_view alias) {
  return {.name = name, .alias = alias, .norm_epsilon = 1e-5F, .rope_theta = 1000000.0, .qkv_bias = kAlwaysBias, .windows = {.first = 80}};
}

constexpr std::array kDenseFamilies{
    ModelFamily{
        .hf = {.name = "llama",
               .shape = {32, 4096, 11008, 32, 0, 32000, 2048},
               .qkv_bias = kAttentionBias,
               .output_bias = kAttentionBias,
               .mlp_bias = kMlpBias},
        .gguf = {.names = {"llama"}, .rope_style = RopeStyle::interleaved, .normalizes_experts = true}},  // also Mistral and Mixtral
    ModelFamily{
        .hf = {.name = "mistral", .alias = "ministral", .shape = {32, 4096, 14336, 32, 8, 32000, 131072}, .windows = {.always = true}}},
    ModelFamily{
        .hf = {.name = "qwen2", .shape = {32, 4096, 22016, 32, 32, 151936, 32768}, .qkv_bias = kAlwaysBias, .windows = {.first = 28}},
        .gguf = {.names = {"qwen2"}}},
    ModelFamily{
        .qk_norm = QkNorm::per_head,
        .hf = {.name = "qwen3", .head_dim = 128, .qkv_bias = kAttentionBias, .output_bias = kAttentionBias, .windows = {.first = 28}},
        .gguf = {.names = {"qwen3"}}},
    ModelFamily{.fused_gate_up = true,
                .hf = {.name = "phi3",
                       .norm_epsilon = 1e-5F,
                       .rotated_share = 1.0,
                       .longrope_context = 4096.0,
                       .windows = {.always = true},
                       .fused_qkv = true},
                .gguf = {.names = {"phi3"}}},
    ModelFamily{
        .hf = {.name = "granite", .qkv_bias = kAttentionBias, .output_bias = kAttentionBias, .mlp_bias = kMlpBias, .read = read_granite},
        .gguf = {.names = {"granite"}, .rope_style = RopeStyle::interleaved, .normalizes_experts = true, .read = read_granite}},
    ModelFamily{.nope_interval = 4,
                .hf = {.name = "smollm3",
                       .rope_theta = 2000000.0,
                       .tied_embeddings = true,
                       .qkv_bias = kAttentionBias,
                       .output_bias = kAttentionBias,
                       .mlp_bias = kMlpBias},
                .gguf = {.names = {"smollm3"}, .rope_style = RopeStyle::interleaved}},
    ModelFamily{.qk_norm = QkNorm::whole,
                .pre_norms = false,
                .post_norms = true,
                .window_period = 4,
                .hf = {.name = "olmo2", .norm_epsilon = 1e-5F, .qkv_bias = kAttentionBias, .output_bias = kAttentionBias}},
    ModelFamily{.qk_norm = QkNorm::whole,
                .pre_norms = false,
                .post_norms = true,
                .window_period = 4,
                .windows_ignore_scaling = true,
                .hf = {.name = "olmo3",
                       .norm_epsilon = 1e-5F,
                       .qkv_bias = kAttentionBias,
                       .output_bias = kAttentionBias,
                       .windows = {.always = true, .usual = 4096}},
                .gguf = {.names = {"olmo2"}, .whole_attention_factor = true}},  // also OLMo 2, which has no windows
    ModelFamily{.late_norm_name = true,
                .hf = {.name = "seed_oss",
                       .head_dim = 128,
                       .null_head_dim_is_even = true,
                       .qkv_bias = kUsualAttentionBias,
                       .output_bias = {.key = "attention_out_bias"},
                       .mlp_bias = kMlpBias},
                .gguf = {.names = {"seed_oss"}}},
    ModelFamily{.hf = {.name = "ernie4_5",
                       .norm_epsilon = 1e-5F,
                       .rope_theta = 500000.0,
                       .tied_embeddings = true,
                       .head_dim = 128,
                       .null_head_dim_is_even = true,
                       .qkv_bias = kUseBias,
                       .output_bias = kUseBias,
                       .mlp_bias = kUseBias,
                       .rope_style = RopeStyle::interleaved},
                .gguf = {.names = {"ernie4_5"}, .rope_style = RopeStyle::interleaved}},
    ModelFamily{
        .activation = GateActivation::relu2,
        .hf = {.name = "arcee", .norm_epsilon = 1e-5F, .qkv_bias = kAttentionBias, .output_bias = kAttentionBias, .mlp_bias = kMlpBias},
        .gguf = {.names = {"arcee"}, .rope_style = RopeStyle::interleaved}},
    ModelFamily{.fused_gate_up = true,
                .hf = {.name = "glm",
                       .norm_epsilon = 1.5625e-7F,
                       .head_dim = 128,
                       .qkv_bias = kUsualAttentionBias,
                       .rope_style = RopeStyle::interleaved,
                       .rotated_share = 0.5}},
    ModelFamily{.post_norms = true,
                .fused_gate_up = true,
                .hf = {.name = "glm4",
                       .norm_epsilon = 1.5625e-7F,
                       .head_dim = 128,
                       .qkv_bias = kUsualAttentionBias,
                       .rope_style = RopeStyle::interleaved,
                       .rotated_share = 0.5,
                       .tensor_names = &kGlm4Names},
                .gguf = {.names = {"glm4"}, .rope_style = RopeStyle::interleaved}},
    ModelFamily{.qk_norm = QkNorm::per_head,
                .pre_norms = false,
                .post_norms = true,
                .window_period = 4,
                .rotates_windows_only = true,
                .hf = {.name = "exaone4", .norm_epsilon = 1e-5F, .windows = {.always = true}},
                .gguf = {.names = {"exaone4"}}},
    ModelFamily{.qk_norm = QkNorm::per_head,
                .late_qk_norm = true,
                .hf = {.name = "hunyuan_v1_dense",
                       .norm_epsilon = 1e-5F,
                       .qkv_bias = kAttentionBias,
                       .output_bias = kAttentionBias,
                       .has_dynamic_base = true,
                       .tensor_names = &kHunyuanNames},
                .gguf = {.names = {"hunyuan-dense"}}},
    ModelFamily{.activation = GateActivation::gelu_tanh,
                .post_norms = true,
                .window_period = 2,
                .hf = {.name = "gemma2",
                       .activation_key = "hidden_activation",
                       .tied_embeddings = true,
                       .head_dim = 256,
                       .qkv_bias = kAttentionBias,
                       .output_bias = kAttentionBias,
                       .windows = {.always = true, .usual = 4096},
                       .read = read_gemma2},
                .gguf = {.names = {"gemma2"}, .usual_window = 4096, .read = read_gemma2}},
    ModelFamily{.activation = GateActivation::gelu_tanh,
                .qk_norm = QkNorm::per_head,
                .post_norms = true,
                .window_period = 6,
                .hf = {.name = "gemma3",
                       .alias = "gemma3_text",
                       .activation_key = "hidden_activation",
                       .rope_theta = 1000000.0,
                       .tied_embeddings = true,
                       .head_dim = 256,
                       .shape = {26, 2304, 9216, 8, 4, 262208, 131072},
                       .qkv_bias = kAttentionBias,
                       .output_bias = kAttentionBias,
                       .windows = {.always = true, .usual = 4096, .has_period = true},
                       .read = read_gemma3},
                .gguf = {.names = {"gemma3"}, .always_qk_norm = true, .read = read_gemma3}},
    ModelFamily{.has_rope_sections = true, .hf = qwen_vl("qwen2_vl", "qwen2_vl_text"), .gguf = {.names = {"qwen2vl"}}},  // also 2.5
    ModelFamily{.has_rope_sections = true, .hf = qwen_vl("qwen2_5_vl", "qwen2_5_vl_text")},
};

}  // namespace

const TensorNames kHunyuanNames{.others = kHunyuanOthers};

void read_granite(const JsonRef& /*json*/, JsonFields& fields, ModelConfig& config) {
  config.embedding_scale = fields.get_or<float>("embedding_multiplier", 1.0F);
  config.residual_scale = fields.get_or<float>("residual_multiplier", 1.0F);
  config.attention_scale = fields.get_or<float>("attention_multiplier", 1.0F);
  config.logit_divisor = fields.get_or<float>("logits_scaling", 1.0F);
}

void read_granite(const GgufFile& /*file*/, ConfigFields<GgufFile>& fields, ModelConfig& config) {
  config.embedding_scale = fields.get_or<float>("embedding_scale", 1.0F);
  config.residual_scale = fields.get_or<float>("residual_scale", 1.0F);
  config.logit_divisor = fields.get_or<float>("logit_scale", 1.0F);
  // llama.cpp's converter writes this key for models without positions.
  if (!fields.get_or<bool>("rope.scaling.finetuned", true)) config.nope_layer_interval = 1;
}

std::span<const ModelFamily> dense_families() {
  return kDenseFamilies;
}

}  // namespace quire
