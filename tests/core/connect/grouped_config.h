#pragma once
// A cache of several groups.
#include <fmt/format.h>

#include <cstdint>
#include <vector>

#include "core/schedule/core_driver.h"

namespace quire::test {

// Returns one group per window. Windows are in tokens; 0 means full attention.
inline std::vector<KvCacheGroup> cache_groups_of(const std::vector<std::uint32_t>& windows, std::uint32_t block_size = kBlockSize) {
  std::vector<KvCacheGroup> groups;
  for (const std::uint32_t window : windows) {
    FullAttentionSpec full;
    full.block_size = block_size;
    SlidingWindowSpec sliding;
    sliding.block_size = block_size;
    sliding.sliding_window = window;
    groups.push_back({.layer_names = {fmt::format("layer{}", groups.size())},
                      .spec = window == 0 ? LayerKvSpec(full) : LayerKvSpec(sliding),
                      .layer_specs = {}});
  }
  return groups;
}

// Blocks whose load fails are computed.
inline CoreConfig grouped_config(const std::vector<std::uint32_t>& windows, std::uint32_t num_blocks = 64) {
  CoreConfig config = sync_config(num_blocks);
  config.kv.groups = cache_groups_of(windows);
  config.kv_load_failure = KvLoadFailurePolicy::recompute;
  config.fixes.hits_before_loads = true;
  return config;
}

}  // namespace quire::test
