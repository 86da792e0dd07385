// From what was asked to what is done: checks every number of the engine's options, fills in what was left open, and translates them for
// the core and the worker. Called once, by the thread that builds the engine, before anything large is made. Nothing after this looks at a
// 0 that means "automatic", and no value that passes here may stop the program later.
#include "engine/resolve_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <set>
#include <string_view>

#include "base/check.h"
#include "base/check_range.h"
#include "engine/kv_plan.h"
#include "engine/tiers/kv_swap.h"
#include "engine/trace/tracer.h"

namespace quire {
namespace {

constexpr std::uint32_t kMaxBlockSize = 1024;
constexpr std::uint32_t kMaxThreads = 1024;
constexpr std::uint32_t kMaxSeqs = 1U << 16U;
constexpr std::uint32_t kMaxBatchedTokens = 1U << 20U;
constexpr std::uint32_t kMaxWaiting = 1U << 24U;
constexpr std::uint32_t kMaxSpecTokens = 64;
constexpr std::uint32_t kDefaultSpecTokens = 4;  // with a draft model
constexpr std::uint32_t kMaxLookup = 1024;
constexpr std::uint32_t kMaxEventBatches = 10'000'000;
constexpr std::uint32_t kMaxExplained = 1'000'000;
constexpr std::uint32_t kMaxCurveBlocks = 1'000'000;
constexpr std::uint32_t kMaxCachedInputs = 1024;
constexpr std::uint32_t kMaxLoras = 1024;
constexpr std::uint32_t kMaxCpuLoras = 65536;
constexpr std::uint32_t kDefaultCpuLoras = 4;
constexpr std::array<std::uint32_t, 9> kLoraRanks = {1, 8, 16, 32, 64, 128, 256, 320, 512};  // vLLM's
constexpr double kPressureLow = 0.8;                                                         // where only the upper mark is given

Result<void> check_kv_events(const EngineOptions& options) {
  const KvEventsOptions& events = options.kv_events;
  if (events.publisher != "zmq" && events.publisher != "null")
    return fail(ErrorCode::invalid_argument, "publisher", fmt::format("is '{}'", events.publisher), "use zmq or null");
  if (events.format != "0.19.0" && events.format != "0.32.0")
    return fail(ErrorCode::invalid_argument, "format", fmt::format("is '{}'", events.format), "use 0.19.0 or 0.32.0, a version of vLLM");
  if (events.is_on() && !options.cache.enable_prefix_caching)
    return fail(ErrorCode::invalid_argument, "enable_kv_cache_events", "is given, and prefix caching is off",
                "turn it on: blocks without names have no events");
  for (const auto& result :
       {check_range("buffer_steps", events.buffer_steps, 0, kMaxEventBatches), check_range("hwm", events.hwm, 0, kMaxEventBatches),
        check_range("max_queue_size", events.max_queue_size, 1, kMaxEventBatches)})
    if (!result) return result;
  return {};
}

Result<void> check_adapters(const AdapterOptions& options) {
  if (!options.is_on()) {
    if (options.modules.empty()) return {};
    return fail(ErrorCode::invalid_argument, "lora_modules", "are given, and max_loras is 0", "serve with --enable-lora");
  }
  if (auto valid = check_range("max_loras", options.max_loras, 1, kMaxLoras); !valid) return valid;
  if (std::ranges::find(kLoraRanks, options.max_lora_rank) == kLoraRanks.end())
    return fail(ErrorCode::invalid_argument, "max_lora_rank", fmt::format("is {}", options.max_lora_rank),
                fmt::format("use {}", fmt::join(kLoraRanks, ", ")));
  if (options.max_cpu_loras != 0 && options.max_cpu_loras < options.max_loras)
    return fail(ErrorCode::invalid_argument, "max_cpu_loras",
                fmt::format("is {}, and max_loras {}", options.max_cpu_loras, options.max_loras),
                "give max_loras at least: those of one step are in memory");
  if (options.max_cpu_loras > kMaxCpuLoras)
    return fail(ErrorCode::invalid_argument, "max_cpu_loras", fmt::format("is {}", options.max_cpu_loras),
                fmt::format("give at most {}", kMaxCpuLoras));
  std::set<std::string_view> names;
  for (const AdapterModule& module : options.modules) {
    if (module.name.empty() || module.path.empty())
      return fail(ErrorCode::invalid_argument, "lora_modules", "hold one without a name or a path", "give NAME=FOLDER");
    if (!names.insert(module.name).second)
      return fail(ErrorCode::invalid_argument, "lora_modules", fmt::format("hold '{}' twice", module.name), "give each its own name");
  }
  return {};
}

Result<void> check_ranges(const EngineOptions& options) {
  const SchedulerOptions& scheduler = options.scheduler;
  for (const auto& result :
       {check_range("block_size", options.cache.block_size, 1, kMaxBlockSize),
        check_range("max_num_seqs", scheduler.max_num_seqs, 1, kMaxSeqs),
        check_range("max_num_batched_tokens", scheduler.max_num_batched_tokens, 1, kMaxBatchedTokens),
        check_range("max_num_waiting", scheduler.max_num_waiting, 1, kMaxWaiting),
        check_range("num_speculative_tokens", options.speculation.num_speculative_tokens, 0, kMaxSpecTokens),
        check_range("prompt_lookup_max", options.speculation.prompt_lookup_max, 1, kMaxLookup),
        check_range("prompt_lookup_min", options.speculation.prompt_lookup_min, 1, options.speculation.prompt_lookup_max),
        check_range("explained_requests", options.explained_requests, 0, kMaxExplained),
        check_range("curve_blocks", options.curve_blocks, 0, kMaxCurveBlocks),
        check_range("num_threads", options.num_threads, 0, kMaxThreads)}) {
    if (!result) return result;
  }
  if (const double share = options.cache.kv_cache_metrics_sample; !(share > 0.0 && share <= 1.0))
    return fail(ErrorCode::invalid_argument, "kv_cache_metrics_sample", fmt::format("is {}", share), "give a share above 0, at most 1");
  if (auto valid = check_kv_events(options); !valid) return valid;
  if (auto valid = check_adapters(options.adapters); !valid) return valid;
  return check_trace(options.trace);
}

// The file's or folder's own name: what its owner calls the model. Names inside GGUF files are often those of a training run.
std::string default_served_name(const std::string& path, const ModelInfo& model) {
  const std::filesystem::path file(path);
  const std::string name = file.extension() == ".gguf" ? file.stem().string() : (file / "").parent_path().filename().string();
  return name.empty() ? model.name : name;
}

// What the weights take: of experts that are read when they are wanted, those that are in memory.
std::uint64_t resident_bytes(const WeightsOptions& weights, const ModelInfo& model) {
  if (weights.expert_bytes == 0) return model.weight_bytes;
  return model.weight_bytes - model.expert_bytes + std::min(weights.expert_bytes, model.expert_bytes);
}

// Where all of the experts are beyond what there is, half of what there is beside the other weights holds some: the KV cache and the file's
// own pages in the system's cache share the rest.
Result<void> resolve_weights(WeightsOptions& weights, const ModelInfo& model, const Machine& machine) {
  if (weights.expert_bytes > 0 && weights.cache_folder.empty())
    return fail(ErrorCode::invalid_argument, "expert_memory", "is given, and there is no folder to read experts from",
                "add --weights-cache DIR");
  if (weights.expert_bytes > 0 && model.num_experts == 0)
    return fail(ErrorCode::invalid_argument, "expert_memory", fmt::format("is given, and {} has no experts", model.name), "leave it out");
  if (weights.cache_bytes == 0) return fail(ErrorCode::invalid_argument, "weights_cache_budget", "is 0", "leave --weights-cache out");
  if (weights.expert_bytes > 0 || weights.cache_folder.empty() || model.expert_bytes == 0) return {};
  const std::uint64_t others = model.weight_bytes - model.expert_bytes;
  if (model.weight_bytes > machine.available_bytes / 10 * 8 && machine.available_bytes > others)
    weights.expert_bytes = std::max<std::uint64_t>((machine.available_bytes - others) / 2, 1);
  return {};
}

// What is left beside the weights, but for a fifth: workspaces, tokenizer, clients and the page cache live there too.
// A draft model has a quarter as much for its own (plan_draft_kv).
Result<void> resolve_kv_cache_bytes(EngineOptions& options, std::uint64_t weight_bytes, const ModelInfo& model, const Machine& machine) {
  CacheOptions& cache = options.cache;
  const std::uint64_t swap_bytes = options.kv_swap.bytes;
  if (cache.num_blocks != 0 || cache.kv_cache_bytes != 0) return {};
  if (machine.available_bytes <= weight_bytes + swap_bytes) {
    return fail(ErrorCode::invalid_argument, "kv_cache_bytes",
                fmt::format("auto finds {} bytes of memory, and the weights and --kv-swap take {}", machine.available_bytes,
                            weight_bytes + swap_bytes),
                model.num_experts > 0 ? "give the process more memory, or a folder from which experts are read: --weights-cache DIR"
                                      : "give the process more memory or serve a smaller model");
  }
  cache.kv_cache_bytes = (machine.available_bytes - weight_bytes - swap_bytes) / 5 * 4;
  if (!options.draft_model.empty()) cache.kv_cache_bytes = cache.kv_cache_bytes / 5 * 4;
  return {};
}

// What knows blocks by the tokens alone, and adapters, which are made for decoders.
Result<void> check_encoder(const EngineOptions& options, const ModelInfo& model) {
  if (!model.has_encoder()) return {};
  const auto refuse = [&](const char* field) {
    return fail(ErrorCode::unsupported, field, fmt::format("is not implemented with an encoder, which {} has", model.name), "leave it out");
  };
  if (options.adapters.is_on()) return refuse("max_loras");
  if (options.kv_events.is_on()) return refuse("enable_kv_cache_events");
  return {};
}

// A picture that is not cut waits for a step with room for all of it, which comes if the others' next tokens leave as much.
Result<void> check_uncut_pictures(const EngineOptions& options, const ModelInfo& model) {
  if (!model.pictures.attends_whole) return {};
  const SchedulerOptions& scheduler = options.scheduler;
  const std::uint32_t tokens = model.pictures.max_tokens();
  const std::uint64_t others = std::uint64_t{scheduler.max_num_seqs - 1} * (1 + options.speculation.num_speculative_tokens);
  if (scheduler.max_num_batched_tokens < tokens + others)
    return fail(ErrorCode::invalid_argument, "max_num_batched_tokens", fmt::format("is {}", scheduler.max_num_batched_tokens),
                fmt::format("{} computes the {} tokens of a picture in one step, beside those of the other requests: give {} or more, or "
                            "lower max_num_seqs",
                            model.name, tokens, tokens + others));
  if (scheduler.long_prefill_token_threshold > 0 && scheduler.long_prefill_token_threshold < tokens)
    return fail(ErrorCode::invalid_argument, "long_prefill_token_threshold", fmt::format("is {}", scheduler.long_prefill_token_threshold),
                fmt::format("{} computes the {} tokens of a picture in one step: give as many, or 0", model.name, tokens));
  return {};
}

Result<void> resolve_kv_cache(EngineOptions& options, const ModelInfo& model) {
  std::uint32_t& max_model_len = options.scheduler.max_model_len;
  if (max_model_len > model.context_length) {
    return fail(ErrorCode::invalid_argument, "max_model_len", fmt::format("is {}", max_model_len),
                fmt::format("the context of {} is {} tokens", model.name, model.context_length));
  }
  const auto plan = plan_kv(model, options);
  if (!plan) return std::unexpected(plan.error());
  options.cache.num_blocks = plan->layout.num_blocks;
  options.cache.block_size = plan->block_size;
  // Which was chosen for blocks as they were asked for.
  if (model.has_states()) options.cache.mamba_cache_mode = plan->states;
  max_model_len = plan->max_model_len;
  if (options.kv_swap.bytes > 0 && num_near_swap_places(options.kv_swap, plan->layout) == 0)
    return fail(ErrorCode::invalid_argument, "kv_swap", fmt::format("{} bytes hold no block", options.kv_swap.bytes),
                fmt::format("give at least {} bytes", plan->layout.bytes_per_block()));
  if (!options.kv_swap.folder.empty() && num_far_swap_places(options.kv_swap, plan->layout) == 0)
    return fail(ErrorCode::invalid_argument, "kv_swap_disk_budget",
                fmt::format("{} bytes have no room for a block", options.kv_swap.folder_bytes), "give more, such as 4GiB");
  if (max_model_len < 2) {
    return fail(ErrorCode::invalid_argument, "max_model_len", fmt::format("is {}", max_model_len),
                "a prompt and one output need at least 2");
  }
  return {};
}

}  // namespace

Result<EngineOptions> resolve_options(EngineOptions options, const ModelInfo& model, const Machine& machine) {
  if (std::uint32_t& count = options.speculation.num_speculative_tokens; !options.draft_model.empty() && count == 0)
    count = kDefaultSpecTokens;
  if (auto valid = check_ranges(options); !valid) return std::unexpected(valid.error());
  for (const auto check : {check_encoder, check_uncut_pictures})
    if (auto valid = check(options, model); !valid) return std::unexpected(valid.error());
  // Keys and values of equal tokens differ with what the encoder has made; as in vLLM nothing is shared.
  if (model.has_encoder()) options.cache.enable_prefix_caching = false;
  if (options.num_threads == 0) options.num_threads = std::clamp<std::uint32_t>(machine.num_cores, 1, kMaxThreads);
  if (AdapterOptions& adapters = options.adapters; adapters.max_cpu_loras == 0) {
    const auto num_modules = static_cast<std::uint32_t>(std::min<std::size_t>(adapters.modules.size(), kMaxCpuLoras));
    adapters.max_cpu_loras = adapters.is_on() ? std::max({adapters.max_loras, num_modules, kDefaultCpuLoras}) : 0;
  }
  PressureOptions& pressure = options.pressure;
  if (pressure.pressure_high > 0.0 && pressure.pressure_low == 0.0) pressure.pressure_low = std::min(kPressureLow, pressure.pressure_high);
  if (options.served_model_name.empty()) options.served_model_name = default_served_name(options.model, model);
  if (auto resolved = resolve_weights(options.weights, model, machine); !resolved) return std::unexpected(resolved.error());
  const std::uint64_t weight_bytes = resident_bytes(options.weights, model) + machine.draft_bytes;
  if (auto resolved = resolve_kv_cache_bytes(options, weight_bytes, model, machine); !resolved) return std::unexpected(resolved.error());
  if (auto resolved = resolve_kv_cache(options, model); !resolved) return std::unexpected(resolved.error());
  if (auto valid = core_config(options, model).validate(); !valid) return std::unexpected(valid.error());
  return options;
}

CoreConfig core_config(const EngineOptions& options, const ModelInfo& model) {
  auto plan = plan_kv(model, options);
  QUIRE_CHECK(plan.has_value(), "resolved options have a KV cache");
  CoreConfig config;
  config.scheduler = options.scheduler;
  config.limits.max_outstanding_plans = options.scheduler.async_scheduling ? 2 : 1;
  // Where the engine's core decides otherwise than vLLM would (CureOptions). A tier that measures adds early_loads (engine_impl.cpp).
  config.cures.forget_unwritten_blocks = true;
  config.cures.discard_only_in_flight = true;
  config.cures.reserve_windows_only = true;
  config.cures.loaded_give_way = true;
  config.cures.hits_before_loads = true;
  config.cures.unsure_drafts = true;
  config.cures.cut_sessions = true;
  config.continuum = options.continuum;
  config.limits.max_fork_family = options.max_fork_family;
  config.limits.max_loras = options.adapters.max_loras;
  config.report.count_common_prefix = options.cache.count_common_prefix;
  config.report.enable_kv_events = options.kv_events.is_on();
  // The engine counts for itself, all but the lives of blocks, which come with the core's statistics.
  config.report.log_stats = options.cache.kv_cache_metrics;
  if (options.cache.kv_cache_metrics) config.report.kv_metrics_sample = options.cache.kv_cache_metrics_sample;
  config.cures.unloaded_begin_anew = true;
  config.kv_load_failure = options.kv_load_failure;
  // The inbox bounds what is open: new requests that wait, preempted ones, and the batch. The core never has to refuse one. A beam ends
  // when the last of those that go on from it is there: one more.
  config.scheduler.max_num_waiting += options.scheduler.max_num_seqs + 1;
  config.pressure = options.pressure;
  config.speculation.num_spec_tokens = options.speculation.num_speculative_tokens;
  if (options.kv_swap.is_on())
    config.swap = {.num_swap_places = num_swap_places(options.kv_swap, plan->layout),
                   .num_far_places = num_far_swap_places(options.kv_swap, plan->layout),
                   .swap_choice = options.kv_swap.choice};
  // As vLLM: a step's tokens, or the largest picture.
  if (model.pictures.any())
    config.encoder.max_encoder_tokens = config.encoder.encoder_cache_size =
        std::max(options.scheduler.max_num_batched_tokens, model.pictures.max_tokens());
  config.encoder.uncut_items = model.pictures.attends_whole;
  // One input per step. Their outputs go to the KV cache in the same step, so that nothing else bounds them.
  if (model.has_encoder())
    config.encoder = {.max_encoder_tokens = model.encoder.num_positions,
                      .encoder_cache_size = model.encoder.num_positions * std::min(options.scheduler.max_num_seqs, kMaxCachedInputs),
                      .is_encoder_decoder = true};
  config.block_size = plan->block_size;
  config.mamba_align = plan->states == MambaCacheMode::align;
  config.cache_block_size = config.mamba_align ? plan->block_size : 0;
  config.kv = std::move(plan->config);
  config.prefix_cache.enable_prefix_caching = options.cache.enable_prefix_caching;
  config.prefix_cache.hash = options.cache.hash;
  config.prefix_cache.hash_seed = options.cache.hash_seed;
  config.prefix_cache.lifo_free_blocks = options.cache.lifo_free_blocks;
  return config;
}

WorkerLimits worker_limits(const EngineOptions& options) {
  return {options.scheduler.max_num_seqs, options.scheduler.max_model_len, options.scheduler.max_num_batched_tokens, options.speculation};
}

}  // namespace quire
