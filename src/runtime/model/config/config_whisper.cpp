// Reads config.json of Whisper: a decoder that attends to an encoder's output for a window of audio. Norms are LayerNorms, positions are
// learned, there is no rotary embedding, and the feed-forward parts have no gate.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "format/quote.h"
#include "runtime/model/config/config_fields.h"
#include "runtime/model/config/model_config.h"

namespace quire {
namespace {

constexpr std::uint32_t kMaxFeatures = 1024, kMaxPositions = 1U << 16U;

// Sets the heads, which share the width evenly. check_encoder() refuses a width that is not divisible by the number of heads.
void set_heads(ModelConfig& config, std::uint32_t num_heads) {
  config.num_heads = config.num_kv_heads = num_heads;
  config.head_dim = num_heads == 0 ? 0 : config.hidden_size / num_heads;
  config.rotary_dim = config.head_dim;
  config.attention_scale = 1.0F / std::sqrt(static_cast<float>(std::max(config.head_dim, 1U)));
}

std::optional<Error> check_encoder(const ModelConfig& config) {
  const EncoderShape& shape = config.encoder;
  const std::tuple<const char*, std::uint32_t, std::uint32_t> ranges[] = {{"encoder_layers", shape.num_layers, kMaxLayers},
                                                                          {"num_mel_bins", shape.num_features, kMaxFeatures},
                                                                          {"max_source_positions", shape.num_positions, kMaxPositions}};
  for (const auto& [name, value, limit] : ranges)
    if (value == 0 || value > limit) return wrong_value(name, fmt::format("{} is out of range (1 to {})", value, limit));
  for (const ModelConfig& part : {config, config.encoder_config()}) {
    if (auto error = part.check()) return error;
    if (part.num_heads * part.head_dim != part.hidden_size)
      return wrong_value("d_model", fmt::format("{} heads cannot divide {} values evenly", part.num_heads, part.hidden_size));
  }
  return std::nullopt;
}

}  // namespace

ModelConfig ModelConfig::encoder_config() const {
  ModelConfig config = *this;
  config.num_layers = encoder.num_layers;
  config.intermediate_size = encoder.intermediate_size;
  config.context_length = encoder.num_positions;
  config.cross_positions = 0;
  config.is_bidirectional = true;
  config.nope_layers.assign(std::min(encoder.num_layers, kMaxLayers), true);
  set_heads(config, encoder.num_heads);
  return config;
}

Result<ModelConfig> config_from_whisper(const JsonRef& json) {
  ModelConfig config;
  JsonFields fields(json, NullMeans::none);
  config.architecture = "whisper";
  config.hidden_size = fields.need<std::uint32_t>("d_model");
  config.num_layers = fields.need<std::uint32_t>("decoder_layers");
  config.intermediate_size = fields.need<std::uint32_t>("decoder_ffn_dim");
  config.vocab_size = fields.need<std::uint32_t>("vocab_size");
  config.context_length = fields.need<std::uint32_t>("max_target_positions");
  set_heads(config, fields.need<std::uint32_t>("decoder_attention_heads"));
  config.encoder = {.num_layers = fields.need<std::uint32_t>("encoder_layers"),
                    .num_heads = fields.need<std::uint32_t>("encoder_attention_heads"),
                    .intermediate_size = fields.need<std::uint32_t>("encoder_ffn_dim"),
                    .num_features = fields.need<std::uint32_t>("num_mel_bins"),
                    .num_positions = fields.need<std::uint32_t>("max_source_positions")};
  config.cross_positions = config.encoder.num_positions;
  config.norm_epsilon = 1e-5F;
  config.layer_norms = config.learned_positions = config.tied_embeddings = true;
  config.activation = GateActivation::gelu;
  config.qkv_bias = config.output_bias = config.mlp_bias = true;
  config.nope_layers.assign(std::min(config.num_layers, kMaxLayers), true);
  if (const auto act = fields.get_or<std::string>("activation_function", "gelu"); act != "gelu")
    refuse_key(fields, "activation_function", fmt::format("{} is not implemented", in_quotes(act)), "use a model with gelu");
  if (fields.get_or<bool>("scale_embedding", false)) refuse_key(fields, "scale_embedding", "is not implemented", "use a model without it");
  if (!fields.get_or<bool>("tie_word_embeddings", true))
    refuse_key(fields, "tie_word_embeddings", "a separate output matrix is not implemented",
               "use a model that ties the output matrix to the embeddings");
  if (const auto& error = fields.error()) return std::unexpected(*error);
  if (auto error = check_encoder(config)) return std::unexpected(std::move(*error));
  return config;
}

}  // namespace quire
