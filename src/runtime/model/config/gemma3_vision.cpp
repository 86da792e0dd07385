// Reads Gemma 3's image encoder: SigLIP, followed by the mean of each square of patches, a norm and a projection.
#include <fmt/format.h>

#include <cmath>

#include "runtime/model/config/vision_readers.h"

namespace quire {
namespace {

constexpr DefaultTower kGemma3Tower{"siglip_vision_model", 768, 3072, 12, 12, 224, 16, 1e-6F, "gelu_pytorch_tanh"};

}  // namespace

Result<VisionConfig> read_gemma3_vision(const JsonRef& json, std::uint32_t output_size) {
  const auto vision = json.at("vision_config");
  if (!vision) return std::unexpected(vision.error());
  JsonFields fields(*vision, NullMeans::none), outer(json, NullMeans::none);
  VisionConfig config{.processor = "gemma3", .tower = "vision_tower.vision_model.", .token_key = "image_token_index"};
  read_tower(fields, kGemma3Tower, config);
  config.averages_patches = config.attends_bidirectionally = true;
  const auto tokens = outer.get_or<std::uint32_t>("mm_tokens_per_image", 256);
  const auto side = static_cast<std::uint32_t>(std::lround(std::sqrt(tokens)));
  if (config.patch_size > 0 && !fields.error()) {
    if (side == 0 || side * side != tokens || config.side() % side != 0)
      refuse_key(outer, "mm_tokens_per_image", fmt::format("is {}, which does not fit {} patches per side", tokens, config.side()),
                 "use the config that belongs to the weights");
    else
      config.shuffle = config.side() / side;
  }
  config.token = read_image_token(outer, {"image_token_index", "image_token_id"}, 262144);
  config.output_size = output_size;
  return validate_tower(config, {&fields, &outer});
}

}  // namespace quire
