// GGUF: keys are prefixed with the architecture; biases, head norms and tied embeddings show in the tensor table alone.
// Called once per model, when its headers are read. The file is not trusted: what is missing or of another type is an error that names the
// key (ConfigFields), and what would change answers and is not known here is refused, never guessed.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ranges>
#include <string>

#include "format/quote.h"
#include "runtime/model/config/config_blocks.h"
#include "runtime/model/config/config_fields.h"
#include "runtime/model/config/config_layers.h"
#include "runtime/model/config/config_states.h"
#include "runtime/model/config/model_config.h"

namespace quire {
namespace {

using Fields = ConfigFields<GgufFile>;

// The names of llama.cpp; a file of any other one is refused.
struct Architecture {
  const char* name;
  RopeStyle rope_style;  // interleaved where the converter permutes q and k
};

constexpr std::array kArchitectures{
    Architecture{"llama", RopeStyle::interleaved},         Architecture{"qwen2", RopeStyle::half_split},
    Architecture{"qwen3", RopeStyle::half_split},          Architecture{"phi3", RopeStyle::half_split},
    Architecture{"granite", RopeStyle::interleaved},       Architecture{"smollm3", RopeStyle::interleaved},
    Architecture{"olmo2", RopeStyle::half_split},          Architecture{"gemma2", RopeStyle::half_split},
    Architecture{"gemma3", RopeStyle::half_split},         Architecture{"qwen2moe", RopeStyle::half_split},
    Architecture{"qwen3moe", RopeStyle::half_split},       Architecture{"olmoe", RopeStyle::half_split},
    Architecture{"granitemoe", RopeStyle::interleaved},    Architecture{"lfm2", RopeStyle::half_split},
    Architecture{"granitehybrid", RopeStyle::interleaved}, Architecture{"falcon-h1", RopeStyle::half_split},
    Architecture{"gpt-oss", RopeStyle::half_split},        Architecture{"deepseek2", RopeStyle::interleaved},
    Architecture{"glm4moe", RopeStyle::half_split},        Architecture{"dots1", RopeStyle::half_split},
    Architecture{"seed_oss", RopeStyle::half_split},       Architecture{"ernie4_5", RopeStyle::interleaved},
    Architecture{"glm4", RopeStyle::interleaved},          Architecture{"exaone4", RopeStyle::half_split},
    Architecture{"hunyuan-dense", RopeStyle::half_split},  Architecture{"hunyuan-moe", RopeStyle::half_split},
    Architecture{"ernie4_5-moe", RopeStyle::interleaved},  Architecture{"lfm2moe", RopeStyle::half_split},
    Architecture{"qwen3next", RopeStyle::half_split},      Architecture{"nemotron_h", RopeStyle::half_split},
    Architecture{"nemotron_h_moe", RopeStyle::half_split}, Architecture{"arcee", RopeStyle::interleaved},
    Architecture{"qwen2vl", RopeStyle::half_split},
};

// Whose router is DeepSeek's, with dense layers first.
bool has_deepseek_router(std::string_view architecture) {
  return architecture == "deepseek2" || architecture == "glm4moe" || architecture == "dots1";
}

void read_shape(const GgufFile& file, Fields& fields, ModelConfig& config) {
  config.num_layers = fields.need<std::uint32_t>("block_count");
  config.hidden_size = fields.need<std::uint32_t>("embedding_length");
  // Of blocks there is a list of them.
  config.intermediate_size = has_blocks(config.architecture) ? 1 : fields.need<std::uint32_t>("feed_forward_length");
  config.num_heads = fields.need<std::uint32_t>("attention.head_count");
  read_kv_heads(file, fields, config);
  config.context_length = fields.need<std::uint32_t>("context_length");
  config.norm_epsilon = fields.need<float>("attention.layer_norm_rms_epsilon");
  const std::uint32_t even_share = config.num_heads == 0 ? 0 : config.hidden_size / config.num_heads;
  config.head_dim = fields.get_or<std::uint32_t>("attention.key_length", even_share);
  const auto value_length = fields.get_or<std::uint32_t>("attention.value_length", config.head_dim);
  if (value_length != config.head_dim && config.architecture != "deepseek2") {
    fields.refuse({ErrorCode::unsupported, fields.field("attention.value_length"),
                   fmt::format("{} differs from the keys' {}", value_length, config.head_dim), "use a model with equal sizes"});
  }
  const float even_scale = 1.0F / std::sqrt(static_cast<float>(std::max(config.head_dim, 1U)));
  config.attention_scale = fields.get_or<float>("attention.scale", even_scale);
  if (config.attention_scale == 0.0F) config.attention_scale = even_scale;
}

void read_rope(Fields& fields, ModelConfig& config) {
  config.rope_theta = fields.get_or<double>("rope.freq_base", 10000.0);
  config.rotary_dim = fields.get_or<std::uint32_t>("rope.dimension_count", config.head_dim);
  const double old_factor = fields.get_or<double>("rope.scale_linear", 1.0);
  const auto type = fields.get_or<std::string>("rope.scaling.type", old_factor != 1.0 ? "linear" : "none");
  if (type == "linear") {
    config.rope_scaling = RopeScaling::linear;
    config.rope_factor = fields.get_or<double>("rope.scaling.factor", old_factor);
  } else if (type == "yarn") {
    config.rope_scaling = RopeScaling::yarn;
    config.rope_factor = fields.need<double>("rope.scaling.factor");
    config.rope_original_context = fields.get_or<std::uint32_t>("rope.scaling.original_context_length", config.context_length);
    config.rope_beta_fast = fields.get_or<double>("rope.scaling.yarn_beta_fast", 32.0);
    config.rope_beta_slow = fields.get_or<double>("rope.scaling.yarn_beta_slow", 1.0);
    config.rope_whole_pairs = config.architecture != "gpt-oss";
    // Files of OLMo 3 say the whole factor, others what is more than the usual one.
    const double grown = 1.0 + 0.1 * std::log(std::max(config.rope_factor, 1.0));
    const double usual = config.architecture == "olmo2" ? grown : 1.0;
    config.rope_attention_factor = static_cast<float>(fields.get_or<double>("rope.scaling.attn_factor", usual) * (grown / usual));
    if (config.architecture != "deepseek2" && fields.get_optional<double>("rope.scaling.yarn_log_multiplier"))
      fields.refuse(
          {ErrorCode::unsupported, fields.field("rope.scaling.yarn_log_multiplier"), "is not implemented", "use a model without it"});
  } else if (type == "longrope") {
    config.rope_scaling = RopeScaling::longrope;
  } else if (type != "none") {
    fields.refuse({ErrorCode::unsupported, fields.field("rope.scaling.type"), fmt::format("{} is not implemented", in_quotes(type)),
                   "use a model with linear, Llama 3, yarn or longrope scaling, or none"});
  }
}

// Qwen2-VL's and Qwen2.5-VL's: pairs that turn with a row's time, its row and its column in a picture; the converter adds a fourth, of
// none.
void read_sections(const GgufFile& file, Fields& fields, ModelConfig& config) {
  const std::string key = fields.field("rope.dimension_sections");
  const auto sections = file.get_array<std::uint32_t>(key);
  if (!sections) return fields.refuse(sections.error());
  if (sections->size() < config.rope_sections.size() ||
      std::ranges::any_of(*sections | std::views::drop(3), [](auto size) { return size > 0; }))
    return fields.refuse({ErrorCode::unsupported, key, "are not three", "use a Qwen2-VL or a Qwen2.5-VL"});
  std::copy_n(sections->begin(), config.rope_sections.size(), config.rope_sections.begin());
}

// Phi-3 files have factors and no type.
void read_longrope(const GgufFile& file, Fields& fields, ModelConfig& config) {
  if (file.find_tensor("rope_factors_long.weight") != nullptr) config.rope_scaling = RopeScaling::longrope;
  if (config.rope_scaling != RopeScaling::longrope) return;
  config.rope_original_context = fields.need<std::uint32_t>("rope.scaling.original_context_length");
  config.rope_attention_factor = fields.get_or<float>("rope.scaling.attn_factor", 1.0F);
}

void read_granite(Fields& fields, ModelConfig& config) {
  config.embedding_scale = fields.get_or<float>("embedding_scale", 1.0F);
  config.residual_scale = fields.get_or<float>("residual_scale", 1.0F);
  config.logit_divisor = fields.get_or<float>("logit_scale", 1.0F);
  // The converter's switch for models without positions.
  if (!fields.get_or<bool>("rope.scaling.finetuned", true)) config.still_layer_interval = 1;
}

// The converter has added the 1 that Gemma's norms lack, and leaves out how queries are scaled: only the models of 27 billion parameters,
// which the number of layers gives away, differ.
void read_gemma_keys(Fields& fields, ModelConfig& config) {
  const bool is_gemma2 = config.architecture == "gemma2";
  config.activation = GateActivation::gelu_tanh;
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden_size));
  if (config.num_layers == (is_gemma2 ? 46U : 62U))
    config.attention_scale = std::sqrt(static_cast<float>(config.num_heads) / static_cast<float>(config.hidden_size));
  config.attention_soft_cap = fields.get_or<float>("attn_logit_softcapping", is_gemma2 ? 50.0F : 0.0F);
  config.logit_soft_cap = fields.get_or<float>("final_logit_softcapping", is_gemma2 ? 30.0F : 0.0F);
  if (!is_gemma2) config.window_rope_theta = fields.get_or<double>("rope.freq_base_swa", 10000.0);
}

// 1 is the softmax, 2 the sigmoid.
void read_deepseek_router(Fields& fields, ModelConfig& config) {
  const auto scoring = fields.get_or<std::uint32_t>("expert_gating_func", config.architecture == "deepseek2" ? 1 : 2);
  if (scoring > 2)
    fields.refuse({ErrorCode::unsupported, fields.field("expert_gating_func"), fmt::format("{} is not implemented", scoring),
                   "use a model with another router"});
  config.expert_scoring = scoring == 2 ? ExpertScoring::sigmoid : ExpertScoring::softmax;
  config.expert_choice_bias = scoring == 2;
  config.normalize_experts = fields.get_or<bool>("expert_weights_norm", false);
  const auto scale = fields.get_or<float>("expert_weights_scale", 1.0F);
  if (scale != 0.0F) config.expert_scale = scale;
  if (const auto groups = fields.get_or<std::uint32_t>("expert_group_count", 0); groups > 1) {
    config.num_expert_groups = groups;
    config.groups_per_token = fields.need<std::uint32_t>("expert_group_used_count");
  }
}

// The sizes of experts are those of their tensors: files say them under several keys, or not at all.
void read_experts(const GgufFile& file, Fields& fields, ModelConfig& config) {
  if (has_blocks(config.architecture)) return;  // config_blocks.cpp does
  config.num_experts = fields.get_or<std::uint32_t>("expert_count", 0);
  const bool is_gpt_oss = config.architecture == "gpt-oss";
  const bool is_deepseek = has_deepseek_router(config.architecture);
  const bool is_mixture = is_gpt_oss || is_deepseek || config.architecture.ends_with("moe");
  if (config.num_experts == 0 && !is_mixture) return;
  config.experts_per_token = fields.need<std::uint32_t>("expert_used_count");
  config.expert_tensors = ExpertTensors::stacked;
  const std::size_t first = static_cast<std::size_t>(std::ranges::find(config.dense_layers, false) - config.dense_layers.begin());
  const std::string prefix = fmt::format("blk.{}.", first);
  const GgufTensor* gates = file.find_tensor(prefix + "ffn_gate_exps.weight");
  if (gates == nullptr || config.num_experts == 0) {
    fields.refuse({ErrorCode::unsupported, prefix + "ffn_gate_exps.weight",
                   fmt::format("{} experts that are not in one tensor", config.num_experts),
                   "convert the model again with a newer llama.cpp"});
    return;
  }
  config.expert_size = static_cast<std::uint32_t>(std::min<std::uint64_t>(gates->rows() / config.num_experts, ~0U));
  if (const GgufTensor* shared = file.find_tensor(prefix + "ffn_gate_shexp.weight"))
    config.shared_expert_size = static_cast<std::uint32_t>(std::min<std::uint64_t>(shared->rows(), ~0U));
  const bool is_next = config.architecture == "qwen3next";
  config.weighs_shared_expert = config.architecture == "qwen2moe" || is_next;
  if (is_deepseek) return read_deepseek_router(fields, config);
  const bool is_lfm2 = config.architecture == "lfm2moe";
  const bool is_biased = is_lfm2 || config.architecture == "ernie4_5-moe";
  config.expert_choice_bias = is_biased && file.find_tensor(prefix + "exp_probs_b.bias") != nullptr;
  if (is_lfm2) config.expert_scoring = ExpertScoring::sigmoid;
  if (is_biased) config.expert_sum_floor = is_lfm2 ? 1e-6F : 1e-12F;
  // llama.cpp has no key for it: Mixtral's, Qwen3's and Granite's are.
  const bool is_known = config.architecture == "llama" || config.architecture == "qwen3moe" || config.architecture == "hunyuan-moe";
  config.normalize_experts = is_known || is_next || is_biased || config.architecture.starts_with("granite") || is_gpt_oss;
  config.expert_bias = is_gpt_oss;
  const bool scales = fields.get_optional<double>("expert_weights_scale").value_or(0.0) > 1.0;
  if (scales || fields.get_or<std::uint32_t>("expert_group_count", 0) > 1)
    fields.refuse({ErrorCode::unsupported, fields.field(scales ? "expert_weights_scale" : "expert_group_count"), "is not implemented",
                   "use a mixture of experts without it"});
}

// Dense layers come first, and layers for drafts last, among those that are counted.
void read_dense_layers(Fields& fields, ModelConfig& config) {
  config.num_draft_layers = fields.get_or<std::uint32_t>("nextn_predict_layers", 0);
  config.num_layers -= std::min(config.num_layers, config.num_draft_layers);
  config.dense_layers.assign(std::min<std::uint32_t>(config.num_layers, kMostLayers), false);
  const auto dense = fields.get_or<std::uint32_t>("leading_dense_block_count", 0);
  std::fill_n(config.dense_layers.begin(), std::min<std::size_t>(dense, config.dense_layers.size()), true);
  const auto step = fields.get_or<std::uint32_t>("interleave_moe_layer_step", 1);
  for (std::uint32_t i = 0; step > 1 && i < config.dense_layers.size(); ++i)
    if ((i + 1) % step != 0) config.dense_layers[i] = true;
}

// DeepSeek's files: latent attention. llama.cpp keeps under yarn_log_multiplier a tenth of what queries are scaled by
// more for each e-fold that the context grew, in which the angles' own factor is contained.
void read_deepseek(const GgufFile& file, Fields& fields, ModelConfig& config) {
  LatentShape& latent = config.latent;
  latent.kv_rank = fields.need<std::uint32_t>("attention.kv_lora_rank");
  latent.q_rank = fields.get_or<std::uint32_t>("attention.q_lora_rank", 0);
  config.rotary_dim = fields.need<std::uint32_t>("rope.dimension_count");
  const bool is_apart = file.find_tensor("blk.0.attn_k_b.weight") != nullptr;  // else lengths are those of whole heads
  const auto key_length = fields.need<std::uint32_t>(is_apart ? "attention.key_length_mla" : "attention.key_length");
  latent.value_dim = fields.need<std::uint32_t>(is_apart ? "attention.value_length_mla" : "attention.value_length");
  latent.key_dim = key_length - std::min(key_length, config.rotary_dim);
  config.set_latent_heads();
  if (config.rope_scaling == RopeScaling::yarn) {
    const double log_factor = std::log(std::max(config.rope_factor, 1.0));
    const double grown = 1.0 + fields.get_or<double>("rope.scaling.yarn_log_multiplier", 0.0) * log_factor;
    config.attention_scale *= static_cast<float>(grown * grown);
    if (grown != 1.0) config.rope_attention_factor = 1.0F;
  }
}

// No key says them.
void set_gpt_oss(ModelConfig& config) {
  config.activation = GateActivation::swiglu_limited;
  config.swiglu_limit = 7.0F;
}

void read_switches(const GgufFile& file, ModelConfig& config) {
  const auto has = [&](std::string_view name) { return file.find_tensor(name) != nullptr; };
  config.qkv_bias = has("blk.0.attn_q.bias");
  config.output_bias = has("blk.0.attn_output.bias");
  config.mlp_bias = has("blk.0.ffn_up.bias");
  const bool is_olmo2 = config.architecture == "olmo2";
  const bool is_phi3 = config.architecture == "phi3";
  if (config.architecture == "arcee") config.activation = GateActivation::relu2;
  if (has("blk.0.attn_q_norm.weight")) config.qk_norm = QkNorm::per_head;
  if (is_olmo2 || config.architecture == "olmoe") config.qk_norm = QkNorm::whole;
  config.late_qk_norm = config.architecture.starts_with("hunyuan");
  if (config.architecture == "gemma3") config.qk_norm = QkNorm::per_head;
  const bool only_behind = is_olmo2 || config.architecture == "exaone4";
  config.pre_norms = !only_behind;
  config.post_norms = only_behind || config.architecture.starts_with("gemma") || config.architecture == "glm4";
  const bool is_late = config.architecture == "glm4moe" || config.architecture == "seed_oss";
  config.late_norm_name = is_late || config.architecture == "gpt-oss";
  config.attention_sinks = config.architecture == "gpt-oss";
  config.fused_qkv = has("blk.0.attn_qkv.weight");
  config.fused_gate_up = (is_phi3 || config.architecture == "glm4") && !has("blk.0.ffn_gate.weight");
  config.tied_embeddings = !has("output.weight");
  const GgufTensor* embeddings = file.find_tensor("token_embd.weight");
  config.vocab_size = embeddings == nullptr ? 0 : static_cast<std::uint32_t>(std::min<std::uint64_t>(embeddings->rows(), ~0U));
}

}  // namespace

Result<ModelConfig> config_from_gguf(const GgufFile& file) {
  ModelConfig config;
  auto architecture = file.get<std::string>("general.architecture");
  if (!architecture) return std::unexpected(std::move(architecture.error()));
  config.architecture = *architecture;
  const auto* known = std::ranges::find(kArchitectures, *architecture, &Architecture::name);
  if (known == kArchitectures.end()) {
    return fail(ErrorCode::unsupported, "general.architecture", fmt::format("{} is not implemented", in_quotes(*architecture)),
                "use a model of the families llama (with SmolLM2, Mistral and Mixtral), qwen2, qwen3, phi3, granite, smollm3, olmo2 (with "
                "OLMo 3), seed_oss, ernie4_5, arcee, glm4, qwen2vl, exaone4, hunyuan-dense, gemma2 or gemma3, a mixture of experts of "
                "qwen2moe, qwen3moe, "
                "olmoe, granitemoe, ernie4_5-moe, hunyuan-moe, gpt-oss, deepseek2, glm4moe or dots1, or a hybrid of lfm2, lfm2moe, "
                "nemotron_h, nemotron_h_moe, granitehybrid, falcon-h1 or qwen3next");
  }
  config.rope_style = known->rope_style;
  Fields fields(file, config.architecture + ".");
  read_shape(file, fields, config);
  read_rope(fields, config);
  read_longrope(file, fields, config);
  if (config.architecture == "qwen2vl") read_sections(file, fields, config);
  if (config.architecture.starts_with("granite")) read_granite(fields, config);
  if (config.architecture == "deepseek2") read_deepseek(file, fields, config);
  const bool may_be_dense = config.architecture == "ernie4_5-moe" || config.architecture == "lfm2moe";
  if (has_deepseek_router(config.architecture) || may_be_dense) read_dense_layers(fields, config);
  read_experts(file, fields, config);
  if (config.architecture == "gpt-oss") set_gpt_oss(config);
  if (config.architecture == "smollm3") config.still_layer_interval = 4;
  if (config.architecture.starts_with("gemma")) read_gemma_keys(fields, config);
  if (!may_have_states(config.architecture)) read_windows(file, fields, config);
  if (config.architecture == "exaone4") set_still_layers(config);
  // OLMo 3: layers with a window rotate as if nothing were scaled.
  if (config.architecture == "olmo2" && !config.sliding_windows.empty()) config.window_rope_theta = config.rope_theta;
  if (const auto& error = fields.error()) return std::unexpected(*error);
  if (file.find_tensor("token_embd.weight") == nullptr)
    return fail(ErrorCode::corrupt, "token_embd.weight", "the file has no such tensor", "use a file with weights, not a vocabulary alone");
  read_switches(file, config);
  if (may_have_states(config.architecture)) {
    read_states(file, fields, config);
    if (const auto& error = fields.error()) return std::unexpected(*error);
  }
  if (auto error = config.check()) return std::unexpected(std::move(*error));
  return config;
}

}  // namespace quire
