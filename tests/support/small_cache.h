#pragma once
// Random requests before a KV cache so small that they are preempted and prefixes forgotten: what lies behind it is used, and changes no
// token. Blocks are the simulated worker's.
#include <gtest/gtest.h>

#include <cstdint>

#include "engine/simulated_engine.h"

namespace quire::test {

inline constexpr std::uint32_t kSmallBlock = 4;                                         // tokens
inline constexpr std::uint64_t kSmallBlockBytes = kSmallBlock * sizeof(std::uint64_t);  // a name for each token
inline constexpr std::uint32_t kSmallBlocks = 60;
inline constexpr std::uint32_t kSmallRequests = 150;

// For so many requests at once.
inline EngineOptions small_cache(std::uint32_t num_requests = kSmallRequests) {
  EngineOptions options;
  options.cache.block_size = kSmallBlock;
  options.cache.num_blocks = kSmallBlocks;
  options.scheduler.max_num_seqs = 8;
  options.scheduler.max_num_batched_tokens = 48;
  options.scheduler.max_num_waiting = num_requests;
  return options;
}

// A layer per group.
inline KvLayout small_layout(std::size_t num_groups = 1) {
  KvLayout layout{.num_blocks = kSmallBlocks, .dtype = KvDtype::f32, .groups = {}, .layers = {}, .page_bytes = {kSmallBlockBytes}};
  for (std::uint32_t group = 0; group < num_groups; ++group)
    layout.groups.push_back({.spec = {}, .block_size = kSmallBlock, .kernel_block_size = kSmallBlock, .layers = {group}});
  return layout;
}

// For a connector that is made by hand.
inline CoreConfig small_config() {
  CoreConfig config;
  FullAttentionSpec spec;
  config.block_size = spec.block_size = kSmallBlock;
  config.kv.groups = {{.layer_names = {"layer"}, .spec = spec, .layer_specs = {}}};
  return config;
}

// Each round's requests all at once; then the engine is stopped, and has given everything back.
inline EngineStats run_random(Engine& engine, std::uint64_t seed, std::uint32_t num_rounds = 1) {
  Collector sink;
  for (std::uint32_t round = 0; round < num_rounds; ++round) expect_random_answers(engine, sink, seed, kSmallRequests);
  EXPECT_EQ(engine.stop(60.0), 0U);
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.num_free_blocks, stats.num_blocks);
  EXPECT_EQ(stats.num_open_transfers, 0U);
  return stats;
}

}  // namespace quire::test
