// Refuses invalid arguments before any state is created from them. Called by Core::create(), Core::add() and Core::fork(), on the caller's
// thread. Every invalid input must be found here and answered with an error that names the field, because a wrong value inside the core
// stops the program. The default checks are stricter than the checks of vLLM's scheduler, which leaves them to its front end.
#include "core/schedule/requests/request_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check_options.h"
#include "base/check_range.h"
#include "core/kv/hash/hash_function.h"
#include "quire/base/core_option_table.h"

namespace quire {
namespace {

constexpr std::uint32_t kMaxSwapSlots = 1U << 24U;

// Checks the ranges of all option tables. Options that exist only in vLLM 0.32.0 are checked in check_newer().
Result<void> check_ranges(const CoreConfig& config) {
  Result<void> valid;
  visit_core_options([&](const auto& table, const auto& group_of, std::string_view group) {
    if (valid && group != "newer.") valid = check_options(table, group_of(config), &OptionInfo::core_range, group);
  });
  return valid;
}

// Refuses options that only the rules of vLLM 0.32.0 use, because they would silently have no effect with other rules.
Result<void> check_unread(const CoreConfig& config) {
  const Vllm032Options& newer = config.newer;
  const CoreConfig defaults;
  const std::pair<const char*, bool> given[] = {
      {"newer.max_num_active_seqs", newer.max_num_active_seqs != 0},
      {"newer.num_watermark_blocks", newer.num_watermark_blocks != 0},
      {"newer.shared_prefill_tokens", newer.shared_prefill_tokens != 0},
      {"newer.defer_block_free", newer.defer_block_free},
      {"newer.drop_undelivered", newer.drop_undelivered},
      {"max_in_flight_tokens", config.scheduler.max_in_flight_tokens != 0},
      {"prefix_cache.retention_interval", config.prefix_cache.retention_interval != defaults.prefix_cache.retention_interval}};
  for (const auto& [field, is_given] : given)
    if (is_given)
      return fail(ErrorCode::invalid_argument, field, "has no effect with the decisions of vLLM 0.19.0",
                  "remove it, or use the decisions of vLLM 0.32.0");
  return {};
}

Result<void> check_newer(const CoreConfig& config) {
  const Vllm032Options& newer = config.newer;
  for (const auto& result : {check_range("newer.max_num_active_seqs", newer.max_num_active_seqs, 0, config.scheduler.max_num_seqs),
                             check_range("newer.num_watermark_blocks", newer.num_watermark_blocks, 0, config.kv.num_blocks - 1),
                             check_options(kVllm032Options, newer, &OptionInfo::core_range, "newer.")}) {
    if (!result) return result;
  }
  const std::int64_t interval = config.prefix_cache.retention_interval;
  if (interval < -1 || interval > kMaxCoreCount || (interval > 0 && interval % config.block_size != 0))
    return fail(ErrorCode::invalid_argument, "prefix_cache.retention_interval", fmt::format("{} is not valid", interval),
                fmt::format("use a multiple of {} tokens up to {}, or -1 for none", config.block_size, kMaxCoreCount));
  return {};
}

// Refuses options for which the rules of vLLM 0.32.0 are not implemented.
Result<void> check_decisions(const CoreConfig& config) {
  if (config.decisions == DecisionProfile::vllm_0_19) return check_unread(config);
  if (auto valid = check_newer(config); !valid) return valid;
  const auto refuse = [](const char* field, const char* what) {
    return fail(ErrorCode::unsupported, field, fmt::format("{} with the decisions of vLLM 0.32.0", what),
                "use the decisions of vLLM 0.19.0");
  };
  for (const KvCacheGroup& group : config.kv.groups) {
    const LayerKvSpec& spec = group.spec;
    if (!std::holds_alternative<FullAttentionSpec>(spec) && !std::holds_alternative<MlaAttentionSpec>(spec) &&
        !std::holds_alternative<SlidingWindowSpec>(spec) && !std::holds_alternative<ChunkedLocalSpec>(spec) &&
        !std::holds_alternative<CrossAttentionSpec>(spec))
      return refuse("kv.groups", "only full attention, cross-attention, sliding windows and chunked attention are supported");
    if (block_size_of(spec) != config.block_size) return refuse("kv.groups", "cache groups with another block size are not supported");
  }
  if (config.mamba_align) return refuse("mamba_align", "states are not supported");
  if (config.parallel.dcp_world_size * config.parallel.pcp_world_size != 1)
    return refuse("parallel.dcp_world_size", "context parallelism is not supported");
  if (config.scheduler.policy == SchedulingPolicy::continuum) return refuse("policy", "the CONTINUUM policy is not supported");
  if (config.fixes != FixOptions{}) return refuse("fixes", "fixes are not supported");
  if (config.scheduler.tenant_turns) return refuse("tenant_turns", "tenant turns are not supported");
  if (config.pressure.admission_watermark > 0.0 || config.pressure.pressure_high > 0.0)
    return refuse("pressure", "pressure limits are not supported");
  if (config.swap.swap_choice != SwapChoice::off) return refuse("swap.swap_choice", "swapping is not supported");
  return {};
}

bool is_share(double value) {
  return value >= 0.0 && value <= 1.0;
}

Result<void> check_pressure(const PressureOptions& pressure) {
  if (!(pressure.admission_watermark >= 0.0 && pressure.admission_watermark < 1.0))
    return fail(ErrorCode::invalid_argument, "pressure.admission_watermark",
                fmt::format("{} is out of range", pressure.admission_watermark),
                "use a fraction of the blocks from 0 to below 1, such as 0.01");
  if (!is_share(pressure.pressure_high) || !is_share(pressure.pressure_low) || pressure.pressure_low > pressure.pressure_high ||
      (pressure.pressure_high > 0.0 && pressure.pressure_low == 0.0)) {
    return fail(ErrorCode::invalid_argument, "pressure.pressure_high",
                fmt::format("is {}, and pressure_low is {}", pressure.pressure_high, pressure.pressure_low),
                "use fractions of the blocks with pressure_low at most pressure_high, such as 0.8 and 0.95, or 0 for both");
  }
  if (pressure.pressure_preempts && pressure.pressure_high == 0.0)
    return fail(ErrorCode::invalid_argument, "pressure.pressure_preempts", "needs a pressure_high above 0",
                "set pressure_high and pressure_low, such as 0.95 and 0.8");
  return {};
}

Result<void> check_swap(const CoreConfig& config) {
  if (config.swap.swap_choice == SwapChoice::off) return {};
  if (const auto valid = check_range("swap.num_swap_slots", config.swap.num_swap_slots, 1, kMaxSwapSlots); !valid) return valid;
  if (config.swap.num_slow_slots > config.swap.num_swap_slots)
    return fail(ErrorCode::invalid_argument, "swap.num_slow_slots",
                fmt::format("is {}, but there are {} swap slots", config.swap.num_slow_slots, config.swap.num_swap_slots),
                "use at most the number of swap slots");
  return {};
}

// Returns the number of blocks that full-attention groups need for `num_tokens` tokens. Other kinds of attention hold fewer blocks and are
// not counted.
std::uint64_t num_blocks_for(std::uint64_t num_tokens, const CoreConfig& config) {
  std::uint64_t num_blocks = 0;
  const std::uint64_t num_ranks = std::uint64_t{config.parallel.dcp_world_size} * config.parallel.pcp_world_size;
  for (const KvCacheGroup& group : config.kv.groups) {
    if (is_full_attention(group.spec)) {
      const std::uint64_t block_size = block_size_of(group.spec) * num_ranks;
      num_blocks += (num_tokens + block_size - 1) / block_size;
    }
  }
  return num_blocks;
}

// Checks that the request fits into the whole KV cache. The last token is sampled but never computed, so it needs no slot. Draft tokens
// need slots.
Result<void> check_fits_cache(const NewRequest& request, const CoreConfig& config) {
  const std::uint64_t num_outputs = max_tokens(request, config);
  const std::uint64_t num_blocks = config.kv.num_blocks - 1;
  const std::uint64_t num_drafts = std::uint64_t{config.speculation.num_spec_tokens} + config.speculation.num_lookahead_tokens;
  const std::uint64_t most = std::min<std::uint64_t>(request.prompt.size() + num_outputs - 1 + num_drafts, config.scheduler.max_model_len);
  if (num_blocks_for(most, config) <= num_blocks) return {};
  const bool prompt_fits = num_blocks_for(request.prompt.size(), config) <= num_blocks;
  return fail(ErrorCode::invalid_argument, prompt_fits ? "max_tokens" : "prompt",
              fmt::format("{} prompt tokens and up to {} output tokens need more than the {} blocks of the KV cache", request.prompt.size(),
                          num_outputs, num_blocks),
              prompt_fits ? "reduce max_tokens or increase the memory for the KV cache"
                          : "shorten the prompt or increase the memory for the KV cache");
}

Result<void> check_multimodal(const NewRequest& request, const CoreConfig& config) {
  std::uint64_t last = 0;
  for (const MultimodalFeature& feature : request.multimodal) {
    const PlaceholderRange& position = feature.position;
    // Inputs of encoder-decoder models are not part of the prompt.
    const bool outside = !config.encoder.is_encoder_decoder && std::uint64_t{position.offset()} + position.length() > request.prompt.size();
    if (position.offset() < last || outside || position.length() > kMaxCoreCount) {
      return fail(ErrorCode::invalid_argument, "multimodal",
                  fmt::format("the item at token {} is out of order or not within the prompt", position.offset()),
                  "list the items in order, each within the prompt");
    }
    last = position.offset();
  }
  return {};
}

Result<void> check_always(const NewRequest& request, const CoreConfig& config, const CoreSeams& seams) {
  if (request.prompt.empty() || request.prompt.size() > config.scheduler.max_model_len) {
    return fail(ErrorCode::invalid_argument, "prompt", fmt::format("has {} tokens", request.prompt.size()),
                fmt::format("use 1 to {} tokens", config.scheduler.max_model_len - 1));
  }
  if (request.structured_output && !request.pooling && seams.grammar == nullptr)
    return fail(ErrorCode::unsupported, "structured_output", "no grammar engine is available", "request output without a grammar");
  if (request.prompt_embeds.size() % request.prompt.size() != 0) {
    return fail(ErrorCode::invalid_argument, "prompt_embeds",
                fmt::format("{} bytes cannot be divided into rows for {} tokens", request.prompt_embeds.size(), request.prompt.size()),
                "send one row for each token of the prompt");
  }
  const std::size_t hash_bytes = hash_size(config.prefix_cache.hash);
  if (request.block_hashes.size() % hash_bytes != 0 ||
      request.block_hashes.size() / hash_bytes > request.prompt.size() / config.block_size) {
    return fail(ErrorCode::invalid_argument, "block_hashes",
                fmt::format("has {} bytes, which do not match the full blocks of the prompt", request.block_hashes.size()),
                fmt::format("send {} bytes for each full block of {} tokens", hash_bytes, config.block_size));
  }
  return check_multimodal(request, config);
}

}  // namespace

KvCacheOptions kv_cache_options(const CoreConfig& config, const DecisionRules& rules) {
  return {.max_model_len = config.scheduler.max_model_len,
          .hash_block_size = config.block_size,
          .hash_bytes = static_cast<std::uint32_t>(hash_size(config.prefix_cache.hash)),
          .max_step_tokens = rules.reserve_windows_only ? config.scheduler.max_num_batched_tokens : 0,
          .enable_caching = config.prefix_cache.enable_prefix_caching,
          .use_eagle = config.speculation.use_eagle,
          .log_stats = config.report.log_stats,
          .enable_events = config.report.enable_kv_events,
          .residency_sample = config.report.kv_metrics_sample,
          .lifo_free_blocks = config.prefix_cache.lifo_free_blocks,
          .slru_share = config.prefix_cache.slru_share,
          .retained_share = config.prefix_cache.retained_share,
          .rules = rules,
          .retention = rules.caches_windows_sparsely ? std::optional(config.prefix_cache.retention_interval) : std::nullopt,
          .max_in_flight_tokens = rules.admission_capped_by_window ? config.scheduler.max_in_flight_tokens : 0,
          .dcp_world_size = config.parallel.dcp_world_size,
          .pcp_world_size = config.parallel.pcp_world_size};
}

Result<void> CoreConfig::validate() const {
  if (auto valid = check_ranges(*this); !valid) return valid;
  if (!(report.kv_metrics_sample >= 0.0 && report.kv_metrics_sample <= 1.0))
    return fail(ErrorCode::invalid_argument, "report.kv_metrics_sample", fmt::format("{} is out of range", report.kv_metrics_sample),
                "use a fraction from 0 to 1");
  if (!scheduler.enable_chunked_prefill && !scheduler.admit_oversized && scheduler.max_num_batched_tokens < scheduler.max_model_len) {
    return fail(ErrorCode::invalid_argument, "max_num_batched_tokens",
                fmt::format("is {}, but without chunked prefill a step must hold a whole request of {} tokens",
                            scheduler.max_num_batched_tokens, scheduler.max_model_len),
                "increase it to max_model_len or enable chunked prefill");
  }
  if (prefix_cache.lifo_free_blocks && (prefix_cache.slru_share > 0.0 || prefix_cache.retained_share > 0.0))
    return fail(ErrorCode::invalid_argument, prefix_cache.slru_share > 0.0 ? "prefix_cache.slru_share" : "prefix_cache.retained_share",
                "is set, but lifo_free_blocks is on, too", "set only one of the two");
  if (auto valid = check_decisions(*this); !valid) return valid;
  if (auto valid = check_pressure(pressure); !valid) return valid;
  if (auto valid = check_swap(*this); !valid) return valid;
  return KvCacheManager::check(kv, kv_cache_options(*this, DecisionRules(decisions, fixes)));
}

std::uint32_t max_tokens(const NewRequest& request, const CoreConfig& config) {
  const std::uint32_t max_model_len = config.scheduler.max_model_len;
  if (config.scheduler.admit_oversized || request.prompt.size() >= max_model_len) return request.max_tokens;
  return std::min(request.max_tokens, max_model_len - static_cast<std::uint32_t>(request.prompt.size()));
}

Result<void> check_request(const NewRequest& request, const CoreConfig& config, const CoreSeams& seams) {
  if (auto valid = check_always(request, config, seams); !valid || config.scheduler.admit_oversized) return valid;
  if (request.prompt.size() >= config.scheduler.max_model_len) {
    return fail(ErrorCode::invalid_argument, "prompt",
                fmt::format("has {} tokens, but the prompt and the output together may have at most {}", request.prompt.size(),
                            config.scheduler.max_model_len),
                "shorten the prompt");
  }
  if (request.max_tokens == 0) return fail(ErrorCode::invalid_argument, "max_tokens", "must be at least 1, got 0", "use 1 or more");
  if (request.min_tokens > max_tokens(request, config)) {
    return fail(ErrorCode::invalid_argument, "min_tokens",
                fmt::format("is {}, but at most {} can be generated", request.min_tokens, max_tokens(request, config)),
                "reduce min_tokens or increase max_tokens");
  }
  return check_fits_cache(request, config);
}

}  // namespace quire
