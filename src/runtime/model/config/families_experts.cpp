// Lists the model families that have a mixture of experts (MoE) and no layers with states, and defines the functions that read the keys of
// a single family (gpt-oss, DeepSeek, ...). Called on any thread, while a model's headers are read.
#include <algorithm>
#include <cmath>

#include "runtime/model/config/config_experts.h"
#include "runtime/model/config/config_rope.h"
#include "runtime/model/config/families.h"

namespace quire {
namespace {

constexpr TensorName kErnieOthers[] = {
    {TensorRole::choice_bias, nullptr, "mlp.moe_statics.e_score_correction_bias"},
};
constexpr TensorNames kErnieNames{.others = kErnieOthers};

void read_gpt_oss(const ExpertTraits& traits, const JsonRef& json, JsonFields& fields, ModelConfig& config) {
  read_plain_experts(traits, json, fields, config);
  config.swiglu_limit = fields.get_or<float>("swiglu_limit", 7.0F);
  if (!json.find("rope_scaling") && !json.find("rope_parameters") && !json.is_null("rope_scaling"))
    refuse_key(fields, "rope_scaling", "is missing, but gpt-oss needs it for its RoPE scaling",
               "use the config that belongs to the weights");
}

// Sets gpt-oss's limit, for which GGUF has no key.
void read_gpt_oss(const GgufFile& /*file*/, ConfigFields<GgufFile>& /*fields*/, ModelConfig& config) {
  config.swiglu_limit = 7.0F;
}

// Reads DeepSeek. The query scale follows the model's authors and vLLM: with YaRN, it includes the square of the factor for all dimensions.
// transformers omits this square for V2.
void read_deepseek(const JsonRef& json, JsonFields& fields, ModelConfig& config) {
  LatentShape& latent = config.latent;
  latent.kv_rank = fields.need<std::uint32_t>("kv_lora_rank");
  latent.q_rank = fields.get_optional<std::uint32_t>("q_lora_rank").value_or(0);
  latent.key_dim = fields.need<std::uint32_t>("qk_nope_head_dim");
  latent.value_dim = fields.need<std::uint32_t>("v_head_dim");
  config.rotary_dim = fields.need<std::uint32_t>("qk_rope_head_dim");
  config.set_latent_heads();
  config.rope_style = fields.get_or<bool>("rope_interleave", true) ? RopeStyle::interleaved : RopeStyle::half_split;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto scaling = json.find(key);
    if (!scaling || config.rope_scaling != RopeScaling::yarn) continue;
    JsonFields rope(*scaling);
    const double all = rope.get_optional<double>("mscale_all_dim").value_or(0.0);
    if (all != 0.0) config.attention_scale *= static_cast<float>(std::pow(yarn_scale(config.rope_factor, all), 2));
  }
  if (fields.get_or<bool>("attention_bias", false))
    refuse_key(fields, "attention_bias", "biases in latent attention are not implemented", "use a model without biases");
}

// Reads DeepSeek. llama.cpp stores a tenth of mscale_all_dim as yarn_log_multiplier. The resulting query scale already includes the
// attention factor of the angles.
void read_deepseek(const GgufFile& file, ConfigFields<GgufFile>& fields, ModelConfig& config) {
  LatentShape& latent = config.latent;
  latent.kv_rank = fields.need<std::uint32_t>("attention.kv_lora_rank");
  latent.q_rank = fields.get_or<std::uint32_t>("attention.q_lora_rank", 0);
  config.rotary_dim = fields.need<std::uint32_t>("rope.dimension_count");
  const bool has_k_b = file.find_tensor("blk.0.attn_k_b.weight") != nullptr;  // if false, the lengths are of whole heads
  const auto key_length = fields.need<std::uint32_t>(has_k_b ? "attention.key_length_mla" : "attention.key_length");
  latent.value_dim = fields.need<std::uint32_t>(has_k_b ? "attention.value_length_mla" : "attention.value_length");
  latent.key_dim = key_length - std::min(key_length, config.rotary_dim);
  config.set_latent_heads();
  if (config.rope_scaling == RopeScaling::yarn) {
    const double log_factor = std::log(std::max(config.rope_factor, 1.0));
    const double grown = 1.0 + fields.get_or<double>("rope.scaling.yarn_log_multiplier", 0.0) * log_factor;
    config.attention_scale *= static_cast<float>(grown * grown);
    if (grown != 1.0) config.rope_attention_factor = 1.0F;
  }
}

constexpr std::array kExpertFamilies{
    ModelFamily{.experts = {.read_hf = read_plain_experts, .hf_tensors = ExpertTensors::separate_in_block, .hf_is_local = true},
                .hf = {.name = "mixtral", .norm_epsilon = 1e-5F, .rope_theta = 1000000.0, .windows = {.always = true}}},
    ModelFamily{.experts = {.read_hf = read_plain_experts, .hf_has_width = true, .has_shared_gate = true},
                .hf = {.name = "qwen2_moe", .qkv_bias = {.key = "qkv_bias", .usual = true}},
                .gguf = {.names = {"qwen2moe"}}},
    ModelFamily{.qk_norm = QkNorm::per_head,
                .experts = {.read_hf = read_plain_experts, .hf_has_width = true},
                .hf = {.name = "qwen3_moe", .qkv_bias = kAttentionBias, .output_bias = kAttentionBias},
                .gguf = {.names = {"qwen3moe"}, .normalizes_experts = true}},
    ModelFamily{.qk_norm = QkNorm::whole,
                .experts = {.read_hf = read_plain_experts},
                .hf = {.name = "olmoe", .norm_epsilon = 1e-5F, .qkv_bias = kAttentionBias, .output_bias = kAttentionBias},
                .gguf = {.names = {"olmoe"}}},
    ModelFamily{.experts = {.read_hf = read_granite_experts, .hf_tensors = ExpertTensors::stacked_gate_up, .hf_is_local = true},
                .hf = {.name = "granitemoe",
                       .alias = "granitemoeshared",
                       .qkv_bias = kAttentionBias,
                       .output_bias = kAttentionBias,
                       .read = read_granite},
                .gguf = {.names = {"granitemoe"}, .rope_style = RopeStyle::interleaved, .normalizes_experts = true, .read = read_granite}},
    ModelFamily{
        .experts = {.read_hf = read_ernie_experts, .hf_tensors = ExpertTensors::separate_shared, .sum_floor = 1e-12F},
        .hf = {.name = "ernie4_5_moe",
               .norm_epsilon = 1e-5F,
               .rope_theta = 500000.0,
               .tied_embeddings = true,
               .qkv_bias = kUseBias,
               .output_bias = kUseBias,
               .mlp_bias = kUseBias,
               .rope_style = RopeStyle::interleaved,
               .tensor_names = &kErnieNames},
        .gguf = {.names = {"ernie4_5-moe"}, .rope_style = RopeStyle::interleaved, .normalizes_experts = true, .lists_dense_layers = true}},
    ModelFamily{.qk_norm = QkNorm::per_head,
                .late_qk_norm = true,
                .experts = {.read_hf = read_hunyuan_experts, .hf_tensors = ExpertTensors::separate_shared},
                .hf = {.name = "hunyuan_v1_moe",
                       .norm_epsilon = 1e-5F,
                       .qkv_bias = kAttentionBias,
                       .output_bias = kAttentionBias,
                       .has_dynamic_base = true,
                       .tensor_names = &kHunyuanNames},
                .gguf = {.names = {"hunyuan-moe"}, .normalizes_experts = true}},
    ModelFamily{.activation = GateActivation::swiglu_limited,
                .late_norm_name = true,
                .attention_sinks = true,
                .window_period = 2,
                .experts = {.read_hf = read_gpt_oss, .hf_tensors = ExpertTensors::transposed, .hf_is_local = true, .has_bias = true},
                .hf = {.name = "gpt_oss",
                       .norm_epsilon = 1e-5F,
                       .rope_theta = 150000.0,
                       .activation_may_be_null = true,
                       .head_dim = 64,
                       .null_head_dim_is_even = true,
                       .qkv_bias = kUsualAttentionBias,
                       .output_bias = kUsualAttentionBias,
                       .windows = {.always = true, .usual = 128}},
                .gguf = {.names = {"gpt-oss"}, .rope_truncates = false, .normalizes_experts = true, .read = read_gpt_oss}},
    ModelFamily{.has_latents = true,
                .experts = {.read_hf = read_routed_experts, .hf_tensors = ExpertTensors::separate_shared, .has_router_keys = true},
                .hf = {.name = "deepseek_v2", .read = read_deepseek},
                .gguf = {.names = {"deepseek2"},  // also V3
                         .rope_style = RopeStyle::interleaved,
                         .lists_dense_layers = true,
                         .read = read_deepseek}},
    ModelFamily{.has_latents = true,
                .experts = {.read_hf = read_routed_experts,
                            .hf_tensors = ExpertTensors::separate_shared,
                            .hf_normalizes = true,
                            .has_router_keys = true,
                            .is_sigmoid = true,
                            .scale = 2.5F,
                            .groups = 8,
                            .groups_per_token = 4,
                            .dense_layers = 3},
                .hf = {.name = "deepseek_v3", .alias = "kimi_k2", .read = read_deepseek}},
    ModelFamily{
        .qk_norm = QkNorm::per_head,
        .late_norm_name = true,
        .experts = {.read_hf = read_routed_experts,
                    .hf_tensors = ExpertTensors::separate_shared,
                    .hf_normalizes = true,
                    .has_router_keys = true,
                    .is_sigmoid = true,
                    .dense_layers = 1},
        .hf = {.name = "glm4_moe", .norm_epsilon = 1e-5F, .qkv_bias = kAttentionBias, .qk_norm_key = "use_qk_norm", .rotated_share = 0.5},
        .gguf = {.names = {"glm4moe"}, .lists_dense_layers = true}},
    ModelFamily{.qk_norm = QkNorm::per_head,
                .experts = {.read_hf = read_routed_experts,
                            .hf_tensors = ExpertTensors::separate_shared,
                            .has_router_keys = true,
                            .scores_are_method = true,
                            .is_sigmoid = true},
                .hf = {.name = "dots1",
                       .qkv_bias = kAttentionBias,
                       .output_bias = kAttentionBias,
                       .windows = {.always = true, .usual = 4096, .may_be_null = true, .first = 62}},
                .gguf = {.names = {"dots1"}, .lists_dense_layers = true}},
};

}  // namespace

std::span<const ModelFamily> expert_families() {
  return kExpertFamilies;
}

}  // namespace quire
