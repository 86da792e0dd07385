#pragma once
// GET /v1/cache: the contents and counters of the KV cache and of the offload tiers, as JSON.
#include <span>
#include <string>

#include "base/json_writer.h"
#include "quire/engine.h"

namespace quire {

[[nodiscard]] std::string cache_status(const EngineStats& engine, std::uint32_t block_size);
// Writes the field "tiers", with one object per tier.
void write_tiers(JsonWriter& json, std::span<const KvTierStats> tiers);

}  // namespace quire
