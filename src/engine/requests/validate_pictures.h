#pragma once
#include "quire/engine.h"
#include "quire/error.h"
#include "quire/picture.h"

namespace quire {

// Pictures of a request, for a model that says this of them. Errors name the field.
Result<void> validate_pictures(const EngineRequest& request, const PictureInfo& info);

}  // namespace quire
