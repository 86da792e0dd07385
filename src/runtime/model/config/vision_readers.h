#pragma once
// What readers of encoders of pictures have in common, one file each, and the readers themselves. A folder's config.json is read once, when
// its headers are; any thread. Defaults are those of transformers' classes.
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "format/json.h"
#include "quire/base/error.h"
#include "runtime/model/config/config_fields.h"
#include "runtime/model/config/vision_config.h"

namespace quire {

// What configs call one of them; none: it is not implemented.
[[nodiscard]] std::optional<VisionActivation> vision_activation_of(std::string_view name);

// What a tower's class of transformers takes where the key is missing.
struct UsualTower {
  std::string_view type;  // model_type
  std::uint32_t hidden_size, intermediate_size, num_layers, num_heads, image_size, patch_size;
  float norm_epsilon;
  std::string_view activation;
};

// Of SigLIP or CLIP.
void read_tower(JsonFields& fields, const UsualTower& usual, VisionConfig& config);
// Unless something of it could not be read, or its numbers make no such tower.
Result<VisionConfig> checked_tower(VisionConfig config, std::initializer_list<const JsonFields*> read);

// Each as VisionFamily::read.
Result<VisionConfig> read_idefics3_vision(const JsonRef& config, std::uint32_t output_size);
Result<VisionConfig> read_llava_vision(const JsonRef& config, std::uint32_t output_size);
Result<VisionConfig> read_gemma3_vision(const JsonRef& config, std::uint32_t output_size);
Result<VisionConfig> read_qwen2_vision(const JsonRef& config, std::uint32_t output_size);
Result<VisionConfig> read_qwen2_5_vision(const JsonRef& config, std::uint32_t output_size);

}  // namespace quire
