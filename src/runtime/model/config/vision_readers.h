#pragma once
// Readers of vision encoders, one file per family, and their shared functions. Called once per model, when config.json is read; any thread.
// Defaults follow transformers' classes.
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "format/json.h"
#include "quire/base/error.h"
#include "runtime/model/config/config_fields.h"
#include "runtime/model/config/vision_config.h"

namespace quire {

// Returns the activation with this name in a config; nullopt if it is not implemented.
[[nodiscard]] std::optional<VisionActivation> vision_activation_of(std::string_view name);

// Defaults of a vision encoder's class in transformers.
struct DefaultTower {
  std::string_view type;  // model_type
  std::uint32_t hidden_size, intermediate_size, num_layers, num_heads, image_size, patch_size;
  float norm_epsilon;
  std::string_view activation;
};

// Returns the value of the first key that is present, or `usual`.
std::int32_t read_image_token(JsonFields& outer, std::initializer_list<const char*> keys, std::int32_t usual);

// Reads an encoder of SigLIP or CLIP.
void read_tower(JsonFields& fields, const DefaultTower& usual, VisionConfig& config);
// Returns `config`, or an error if a field could not be read or the numbers are not a valid encoder.
Result<VisionConfig> validate_tower(VisionConfig config, std::initializer_list<const JsonFields*> read);

// These functions have the contract of VisionFamily::read.
Result<VisionConfig> read_idefics3_vision(const JsonRef& config, std::uint32_t output_size);
Result<VisionConfig> read_llava_vision(const JsonRef& config, std::uint32_t output_size);
Result<VisionConfig> read_gemma3_vision(const JsonRef& config, std::uint32_t output_size);
Result<VisionConfig> read_qwen2_vision(const JsonRef& config, std::uint32_t output_size);
Result<VisionConfig> read_qwen2_5_vision(const JsonRef& config, std::uint32_t output_size);

}  // namespace quire
