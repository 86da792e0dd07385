#pragma once
// Fields that the image processors of all families share, and the readers of each family.
#include <optional>
#include <string>
#include <string_view>

#include "format/json.h"
#include "quire/base/error.h"
#include "quire/base/image.h"
#include "runtime/model/config/config_fields.h"
#include "runtime/model/config/vision_config.h"

namespace quire {

inline constexpr std::uint32_t kMaxImageEdge = 16'384;  // longest edge of a scaled image, in pixels

struct ImageProcessorFiles {
  JsonRef image;                 // the part for the image processor
  std::optional<JsonRef> whole;  // processor_config.json, if there is one
};

// Reads image_mean, image_std, resample and rescale_factor; a missing key leaves `info` unchanged. Refuses a processor that switches off
// resizing, rescaling, normalization or RGB conversion.
void read_pixel_fields(const JsonRef& json, JsonFields& fields, ImageInfo& info);

// Returns an error for a value in the folder that contradicts the model, or is not implemented.
std::unexpected<Error> refuse_image_key(const JsonRef& json, std::string_view key, std::string problem);

// Reads Idefics3ImageProcessor.
Result<ImageInfo> read_idefics3_info(const ImageProcessorFiles& files, const VisionConfig& vision);
// Reads LLaVA's processor: CLIPImageProcessor or SiglipImageProcessor.
Result<ImageInfo> read_llava_info(const ImageProcessorFiles& files, const VisionConfig& vision);
// Reads Gemma3ImageProcessor.
Result<ImageInfo> read_gemma3_info(const ImageProcessorFiles& files, const VisionConfig& vision);
// Reads Qwen2VLImageProcessor.
Result<ImageInfo> read_qwen_info(const ImageProcessorFiles& files, const VisionConfig& vision);

}  // namespace quire
