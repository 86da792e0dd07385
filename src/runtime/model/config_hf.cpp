// config.json of a Hugging Face folder; defaults are those of the model classes of transformers.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "format/quote.h"
#include "runtime/model/config_fields.h"
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
};

void refuse(Fields& fields, std::string_view key, std::string message, std::string remedy) {
  fields.refuse({ErrorCode::unsupported, "config.json: " + std::string(key), std::move(message), std::move(remedy)});
}

void read_shape(Fields& fields, const Architecture& architecture, ModelConfig& config) {
  config.num_layers = fields.need<std::uint32_t>("num_hidden_layers");
  config.hidden_size = fields.need<std::uint32_t>("hidden_size");
  config.intermediate_size = fields.need<std::uint32_t>("intermediate_size");
  config.num_heads = fields.need<std::uint32_t>("num_attention_heads");
  config.num_kv_heads = fields.get_or<std::uint32_t>("num_key_value_heads", config.num_heads);
  config.vocab_size = fields.need<std::uint32_t>("vocab_size");
  config.context_length = fields.need<std::uint32_t>("max_position_embeddings");
  config.norm_epsilon = fields.get_or<float>("rms_norm_eps", architecture.norm_epsilon);
  const std::uint32_t even_share = config.num_heads == 0 ? 0 : config.hidden_size / config.num_heads;
  config.head_dim = fields.get_or<std::uint32_t>("head_dim", config.architecture == "qwen3" ? 128 : even_share);
  config.attention_scale = 1.0F / std::sqrt(static_cast<float>(std::max(config.head_dim, 1U)));
}

// Within its window, windowed attention is full attention: the context ends where the two would differ.
void read_window(Fields& fields, ModelConfig& config) {
  const bool always = config.architecture == "mistral" || config.architecture == "phi3";
  if (!always && !fields.get_or<bool>("use_sliding_window", false)) return;
  if (const auto window = fields.get_optional<std::uint32_t>("sliding_window"))
    config.context_length = std::min(config.context_length, *window);
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
  } else if (*type != "default") {
    refuse(fields, "rope_scaling.rope_type", fmt::format("{} is not implemented", in_quotes(*type)),
           "use a model with linear, llama3 or longrope scaling, or none");
  }
  if (const auto& error = rope.error()) fields.refuse(*error);
}

void read_rotated_share(Fields& fields, std::string_view where, ModelConfig& config) {
  const auto share = fields.get_or<double>("partial_rotary_factor", 1.0);
  if (share == 1.0) return;
  if (config.architecture == "phi3" && share > 0.0 && share < 1.0)
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
      Fields inside(*scaling);
      read_rotated_share(inside, fmt::format("{}.", key), config);
      if (const auto& error = inside.error()) fields.refuse(*error);
      read_rope_scaling(*scaling, fields, config);
    }
  }
}

void read_switches(Fields& fields, const Architecture& architecture, ModelConfig& config) {
  const bool attention_bias = architecture.attention_bias && fields.get_or<bool>("attention_bias", false);
  const bool is_olmo2 = config.architecture == "olmo2";
  config.qkv_bias = config.architecture == "qwen2" || attention_bias;
  config.output_bias = attention_bias;
  config.mlp_bias = architecture.mlp_bias && fields.get_or<bool>("mlp_bias", false);
  if (config.architecture == "qwen3") config.qk_norm = QkNorm::per_head;
  if (is_olmo2) config.qk_norm = QkNorm::whole;
  config.pre_norms = !is_olmo2;
  config.post_norms = is_olmo2;
  config.fused_qkv = config.fused_gate_up = config.architecture == "phi3";
  config.tied_embeddings = fields.get_or<bool>("tie_word_embeddings", architecture.tied_embeddings);
  if (const auto act = fields.get_or<std::string>("hidden_act", "silu"); act != "silu")
    refuse(fields, "hidden_act", fmt::format("{} is not implemented", in_quotes(act)), "use a model with silu");
}

void read_granite(Fields& fields, ModelConfig& config) {
  config.embedding_scale = fields.get_or<float>("embedding_multiplier", 1.0F);
  config.residual_scale = fields.get_or<float>("residual_multiplier", 1.0F);
  config.attention_scale = fields.get_or<float>("attention_multiplier", 1.0F);
  config.logit_divisor = fields.get_or<float>("logits_scaling", 1.0F);
}

// A list with one entry per layer; empty if the config has none.
std::vector<JsonRef> layer_list(const JsonRef& json, std::string_view key, Fields& fields, const ModelConfig& config) {
  const auto list = json.find(key);
  if (!list) return {};
  auto elements = list->elements();
  if (!elements) {
    fields.refuse(std::move(elements.error()));
    return {};
  }
  if (elements->size() == config.num_layers) return std::move(*elements);
  fields.refuse({ErrorCode::corrupt, list->path(), fmt::format("{} entries for {} layers", elements->size(), config.num_layers),
                 "use the config that belongs to the weights"});
  return {};
}

void read_layers(const JsonRef& json, Fields& fields, ModelConfig& config) {
  for (const JsonRef& entry : layer_list(json, "layer_types", fields, config)) {
    const auto type = entry.as<std::string_view>();
    if (!type)
      fields.refuse(type.error());
    else if (*type != "full_attention" && *type != "sliding_attention")
      fields.refuse({ErrorCode::unsupported, entry.path(), fmt::format("{} is not implemented", in_quotes(*type)),
                     "use a model whose layers all attend to tokens"});
  }
  if (config.architecture != "smollm3") return;
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
  const auto* known = std::ranges::find(kArchitectures, config.architecture, &Architecture::name);
  if (known == kArchitectures.end()) {
    return fail(ErrorCode::unsupported, "config.json: model_type", fmt::format("{} is not implemented", in_quotes(config.architecture)),
                "use a dense model of the families llama (with SmolLM2), mistral, qwen2, qwen3, phi3, granite, smollm3 or olmo2");
  }
  if (json.find("quantization_config")) {
    return fail(ErrorCode::unsupported, "config.json: quantization_config", "quantised safetensors are not implemented",
                "use the unquantised folder or a GGUF file");
  }
  read_shape(fields, *known, config);
  config.rope_theta = fields.get_or<double>("rope_theta", known->rope_theta);
  read_rope(json, fields, config);
  read_window(fields, config);
  read_switches(fields, *known, config);
  if (config.architecture == "granite") read_granite(fields, config);
  read_layers(json, fields, config);
  if (const auto& error = fields.error()) return std::unexpected(*error);
  if (auto error = config.check()) return std::unexpected(std::move(*error));
  return config;
}

}  // namespace quire
