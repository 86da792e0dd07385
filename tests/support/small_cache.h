#pragma once
// Random requests with a KV cache so small that requests are preempted and prefixes are evicted. Lower tiers are used and must change no
// token. Blocks have the simulated worker's format.
#include <gtest/gtest.h>

#include <cstdint>

#include "engine/simulated_engine.h"

namespace quire::test {

inline constexpr std::uint32_t kSmallBlock = 4;                                         // tokens
inline constexpr std::uint64_t kSmallBlockBytes = kSmallBlock * sizeof(std::uint64_t);  // one hash per token
inline constexpr std::uint32_t kSmallBlocks = 60;
inline constexpr std::uint32_t kSmallRequests = 150;

// Options for `num_requests` requests at the same time.
inline EngineOptions small_cache(std::uint32_t num_requests = kSmallRequests) {
  EngineOptions options;
  options.cache.block_size = kSmallBlock;
  options.cache.num_blocks = kSmallBlocks;
  options.scheduler.max_num_seqs = 8;
  options.scheduler.max_num_batched_tokens = 48;
  options.scheduler.max_num_waiting = num_requests;
  return options;
}

// One layer per group.
inline KvLayout small_layout(std::size_t num_groups = 1) {
  KvLayout layout{.num_blocks = kSmallBlocks, .dtype = KvDtype::f32, .groups = {}, .layers = {}, .page_bytes = {kSmallBlockBytes}};
  for (std::uint32_t group = 0; group < num_groups; ++group)
    layout.groups.push_back({.spec = {}, .block_size = kSmallBlock, .kernel_block_size = kSmallBlock, .layers = {group}});
  return layout;
}

// A configuration for a connector that a test creates directly.
inline CoreConfig small_config() {
  CoreConfig config;
  FullAttentionSpec spec;
  config.block_size = spec.block_size = kSmallBlock;
  config.kv.groups = {{.layer_names = {"layer"}, .spec = spec, .layer_specs = {}}};
  return config;
}

// Submits each round's requests at the same time and then stops the engine. All blocks must be free at the end.
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
