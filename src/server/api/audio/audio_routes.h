#pragma once
// Routes /v1/audio/transcriptions and /v1/audio/translations.
#include "server/api/routes.h"

namespace quire {

[[nodiscard]] ApiRoutes audio_routes(Serving& serving);

}  // namespace quire
