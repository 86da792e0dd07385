// Reads the image encoder of LLaVA: CLIP or SigLIP, and a projector of two matrices.
#include <fmt/format.h>

#include <string>

#include "format/quote.h"
#include "runtime/model/config/vision_readers.h"

namespace quire {
namespace {

constexpr DefaultTower kSiglipTower{"siglip_vision_model", 768, 3072, 12, 12, 224, 16, 1e-6F, "gelu_pytorch_tanh"};
constexpr DefaultTower kClipTower{"clip_vision_model", 768, 3072, 12, 12, 224, 32, 1e-5F, "quick_gelu"};

// Reads which layer's outputs are the features. A negative number counts from the end (-1: the last layer); 0: the patches before the first
// layer.
void read_llava_features(const JsonRef& json, JsonFields& outer, VisionConfig& config) {
  const auto listed = json.find("vision_feature_layer");
  if (listed && listed->value().is_array()) {
    refuse_key(outer, "vision_feature_layer", "is a list, which is not implemented", "use a model that takes features from one layer");
    return;
  }
  const auto layer = outer.get_or<std::int32_t>("vision_feature_layer", -2);
  const std::int64_t count = config.num_layers, used = layer < 0 ? count + 1 + layer : layer;
  if (used < 1 || used > count) {
    refuse_key(outer, "vision_feature_layer", fmt::format("is {}, but the encoder has {} layers", layer, count),
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

}  // namespace

// Reads LLaVA. Its features are the outputs of a layer, without the norm after the last layer.
Result<VisionConfig> read_llava_vision(const JsonRef& json, std::uint32_t output_size) {
  const auto vision = json.at("vision_config");
  if (!vision) return std::unexpected(vision.error());
  JsonFields fields(*vision, NullMeans::none), outer(json, NullMeans::none);
  VisionConfig config{.processor = "llava", .tower = "vision_tower.vision_model.", .token_key = "image_token_index"};
  const auto type = fields.get_or<std::string>("model_type", std::string(kClipTower.type));
  const bool is_clip = type == kClipTower.type;
  if (!is_clip && type != kSiglipTower.type)
    refuse_key(fields, "vision_config.model_type", fmt::format("{} is not implemented", in_quotes(type)),
               "use a model with a CLIP or SigLIP encoder");
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
  config.token = read_image_token(outer, {"image_token_id", "image_token_index"}, 32000);
  config.output_size = output_size;
  return validate_tower(config, {&fields, &outer});
}

}  // namespace quire
