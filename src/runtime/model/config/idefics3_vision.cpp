// Reads the image encoder of Idefics3 and SmolVLM: SigLIP, followed by a pixel shuffle that joins patches.
#include "runtime/model/config/vision_readers.h"

namespace quire {
namespace {

constexpr DefaultTower kIdefics3Tower{"idefics3_vision", 1152, 3072, 12, 16, 224, 32, 1e-6F, "gelu_pytorch_tanh"};

}  // namespace

Result<VisionConfig> read_idefics3_vision(const JsonRef& json, std::uint32_t output_size) {
  const auto vision = json.at("vision_config");
  if (!vision) return std::unexpected(vision.error());
  JsonFields fields(*vision, NullMeans::none), outer(json, NullMeans::none);
  VisionConfig config{.processor = "idefics3", .tower = "vision_model."};
  read_tower(fields, kIdefics3Tower, config);
  config.shuffle = outer.get_or<std::uint32_t>("scale_factor", 2);
  config.token = outer.get_or<std::int32_t>("image_token_id", 128257);
  config.output_size = output_size;
  return validate_tower(config, {&fields, &outer});
}

}  // namespace quire
