#pragma once
#include "quire/base/error.h"
#include "quire/base/picture.h"
#include "quire/engine.h"

namespace quire {

// Pictures of a request, for a model that says this of them. Errors name the field.
Result<void> validate_pictures(const EngineRequest& request, const PictureInfo& info);

}  // namespace quire
