#include "server/operate/cache_status.h"

#include <variant>

#include "base/json_writer.h"
#include "quire/engine_metric_table.h"

namespace quire {

std::string cache_status(const EngineStats& engine, std::uint32_t block_size) {
  return json_object([&](JsonWriter& json) {
    json.field("object", "cache").begin_object("memory").field("block_size", block_size).field("blocks", engine.num_blocks);
    json.field("free_blocks", engine.num_free_blocks).field("query_tokens", engine.prefix_cache_queries);
    json.field("hit_tokens", engine.prefix_cache_hits).field("evicted_blocks", engine.num_evicted_blocks).end_object();
    write_tiers(json, engine.kv_tiers);
  });
}

void write_tiers(JsonWriter& json, std::span<const KvTierStats> tiers) {
  json.begin_array("tiers");
  for (const KvTierStats& tier : tiers) {
    json.begin_object().field("tier", tier.name);
    for (const Metric<KvTierStats>& metric : kTierMetrics) {
      const MetricValue value = metric.value(tier);
      for (std::string_view name : {metric.name, metric.more.old_name}) {
        if (name.empty()) continue;
        name.remove_prefix(std::string_view("quire:kv_tier_").size());
        if (name.ends_with("_total")) name.remove_suffix(std::string_view("_total").size());
        if (const auto* const count = std::get_if<std::uint64_t>(&value))
          json.field(name, *count);
        else
          json.field(name, std::get<double>(value));
      }
    }
    json.end_object();
  }
  json.end_array();
}

}  // namespace quire
