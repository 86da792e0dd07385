// config.json of a Hugging Face folder; defaults are those of the model classes of transformers.
// Called once per model, when its headers are read; any thread. A key that changes answers and is not known here is refused by name: a
// model that is served wrongly is worse than one that is not served.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "format/quote.h"
#include "runtime/model/config_fields.h"
#include "runtime/model/config_layers.h"
#include "runtime/model/config_states.h"
#include "runtime/model/model_config.h"

namespace quire {
namespace {

using Fields = ConfigFields<JsonRef>;

// Defaults that differ, and which biases the architecture may have.
struct Architecture {
  const char* name;
  float norm_epsilon = 1e-6F;
  double rope_theta = 10000.0;
  bool tied_embeddings = false;
  bool attention_bias = false;
  bool mlp_bias = false;
};

constexpr std::array kArchitectures{
    Architecture{.name = "llama", .attention_bias = true, .mlp_bias = true},
    Architecture{.name = "mistral"},
    Architecture{.name = "qwen2"},
    Architecture{.name = "qwen3", .attention_bias = true},
    Architecture{.name = "phi3", .norm_epsilon = 1e-5F},
    Architecture{.name = "granite", .attention_bias = true, .mlp_bias = true},
    Architecture{.name = "smollm3", .rope_theta = 2000000.0, .tied_embeddings = true, .attention_bias = true, .mlp_bias = true},
    Architecture{.name = "olmo2", .norm_epsilon = 1e-5F, .attention_bias = true},
    Architecture{.name = "mixtral", .norm_epsilon = 1e-5F, .rope_theta = 1000000.0},
    Architecture{.name = "qwen2_moe"},
    Architecture{.name = "qwen3_moe", .attention_bias = true},
    Architecture{.name = "olmoe", .norm_epsilon = 1e-5F, .attention_bias = true},
    Architecture{.name = "granitemoe", .attention_bias = true},
    Architecture{.name = "gpt_oss", .norm_epsilon = 1e-5F, .rope_theta = 150000.0, .attention_bias = true},
    Architecture{.name = "deepseek_v2"},
    Architecture{.name = "deepseek_v3"},
    Architecture{.name = "qwen3_next"},
    Architecture{.name = "granitemoehybrid", .attention_bias = true},
    Architecture{.name = "bamba", .norm_epsilon = 1e-5F},
    Architecture{.name = "falcon_h1", .norm_epsilon = 1e-5F, .rope_theta = 100000.0},
    Architecture{.name = "lfm2", .norm_epsilon = 1e-5F, .rope_theta = 1000000.0, .tied_embeddings = true},
    Architecture{.name = "gemma2", .tied_embeddings = true, .attention_bias = true},
    Architecture{.name = "gemma3", .rope_theta = 1000000.0, .tied_embeddings = true, .attention_bias = true},
};

void refuse(Fields& fields, std::string_view key, std::string message, std::string remedy) {
  fields.refuse({ErrorCode::unsupported, "config.json: " + std::string(key), std::move(message), std::move(remedy)});
}

// What transformers takes where the key is missing.
std::uint32_t usual_head_dim(std::string_view architecture, std::uint32_t even_share) {
  if (architecture == "gpt_oss") return 64;
  if (architecture == "qwen3_next") return 256;
  return architecture == "qwen3" ? 128 : architecture.starts_with("gemma") ? 256 : even_share;
}

void read_shape(Fields& fields, const Architecture& architecture, ModelConfig& config) {
  config.num_layers = fields.need<std::uint32_t>("num_hidden_layers");
  config.hidden_size = fields.need<std::uint32_t>("hidden_size");
  // LFM2 has a name of its own for it.
  const auto own_width = config.architecture == "lfm2" ? fields.get_optional<std::uint32_t>("block_ff_dim") : std::nullopt;
  config.intermediate_size = own_width ? *own_width : fields.need<std::uint32_t>("intermediate_size");
  config.num_heads = fields.need<std::uint32_t>("num_attention_heads");
  config.num_kv_heads = fields.get_or<std::uint32_t>("num_key_value_heads", config.num_heads);
  config.vocab_size = fields.need<std::uint32_t>("vocab_size");
  config.context_length = fields.need<std::uint32_t>("max_position_embeddings");
  config.norm_epsilon = fields.get_or<float>("rms_norm_eps", architecture.norm_epsilon);
  const std::uint32_t even_share = config.num_heads == 0 ? 0 : config.hidden_size / config.num_heads;
  config.head_dim = fields.get_or<std::uint32_t>("head_dim", usual_head_dim(config.architecture, even_share));
  config.attention_scale = 1.0F / std::sqrt(static_cast<float>(std::max(config.head_dim, 1U)));
}

std::vector<float> read_factors(const JsonRef& scaling, std::string_view key, Fields& fields) {
  std::vector<float> factors;
  const auto list = scaling.at(key);
  const auto elements = list ? list->elements() : std::unexpected(list.error());
  if (!elements) {
    fields.refuse(elements.error());
    return factors;
  }
  for (const JsonRef& element : *elements) {
    const auto factor = element.as<float>();
    if (!factor) fields.refuse(factor.error());
    factors.push_back(factor.value_or(0.0F));
  }
  return factors;
}

// The original context is a member of the config, or of the scaling itself; without one it is the whole context.
void read_longrope(const JsonRef& scaling, Fields& fields, Fields& rope, ModelConfig& config) {
  config.rope_scaling = RopeScaling::longrope;
  config.rope_short_factors = read_factors(scaling, "short_factor", fields);
  config.rope_long_factors = read_factors(scaling, "long_factor", fields);
  for (const char* key : {"short_mscale", "long_mscale"})
    if (scaling.find(key)) refuse(fields, fmt::format("rope_scaling.{}", key), "is not implemented", "use a model without it");
  const double context = config.context_length;
  double factor = rope.get_or<double>("factor", 1.0);
  auto original = fields.get_optional<double>("original_max_position_embeddings");
  if (!original) original = rope.get_optional<double>("original_max_position_embeddings");
  if (!original && config.architecture == "phi3") original = 4096.0;
  if (original) factor = context / *original;
  config.rope_original_context = original.value_or(context);
  const double usual = factor > 1.0 ? std::sqrt(1.0 + std::log(factor) / std::log(config.rope_original_context)) : 1.0;
  config.rope_attention_factor = static_cast<float>(rope.get_or<double>("attention_factor", usual));
}

double yarn_scale(double factor, double multiplier) {
  return factor <= 1.0 ? 1.0 : 0.1 * multiplier * std::log(factor) + 1.0;
}

// transformers' _compute_yarn_parameters; what is missing, or 0, has the usual value.
void read_yarn(Fields& rope, ModelConfig& config) {
  config.rope_scaling = RopeScaling::yarn;
  config.rope_factor = rope.need<double>("factor");
  const auto given = [&rope](const char* key, double usual) {
    const double value = rope.get_optional<double>(key).value_or(0.0);
    return value == 0.0 ? usual : value;
  };
  config.rope_original_context = given("original_max_position_embeddings", config.context_length);
  config.rope_beta_fast = given("beta_fast", 32.0);
  config.rope_beta_slow = given("beta_slow", 1.0);
  config.rope_whole_pairs = rope.get_or<bool>("truncate", true);
  const double some = given("mscale", 0.0), all = given("mscale_all_dim", 0.0);
  const bool both = some != 0.0 && all != 0.0;
  const double usual = yarn_scale(config.rope_factor, both ? some : 1.0) / (both ? yarn_scale(config.rope_factor, all) : 1.0);
  config.rope_attention_factor = static_cast<float>(rope.get_optional<double>("attention_factor").value_or(usual));
}

void read_rope_scaling(const JsonRef& scaling, Fields& fields, ModelConfig& config) {
  Fields rope(scaling);
  auto type = rope.get_optional<std::string>("rope_type");
  if (!type) type = rope.get_or<std::string>("type", "default");
  config.rope_theta = rope.get_or<double>("rope_theta", config.rope_theta);
  const bool old_longrope = config.architecture == "phi3" && (*type == "su" || *type == "yarn");
  if (*type == "linear") {
    config.rope_scaling = RopeScaling::linear;
    config.rope_factor = rope.need<double>("factor");
  } else if (*type == "llama3") {
    config.rope_scaling = RopeScaling::llama3;
    config.rope_factor = rope.need<double>("factor");
    config.rope_low_freq_factor = rope.need<double>("low_freq_factor");
    config.rope_high_freq_factor = rope.need<double>("high_freq_factor");
    config.rope_original_context = rope.need<double>("original_max_position_embeddings");
  } else if (*type == "longrope" || old_longrope) {
    read_longrope(scaling, fields, rope, config);
  } else if (*type == "yarn") {
    read_yarn(rope, config);
  } else if (*type != "default") {
    refuse(fields, "rope_scaling.rope_type", fmt::format("{} is not implemented", in_quotes(*type)),
           "use a model with linear, llama3, yarn or longrope scaling, or none");
  }
  if (const auto& error = rope.error()) fields.refuse(*error);
}

void read_rotated_share(Fields& fields, std::string_view where, ModelConfig& config) {
  const bool is_bamba = config.architecture == "bamba";
  const bool is_next = config.architecture == "qwen3_next";
  const auto share = fields.get_or<double>("partial_rotary_factor", is_bamba ? 0.5 : is_next ? 0.25 : 1.0);
  if (share == 1.0) return;
  if ((config.architecture == "phi3" || is_bamba || is_next) && share > 0.0 && share < 1.0)
    config.rotary_dim = static_cast<std::uint32_t>(config.head_dim * share);
  else
    refuse(fields, fmt::format("{}partial_rotary_factor", where), fmt::format("{} is not implemented", share),
           "use a model that rotates whole heads");
}

void read_rope(const JsonRef& json, Fields& fields, ModelConfig& config) {
  config.rotary_dim = config.head_dim;
  config.rope_style = RopeStyle::half_split;
  read_rotated_share(fields, "", config);
  // transformers 5 calls it rope_parameters and moves rope_theta and partial_rotary_factor inside.
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (const auto scaling = json.find(key)) {
      // One for each kind of layer, where these differ.
      const JsonRef own = scaling->find("full_attention").value_or(*scaling);
      Fields inside(own);
      read_rotated_share(inside, fmt::format("{}.", key), config);
      if (const auto& error = inside.error()) fields.refuse(*error);
      read_rope_scaling(own, fields, config);
    }
  }
}

void read_switches(Fields& fields, const Architecture& architecture, ModelConfig& config) {
  const bool attention_bias = architecture.attention_bias && fields.get_or<bool>("attention_bias", config.architecture == "gpt_oss");
  const bool is_olmo2 = config.architecture == "olmo2";
  const bool has_bias = config.architecture == "qwen2_moe" && fields.get_or<bool>("qkv_bias", true);
  config.qkv_bias = config.architecture == "qwen2" || has_bias || attention_bias;
  config.output_bias = attention_bias;
  config.mlp_bias = architecture.mlp_bias && fields.get_or<bool>("mlp_bias", false);
  if (config.architecture == "qwen3" || config.architecture == "qwen3_moe" || config.architecture == "qwen3_next")
    config.qk_norm = QkNorm::per_head;
  if (is_olmo2 || config.architecture == "olmoe") config.qk_norm = QkNorm::whole;
  const bool is_gemma = config.architecture.starts_with("gemma");
  if (config.architecture == "gemma3") config.qk_norm = QkNorm::per_head;
  config.pre_norms = !is_olmo2;
  config.post_norms = is_olmo2 || is_gemma;
  config.fused_qkv = config.fused_gate_up = config.architecture == "phi3";
  config.tied_embeddings = fields.get_or<bool>("tie_word_embeddings", architecture.tied_embeddings);
  if (is_gemma) return;
  if (const auto act = fields.get_optional<std::string>("hidden_act").value_or("silu"); act != "silu")
    refuse(fields, "hidden_act", fmt::format("{} is not implemented", in_quotes(act)), "use a model with silu");
}

// Gemma keeps its norms less 1.
void read_gemma(const JsonRef& json, Fields& fields, ModelConfig& config) {
  const bool is_gemma2 = config.architecture == "gemma2";
  config.activation = GateActivation::gelu_tanh;
  if (const auto act = fields.get_or<std::string>("hidden_activation", "gelu_pytorch_tanh"); act != "gelu_pytorch_tanh")
    refuse(fields, "hidden_activation", fmt::format("{} is not implemented", in_quotes(act)), "use a model with gelu_pytorch_tanh");
  if (fields.get_optional<bool>("use_bidirectional_attention").value_or(false))
    refuse(fields, "use_bidirectional_attention", "attention to later tokens is not implemented", "use a model that generates text");
  config.norm_offset = 1.0F;
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden_size));
  config.attention_scale = 1.0F / std::sqrt(fields.get_or<float>("query_pre_attn_scalar", 256.0F));
  config.attention_soft_cap = fields.get_optional<float>("attn_logit_softcapping").value_or(is_gemma2 ? 50.0F : 0.0F);
  config.logit_soft_cap = fields.get_optional<float>("final_logit_softcapping").value_or(is_gemma2 ? 30.0F : 0.0F);
  if (is_gemma2) return;
  config.window_rope_theta = fields.get_or<double>("rope_local_base_freq", 10000.0);
  const auto parameters = json.find("rope_parameters");
  if (const auto local = parameters ? parameters->find("sliding_attention") : std::nullopt) {
    Fields inside(*local);
    config.window_rope_theta = inside.get_or<double>("rope_theta", config.window_rope_theta);
    if (const auto& error = inside.error()) fields.refuse(*error);
  }
}

void read_granite(Fields& fields, ModelConfig& config) {
  config.embedding_scale = fields.get_or<float>("embedding_multiplier", 1.0F);
  config.residual_scale = fields.get_or<float>("residual_multiplier", 1.0F);
  config.attention_scale = fields.get_or<float>("attention_multiplier", 1.0F);
  config.logit_divisor = fields.get_or<float>("logits_scaling", 1.0F);
}

// Layers of Qwen's mixtures may be dense: those listed, and all but each decoder_sparse_step-th.
void read_dense_layers(const JsonRef& json, Fields& fields, ModelConfig& config) {
  constexpr std::uint32_t kMaxLayers = 4096;  // more: the config is refused later
  const auto step = fields.get_or<std::uint32_t>("decoder_sparse_step", 1);
  if (step == 0) refuse(fields, "decoder_sparse_step", "0 makes no layer sparse", "use the config that belongs to the weights");
  config.dense_layers.assign(std::min(config.num_layers, kMaxLayers), false);
  for (std::uint32_t i = 0; step > 0 && i < config.dense_layers.size(); ++i) config.dense_layers[i] = (i + 1) % step != 0;
  const auto listed = json.find("mlp_only_layers");
  if (!listed) return;
  const auto layers = listed->elements();
  if (!layers) return fields.refuse(layers.error());
  for (const JsonRef& entry : *layers) {
    const auto layer = entry.as<std::uint32_t>();
    if (!layer)
      fields.refuse(layer.error());
    else if (*layer < config.dense_layers.size())
      config.dense_layers[*layer] = true;
  }
}

bool is_mixture(std::string_view architecture) {
  return architecture == "mixtral" || architecture == "gpt_oss" || architecture == "qwen3_next" || architecture.ends_with("moe");
}

// Mixtral, Granite and gpt-oss say local experts, of the size that is the feed-forward part's elsewhere, and always normalise.
void read_experts(const JsonRef& json, Fields& fields, ModelConfig& config) {
  const std::string_view name = config.architecture;
  const bool is_qwen = name.starts_with("qwen");
  const bool is_gpt_oss = name == "gpt_oss";
  const bool is_local = name == "mixtral" || name == "granitemoe" || is_gpt_oss;
  config.num_experts = fields.need<std::uint32_t>(is_local ? "num_local_experts" : "num_experts");
  config.experts_per_token = fields.need<std::uint32_t>("num_experts_per_tok");
  config.expert_size = is_qwen ? fields.need<std::uint32_t>("moe_intermediate_size") : config.intermediate_size;
  if (name == "qwen2_moe" || name == "qwen3_next")
    config.shared_expert_size = fields.need<std::uint32_t>("shared_expert_intermediate_size");
  config.normalize_experts = is_local || fields.get_or<bool>("norm_topk_prob", name == "qwen3_next");
  config.expert_tensors = name == "mixtral"      ? ExpertTensors::apart_in_block
                          : name == "granitemoe" ? ExpertTensors::stacked_gate_up
                          : is_gpt_oss           ? ExpertTensors::turned
                                                 : ExpertTensors::apart;
  config.expert_bias = is_gpt_oss;
  if (is_qwen) read_dense_layers(json, fields, config);
  if (fields.get_optional<double>("clip_qkv"))
    refuse(fields, "clip_qkv", "queries, keys and values within bounds are not implemented", "use a model without it");
  if (is_qwen && fields.get_or<bool>("use_sliding_window", false) && !json.find("layer_types"))
    refuse(fields, "use_sliding_window", "says not which layers have a window", "name them in layer_types");
}

void read_gpt_oss(const JsonRef& json, Fields& fields, ModelConfig& config) {
  config.activation = GateActivation::swiglu_limited;
  config.swiglu_limit = fields.get_or<float>("swiglu_limit", 7.0F);
  config.attention_sinks = config.late_norm_name = true;
  if (!json.find("rope_scaling") && !json.find("rope_parameters"))
    refuse(fields, "rope_scaling", "is missing, and without it gpt-oss rotates in a way that no file says",
           "use the config that belongs to the weights");
}

// Groups, scores and their scale of DeepSeek's routers: greedy and group_limited_greedy (V2), noaux_tc (V3).
void read_deepseek_router(Fields& fields, ModelConfig& config) {
  const bool is_v3 = config.architecture == "deepseek_v3";
  const auto method = fields.get_or<std::string>("topk_method", is_v3 ? "noaux_tc" : "greedy");
  if (method != (is_v3 ? "noaux_tc" : "greedy") && (is_v3 || method != "group_limited_greedy"))
    refuse(fields, "topk_method", fmt::format("{} is not implemented", in_quotes(method)), "use a model with another router");
  if (const auto scoring = fields.get_or<std::string>("scoring_func", is_v3 ? "sigmoid" : "softmax");
      scoring != (is_v3 ? "sigmoid" : "softmax"))
    refuse(fields, "scoring_func", fmt::format("{} is not implemented", in_quotes(scoring)), "use a model with another router");
  config.expert_scoring = is_v3 ? ExpertScoring::sigmoid : ExpertScoring::softmax;
  config.expert_choice_bias = is_v3;
  config.normalize_experts = fields.get_or<bool>("norm_topk_prob", is_v3);
  config.expert_scale = fields.get_or<float>("routed_scaling_factor", is_v3 ? 2.5F : 1.0F);
  if (method == "greedy") return;
  config.num_expert_groups = fields.get_or<std::uint32_t>("n_group", 8);
  config.groups_per_token = fields.get_or<std::uint32_t>("topk_group", 4);
}

void read_deepseek_experts(Fields& fields, ModelConfig& config) {
  constexpr std::uint32_t kMaxLayers = 4096;  // more: the config is refused later
  config.num_experts = fields.need<std::uint32_t>("n_routed_experts");
  config.experts_per_token = fields.need<std::uint32_t>("num_experts_per_tok");
  config.expert_size = fields.need<std::uint32_t>("moe_intermediate_size");
  config.shared_expert_size = fields.get_optional<std::uint32_t>("n_shared_experts").value_or(0) * config.expert_size;
  config.expert_tensors = ExpertTensors::apart_shared;
  config.weighs_shared_expert = false;
  read_deepseek_router(fields, config);
  const auto dense = fields.get_or<std::uint32_t>("first_k_dense_replace", 0);
  config.dense_layers.assign(std::min(config.num_layers, kMaxLayers), false);
  std::fill_n(config.dense_layers.begin(), std::min<std::size_t>(dense, config.dense_layers.size()), true);
  if (fields.get_or<std::uint32_t>("moe_layer_freq", 1) != 1)
    refuse(fields, "moe_layer_freq", "layers with experts here and there are not implemented", "use a model with 1");
}

// What queries are scaled by follows the model's authors, and vLLM: with yarn also by its factor for all dimensions, squared (transformers
// leaves that out of V2).
void read_deepseek(const JsonRef& json, Fields& fields, ModelConfig& config) {
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
    Fields rope(*scaling);
    const double all = rope.get_optional<double>("mscale_all_dim").value_or(0.0);
    if (all != 0.0) config.attention_scale *= static_cast<float>(std::pow(yarn_scale(config.rope_factor, all), 2));
  }
  if (fields.get_or<bool>("attention_bias", false))
    refuse(fields, "attention_bias", "biases of latent attention are not implemented", "use a model without");
  config.num_draft_layers = fields.get_optional<std::uint32_t>("num_nextn_predict_layers").value_or(0);
  read_deepseek_experts(fields, config);
}

void read_still_layers(const JsonRef& json, Fields& fields, ModelConfig& config) {
  config.still_layer_interval = fields.get_or<std::uint32_t>("no_rope_layer_interval", 4);
  // In spite of its name, 1 stands for a layer that rotates.
  for (const JsonRef& entry : layer_list(json, "no_rope_layers", fields, config)) {
    const auto rotates = entry.as<std::uint32_t>();
    if (!rotates) fields.refuse(rotates.error());
    config.still_layers.push_back(rotates.value_or(1) == 0);
  }
}

}  // namespace

Result<ModelConfig> config_from_hf(const JsonRef& json) {
  ModelConfig config;
  Fields fields(json);
  config.architecture = fields.need<std::string>("model_type");
  if (const auto& error = fields.error()) return std::unexpected(*error);
  if (config.architecture == "gemma3") {
    return fail(ErrorCode::unsupported, "config.json: model_type", "\"gemma3\" takes images, which are not implemented",
                "use a model of text alone (\"gemma3_text\") or a GGUF file");
  }
  if (config.architecture == "gemma3_text") config.architecture = "gemma3";
  if (config.architecture == "kimi_k2") config.architecture = "deepseek_v3";
  const auto* known = std::ranges::find(kArchitectures, config.architecture, &Architecture::name);
  if (known == kArchitectures.end()) {
    return fail(ErrorCode::unsupported, "config.json: model_type", fmt::format("{} is not implemented", in_quotes(config.architecture)),
                "use a model of the families llama (with SmolLM2), mistral, qwen2, qwen3, phi3, granite, smollm3, olmo2, gemma2 or "
                "gemma3_text, a mixture of experts of mixtral, qwen2_moe, qwen3_moe, olmoe, granitemoe, gpt_oss, deepseek_v2 or "
                "deepseek_v3, or a hybrid of lfm2, granitemoehybrid, bamba, falcon_h1 or qwen3_next");
  }
  read_shape(fields, *known, config);
  config.rope_theta = fields.get_or<double>("rope_theta", known->rope_theta);
  read_rope(json, fields, config);
  read_switches(fields, *known, config);
  if (config.architecture.starts_with("granite")) read_granite(fields, config);
  if (config.architecture.starts_with("deepseek")) read_deepseek(json, fields, config);
  if (is_mixture(config.architecture)) read_experts(json, fields, config);
  if (config.architecture == "gpt_oss") read_gpt_oss(json, fields, config);
  if (config.architecture == "smollm3") read_still_layers(json, fields, config);
  if (config.architecture.starts_with("gemma")) read_gemma(json, fields, config);
  if (may_have_states(config.architecture))
    read_states(json, fields, config);
  else
    read_windows(json, fields, config);
  if (const auto& error = fields.error()) return std::unexpected(*error);
  if (auto error = config.check()) return std::unexpected(std::move(*error));
  return config;
}

}  // namespace quire
