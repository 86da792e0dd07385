#pragma once
// A configuration with whatever a core can have, at random; valid or not.
#include "fuzz/random_core.h"
#include "quire/base/core_config.h"

namespace quire::test {

inline CoreConfig draw_config(SeedSource& in, bool newer_rules = false) {
  CoreConfig config = random_config(in);
  if (chance(in, 3)) config.scheduler.policy = SchedulingPolicy::continuum;
  config.continuum = {.pin_s = 0.5 * in.below(12),
                      .longest_tool_s = 1.0 + in.below(6),
                      .max_jobs = 1 + in.below(5),
                      .max_tools = 1 + in.below(3),
                      .pins_give_way = chance(in, 2),
                      .pins_end_with_job = chance(in, 2),
                      .jobless_in_order = chance(in, 2)};
  CureOptions& cures = config.cures;
  for (bool* cure : {&cures.loaded_give_way, &cures.hits_before_loads, &cures.early_loads, &cures.unsure_drafts, &cures.cut_sessions,
                     &cures.unloaded_begin_anew})
    *cure = chance(in, 2);
  config.prefix_cache.hash = static_cast<HashAlgorithm>(in.below(5));
  config.report.kv_metrics_sample = chance(in, 3) ? 1.0 : 0.0;
  if (chance(in, 3)) config.pressure = {.admission_watermark = 0.1, .pressure_high = 0.9, .pressure_low = 0.6};
  config.pressure.pressure_preempts = config.pressure.pressure_high > 0.0 && chance(in, 2);
  if (chance(in, 2)) config.swap = {.num_swap_places = 1 + in.below(40), .num_far_places = 0, .swap_choice = SwapChoice::always};
  if (chance(in, 4)) config.swap.swap_choice = SwapChoice::measured;
  config.swap.num_far_places = config.swap.num_swap_places / 2;
  if (chance(in, 4)) config.limits.max_open_transfers = 1 + in.below(4);
  switch (in.below(12)) {
    case 0: {
      ChunkedLocalSpec chunked;
      chunked.attention_chunk_size = 1 + in.below(12);
      config.kv.groups.push_back(group_of(chunked, config.block_size));
      break;
    }
    case 1: {
      SinkFullAttentionSpec sink;
      sink.sink_len = config.block_size * (1 + in.below(2));
      config.kv.groups = {group_of(sink, config.block_size)};
      break;
    }
    case 2: {
      MambaSpec mamba;
      mamba.mode = chance(in, 2) ? MambaCacheMode::all : MambaCacheMode::align;
      config.mamba_align = mamba.mode == MambaCacheMode::align;
      mamba.num_speculative_blocks = config.speculation.num_spec_tokens;
      config.kv.groups = {group_of(FullAttentionSpec{}, config.block_size), group_of(mamba, config.block_size)};
      break;
    }
    case 3:
      config.kv.groups = {group_of(FullAttentionSpec{}, config.block_size), group_of(CrossAttentionSpec{}, config.block_size)};
      config.encoder.is_encoder_decoder = true;
      config.encoder.encoder_cache_size += 4;
      config.encoder.max_encoder_tokens += 4;
      config.prefix_cache.enable_prefix_caching = false;
      break;
    default:
      break;
  }
  if (newer_rules) draw_newer_rules(in, config);
  return config;
}

}  // namespace quire::test
