#pragma once
// Routes with which clients of llama.cpp's server inspect it: /props, /slots and /apply-template.
#include "server/api/routes.h"

namespace quire {

[[nodiscard]] ApiRoutes llama_cpp_routes(Serving& serving);

}  // namespace quire
