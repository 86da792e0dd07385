#pragma once
// Parts of random event streams for the core: sources of numbers, a configuration, and a connector and a grammar with random answers.
#include <algorithm>
#include <cstdint>
#include <span>

#include "base/random.h"
#include "quire/core.h"
#include "support/scripted_connector.h"

namespace quire::test {

// Numbers from a fuzzer's bytes. They are 0 after the last byte.
class ByteSource {
 public:
  explicit ByteSource(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  [[nodiscard]] bool empty() const { return bytes_.empty(); }
  // Returns a number below `bound`, which is at most 256.
  std::uint32_t below(std::uint32_t bound) {
    if (bytes_.empty()) return 0;
    const std::uint32_t value = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return value % bound;
  }

 private:
  std::span<const std::uint8_t> bytes_;
};

// Numbers from a seed, for a given number of events.
class SeedSource {
 public:
  SeedSource(std::uint64_t seed, std::uint64_t num_events) : random_(seed), num_left_(num_events) {}
  [[nodiscard]] bool empty() const { return num_left_ == 0; }
  void count() { num_left_ -= num_left_ > 0 ? 1 : 0; }
  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>(random_.below(bound)); }

 private:
  Random random_;
  std::uint64_t num_left_;
};

template <class Source>
bool chance(Source& in, std::uint32_t one_in) {
  return in.below(one_in) == 0;
}

// Draws its answers from the source.
template <class Source>
class RandomConnector final : public QuietConnector {
 public:
  explicit RandomConnector(Source& in) : in_(in) {}
  ExternalMatch match(const RequestView& request, std::uint32_t num_local_tokens) override {
    if (draining || chance(in_, 2)) return {.num_tokens = 0, .load_async = false};
    if (chance(in_, 4)) return {};
    const auto most = static_cast<std::uint32_t>(request.tokens.size()) - num_local_tokens;
    return {.num_tokens = in_.below(std::min(most + 2, 256U)), .load_async = chance(in_, 2)};
  }
  bool finished(const RequestView& /*request*/, GroupBlocks /*blocks*/) override { return !draining && chance(in_, 3); }
  bool reset() override { return chance(in_, 2); }

  bool draining = false;

 private:
  Source& in_;
};

template <class Source>
class RandomGrammar final : public Grammar {
 public:
  explicit RandomGrammar(Source& in) : in_(in) {}
  bool ready(RequestId /*id*/) override { return draining || chance(in_, 2); }
  bool should_advance(const RequestView& /*request*/) override { return chance(in_, 2); }
  bool accept(RequestId /*id*/, std::span<const TokenId> /*tokens*/) override { return chance(in_, 2); }
  std::uint32_t count_valid(RequestId /*id*/, std::span<const TokenId> drafts) override {
    return in_.below(static_cast<std::uint32_t>(std::min<std::size_t>(drafts.size(), 200)) + 1);
  }

  bool draining = false;

 private:
  Source& in_;
};

template <class Spec>
KvCacheGroup group_of(Spec spec, std::uint32_t block_size) {
  spec.block_size = block_size;
  return {.layer_names = {"layer"}, .spec = spec, .layer_specs = {}};
}

template <class Source>
std::vector<KvCacheGroup> random_groups(Source& in, std::uint32_t block_size) {
  std::vector<KvCacheGroup> groups;
  const std::uint32_t kind = in.below(8);
  if (kind != 7) groups.push_back(group_of(FullAttentionSpec{}, block_size));
  if (kind >= 5) {
    SlidingWindowSpec window;
    window.sliding_window = 1 + in.below(12);
    groups.push_back(group_of(window, block_size));
  }
  return groups;
}

template <class Source>
CoreConfig random_config(Source& in) {
  CoreConfig config;
  config.block_size = 1 + in.below(5);
  config.kv = {.num_blocks = 2 + in.below(30), .groups = random_groups(in, config.block_size), .tensors = {}};
  SchedulerOptions& scheduler = config.scheduler;
  scheduler.max_num_seqs = 1 + in.below(6);
  scheduler.max_num_batched_tokens = 1 + in.below(40);
  scheduler.max_model_len = 2 + in.below(60);
  scheduler.long_prefill_token_threshold = chance(in, 3) ? in.below(6) : 0;
  scheduler.max_num_waiting = 1 + in.below(24);
  const std::uint32_t flags = in.below(256);
  config.prefix_cache.enable_prefix_caching = (flags & 3U) != 0;
  scheduler.enable_chunked_prefill = (flags & 12U) != 0;
  scheduler.reserve_full_isl = (flags & 16U) != 0;
  scheduler.policy = (flags & 32U) != 0 ? SchedulingPolicy::priority : SchedulingPolicy::fcfs;
  scheduler.async_scheduling = (flags & 64U) != 0;
  config.report.log_stats = (flags & 128U) != 0;
  const std::uint32_t more = in.below(256);
  config.limits.max_outstanding_plans = 1 + more % 3;
  config.speculation.num_spec_tokens = (more & 4U) != 0 ? 1 + in.below(3) : 0;
  config.speculation.use_eagle = config.speculation.num_spec_tokens > 0 && (more & 8U) != 0;
  config.speculation.num_lookahead_tokens = config.speculation.use_eagle ? config.speculation.num_spec_tokens : 0;
  config.limits.max_loras = (more & 16U) != 0 ? 1 + in.below(2) : 0;
  config.report.enable_kv_events = (more & 32U) != 0;
  config.parallel.pipeline_parallel = (more & 64U) != 0;
  config.fixes.forget_unwritten_blocks = (more & 128U) != 0;
  config.encoder.max_encoder_tokens = in.below(20);
  config.encoder.encoder_cache_size = in.below(20);
  config.encoder.disable_chunked_mm_input = chance(in, 4);
  config.prefix_cache.lifo_free_blocks = chance(in, 4);
  config.kv_load_failure = chance(in, 2) ? KvLoadFailurePolicy::fail : KvLoadFailurePolicy::recompute;
  config.report.include_finished_set = chance(in, 2);
  config.report.count_common_prefix = chance(in, 2);
  config.fixes.discard_only_in_flight = chance(in, 2);
  config.fixes.reserve_windows_only = chance(in, 2);
  config.limits.max_fork_family = 2 + in.below(30);
  config.encoder.uncut_items = config.limits.max_fork_family % 4 == 0;
  if (config.limits.max_fork_family % 3 == 0 && !config.prefix_cache.lifo_free_blocks) config.prefix_cache.slru_share = 0.4;
  if (config.limits.max_fork_family % 4 == 0 && !config.prefix_cache.lifo_free_blocks) config.prefix_cache.retained_share = 0.3;
  return config;
}

// Selects the decision rules of vLLM 0.32.0 and draws the options that only it has. Cache groups that it does not know are still refused.
template <class Source>
void draw_newer_rules(Source& in, CoreConfig& config) {
  config.decisions = DecisionProfile::vllm_0_32;
  config.fixes = {};
  config.pressure = {};
  config.swap = {};
  if (config.scheduler.policy == SchedulingPolicy::continuum) config.scheduler.policy = SchedulingPolicy::priority;
  if (chance(in, 2)) config.prefix_cache.retention_interval = std::int64_t{config.block_size} * in.below(4);
  if (chance(in, 2)) config.scheduler.max_in_flight_tokens = config.scheduler.max_num_batched_tokens * config.limits.max_outstanding_plans;
  Vllm032Options& newer = config.newer;
  if (chance(in, 3)) newer.max_num_active_seqs = 1 + in.below(config.scheduler.max_num_seqs);
  if (chance(in, 3)) newer.num_watermark_blocks = in.below(std::min(config.kv.num_blocks, 5U));
  if (chance(in, 2)) newer.shared_prefill_tokens = 1 + in.below(30);
  newer.defer_block_free = chance(in, 3);
  newer.drop_undelivered = chance(in, 4);
}

}  // namespace quire::test
