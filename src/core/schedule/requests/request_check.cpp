// What is refused at the border of the core, before anything of it exists: called by Core::create(), Core::add() and Core::fork(), on the
// caller's thread. Everything that may be wrong from outside must be found here and answered with an error that names the field, because
// behind this border a wrong value stops the program. The defaults are stricter than vLLM's scheduler, whose front end does these checks.
#include "core/schedule/requests/request_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check_range.h"
#include "core/kv/hash/hash_function.h"

namespace quire {
namespace {

// Keeps sums of two counts within 31 bits.
constexpr std::uint32_t kMaxCount = 1U << 29;
// As many as a pipeline could have stages. Each costs an arena sized for the largest step.
constexpr std::uint32_t kMaxPlans = 64;
constexpr std::uint32_t kMaxOpenTransfers = 1U << 16U;
constexpr std::uint32_t kMaxSwapPlaces = 1U << 24U;
// A pin keeps blocks from all others; an hour is longer than any tool that somebody waits for.
constexpr double kLongestPin_s = 3600.0;

Result<void> check_count(const char* field, std::uint32_t value, std::uint32_t low) {
  return check_range(field, value, low, kMaxCount);
}

Result<void> check_seconds(const char* field, double value) {
  if (!(value >= 0.0 && value <= kLongestPin_s))
    return fail(ErrorCode::invalid_argument, field, fmt::format("is {}", value), fmt::format("give 0 to {} seconds", kLongestPin_s));
  return {};
}

Result<void> check_ranges(const CoreConfig& config) {
  const SchedulerOptions& scheduler = config.scheduler;
  for (const auto& result :
       {check_count("block_size", config.block_size, 1), check_count("cache_block_size", config.cache_block_size, 0),
        check_count("num_blocks", config.kv.num_blocks, 2), check_count("max_num_seqs", scheduler.max_num_seqs, 1),
        check_count("max_num_batched_tokens", scheduler.max_num_batched_tokens, 1),
        check_count("max_model_len", scheduler.max_model_len, 2),
        check_count("long_prefill_token_threshold", scheduler.long_prefill_token_threshold, 0),
        check_range("speculation.num_spec_tokens", config.speculation.num_spec_tokens, 0, 1024),
        check_range("speculation.num_lookahead_tokens", config.speculation.num_lookahead_tokens, 0, 1024),
        check_range("limits.max_outstanding_plans", config.limits.max_outstanding_plans, 1, kMaxPlans),
        check_range("limits.max_open_transfers", config.limits.max_open_transfers, 1, kMaxOpenTransfers),
        check_seconds("continuum.pin_s", config.continuum.pin_s),
        check_seconds("continuum.longest_tool_s", config.continuum.longest_tool_s),
        check_count("continuum.max_jobs", config.continuum.max_jobs, 1), check_count("continuum.max_tools", config.continuum.max_tools, 1),
        check_count("limits.max_fork_family", config.limits.max_fork_family, 1),
        check_count("parallel.dcp_world_size", config.parallel.dcp_world_size, 1),
        check_count("parallel.pcp_world_size", config.parallel.pcp_world_size, 1)}) {
    if (!result) return result;
  }
  return {};
}

// Options that only the rules of vLLM 0.32.0 read: elsewhere they would do nothing, and nobody would know.
Result<void> check_unread(const CoreConfig& config) {
  const NewerOptions& newer = config.newer;
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
      return fail(ErrorCode::invalid_argument, field, "has no meaning under the decisions of vLLM 0.19.0",
                  "leave it out, or decide as vLLM 0.32.0 does");
  return {};
}

Result<void> check_newer(const CoreConfig& config) {
  const NewerOptions& newer = config.newer;
  for (const auto& result : {check_range("newer.max_num_active_seqs", newer.max_num_active_seqs, 0, config.scheduler.max_num_seqs),
                             check_range("newer.num_watermark_blocks", newer.num_watermark_blocks, 0, config.kv.num_blocks - 1),
                             check_count("newer.shared_prefill_tokens", newer.shared_prefill_tokens, 0)}) {
    if (!result) return result;
  }
  const std::int64_t interval = config.prefix_cache.retention_interval;
  if (interval < -1 || interval > kMaxCount || (interval > 0 && interval % config.block_size != 0))
    return fail(ErrorCode::invalid_argument, "prefix_cache.retention_interval", fmt::format("is {}", interval),
                fmt::format("give a multiple of {} tokens up to {}, or -1 for none", config.block_size, kMaxCount));
  return {};
}

// What the rules of vLLM 0.32.0 are not written down for.
Result<void> check_decisions(const CoreConfig& config) {
  if (config.decisions == DecisionProfile::vllm_0_19) return check_unread(config);
  if (auto valid = check_newer(config); !valid) return valid;
  const auto refuse = [](const char* field, const char* what) {
    return fail(ErrorCode::unsupported, field, fmt::format("{} under the decisions of vLLM 0.32.0", what), "use those of vLLM 0.19.0");
  };
  for (const KvCacheGroup& group : config.kv.groups) {
    const LayerKvSpec& spec = group.spec;
    if (!std::holds_alternative<FullAttentionSpec>(spec) && !std::holds_alternative<MlaAttentionSpec>(spec) &&
        !std::holds_alternative<SlidingWindowSpec>(spec) && !std::holds_alternative<ChunkedLocalSpec>(spec) &&
        !std::holds_alternative<CrossAttentionSpec>(spec))
      return refuse("kv.groups", "only full and cross-attention, sliding windows and chunks are known");
    if (block_size_of(spec) != config.block_size) return refuse("kv.groups", "cache groups of another block size are not known");
  }
  if (config.mamba_align) return refuse("mamba_align", "states are not known");
  if (config.parallel.dcp_world_size * config.parallel.pcp_world_size != 1)
    return refuse("parallel.dcp_world_size", "context parallelism is not known");
  if (config.scheduler.policy == SchedulingPolicy::continuum) return refuse("policy", "CONTINUUM is not known");
  if (config.cures != CureOptions{}) return refuse("cures", "cures are not known");
  if (config.pressure.admission_watermark > 0.0 || config.pressure.pressure_high > 0.0) return refuse("pressure", "pressure is not known");
  if (config.swap.swap_choice != SwapChoice::off) return refuse("swap.swap_choice", "swap is not known");
  return {};
}

bool is_share(double value) {
  return value >= 0.0 && value <= 1.0;
}

Result<void> check_pressure(const PressureOptions& pressure) {
  if (!(pressure.admission_watermark >= 0.0 && pressure.admission_watermark < 1.0))
    return fail(ErrorCode::invalid_argument, "pressure.admission_watermark", fmt::format("is {}", pressure.admission_watermark),
                "give a share of the blocks below 1, such as 0.01");
  if (!is_share(pressure.pressure_high) || !is_share(pressure.pressure_low) || pressure.pressure_low > pressure.pressure_high ||
      (pressure.pressure_high > 0.0 && pressure.pressure_low == 0.0)) {
    return fail(ErrorCode::invalid_argument, "pressure.pressure_high",
                fmt::format("is {}, and pressure_low is {}", pressure.pressure_high, pressure.pressure_low),
                "give shares of the blocks, the lower one first, such as 0.8 and 0.95; or 0 twice");
  }
  if (pressure.pressure_preempts && pressure.pressure_high == 0.0)
    return fail(ErrorCode::invalid_argument, "pressure.pressure_preempts", "there is no mark above which to preempt",
                "give pressure_high and pressure_low, such as 0.95 and 0.8");
  return {};
}

Result<void> check_swap(const CoreConfig& config) {
  if (config.swap.swap_choice == SwapChoice::off) return {};
  if (const auto valid = check_range("swap.num_swap_places", config.swap.num_swap_places, 1, kMaxSwapPlaces); !valid) return valid;
  if (config.swap.num_far_places > config.swap.num_swap_places)
    return fail(ErrorCode::invalid_argument, "swap.num_far_places",
                fmt::format("is {} of {} places", config.swap.num_far_places, config.swap.num_swap_places), "give no more than there are");
  return {};
}

// Blocks that full attention needs for so many tokens; other kinds keep less, and what they keep is not counted here.
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

// The last token is sampled and never computed, so it needs no place; drafts need some.
Result<void> check_fits_cache(const NewRequest& request, const CoreConfig& config) {
  const std::uint64_t num_outputs = max_tokens(request, config);
  const std::uint64_t num_blocks = config.kv.num_blocks - 1;
  const std::uint64_t num_drafts = std::uint64_t{config.speculation.num_spec_tokens} + config.speculation.num_lookahead_tokens;
  const std::uint64_t most = std::min<std::uint64_t>(request.prompt.size() + num_outputs - 1 + num_drafts, config.scheduler.max_model_len);
  if (num_blocks_for(most, config) <= num_blocks) return {};
  const bool prompt_fits = num_blocks_for(request.prompt.size(), config) <= num_blocks;
  return fail(ErrorCode::invalid_argument, prompt_fits ? "max_tokens" : "prompt",
              fmt::format("{} prompt tokens and up to {} outputs need more than the {} blocks of the KV cache", request.prompt.size(),
                          num_outputs, num_blocks),
              prompt_fits ? "ask for fewer tokens or give the cache more memory" : "shorten the prompt or give the cache more memory");
}

Result<void> check_multimodal(const NewRequest& request, const CoreConfig& config) {
  std::uint64_t last = 0;
  for (const MultimodalFeature& feature : request.multimodal) {
    const PlaceholderRange& position = feature.position;
    // Encoder-decoder models place their input before the prompt.
    const bool outside = !config.encoder.is_encoder_decoder && std::uint64_t{position.offset()} + position.length() > request.prompt.size();
    if (position.offset() < last || outside || position.length() > kMaxCount) {
      return fail(ErrorCode::invalid_argument, "multimodal",
                  fmt::format("the item at token {} is out of order or leaves the prompt", position.offset()),
                  "list the items in order, each within the prompt");
    }
    last = position.offset();
  }
  return {};
}

Result<void> check_always(const NewRequest& request, const CoreConfig& config, const CoreSeams& seams) {
  if (request.prompt.empty() || request.prompt.size() > config.scheduler.max_model_len) {
    return fail(ErrorCode::invalid_argument, "prompt", fmt::format("has {} tokens", request.prompt.size()),
                fmt::format("give 1 to {} tokens", config.scheduler.max_model_len - 1));
  }
  if (request.structured_output && !request.pooling && seams.grammar == nullptr)
    return fail(ErrorCode::unsupported, "structured_output", "no grammar engine is attached", "ask for free output");
  if (request.prompt_embeds.size() % request.prompt.size() != 0) {
    return fail(ErrorCode::invalid_argument, "prompt_embeds",
                fmt::format("{} bytes are not rows of {} tokens", request.prompt_embeds.size(), request.prompt.size()),
                "give one row for each token of the prompt");
  }
  const std::size_t hash_bytes = hash_size(config.prefix_cache.hash);
  if (request.block_hashes.size() % hash_bytes != 0 ||
      request.block_hashes.size() / hash_bytes > request.prompt.size() / config.block_size) {
    return fail(ErrorCode::invalid_argument, "block_hashes",
                fmt::format("has {} bytes, which are not names of full blocks of the prompt", request.block_hashes.size()),
                fmt::format("give {} bytes for each full block of {} tokens", hash_bytes, config.block_size));
  }
  return check_multimodal(request, config);
}

}  // namespace

KvCacheOptions kv_cache_options(const CoreConfig& config) {
  return {.max_model_len = config.scheduler.max_model_len,
          .hash_block_size = config.block_size,
          .hash_bytes = static_cast<std::uint32_t>(hash_size(config.prefix_cache.hash)),
          .max_step_tokens = config.cures.reserve_windows_only ? config.scheduler.max_num_batched_tokens : 0,
          .enable_caching = config.prefix_cache.enable_prefix_caching,
          .use_eagle = config.speculation.use_eagle,
          .log_stats = config.report.log_stats,
          .enable_events = config.report.enable_kv_events,
          .hits_before_loads = config.cures.hits_before_loads || rules_of(config.decisions).hits_before_loads,
          .residency_sample = config.report.kv_metrics_sample,
          .lifo_free_blocks = config.prefix_cache.lifo_free_blocks,
          .unnamed_blocks_first = rules_of(config.decisions).unnamed_blocks_first,
          .hits_count_at_admission = rules_of(config.decisions).hits_count_at_admission,
          .eagle_drops_once = rules_of(config.decisions).eagle_drops_once,
          .resets_by_group = rules_of(config.decisions).resets_by_group,
          .passed_load_nothing = rules_of(config.decisions).passed_load_nothing,
          .retention = rules_of(config.decisions).sparse_windows ? std::optional(config.prefix_cache.retention_interval) : std::nullopt,
          .max_in_flight_tokens = rules_of(config.decisions).windows_cap_admission ? config.scheduler.max_in_flight_tokens : 0,
          .dcp_world_size = config.parallel.dcp_world_size,
          .pcp_world_size = config.parallel.pcp_world_size};
}

Result<void> CoreConfig::validate() const {
  if (auto valid = check_ranges(*this); !valid) return valid;
  if (!(report.kv_metrics_sample >= 0.0 && report.kv_metrics_sample <= 1.0))
    return fail(ErrorCode::invalid_argument, "report.kv_metrics_sample", fmt::format("is {}", report.kv_metrics_sample),
                "give a share from 0 to 1");
  if (!scheduler.enable_chunked_prefill && !scheduler.admit_oversized && scheduler.max_num_batched_tokens < scheduler.max_model_len) {
    return fail(ErrorCode::invalid_argument, "max_num_batched_tokens",
                fmt::format("is {}, but without chunked prefill a step must hold a whole request of {} tokens",
                            scheduler.max_num_batched_tokens, scheduler.max_model_len),
                "raise it to max_model_len or enable chunked prefill");
  }
  if (auto valid = check_decisions(*this); !valid) return valid;
  if (auto valid = check_pressure(pressure); !valid) return valid;
  if (auto valid = check_swap(*this); !valid) return valid;
  return KvCacheManager::check(kv, kv_cache_options(*this));
}

std::uint32_t max_tokens(const NewRequest& request, const CoreConfig& config) {
  const std::uint32_t max_model_len = config.scheduler.max_model_len;
  if (config.scheduler.admit_oversized || request.prompt.size() >= max_model_len) return request.max_tokens;
  return std::min(request.max_tokens, max_model_len - static_cast<std::uint32_t>(request.prompt.size()));
}

Result<void> check_request(const NewRequest& request, const CoreConfig& config, const CoreSeams& seams) {
  if (auto valid = check_always(request, config, seams); !valid || config.scheduler.admit_oversized) return valid;
  if (request.prompt.size() >= config.scheduler.max_model_len) {
    return fail(
        ErrorCode::invalid_argument, "prompt",
        fmt::format("has {} tokens, and prompt and output together have at most {}", request.prompt.size(), config.scheduler.max_model_len),
        "shorten the prompt");
  }
  if (request.max_tokens == 0) return fail(ErrorCode::invalid_argument, "max_tokens", "is 0", "ask for at least one token");
  if (request.min_tokens > max_tokens(request, config)) {
    return fail(ErrorCode::invalid_argument, "min_tokens",
                fmt::format("is {}, but at most {} can be generated", request.min_tokens, max_tokens(request, config)),
                "lower it, or raise max_tokens");
  }
  return check_fits_cache(request, config);
}

}  // namespace quire
