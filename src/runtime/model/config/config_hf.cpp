// Reads a ModelConfig from config.json of a Hugging Face folder. Defaults follow transformers' model classes. Called once per model, when
// its headers are read; any thread. An unknown key that would change outputs is an error that names the key.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "format/quote.h"
#include "runtime/model/config/config_fields.h"
#include "runtime/model/config/config_layers.h"
#include "runtime/model/config/config_rope.h"
#include "runtime/model/config/config_states.h"
#include "runtime/model/config/families.h"
#include "runtime/model/config/model_config.h"

namespace quire {
namespace {

// Returns the head dimension. For null, some classes divide the width evenly although their default is another value.
std::uint32_t read_head_dim(JsonFields& fields, const HfTraits& hf, std::uint32_t even_share) {
  const std::uint32_t usual = hf.head_dim > 0 ? hf.head_dim : even_share;
  if ((hf.null_head_dim_is_even || usual == even_share) && fields.is_null("head_dim")) return even_share;
  return fields.get_or<std::uint32_t>("head_dim", usual);
}

// Reads the shape. In a model that supports images, the decoder's config may omit values.
void read_shape(JsonFields& fields, const ModelFamily& family, bool is_part, ModelConfig& config) {
  const HfTraits& hf = family.hf;
  const bool has_usual = is_part && hf.shape.num_layers > 0;
  const auto need = [&](std::string_view key, std::uint32_t DefaultShape::* value) {
    return has_usual ? fields.get_or<std::uint32_t>(key, hf.shape.*value) : fields.need<std::uint32_t>(key);
  };
  config.num_layers = family.has_blocks ? fields.get_or<std::uint32_t>("num_hidden_layers", 0)  // read_blocks() may count them
                                        : need("num_hidden_layers", &DefaultShape::num_layers);
  config.hidden_size = need("hidden_size", &DefaultShape::hidden_size);
  const auto own_width = hf.width_key.empty() ? std::nullopt : fields.get_optional<std::uint32_t>(hf.width_key);
  config.intermediate_size = own_width ? *own_width : need("intermediate_size", &DefaultShape::intermediate_size);
  config.num_heads = need("num_attention_heads", &DefaultShape::num_heads);
  const bool is_usual = has_usual && hf.shape.num_kv_heads > 0 && !fields.is_null("num_key_value_heads");
  config.num_kv_heads =
      fields.get_optional<std::uint32_t>("num_key_value_heads").value_or(is_usual ? hf.shape.num_kv_heads : config.num_heads);
  config.vocab_size = need("vocab_size", &DefaultShape::vocab_size);
  config.context_length = need("max_position_embeddings", &DefaultShape::context_length);
  config.norm_epsilon = fields.get_or<float>(hf.epsilon_key, hf.norm_epsilon);
  std::uint32_t even_share = config.num_heads == 0 ? 0 : config.hidden_size / config.num_heads;
  if (!hf.even_share_key.empty()) even_share = fields.get_or<std::uint32_t>(hf.even_share_key, even_share);
  config.head_dim = read_head_dim(fields, hf, even_share);
  config.attention_scale = 1.0F / std::sqrt(static_cast<float>(std::max(config.head_dim, 1U)));
}

bool read_bias(JsonFields& fields, const BiasKey& bias) {
  return bias.key.empty() ? bias.usual : fields.get_or<bool>(bias.key, bias.usual);
}

std::string_view hf_name(GateActivation activation) {
  switch (activation) {
    case GateActivation::gelu_tanh:
      return "gelu_pytorch_tanh";
    case GateActivation::relu2:
      return "relu2";
    case GateActivation::gelu:
      return "gelu";
    case GateActivation::silu:
    case GateActivation::swiglu_limited:
      break;
  }
  return "silu";
}

void read_activation(JsonFields& fields, const ModelFamily& family, ModelConfig& config) {
  config.activation = family.activation;
  const std::string usual(hf_name(family.activation));
  const std::string_view key = family.hf.activation_key;
  const auto act =
      family.hf.activation_may_be_null ? fields.get_optional<std::string>(key).value_or(usual) : fields.get_or<std::string>(key, usual);
  if (act != usual)
    refuse_key(fields, key, fmt::format("{} is not implemented", in_quotes(act)), fmt::format("use a model with {}", usual));
}

void read_switches(JsonFields& fields, const ModelFamily& family, ModelConfig& config) {
  const HfTraits& hf = family.hf;
  config.qkv_bias = read_bias(fields, hf.qkv_bias);
  config.output_bias = read_bias(fields, hf.output_bias);
  config.mlp_bias = read_bias(fields, hf.mlp_bias);
  if (hf.qk_norm_key.empty() || fields.get_or<bool>(hf.qk_norm_key, false)) config.qk_norm = family.qk_norm;
  config.fused_qkv = hf.fused_qkv;
  config.fused_gate_up = family.fused_gate_up;
  config.tied_embeddings = fields.get_or<bool>("tie_word_embeddings", hf.tied_embeddings);
  config.tensor_names = hf.tensor_names;
  read_activation(fields, family, config);
}

void read_nope_layers(const JsonRef& json, std::uint32_t usual, JsonFields& fields, ModelConfig& config) {
  config.nope_layer_interval = fields.get_or<std::uint32_t>("no_rope_layer_interval", usual);
  // In this list, 1 means that the layer rotates, despite the key's name.
  for (const JsonRef& entry : layer_list(json, "no_rope_layers", fields, config)) {
    const auto rotates = entry.as<std::uint32_t>();
    if (!rotates) fields.refuse(rotates.error());
    config.nope_layers.push_back(rotates.value_or(1) == 0);
  }
}

struct TextPart {
  JsonRef json;
  std::string architecture;
  bool is_part = false;
};

// Returns the config of the text decoder. A model that also supports images has a separate config for the decoder.
Result<TextPart> text_part(const JsonRef& whole) {
  JsonFields fields(whole, NullMeans::none);
  std::string type = fields.need<std::string>("model_type");
  if (const auto& error = fields.error()) return std::unexpected(*error);
  const VisionFamily* family = find_vision_family(type);
  if (family == nullptr || family->read != nullptr) return TextPart{whole, std::move(type)};
  auto inner = whole.at("text_config");
  if (!inner) return std::unexpected(std::move(inner.error()));
  JsonFields text(*inner, NullMeans::none);
  std::string architecture = text.get_or<std::string>("model_type", std::string(family->decoders.front()));
  if (const auto& error = text.error()) return std::unexpected(*error);
  return TextPart{std::move(*inner), std::move(architecture), true};
}

Error unknown_architecture(std::string_view name) {
  std::vector<std::string_view> with_images;
  for (const VisionFamily& family : vision_families()) with_images.push_back(family.architecture);
  return {ErrorCode::unsupported, "config.json: model_type", fmt::format("{} is not implemented", in_quotes(name)),
          fmt::format("{} or a model with image input ({})", list_families(hf_families()), fmt::join(with_images, ", "))};
}

Result<ModelConfig> read_decoder(const JsonRef& json, std::string_view architecture, bool is_part) {
  const ModelFamily* const family = find_hf_family(architecture);
  if (family == nullptr) return std::unexpected(unknown_architecture(architecture));
  const HfTraits& hf = family->hf;
  ModelConfig config;
  JsonFields fields(json, NullMeans::none);
  config.architecture = hf.name;
  read_shape(fields, *family, is_part, config);
  // Some architectures with states have no rotary embedding, so rope_theta may be null.
  config.rope_theta = hf.read_states != nullptr ? fields.get_optional<double>("rope_theta").value_or(hf.rope_theta)
                                                : fields.get_or<double>("rope_theta", hf.rope_theta);
  if (!family->has_blocks) read_rope(*family, json, fields, config);
  family->set_norms(config);
  read_switches(fields, *family, config);
  if (hf.read != nullptr) hf.read(json, fields, config);
  config.expert_tensors = family->experts.hf_tensors;
  if (family->experts.read_hf != nullptr) family->experts.read_hf(family->experts, json, fields, config);
  if (family->windows_ignore_scaling) config.window_rope_theta = config.rope_theta;
  if (family->nope_interval > 0) read_nope_layers(json, family->nope_interval, fields, config);
  if (hf.read_states != nullptr) {
    hf.read_states(json, fields, config);
    drop_unused_states(config);
  } else {
    read_windows(*family, json, fields, config);
  }
  if (family->rotates_windows_only) set_nope_layers(config);
  if (const auto& error = fields.error()) return std::unexpected(*error);
  if (auto error = config.check()) return std::unexpected(std::move(*error));
  return config;
}

// Compares the decoder's and the whole config's tie_word_embeddings. transformers 4 uses the decoder's value and transformers 5 the whole
// config's, and each version may write a wrong value where only the other version reads.
Result<void> read_outer_ties(const JsonRef& whole, ModelConfig& config) {
  const auto tied = whole.get_or<bool>("tie_word_embeddings", config.tied_embeddings);
  if (!tied) return std::unexpected(tied.error());
  config.is_tied_if_no_output = *tied != config.tied_embeddings;
  return {};
}

// Reads a model with a vision encoder. The decoder's config is a part of the whole config.
Result<ModelConfig> config_with_vision(const JsonRef& whole, const VisionFamily& family) {
  const auto inner = whole.find("text_config");
  if (!inner && !family.is_text_config_optional) return std::unexpected(whole.at("text_config").error());
  const JsonRef text = inner.value_or(whole);
  const auto type = decoder_of(family, text);
  if (!type) return std::unexpected(type.error());
  auto config = read_decoder(text, *type, true);
  if (!config) return config;
  config->architecture = family.architecture;
  if (family.is_text_config_optional && !text.find("tie_word_embeddings")) {
    const auto is_tied = whole.get_or<bool>("tie_word_embeddings", false);
    if (!is_tied) return std::unexpected(is_tied.error());
    config->tied_embeddings = *is_tied;
  } else if (auto ties = read_outer_ties(whole, *config); !ties) {
    return std::unexpected(std::move(ties.error()));
  }
  config->has_unread_vision = family.is_vision_optional && !whole.find("vision_config");
  if (config->has_unread_vision) return config;
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
  if (const VisionFamily* family = find_vision_family(text->architecture); family != nullptr && family->read != nullptr)
    return config_with_vision(whole, *family);
  if (const ModelFamily* family = find_hf_family(text->architecture); family != nullptr && family->hf.read_all != nullptr)
    return family->hf.read_all(whole);
  auto config = read_decoder(text->json, text->architecture, text->is_part);
  if (!config || !text->is_part) return config;
  config->has_unread_vision = true;
  if (auto ties = read_outer_ties(whole, *config); !ties) return std::unexpected(std::move(ties.error()));
  return config;
}

}  // namespace quire
