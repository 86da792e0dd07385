#pragma once
// What the KV cache and the tiers below it hold and have done, as JSON: GET /v1/cache.
#include <string>

#include "quire/engine.h"

namespace quire {

[[nodiscard]] std::string cache_status(const EngineStats& engine, std::uint32_t block_size);

}  // namespace quire
