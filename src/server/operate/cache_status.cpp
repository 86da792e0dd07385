#include "server/operate/cache_status.h"

#include <fmt/format.h>

#include "base/append_format.h"
#include "base/json_text.h"
#include "server/operate/tier_fields.h"

namespace quire {

std::string cache_status(const EngineStats& engine, std::uint32_t block_size) {
  std::string text = fmt::format(
      R"({{"object":"cache","memory":{{"block_size":{},"blocks":{},"free_blocks":{},"query_tokens":{},"hit_tokens":{},"evicted_blocks":{}}},)"
      R"("tiers":[)",
      block_size, engine.num_blocks, engine.num_free_blocks, engine.prefix_cache_queries, engine.prefix_cache_hits,
      engine.num_evicted_blocks);
  append_tiers(text, engine.kv_tiers);
  return text + "]}";
}

void append_tiers(std::string& text, std::span<const KvTierStats> tiers) {
  for (const KvTierStats& tier : tiers) {
    append_format(text, R"({}{{"tier":{})", &tier == tiers.data() ? "" : ",", json_string(tier.name));
    for (const TierField& field : tier_fields()) append_format(text, R"(,"{}":{})", field.name, field.value(tier));
    text += '}';
  }
}

}  // namespace quire
