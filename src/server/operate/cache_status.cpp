#include "server/operate/cache_status.h"

#include <fmt/format.h>

#include "base/append_format.h"
#include "base/json_text.h"
#include "quire/engine_metric_table.h"

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
    for (const Metric<KvTierStats>& metric : kTierMetrics) {
      const MetricValue value = metric.value(tier);
      const auto* const count = std::get_if<std::uint64_t>(&value);
      const double number = count != nullptr ? static_cast<double>(*count) : std::get<double>(value);
      for (std::string_view name : {metric.name, metric.more.old_name}) {
        if (name.empty()) continue;
        name.remove_prefix(std::string_view("quire:kv_tier_").size());
        if (name.ends_with("_total")) name.remove_suffix(std::string_view("_total").size());
        append_format(text, R"(,"{}":{})", name, number);
      }
    }
    text += '}';
  }
}

}  // namespace quire
