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

constexpr std::array kArchitectures{"llama", "mistral", "qwen2", "qwen3"};

void refuse(Fields& fields, std::string_view key, std::string message, std::string remedy) {
  fields.refuse({ErrorCode::unsupported, "config.json: " + std::string(key), std::move(message), std::move(remedy)});
}

void read_shape(Fields& fields, ModelConfig& config) {
  config.num_layers = fields.need<std::uint32_t>("num_hidden_layers");
  config.hidden_size = fields.need<std::uint32_t>("hidden_size");
  config.intermediate_size = fields.need<std::uint32_t>("intermediate_size");
  config.num_heads = fields.need<std::uint32_t>("num_attention_heads");
  config.num_kv_heads = fields.get_or<std::uint32_t>("num_key_value_heads", config.num_heads);
  config.vocab_size = fields.need<std::uint32_t>("vocab_size");
  config.context_length = fields.need<std::uint32_t>("max_position_embeddings");
  config.norm_epsilon = fields.get_or<float>("rms_norm_eps", 1e-6F);
  const std::uint32_t even_share = config.num_heads == 0 ? 0 : config.hidden_size / config.num_heads;
  config.head_dim = fields.get_or<std::uint32_t>("head_dim", config.architecture == "qwen3" ? 128 : even_share);
  config.attention_scale = 1.0F / std::sqrt(static_cast<float>(std::max(config.head_dim, 1U)));
}

// Within its window, windowed attention is full attention: the context ends where the two would differ.
void read_window(Fields& fields, ModelConfig& config) {
  const bool is_mistral = config.architecture == "mistral";
  if (!is_mistral && !fields.get_or<bool>("use_sliding_window", false)) return;
  if (const auto window = fields.get_optional<std::uint32_t>("sliding_window"))
    config.context_length = std::min(config.context_length, *window);
}

void read_rope_scaling(const JsonRef& scaling, Fields& fields, ModelConfig& config) {
  Fields rope(scaling);
  auto type = rope.get_optional<std::string>("rope_type");
  if (!type) type = rope.get_or<std::string>("type", "default");
  config.rope_theta = rope.get_or<double>("rope_theta", config.rope_theta);
  if (*type == "linear") {
    config.rope_scaling = RopeScaling::linear;
    config.rope_factor = rope.need<double>("factor");
  } else if (*type == "llama3") {
    config.rope_scaling = RopeScaling::llama3;
    config.rope_factor = rope.need<double>("factor");
    config.rope_low_freq_factor = rope.need<double>("low_freq_factor");
    config.rope_high_freq_factor = rope.need<double>("high_freq_factor");
    config.rope_original_context = rope.need<double>("original_max_position_embeddings");
  } else if (*type != "default") {
    refuse(fields, "rope_scaling.rope_type", fmt::format("{} is not implemented", in_quotes(*type)),
           "use a model with linear or llama3 scaling, or none");
  }
  if (const auto& error = rope.error()) fields.refuse(*error);
}

void read_rope(const JsonRef& json, Fields& fields, ModelConfig& config) {
  config.rope_theta = fields.get_or<double>("rope_theta", 10000.0);
  config.rotary_dim = config.head_dim;
  config.rope_style = RopeStyle::half_split;
  if (const auto share = fields.get_or<double>("partial_rotary_factor", 1.0); share != 1.0)
    refuse(fields, "partial_rotary_factor", fmt::format("{} is not implemented", share), "use a model that rotates whole heads");
  // transformers 5 calls it rope_parameters and moves rope_theta inside.
  for (const char* key : {"rope_scaling", "rope_parameters"})
    if (const auto scaling = json.find(key)) read_rope_scaling(*scaling, fields, config);
}

void read_switches(Fields& fields, ModelConfig& config) {
  const bool attention_bias = fields.get_or<bool>("attention_bias", false);
  const bool may_have_bias = config.architecture == "llama" || config.architecture == "qwen3";
  config.qkv_bias = config.architecture == "qwen2" || (may_have_bias && attention_bias);
  config.output_bias = may_have_bias && attention_bias;
  config.mlp_bias = config.architecture == "llama" && fields.get_or<bool>("mlp_bias", false);
  config.qk_norm = config.architecture == "qwen3";
  config.tied_embeddings = fields.get_or<bool>("tie_word_embeddings", false);
  if (const auto act = fields.get_or<std::string>("hidden_act", "silu"); act != "silu")
    refuse(fields, "hidden_act", fmt::format("{} is not implemented", in_quotes(act)), "use a model with silu");
}

}  // namespace

Result<ModelConfig> config_from_hf(const JsonRef& json) {
  ModelConfig config;
  Fields fields(json);
  config.architecture = fields.need<std::string>("model_type");
  if (const auto& error = fields.error()) return std::unexpected(*error);
  if (std::ranges::find(kArchitectures, config.architecture) == kArchitectures.end()) {
    return fail(ErrorCode::unsupported, "config.json: model_type", fmt::format("{} is not implemented", in_quotes(config.architecture)),
                "use a dense model of the families llama (with SmolLM2), mistral, qwen2 or qwen3");
  }
  if (json.find("quantization_config")) {
    return fail(ErrorCode::unsupported, "config.json: quantization_config", "quantised safetensors are not implemented",
                "use the unquantised folder or a GGUF file");
  }
  read_shape(fields, config);
  read_window(fields, config);
  read_rope(json, fields, config);
  read_switches(fields, config);
  if (const auto& error = fields.error()) return std::unexpected(*error);
  if (auto error = config.check()) return std::unexpected(std::move(*error));
  return config;
}

}  // namespace quire
