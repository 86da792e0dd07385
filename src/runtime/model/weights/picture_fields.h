#pragma once
// What the image processors of all families have in common, and the readers of each.
#include <optional>
#include <string>
#include <string_view>

#include "format/json.h"
#include "quire/base/error.h"
#include "quire/base/picture.h"
#include "runtime/model/config/config_fields.h"
#include "runtime/model/config/vision_config.h"

namespace quire {

inline constexpr std::uint32_t kMostPictureEdge = 16'384;  // pixels to which a picture is scaled

struct PictureFiles {
  JsonRef image;                 // the image processor's part
  std::optional<JsonRef> whole;  // processor_config.json, where there is one
};

// Means, deviations, the filter and the factor of pixels: where a key is missing, `info` stays as it is. Refuses steps that are off.
void read_pixel_fields(const JsonRef& json, JsonFields& fields, PictureInfo& info);

// What of a folder contradicts its model, or is not implemented.
std::unexpected<Error> refuse_picture_key(const JsonRef& json, std::string_view key, std::string problem);

// Idefics3ImageProcessor.
Result<PictureInfo> read_idefics3_info(const PictureFiles& files, const VisionConfig& vision);
// LLaVA's, with CLIPImageProcessor or SiglipImageProcessor.
Result<PictureInfo> read_llava_info(const PictureFiles& files, const VisionConfig& vision);
// Gemma3ImageProcessor.
Result<PictureInfo> read_gemma3_info(const PictureFiles& files, const VisionConfig& vision);
// Qwen2VLImageProcessor.
Result<PictureInfo> read_qwen_info(const PictureFiles& files, const VisionConfig& vision);

}  // namespace quire
