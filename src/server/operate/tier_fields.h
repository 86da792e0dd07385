#pragma once
// What is told of each tier below the KV cache, by /metrics and /v1/cache.
#include <span>

#include "quire/engine.h"

namespace quire {

struct TierField {
  const char* name;  // in a metric behind "quire:kv_tier_", where a counter ends in "_total"
  bool is_counter;
  const char* help;
  double (*value)(const KvTierStats& tier);
};

[[nodiscard]] std::span<const TierField> tier_fields();

}  // namespace quire
