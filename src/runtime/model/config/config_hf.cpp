// config.json of a Hugging Face folder; defaults are those of the model classes of transformers.
// Called once per model, when its headers are read; any thread. A key that changes answers and is not known here is refused by name: a
// model that is served wrongly is worse than one that is not served.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "format/quote.h"
#include "runtime/model/config/config_blocks.h"
#include "runtime/model/config/config_experts.h"
#include "runtime/model/config/config_fields.h"
#include "runtime/model/config/config_layers.h"
#include "runtime/model/config/config_rope.h"
#include "runtime/model/config/config_states.h"
#include "runtime/model/config/config_usual.h"
#include "runtime/model/config/model_config.h"

namespace quire {
namespace {

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
    Architecture{.name = "qwen2_vl", .norm_epsilon = 1e-5F, .rope_theta = 1000000.0},
    Architecture{.name = "qwen2_5_vl", .norm_epsilon = 1e-5F, .rope_theta = 1000000.0},
    Architecture{.name = "qwen3", .attention_bias = true},
    Architecture{.name = "phi3", .norm_epsilon = 1e-5F},
    Architecture{.name = "granite", .attention_bias = true, .mlp_bias = true},
    Architecture{.name = "smollm3", .rope_theta = 2000000.0, .tied_embeddings = true, .attention_bias = true, .mlp_bias = true},
    Architecture{.name = "olmo2", .norm_epsilon = 1e-5F, .attention_bias = true},
    Architecture{.name = "olmo3", .norm_epsilon = 1e-5F, .attention_bias = true},
    Architecture{.name = "seed_oss", .attention_bias = true, .mlp_bias = true},
    Architecture{.name = "ernie4_5", .norm_epsilon = 1e-5F, .rope_theta = 500000.0, .tied_embeddings = true},
    Architecture{.name = "glm", .norm_epsilon = 1.5625e-7F, .attention_bias = true},
    Architecture{.name = "glm4", .norm_epsilon = 1.5625e-7F, .attention_bias = true},
    Architecture{.name = "exaone4", .norm_epsilon = 1e-5F},
    Architecture{.name = "hunyuan_v1_dense", .norm_epsilon = 1e-5F, .attention_bias = true},
    Architecture{.name = "hunyuan_v1_moe", .norm_epsilon = 1e-5F, .attention_bias = true},
    Architecture{.name = "ernie4_5_moe", .norm_epsilon = 1e-5F, .rope_theta = 500000.0, .tied_embeddings = true},
    Architecture{.name = "arcee", .norm_epsilon = 1e-5F, .attention_bias = true, .mlp_bias = true},
    Architecture{.name = "nemotron_h", .norm_epsilon = 1e-5F, .attention_bias = true},
    Architecture{.name = "mixtral", .norm_epsilon = 1e-5F, .rope_theta = 1000000.0},
    Architecture{.name = "qwen2_moe"},
    Architecture{.name = "qwen3_moe", .attention_bias = true},
    Architecture{.name = "olmoe", .norm_epsilon = 1e-5F, .attention_bias = true},
    Architecture{.name = "granitemoe", .attention_bias = true},
    Architecture{.name = "gpt_oss", .norm_epsilon = 1e-5F, .rope_theta = 150000.0, .attention_bias = true},
    Architecture{.name = "deepseek_v2"},
    Architecture{.name = "deepseek_v3"},
    Architecture{.name = "glm4_moe", .norm_epsilon = 1e-5F, .attention_bias = true},
    Architecture{.name = "dots1", .attention_bias = true},
    Architecture{.name = "qwen3_next"},
    Architecture{.name = "granitemoehybrid", .attention_bias = true},
    Architecture{.name = "bamba", .norm_epsilon = 1e-5F},
    Architecture{.name = "falcon_h1", .norm_epsilon = 1e-5F, .rope_theta = 100000.0},
    Architecture{.name = "lfm2", .norm_epsilon = 1e-5F, .rope_theta = 1000000.0, .tied_embeddings = true},
    Architecture{.name = "lfm2_moe", .norm_epsilon = 1e-5F, .rope_theta = 1000000.0, .tied_embeddings = true},
    Architecture{.name = "gemma2", .tied_embeddings = true, .attention_bias = true},
    Architecture{.name = "gemma3", .rope_theta = 1000000.0, .tied_embeddings = true, .attention_bias = true},
};

// What transformers takes where the key is missing.
std::uint32_t usual_head_dim(std::string_view architecture, std::uint32_t even_share) {
  if (architecture == "gpt_oss") return 64;
  if (architecture == "qwen3_next") return 256;
  for (const char* name : {"qwen3", "seed_oss", "ernie4_5", "glm", "glm4"})
    if (architecture == name) return 128;
  return architecture.starts_with("gemma") ? 256 : even_share;
}

void read_shape(JsonFields& fields, const Architecture& architecture, const UsualShape* usual, ModelConfig& config) {
  const bool may_lack_it = has_blocks(config.architecture);
  const auto need = [&](const char* key, std::uint32_t UsualShape::* value) {
    return usual != nullptr ? fields.get_or<std::uint32_t>(key, usual->*value) : fields.need<std::uint32_t>(key);
  };
  config.num_layers =
      may_lack_it ? fields.get_or<std::uint32_t>("num_hidden_layers", 0) : need("num_hidden_layers", &UsualShape::num_layers);
  config.hidden_size = need("hidden_size", &UsualShape::hidden_size);
  // LFM2 has a name of its own for it.
  const auto own_width = config.architecture == "lfm2" ? fields.get_optional<std::uint32_t>("block_ff_dim") : std::nullopt;
  config.intermediate_size = own_width ? *own_width : need("intermediate_size", &UsualShape::intermediate_size);
  config.num_heads = need("num_attention_heads", &UsualShape::num_heads);
  const bool has_own = usual != nullptr && usual->num_kv_heads > 0;
  config.num_kv_heads = fields.get_or<std::uint32_t>("num_key_value_heads", has_own ? usual->num_kv_heads : config.num_heads);
  config.vocab_size = need("vocab_size", &UsualShape::vocab_size);
  config.context_length = need("max_position_embeddings", &UsualShape::context_length);
  config.norm_epsilon = fields.get_or<float>("rms_norm_eps", architecture.norm_epsilon);
  std::uint32_t even_share = config.num_heads == 0 ? 0 : config.hidden_size / config.num_heads;
  if (config.architecture == "nemotron_h") even_share = fields.get_or<std::uint32_t>("attention_head_dim", even_share);
  config.head_dim = fields.get_or<std::uint32_t>("head_dim", usual_head_dim(config.architecture, even_share));
  config.attention_scale = 1.0F / std::sqrt(static_cast<float>(std::max(config.head_dim, 1U)));
}

QkNorm qk_norm_of(std::string_view architecture, JsonFields& fields) {
  if (architecture == "olmo2" || architecture == "olmo3" || architecture == "olmoe") return QkNorm::whole;
  constexpr std::array kPerHead{"qwen3", "qwen3_moe", "qwen3_next", "gemma3", "dots1", "exaone4", "hunyuan_v1_dense", "hunyuan_v1_moe"};
  const bool is_told = architecture == "glm4_moe" && fields.get_or<bool>("use_qk_norm", false);
  return is_told || std::ranges::find(kPerHead, architecture) != kPerHead.end() ? QkNorm::per_head : QkNorm::none;
}

// Most have one key for the biases of attention, some none for that of its output.
void read_biases(JsonFields& fields, const Architecture& architecture, ModelConfig& config) {
  const std::string_view name = architecture.name;
  const bool is_glm = name == "glm" || name == "glm4";
  const bool is_usual = name == "gpt_oss" || name == "seed_oss" || is_glm;
  const bool attention_bias = architecture.attention_bias && fields.get_or<bool>("attention_bias", is_usual);
  const bool has_bias = name == "qwen2_moe" && fields.get_or<bool>("qkv_bias", true);
  const bool everywhere = name.starts_with("ernie4_5") && fields.get_or<bool>("use_bias", false);
  config.qkv_bias = name == "qwen2" || has_rope_sections(name) || has_bias || attention_bias || everywhere;
  config.output_bias = (attention_bias && name != "glm4_moe" && !is_glm) || everywhere;
  if (name == "seed_oss") config.output_bias = fields.get_or<bool>("attention_out_bias", false);
  config.mlp_bias = (architecture.mlp_bias && fields.get_or<bool>("mlp_bias", false)) || everywhere;
}

void read_switches(JsonFields& fields, const Architecture& architecture, ModelConfig& config) {
  read_biases(fields, architecture, config);
  config.qk_norm = qk_norm_of(config.architecture, fields);
  const bool only_behind = config.architecture == "olmo2" || config.architecture == "olmo3" || config.architecture == "exaone4";
  const bool is_gemma = config.architecture.starts_with("gemma");
  const bool is_glm4 = config.architecture == "glm4";
  config.pre_norms = !only_behind;
  config.post_norms = only_behind || is_gemma || is_glm4;
  config.late_qk_norm = config.architecture.starts_with("hunyuan");
  if (is_glm4) config.tensor_names = TensorNames::glm4;
  if (config.architecture == "ernie4_5_moe") config.tensor_names = TensorNames::ernie;
  if (config.late_qk_norm) config.tensor_names = TensorNames::hunyuan;
  config.late_norm_name = config.architecture == "glm4_moe" || config.architecture == "seed_oss";
  config.fused_qkv = config.architecture == "phi3";
  config.fused_gate_up = config.fused_qkv || is_glm4 || config.architecture == "glm";
  config.tied_embeddings = fields.get_or<bool>("tie_word_embeddings", architecture.tied_embeddings);
  if (is_gemma) return;
  // These say relu2, under one key or another.
  const bool is_plain = config.architecture == "arcee" || config.architecture == "nemotron_h";
  if (is_plain) config.activation = GateActivation::relu2;
  const char* key = config.architecture == "nemotron_h" ? "mlp_hidden_act" : "hidden_act";
  const std::string_view usual = is_plain ? "relu2" : "silu";
  if (const auto act = fields.get_optional<std::string>(key).value_or(std::string(usual)); act != usual)
    refuse_key(fields, key, fmt::format("{} is not implemented", in_quotes(act)), fmt::format("use a model with {}", usual));
}

// Gemma keeps its norms less 1.
void read_gemma(const JsonRef& json, JsonFields& fields, ModelConfig& config) {
  const bool is_gemma2 = config.architecture == "gemma2";
  config.activation = GateActivation::gelu_tanh;
  if (const auto act = fields.get_or<std::string>("hidden_activation", "gelu_pytorch_tanh"); act != "gelu_pytorch_tanh")
    refuse_key(fields, "hidden_activation", fmt::format("{} is not implemented", in_quotes(act)), "use a model with gelu_pytorch_tanh");
  if (fields.get_optional<bool>("use_bidirectional_attention").value_or(false))
    refuse_key(fields, "use_bidirectional_attention", "attention to later tokens is not implemented", "use a model that generates text");
  config.norm_offset = 1.0F;
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden_size));
  config.attention_scale = 1.0F / std::sqrt(fields.get_or<float>("query_pre_attn_scalar", 256.0F));
  config.attention_soft_cap = fields.get_optional<float>("attn_logit_softcapping").value_or(is_gemma2 ? 50.0F : 0.0F);
  config.logit_soft_cap = fields.get_optional<float>("final_logit_softcapping").value_or(is_gemma2 ? 30.0F : 0.0F);
  if (is_gemma2) return;
  config.window_rope_theta = fields.get_or<double>("rope_local_base_freq", 10000.0);
  const auto parameters = json.find("rope_parameters");
  if (const auto local = parameters ? parameters->find("sliding_attention") : std::nullopt) {
    JsonFields inside(*local);
    config.window_rope_theta = inside.get_or<double>("rope_theta", config.window_rope_theta);
    if (const auto& error = inside.error()) fields.refuse(*error);
  }
}

void read_granite(JsonFields& fields, ModelConfig& config) {
  config.embedding_scale = fields.get_or<float>("embedding_multiplier", 1.0F);
  config.residual_scale = fields.get_or<float>("residual_multiplier", 1.0F);
  config.attention_scale = fields.get_or<float>("attention_multiplier", 1.0F);
  config.logit_divisor = fields.get_or<float>("logits_scaling", 1.0F);
}

void read_gpt_oss(const JsonRef& json, JsonFields& fields, ModelConfig& config) {
  config.activation = GateActivation::swiglu_limited;
  config.swiglu_limit = fields.get_or<float>("swiglu_limit", 7.0F);
  config.attention_sinks = config.late_norm_name = true;
  if (!json.find("rope_scaling") && !json.find("rope_parameters"))
    refuse_key(fields, "rope_scaling", "is missing, and without it gpt-oss rotates in a way that no file says",
               "use the config that belongs to the weights");
}

// What queries are scaled by follows the model's authors, and vLLM: with yarn also by its factor for all dimensions, squared (transformers
// leaves that out of V2).
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
    refuse_key(fields, "attention_bias", "biases of latent attention are not implemented", "use a model without");
}

void read_still_layers(const JsonRef& json, JsonFields& fields, ModelConfig& config) {
  config.still_layer_interval = fields.get_or<std::uint32_t>("no_rope_layer_interval", 4);
  // In spite of its name, 1 stands for a layer that rotates.
  for (const JsonRef& entry : layer_list(json, "no_rope_layers", fields, config)) {
    const auto rotates = entry.as<std::uint32_t>();
    if (!rotates) fields.refuse(rotates.error());
    config.still_layers.push_back(rotates.value_or(1) == 0);
  }
}

struct TextPart {
  JsonRef json;
  std::string architecture;
  bool is_part = false;
};

// Of a model that takes images, too, what reads and writes text has a config of its own.
Result<TextPart> text_part(const JsonRef& whole) {
  JsonFields fields(whole);
  std::string type = fields.need<std::string>("model_type");
  if (const auto& error = fields.error()) return std::unexpected(*error);
  if (type != "mistral3") return TextPart{whole, std::move(type)};
  auto inner = whole.at("text_config");
  if (!inner) return std::unexpected(std::move(inner.error()));
  JsonFields text(*inner);
  std::string architecture = text.get_or<std::string>("model_type", "mistral");
  if (const auto& error = text.error()) return std::unexpected(*error);
  return TextPart{std::move(*inner), std::move(architecture), true};
}

Result<ModelConfig> read_decoder(const JsonRef& json, const std::string& architecture, bool is_part) {
  ModelConfig config;
  JsonFields fields(json);
  config.architecture = architecture;
  for (const char* name : {"gemma3", "qwen2_vl", "qwen2_5_vl"})
    if (config.architecture == fmt::format("{}_text", name)) config.architecture = name;
  if (config.architecture == "kimi_k2") config.architecture = "deepseek_v3";
  if (config.architecture == "ministral") config.architecture = "mistral";
  if (config.architecture == "granitemoeshared") config.architecture = "granitemoe";
  const auto* known = std::ranges::find(kArchitectures, config.architecture, &Architecture::name);
  if (known == kArchitectures.end()) {
    return fail(
        ErrorCode::unsupported, "config.json: model_type", fmt::format("{} is not implemented", in_quotes(config.architecture)),
        "use a model of the families llama (with SmolLM2), mistral, qwen2, qwen3, phi3, granite, smollm3, olmo2, olmo3, seed_oss, "
        "ernie4_5, arcee, glm, glm4, exaone4, hunyuan_v1_dense, gemma2, gemma3 or mistral3, a mixture of experts of mixtral, qwen2_moe, "
        "qwen3_moe, olmoe, granitemoe, ernie4_5_moe, hunyuan_v1_moe, gpt_oss, deepseek_v2, deepseek_v3, glm4_moe or dots1, a hybrid of "
        "lfm2, lfm2_moe, granitemoehybrid, nemotron_h, bamba, falcon_h1 or qwen3_next, one that sees of idefics3, smolvlm, llava, gemma3, "
        "qwen2_vl or qwen2_5_vl, or whisper");
  }
  read_shape(fields, *known, is_part ? usual_shape(config.architecture) : nullptr, config);
  config.rope_theta = fields.get_or<double>("rope_theta", known->rope_theta);
  if (!has_blocks(config.architecture)) read_rope(json, fields, config);
  read_switches(fields, *known, config);
  if (config.architecture.starts_with("granite")) read_granite(fields, config);
  if (config.architecture.starts_with("deepseek")) read_deepseek(json, fields, config);
  if (is_mixture(config.architecture)) read_experts(json, fields, config);
  if (config.architecture == "gpt_oss") read_gpt_oss(json, fields, config);
  // Layers with a window rotate as if nothing were scaled.
  if (config.architecture == "olmo3") config.window_rope_theta = config.rope_theta;
  if (config.architecture == "smollm3") read_still_layers(json, fields, config);
  if (config.architecture.starts_with("gemma")) read_gemma(json, fields, config);
  if (may_have_states(config.architecture))
    read_states(json, fields, config);
  else
    read_windows(json, fields, config);
  if (config.architecture == "exaone4") set_still_layers(config);
  if (const auto& error = fields.error()) return std::unexpected(*error);
  if (auto error = config.check()) return std::unexpected(std::move(*error));
  return config;
}

// The decoder's config lies in that of the whole.
Result<ModelConfig> config_with_pictures(const JsonRef& whole, const VisionFamily& family) {
  const auto inner = whole.find("text_config");
  if (!inner && !family.may_be_flat) return std::unexpected(whole.at("text_config").error());
  const JsonRef text = inner.value_or(whole);
  const auto type = decoder_of(family, text);
  if (!type) return std::unexpected(type.error());
  auto config = read_decoder(text, *type, true);
  if (!config) return config;
  config->architecture = family.architecture;
  if (family.may_be_flat && !text.find("tie_word_embeddings")) {
    const auto is_tied = whole.get_or<bool>("tie_word_embeddings", false);
    if (!is_tied) return std::unexpected(is_tied.error());
    config->tied_embeddings = *is_tied;
  }
  config->takes_images = family.may_be_blind && !whole.find("vision_config");
  if (config->takes_images) return config;
  auto vision = read_vision(family, whole, config->hidden_size, config->vocab_size);
  if (!vision) return std::unexpected(std::move(vision.error()));
  if (auto error = check_windows(config->sliding_windows, *vision)) return std::unexpected(std::move(*error));
  config->vision = *std::move(vision);
  return config;
}

}  // namespace

Result<ModelConfig> config_from_hf(const JsonRef& whole) {
  const auto text = text_part(whole);
  if (!text) return std::unexpected(text.error());
  if (const VisionFamily* family = find_vision_family(text->architecture)) return config_with_pictures(whole, *family);
  if (text->architecture == "whisper") return config_of_whisper(whole);
  auto config = read_decoder(text->json, text->architecture, text->is_part);
  if (config) config->takes_images = text->is_part;
  return config;
}

}  // namespace quire
