#pragma once
// What the KV cache and the tiers below it hold and have done, as JSON: GET /v1/cache.
#include <span>
#include <string>

#include "quire/engine.h"

namespace quire {

[[nodiscard]] std::string cache_status(const EngineStats& engine, std::uint32_t block_size);
// Of each an object, joined by commas.
void append_tiers(std::string& text, std::span<const KvTierStats> tiers);

}  // namespace quire
