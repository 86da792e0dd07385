#pragma once
#include "quire/base/error.h"
#include "quire/base/image.h"
#include "quire/engine.h"

namespace quire {

// Checks the images of a request against the image properties of the model. Errors name the field.
Result<void> validate_images(const EngineRequest& request, const ImageInfo& info);

}  // namespace quire
