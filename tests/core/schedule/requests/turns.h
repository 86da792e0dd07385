#pragma once
// Helpers that add turns of agents' jobs for tests of SchedulingPolicy::continuum.
#include "core/schedule/core_driver.h"

namespace quire::test {

inline CoreConfig continuum_config(std::uint32_t num_blocks) {
  CoreConfig config = sync_config(num_blocks);
  config.scheduler.policy = SchedulingPolicy::continuum;
  config.continuum.pin_s = 10.0;  // a step takes 2 s
  return config;
}

// Adds a turn of `job`, after which `tool` runs.
inline void add_turn(CoreDriver& d, std::uint64_t id, std::uint32_t num_prompt_tokens, const RequestTags& tags,
                     std::uint32_t max_tokens = 1) {
  const Tokens tokens = CoreDriver::prompt(id, num_prompt_tokens);
  NewRequest request = CoreDriver::request(id, tokens, max_tokens);
  request.tags = &tags;
  d.add(request);
}

inline Ids pinned(const CoreDriver& d) {
  Ids ids;
  for (const auto& [id, expiry] : d.snapshot().pinned) ids.push_back(id.value);
  return ids;
}

}  // namespace quire::test
