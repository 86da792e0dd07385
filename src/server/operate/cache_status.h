#pragma once
// GET /v1/cache: contents and counters of the KV cache and the tiers below it, as JSON.
#include <span>
#include <string>

#include "quire/engine.h"

namespace quire {

[[nodiscard]] std::string cache_status(const EngineStats& engine, std::uint32_t block_size);
// Appends one object per tier, joined by commas.
void append_tiers(std::string& text, std::span<const KvTierStats> tiers);

}  // namespace quire
