// Defaults are those of transformers' classes.
#include "runtime/model/config/vision_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>

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
  if (config.side() == 0 || (config.shuffle > 1 && config.image_size % config.patch_size != 0) || config.num_patches() > kMostPatches)
    return wrong("patch_size", fmt::format("is {} for pictures of {} pixels", config.patch_size, config.image_size));
  if (config.shuffle == 0 || config.side() % config.shuffle != 0)
    return wrong("patch_size",
                 fmt::format("gives {} patches a side, which scale_factor {} does not divide", config.side(), config.shuffle));
  if (config.num_rows() <= config.num_skipped) return wrong("image_size", "leaves no patch");
  if (!(config.norm_epsilon > 0.0F)) return wrong("layer_norm_eps", "is not above 0");
  return std::nullopt;
}

// What a tower's class of transformers takes where the key is missing.
struct UsualTower {
  std::string_view type;  // model_type
  std::uint32_t hidden_size, intermediate_size, num_layers, num_heads, image_size, patch_size;
  float norm_epsilon;
  std::string_view activation;
};

constexpr UsualTower kIdefics3Tower{"idefics3_vision", 1152, 3072, 12, 16, 224, 32, 1e-6F, "gelu_pytorch_tanh"};
constexpr UsualTower kSiglipTower{"siglip_vision_model", 768, 3072, 12, 12, 224, 16, 1e-6F, "gelu_pytorch_tanh"};
constexpr UsualTower kClipTower{"clip_vision_model", 768, 3072, 12, 12, 224, 32, 1e-5F, "quick_gelu"};

void read_tower(JsonFields& fields, const UsualTower& usual, VisionConfig& config) {
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
    refuse_key(fields, "vision_config.num_channels", fmt::format("{} is not implemented", channels), "use a model of colours");
}

Result<VisionConfig> checked(VisionConfig config, std::initializer_list<const JsonFields*> read) {
  for (const JsonFields* fields : read)
    if (const auto& error = fields->error()) return std::unexpected(*error);
  if (auto error = check_vision(config)) return std::unexpected(std::move(*error));
  return config;
}

Result<VisionConfig> read_idefics3(const JsonRef& json, std::uint32_t output_size) {
  const auto vision = json.at("vision_config");
  if (!vision) return std::unexpected(vision.error());
  JsonFields fields(*vision), outer(json);
  VisionConfig config{.processor = "idefics3", .tower = "vision_model."};
  read_tower(fields, kIdefics3Tower, config);
  config.shuffle = outer.get_or<std::uint32_t>("scale_factor", 2);
  config.token = outer.get_or<std::int32_t>("image_token_id", 128257);
  config.output_size = output_size;
  return checked(config, {&fields, &outer});
}

// Features are the outputs of a layer, counted from the back if it is below 0 (-1: the last); 0 are the patches themselves.
void read_llava_features(const JsonRef& json, JsonFields& outer, VisionConfig& config) {
  const auto listed = json.find("vision_feature_layer");
  if (listed && listed->value().is_array()) {
    refuse_key(outer, "vision_feature_layer", "is a list, which is not implemented", "use a model whose features are one layer's");
    return;
  }
  const auto layer = outer.get_or<std::int32_t>("vision_feature_layer", -2);
  const std::int64_t count = config.num_layers, used = layer < 0 ? count + 1 + layer : layer;
  if (used < 1 || used > count) {
    refuse_key(outer, "vision_feature_layer", fmt::format("is {}, and the encoder has {} layers", layer, count),
               "use the config that belongs to the weights");
    return;
  }
  config.num_unused_layers = static_cast<std::uint32_t>(count - used);
  config.num_layers = static_cast<std::uint32_t>(used);
  const auto strategy = outer.get_or<std::string>("vision_feature_select_strategy", "default");
  if (strategy != "default" && strategy != "full")
    refuse_key(outer, "vision_feature_select_strategy", fmt::format("{} is not implemented", in_quotes(strategy)),
               "use a model with default or full");
  config.num_skipped = strategy == "default" ? 1 : 0;
}

// The norm behind the last layer is not part of any layer's outputs.
Result<VisionConfig> read_llava(const JsonRef& json, std::uint32_t output_size) {
  const auto vision = json.at("vision_config");
  if (!vision) return std::unexpected(vision.error());
  JsonFields fields(*vision), outer(json);
  VisionConfig config{.processor = "llava", .tower = "vision_tower.vision_model.", .token_key = "image_token_index"};
  const auto type = fields.get_or<std::string>("model_type", std::string(kClipTower.type));
  const bool is_clip = type == kClipTower.type;
  if (!is_clip && type != kSiglipTower.type)
    refuse_key(fields, "vision_config.model_type", fmt::format("{} is not implemented", in_quotes(type)),
               "use a model that sees with CLIP or SigLIP");
  read_tower(fields, is_clip ? kClipTower : kSiglipTower, config);
  config.class_token = config.pre_norm = is_clip;
  config.patch_bias = !is_clip;
  config.post_norm = false;
  if (!fields.error()) read_llava_features(json, outer, config);
  const auto activation = outer.get_or<std::string>("projector_hidden_act", "gelu");
  config.projector = vision_activation_of(activation);
  if (!config.projector)
    refuse_key(outer, "projector_hidden_act", fmt::format("{} is not implemented", in_quotes(activation)), "use a model with gelu");
  config.projector_bias = outer.get_or<bool>("multimodal_projector_bias", true);
  config.token = outer.get_or<std::int32_t>("image_token_id", outer.get_or<std::int32_t>("image_token_index", 32000));
  config.output_size = output_size;
  return checked(config, {&fields, &outer});
}

}  // namespace

std::optional<VisionActivation> vision_activation_of(std::string_view name) {
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return VisionActivation::gelu_tanh;
  if (name == "gelu") return VisionActivation::gelu_erf;
  if (name == "quick_gelu") return VisionActivation::quick_gelu;
  return std::nullopt;
}

const VisionFamily* find_vision_family(std::string_view architecture) {
  static constexpr std::array<std::string_view, 3> kDecoders{"llama", "mistral", "qwen2"};
  static constexpr std::span<const std::string_view> kLlama = std::span(kDecoders).first(1);
  static constexpr std::array kFamilies{VisionFamily{"idefics3", kLlama, read_idefics3}, VisionFamily{"smolvlm", kLlama, read_idefics3},
                                        VisionFamily{"llava", kDecoders, read_llava}};
  const auto* const found = std::ranges::find(kFamilies, architecture, &VisionFamily::architecture);
  return found == kFamilies.end() ? nullptr : found;
}

Result<std::string> decoder_of(const VisionFamily& family, const JsonRef& text_config) {
  auto type = text_config.get_or<std::string>("model_type", "llama");
  if (!type || std::ranges::find(family.decoders, *type) != family.decoders.end()) return type;
  return fail(ErrorCode::unsupported, "config.json: text_config.model_type", fmt::format("{} is not implemented here", in_quotes(*type)),
              fmt::format("use a model whose decoder is a {}", fmt::join(family.decoders, " or ")));
}

Result<VisionConfig> read_vision(const VisionFamily& family, const JsonRef& config, std::uint32_t output_size, std::uint32_t vocab_size) {
  return with_token_of(vocab_size, family.read(config, output_size));
}

Result<VisionConfig> with_token_of(std::uint32_t vocab_size, Result<VisionConfig> vision) {
  if (!vision || (std::in_range<std::uint32_t>(vision->token) && static_cast<std::uint32_t>(vision->token) < vocab_size)) return vision;
  return fail(ErrorCode::corrupt, fmt::format("config.json: {}", vision->token_key),
              fmt::format("{} is not in the vocabulary", vision->token), "use the config that belongs to the weights");
}

}  // namespace quire
