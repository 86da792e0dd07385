// Reads the encoders of SigLIP and CLIP: a transformer over the patches of an image of a fixed size.
#include <fmt/format.h>

#include <utility>

#include "format/quote.h"
#include "runtime/model/config/vision_readers.h"

namespace quire {
namespace {

constexpr std::uint32_t kMaxVisionNumber = 1U << 16U;
constexpr std::uint32_t kMaxPatches = 1U << 14U;

std::optional<Error> check_vision(const VisionConfig& config) {
  const auto wrong = [](const char* key, std::string problem) {
    return Error{ErrorCode::corrupt, fmt::format("config.json: vision_config.{}", key), std::move(problem),
                 "use the config that belongs to the weights"};
  };
  const auto in_range = [](std::uint32_t value) { return value > 0 && value <= kMaxVisionNumber; };
  for (const auto& [key, value] : {std::pair("hidden_size", config.hidden_size), std::pair("intermediate_size", config.intermediate_size),
                                   std::pair("num_hidden_layers", config.num_layers), std::pair("num_attention_heads", config.num_heads),
                                   std::pair("image_size", config.image_size), std::pair("patch_size", config.patch_size)})
    if (!in_range(value)) return wrong(key, fmt::format("is {}, which is out of range", value));
  if (config.hidden_size % config.num_heads != 0) return wrong("num_attention_heads", "does not divide hidden_size evenly");
  if (config.side() == 0 || (config.shuffle > 1 && config.image_size % config.patch_size != 0) || config.num_patches() > kMaxPatches)
    return wrong("patch_size", fmt::format("is {}, which does not fit images of {} pixels", config.patch_size, config.image_size));
  if (config.shuffle == 0 || config.side() % config.shuffle != 0)
    return wrong("patch_size",
                 fmt::format("gives {} patches per side, which is not a multiple of scale_factor {}", config.side(), config.shuffle));
  if (config.num_rows() <= config.num_skipped) return wrong("image_size", "is too small for one patch");
  if (!(config.norm_epsilon > 0.0F)) return wrong("layer_norm_eps", "must be greater than 0");
  return std::nullopt;
}

}  // namespace

std::optional<VisionActivation> vision_activation_of(std::string_view name) {
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return VisionActivation::gelu_tanh;
  if (name == "gelu") return VisionActivation::gelu_erf;
  if (name == "quick_gelu") return VisionActivation::quick_gelu;
  return std::nullopt;
}

std::int32_t read_image_token(JsonFields& outer, std::initializer_list<const char*> keys, std::int32_t usual) {
  for (const char* key : keys)
    if (const auto token = outer.get_optional<std::int32_t>(key)) return *token;
  return usual;
}

void read_tower(JsonFields& fields, const DefaultTower& usual, VisionConfig& config) {
  config.hidden_size = fields.get_or<std::uint32_t>("hidden_size", usual.hidden_size);
  config.intermediate_size = fields.get_or<std::uint32_t>("intermediate_size", usual.intermediate_size);
  config.num_layers = fields.get_or<std::uint32_t>("num_hidden_layers", usual.num_layers);
  config.num_heads = fields.get_or<std::uint32_t>("num_attention_heads", usual.num_heads);
  config.image_size = fields.get_or<std::uint32_t>("image_size", usual.image_size);
  config.patch_size = fields.get_or<std::uint32_t>("patch_size", usual.patch_size);
  config.norm_epsilon = fields.get_or<float>("layer_norm_eps", usual.norm_epsilon);
  const auto activation = fields.get_or<std::string>("hidden_act", std::string(usual.activation));
  if (const auto known = vision_activation_of(activation))
    config.activation = *known;
  else
    refuse_key(fields, "vision_config.hidden_act", fmt::format("{} is not implemented", in_quotes(activation)), "use a model with gelu");
  if (const auto channels = fields.get_or<std::uint32_t>("num_channels", 3); channels != 3)
    refuse_key(fields, "vision_config.num_channels", fmt::format("{} is not implemented", channels), "use a model with 3 colour channels");
}

Result<VisionConfig> validate_tower(VisionConfig config, std::initializer_list<const JsonFields*> read) {
  for (const JsonFields* fields : read)
    if (const auto& error = fields->error()) return std::unexpected(*error);
  if (auto error = check_vision(config)) return std::unexpected(std::move(*error));
  return config;
}

}  // namespace quire
