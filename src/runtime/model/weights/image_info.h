#pragma once
// Reads how a folder prepares images for its encoder: preprocessor_config.json, or processor_config.json of newer versions of transformers.
#include <string>

#include "quire/base/error.h"
#include "quire/base/image.h"
#include "runtime/model/config/vision_config.h"

namespace quire {

// Reads the file. Errors, naming file and key: `not_found` (no such file), `unsupported` (the processor has other steps), `corrupt`.
Result<ImageInfo> read_image_info(const std::string& folder, const VisionConfig& vision);

}  // namespace quire
