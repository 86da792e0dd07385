// Translates the keys of the SigLIP encoders of SmolVLM, Idefics3 and Gemma 3.
#include <cstdint>
#include <utility>

#include "runtime/model/weights/mmproj_keys.h"

namespace quire {

Result<boost::json::object> siglip_config(const GgufFile& file, const ModelConfig& /*decoder*/, std::uint32_t default_shuffle) {
  ClipKeys keys(file);
  boost::json::object vision{{"model_type", "siglip_vision_model"}, {"hidden_act", "gelu_pytorch_tanh"}};
  for (const auto& [name, key] : {std::pair("hidden_size", "embedding_length"), std::pair("intermediate_size", "feed_forward_length"),
                                  std::pair("num_hidden_layers", "block_count"), std::pair("num_attention_heads", "attention.head_count"),
                                  std::pair("image_size", "image_size"), std::pair("patch_size", "patch_size")})
    vision[name] = keys.need<std::uint32_t>(key);
  vision["layer_norm_eps"] = keys.get_or<float>("attention.layer_norm_epsilon", 1e-6F);
  const auto shuffle = keys.get_or<std::uint32_t>("projector.scale_factor", default_shuffle);
  if (const auto& error = keys.error()) return std::unexpected(*error);
  boost::json::object whole{{"scale_factor", shuffle}};
  const std::uint64_t patch = vision["patch_size"].to_number<std::uint32_t>(), side = vision["image_size"].to_number<std::uint32_t>();
  const std::uint64_t tokens = patch == 0 || shuffle == 0 ? 0 : side / patch / shuffle;
  whole["mm_tokens_per_image"] = tokens <= 1U << 16U ? tokens * tokens : 0;
  whole["vision_config"] = std::move(vision);
  return whole;
}

Result<boost::json::object> siglip_processor(const GgufFile& file, const VisionConfig& vision) {
  ClipKeys keys(file);
  boost::json::object json;
  json["image_mean"] = keys.colours("image_mean");
  json["image_std"] = keys.colours("image_std");
  const std::uint32_t side = vision.image_size;
  if (vision.attends_bidirectionally) {
    json["size"] = {{"height", side}, {"width", side}};
  } else {
    json["size"] = {{"longest_edge", keys.get_or<std::uint32_t>("preproc_image_size", 4 * side)}};
    json["max_image_size"] = {{"longest_edge", side}};
  }
  if (const auto& error = keys.error()) return std::unexpected(*error);
  return json;
}

}  // namespace quire
