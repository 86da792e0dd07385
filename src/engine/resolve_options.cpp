// Checks all numbers of the engine's options, replaces automatic values, and translates the options for the core and the worker. Called by
// the thread that builds the engine, before anything large is allocated. Later code sees no 0 that means "automatic". A value that passes
// these checks must not stop the program later.
#include "engine/resolve_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <set>
#include <string_view>

#include "base/check_options.h"
#include "base/check_range.h"
#include "base/format_bytes.h"
#include "engine/kv_plan.h"
#include "engine/tiers/kv_swap.h"
#include "engine/trace/tracer.h"
#include "quire/engine_option_table.h"

namespace quire {
namespace {

constexpr std::uint32_t kDefaultSpecTokens = 4;  // default number of draft tokens with a draft model
constexpr std::uint32_t kMaxCachedInputs = 1024;
constexpr std::uint32_t kDefaultCpuLoras = 4;
constexpr std::array<std::uint32_t, 9> kLoraRanks = {1, 8, 16, 32, 64, 128, 256, 320, 512};  // the ranks that vLLM allows
constexpr double kPressureLow = 0.8;                                                         // default of pressure_low

Result<void> check_kv_events(const EngineOptions& options) {
  const KvEventsOptions& events = options.kv_events;
  if (events.publisher != "zmq" && events.publisher != "null")
    return fail(ErrorCode::invalid_argument, "publisher", fmt::format("is '{}'", events.publisher), "use zmq or null");
  if (events.format != "0.19.0" && events.format != "0.32.0")
    return fail(ErrorCode::invalid_argument, "format", fmt::format("is '{}'", events.format), "use 0.19.0 or 0.32.0 (versions of vLLM)");
  if (events.is_on() && !options.cache.enable_prefix_caching)
    return fail(ErrorCode::invalid_argument, "enable_kv_cache_events", "is set, but prefix caching is off",
                "turn prefix caching on: only cached blocks have events");
  return check_options(kKvEventsOptions, events);
}

Result<void> check_adapters(const AdapterOptions& options) {
  if (!options.is_on()) {
    if (options.modules.empty()) return {};
    return fail(ErrorCode::invalid_argument, "lora_modules", "are set, but max_loras is 0", "start the server with --enable-lora");
  }
  if (auto valid = check_options(kAdapterOptions, options); !valid) return valid;
  if (std::ranges::find(kLoraRanks, options.max_lora_rank) == kLoraRanks.end())
    return fail(ErrorCode::invalid_argument, "max_lora_rank", fmt::format("is {}", options.max_lora_rank),
                fmt::format("use one of {}", fmt::join(kLoraRanks, ", ")));
  if (options.max_cpu_loras != 0 && options.max_cpu_loras < options.max_loras)
    return fail(ErrorCode::invalid_argument, "max_cpu_loras",
                fmt::format("is {}, but max_loras is {}", options.max_cpu_loras, options.max_loras),
                "use at least max_loras: all adapters of one step must fit in memory");
  std::set<std::string_view> names;
  for (const AdapterModule& module : options.modules) {
    if (module.name.empty() || module.path.empty())
      return fail(ErrorCode::invalid_argument, "lora_modules", "contain an entry without a name or a path", "use NAME=FOLDER");
    if (!names.insert(module.name).second)
      return fail(ErrorCode::invalid_argument, "lora_modules", fmt::format("contain '{}' twice", module.name),
                  "give each adapter a different name");
  }
  return {};
}

Result<void> check_ranges(const EngineOptions& options) {
  for (const auto& result :
       {check_options(kCacheOptions, options.cache), check_options(kSchedulerOptions, options.scheduler),
        check_options(kNgramOptions, options.speculation), check_options(kEngineOptions, options),
        check_options(kObservationOptions, options),
        check_range("max_tenant_waiting", options.max_tenant_waiting, 0, options.scheduler.max_num_waiting),
        check_range("prompt_lookup_min", options.speculation.prompt_lookup_min, 1, options.speculation.prompt_lookup_max)}) {
    if (!result) return result;
  }
  if (const double share = options.cache.kv_cache_metrics_sample; !(share > 0.0 && share <= 1.0))
    return fail(ErrorCode::invalid_argument, "kv_cache_metrics_sample", fmt::format("is {}", share),
                "use a fraction above 0 and at most 1");
  if (auto valid = check_kv_events(options); !valid) return valid;
  if (auto valid = check_adapters(options.adapters); !valid) return valid;
  return check_trace(options.trace);
}

// Returns the name of the file or folder, or the model's own name if that is empty. The name inside a GGUF file comes second, because it is
// often left over from a training run.
std::string default_served_name(const std::string& path, const ModelInfo& model) {
  const std::filesystem::path file(path);
  const std::string name = file.extension() == ".gguf" ? file.stem().string() : (file / "").parent_path().filename().string();
  return name.empty() ? model.name : name;
}

// Returns the size of the weights in memory. If experts are read on demand, counts only the memory for experts (expert_bytes).
std::uint64_t resident_bytes(const WeightsOptions& weights, const ModelInfo& model) {
  if (weights.expert_bytes == 0) return model.weight_bytes;
  return model.weight_bytes - model.expert_bytes + std::min(weights.expert_bytes, model.expert_bytes);
}

// Checks the weights options. Sets expert_bytes if there is a weights cache and all weights together need more than 80 % of the available
// memory: to half of the memory that the other weights leave. The other half is for the KV cache and the page cache.
Result<void> resolve_weights(WeightsOptions& weights, const ModelInfo& model, const Machine& machine) {
  if (weights.expert_bytes > 0 && weights.cache_folder.empty())
    return fail(ErrorCode::invalid_argument, "expert_memory", "is set, but there is no folder to read experts from",
                "add --weights-cache DIR");
  if (weights.expert_bytes > 0 && model.num_experts == 0)
    return fail(ErrorCode::invalid_argument, "expert_memory", fmt::format("is set, but {} has no experts", model.name), "leave it out");
  if (weights.cache_bytes == 0)
    return fail(ErrorCode::invalid_argument, "weights_cache_budget", "is 0", "use at least 1 byte, or leave --weights-cache out");
  if (weights.expert_bytes > 0 || weights.cache_folder.empty() || model.expert_bytes == 0) return {};
  const std::uint64_t others = model.weight_bytes - model.expert_bytes;
  if (model.weight_bytes > machine.available_bytes / 10 * 8 && machine.available_bytes > others)
    weights.expert_bytes = std::max<std::uint64_t>((machine.available_bytes - others) / 2, 1);
  return {};
}

// Sets kv_cache_bytes to four fifths of the memory that weights, swap and tiers leave. The rest is for workspaces, the tokenizer, clients
// and the page cache. A draft model's cache gets a fifth of the result, which is a quarter of the target's cache (plan_draft_kv()).
Result<void> resolve_kv_cache_bytes(EngineOptions& options, std::uint64_t weight_bytes, const ModelInfo& model, const Machine& machine) {
  CacheOptions& cache = options.cache;
  if (cache.num_blocks != 0 || cache.kv_cache_bytes != 0) return {};
  // Subtracts one value at a time, because each may be any number and their sum may overflow.
  std::uint64_t left = machine.available_bytes;
  for (const std::uint64_t bytes : {weight_bytes, options.kv_swap.bytes, machine.tier_bytes}) left -= std::min(left, bytes);
  if (left == 0) {
    return fail(ErrorCode::invalid_argument, "kv_cache_bytes",
                fmt::format("auto finds no room for the KV cache: this machine has {} of available memory, but the weights need {}, "
                            "swapped-out blocks {} and tiers in memory {}",
                            format_bytes(machine.available_bytes), format_bytes(weight_bytes), format_bytes(options.kv_swap.bytes),
                            format_bytes(machine.tier_bytes)),
                model.num_experts > 0 ? "give the process more memory, or set --weights-cache DIR to read experts from a folder"
                                      : "give the process more memory, or serve a smaller model");
  }
  cache.kv_cache_bytes = left / 5 * 4;
  if (!options.draft_model.empty()) cache.kv_cache_bytes = cache.kv_cache_bytes / 5 * 4;
  return {};
}

// Rejects options that do not work with an encoder-decoder model: KV events, which identify blocks only by their tokens, and adapters,
// which exist only for decoders.
Result<void> check_encoder(const EngineOptions& options, const ModelInfo& model) {
  if (!model.has_encoder()) return {};
  const auto refuse = [&](const char* field) {
    return fail(ErrorCode::unsupported, field, fmt::format("is not supported for encoder-decoder models such as {}", model.name),
                "leave it out");
  };
  if (options.adapters.is_on()) return refuse("max_loras");
  if (options.kv_events.is_on()) return refuse("enable_kv_cache_events");
  return {};
}

// Checks that a step can hold all tokens of an image that must not be split, together with the next tokens of all other requests.
Result<void> check_unsplit_images(const EngineOptions& options, const ModelInfo& model) {
  if (!model.pictures.attends_bidirectionally) return {};
  const SchedulerOptions& scheduler = options.scheduler;
  const std::uint32_t tokens = model.pictures.max_tokens();
  const std::uint64_t others = std::uint64_t{scheduler.max_num_seqs - 1} * (1 + options.speculation.num_speculative_tokens);
  if (scheduler.max_num_batched_tokens < tokens + others)
    return fail(ErrorCode::invalid_argument, "max_num_batched_tokens", fmt::format("is {}", scheduler.max_num_batched_tokens),
                fmt::format("{} computes the {} tokens of an image in one step, together with the tokens of the other requests: use at "
                            "least {}, or lower max_num_seqs",
                            model.name, tokens, tokens + others));
  if (scheduler.long_prefill_token_threshold > 0 && scheduler.long_prefill_token_threshold < tokens)
    return fail(ErrorCode::invalid_argument, "long_prefill_token_threshold", fmt::format("is {}", scheduler.long_prefill_token_threshold),
                fmt::format("{} computes the {} tokens of an image in one step: use at least that many, or 0", model.name, tokens));
  return {};
}

Result<KvPlan> resolve_kv_cache(EngineOptions& options, const ModelInfo& model) {
  std::uint32_t& max_model_len = options.scheduler.max_model_len;
  if (max_model_len > model.context_length) {
    return fail(ErrorCode::invalid_argument, "max_model_len", fmt::format("is {}", max_model_len),
                fmt::format("the context length of {} is {} tokens: use at most that", model.name, model.context_length));
  }
  auto plan = plan_kv(model, options);
  if (!plan) return plan;
  options.cache.num_blocks = plan->layout.num_blocks;
  options.cache.block_size = plan->block_size;
  // Keeps the cache mode that was chosen for the configured block size, because block_size has just changed.
  if (model.has_states()) options.cache.mamba_cache_mode = plan->states;
  max_model_len = plan->max_model_len;
  if (options.kv_swap.bytes > 0 && num_memory_swap_slots(options.kv_swap, plan->layout) == 0)
    return fail(ErrorCode::invalid_argument, "kv_swap", fmt::format("{} bytes are too small for one block", options.kv_swap.bytes),
                fmt::format("use at least {} bytes", plan->layout.bytes_per_block()));
  if (!options.kv_swap.folder.empty() && num_disk_swap_slots(options.kv_swap, plan->layout) == 0)
    return fail(ErrorCode::invalid_argument, "kv_swap_disk_budget",
                fmt::format("{} bytes are too small for one block", options.kv_swap.folder_bytes), "use more, such as 4GiB");
  if (max_model_len < 2) {
    return fail(ErrorCode::invalid_argument, "max_model_len", fmt::format("is {}", max_model_len),
                "use at least 2: one token of prompt and one of output");
  }
  return plan;
}

CoreConfig core_config(const EngineOptions& options, const ModelInfo& model, KvPlan plan) {
  CoreConfig config;
  config.scheduler = options.scheduler;
  config.limits.max_outstanding_plans = options.scheduler.async_scheduling ? 2 : 1;
  config.fixes = engine_fixes(false);
  config.continuum = options.continuum;
  config.limits.max_fork_family = options.max_fork_family;
  config.limits.max_loras = options.adapters.max_loras;
  config.report.count_common_prefix = options.cache.count_common_prefix;
  config.report.enable_kv_events = options.kv_events.is_on();
  // The engine itself counts everything except the lifetimes of blocks, which are in the core's statistics.
  config.report.log_stats = options.cache.kv_cache_metrics;
  if (options.cache.kv_cache_metrics) config.report.kv_metrics_sample = options.cache.kv_cache_metrics_sample;
  config.kv_load_failure = options.kv_load_failure;
  // The inbox bounds the open requests (new, preempted and running), so the core never has to reject one. The limit allows one more
  // request, because a beam ends only after the last beam that is forked from it exists.
  config.scheduler.max_num_waiting += options.scheduler.max_num_seqs + 1;
  config.pressure = options.pressure;
  config.speculation.num_spec_tokens = options.speculation.num_speculative_tokens;
  if (options.kv_swap.is_on())
    config.swap = {.num_swap_slots = num_swap_slots(options.kv_swap, plan.layout),
                   .num_slow_slots = num_disk_swap_slots(options.kv_swap, plan.layout),
                   .swap_choice = options.kv_swap.choice};
  // Applies vLLM's rule: the token budget of a step, or the tokens of the largest image if that is more.
  if (model.pictures.any())
    config.encoder.max_encoder_tokens = config.encoder.encoder_cache_size =
        std::max(options.scheduler.max_num_batched_tokens, model.pictures.max_tokens());
  config.encoder.uncut_items = model.pictures.attends_bidirectionally;
  // Allows one input per step. Its encoder output goes to the KV cache in the same step, so no other limit bounds the inputs.
  if (model.has_encoder())
    config.encoder = {.max_encoder_tokens = model.encoder.num_positions,
                      .encoder_cache_size = model.encoder.num_positions * std::min(options.scheduler.max_num_seqs, kMaxCachedInputs),
                      .is_encoder_decoder = true};
  config.block_size = plan.block_size;
  config.mamba_align = plan.states == MambaCacheMode::align;
  config.cache_block_size = config.mamba_align ? plan.block_size : 0;
  config.kv = std::move(plan.config);
  config.prefix_cache.enable_prefix_caching = options.cache.enable_prefix_caching;
  config.prefix_cache.hash = options.cache.hash;
  config.prefix_cache.hash_seed = options.cache.hash_seed;
  config.prefix_cache.lifo_free_blocks = options.cache.lifo_free_blocks;
  config.prefix_cache.slru_share = options.cache.slru_share;
  config.prefix_cache.retained_share = options.cache.retained_share;
  return config;
}

}  // namespace

Result<ResolvedEngine> resolve_options(EngineOptions options, ModelInfo model, const Machine& machine) {
  if (std::uint32_t& count = options.speculation.num_speculative_tokens; !options.draft_model.empty() && count == 0)
    count = kDefaultSpecTokens;
  if (auto valid = check_ranges(options); !valid) return std::unexpected(valid.error());
  for (const auto check : {check_encoder, check_unsplit_images})
    if (auto valid = check(options, model); !valid) return std::unexpected(valid.error());
  // Blocks are not shared, as in vLLM, because keys and values of equal tokens depend on the encoder's output.
  if (model.has_encoder()) options.cache.enable_prefix_caching = false;
  if (options.max_tenant_waiting == 0) options.max_tenant_waiting = options.scheduler.max_num_waiting;
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
  auto plan = resolve_kv_cache(options, model);
  if (!plan) return std::unexpected(plan.error());
  KvLayout layout = plan->layout;
  CoreConfig core = core_config(options, model, *std::move(plan));
  if (auto valid = core.validate(); !valid) return std::unexpected(valid.error());
  const WorkerLimits limits{options.scheduler.max_num_seqs, options.scheduler.max_model_len, options.scheduler.max_num_batched_tokens,
                            options.speculation};
  return ResolvedEngine{std::move(options), std::move(model), std::move(layout), std::move(core), limits};
}

}  // namespace quire
