#pragma once
// How a folder says that pictures become what its encoder takes: preprocessor_config.json, or processor_config.json where newer versions of
// transformers keep it.
#include <string>

#include "quire/base/error.h"
#include "quire/base/picture.h"
#include "runtime/model/config/vision_config.h"

namespace quire {

// Errors: `not_found` (no such file), `unsupported` (a processor that does something else), `corrupt`, naming file and key.
Result<PictureInfo> read_picture_info(const std::string& folder, const VisionConfig& vision);

}  // namespace quire
