// Defaults are those of transformers' classes.
#include "runtime/model/config/vision_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "format/quote.h"
#include "runtime/model/config/config_fields.h"

namespace quire {
namespace {

constexpr std::uint32_t kMostVisionNumber = 1U << 16U;
constexpr std::uint32_t kMostPatches = 1U << 14U;

std::optional<Error> check_vision(const VisionConfig& config) {
  const auto wrong = [](const char* key, std::string problem) {
    return Error{ErrorCode::corrupt, fmt::format("config.json: vision_config.{}", key), std::move(problem),
                 "use the config that belongs to the weights"};
  };
  const auto in_range = [](std::uint32_t value) { return value > 0 && value <= kMostVisionNumber; };
  for (const auto& [key, value] : {std::pair("hidden_size", config.hidden_size), std::pair("intermediate_size", config.intermediate_size),
                                   std::pair("num_hidden_layers", config.num_layers), std::pair("num_attention_heads", config.num_heads),
                                   std::pair("image_size", config.image_size), std::pair("patch_size", config.patch_size)})
    if (!in_range(value)) return wrong(key, fmt::format("is {}", value));
  if (config.hidden_size % config.num_heads != 0) return wrong("num_attention_heads", "do not share hidden_size evenly");
  if (config.side() == 0 || config.image_size % config.patch_size != 0 || config.num_patches() > kMostPatches)
    return wrong("patch_size", fmt::format("is {} for pictures of {} pixels", config.patch_size, config.image_size));
  if (config.shuffle == 0 || config.side() % config.shuffle != 0)
    return wrong("patch_size",
                 fmt::format("gives {} patches a side, which scale_factor {} does not divide", config.side(), config.shuffle));
  if (!(config.norm_epsilon > 0.0F)) return wrong("layer_norm_eps", "is not above 0");
  return std::nullopt;
}

Result<VisionConfig> read_idefics3(const JsonRef& json, std::uint32_t output_size) {
  const auto vision = json.at("vision_config");
  if (!vision) return std::unexpected(vision.error());
  JsonFields fields(*vision), outer(json);
  VisionConfig config{.processor = "idefics3"};
  config.hidden_size = fields.get_or<std::uint32_t>("hidden_size", 1152);
  config.intermediate_size = fields.get_or<std::uint32_t>("intermediate_size", 3072);
  config.num_layers = fields.get_or<std::uint32_t>("num_hidden_layers", 12);
  config.num_heads = fields.get_or<std::uint32_t>("num_attention_heads", 16);
  config.image_size = fields.get_or<std::uint32_t>("image_size", 224);
  config.patch_size = fields.get_or<std::uint32_t>("patch_size", 32);
  config.norm_epsilon = fields.get_or<float>("layer_norm_eps", 1e-6F);
  const auto activation = fields.get_or<std::string>("hidden_act", "gelu_pytorch_tanh");
  if (const auto known = vision_activation_of(activation))
    config.activation = *known;
  else
    refuse_key(fields, "vision_config.hidden_act", fmt::format("{} is not implemented", in_quotes(activation)), "use a model with gelu");
  if (const auto channels = fields.get_or<std::uint32_t>("num_channels", 3); channels != 3)
    refuse_key(fields, "vision_config.num_channels", fmt::format("{} is not implemented", channels), "use a model of colours");
  config.shuffle = outer.get_or<std::uint32_t>("scale_factor", 2);
  config.token = outer.get_or<std::int32_t>("image_token_id", 128257);
  config.output_size = output_size;
  for (const auto& error : {fields.error(), outer.error()})
    if (error) return std::unexpected(*error);
  if (auto error = check_vision(config)) return std::unexpected(std::move(*error));
  return config;
}

}  // namespace

std::optional<VisionActivation> vision_activation_of(std::string_view name) {
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return VisionActivation::gelu_tanh;
  if (name == "gelu") return VisionActivation::gelu_erf;
  if (name == "quick_gelu") return VisionActivation::quick_gelu;
  return std::nullopt;
}

const VisionFamily* find_vision_family(std::string_view architecture) {
  static constexpr std::array<std::string_view, 1> kLlama{"llama"};
  static constexpr std::array kFamilies{VisionFamily{"idefics3", kLlama, read_idefics3}, VisionFamily{"smolvlm", kLlama, read_idefics3}};
  const auto* const found = std::ranges::find(kFamilies, architecture, &VisionFamily::architecture);
  return found == kFamilies.end() ? nullptr : found;
}

}  // namespace quire
