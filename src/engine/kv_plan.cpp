// Computes the core's configuration and the worker's KV layout from a model's layers and the memory for its cache. Called by the thread
// that builds the engine. Model files and options are not trusted. A size that does not fit or cannot be represented is an error, which
// names the option and a value that works.
#include "engine/kv_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/check.h"
#include "core/kv/cache_groups.h"
#include "quire/engine.h"
#include "runtime/memory/kv_layout.h"

namespace quire {
namespace {

constexpr std::uint32_t kMaxBlocks = 1U << 24U;
constexpr std::uint32_t kMaxStateBlock = 1U << 20U;  // in tokens

// The block size and page size, which are the same for all cache groups, as in vLLM. If a state is larger than the keys and values of a
// block, the block size is increased. The rest of a page after a state is padding.
struct Blocks {
  std::uint32_t block_size = 0;
  std::uint64_t page_bytes = 0;  // page size of an attention layer
  MambaCacheMode states = MambaCacheMode::none;
};

std::uint64_t state_bytes(const ModelInfo& model) {
  std::uint64_t bytes = 0;
  for (const auto& shape : model.state_shapes) {
    std::uint64_t part = sizeof(float);
    for (const std::uint64_t dimension : shape) part *= dimension;
    bytes += part;
  }
  return bytes;
}

Result<void> check_chunks(const EngineOptions& options, std::uint32_t block_size) {
  const auto too_few = [&](const char* field, std::uint32_t tokens) {
    return fail(ErrorCode::invalid_argument, field,
                fmt::format("is {}, but the blocks that hold a state of this model have {} tokens", tokens, block_size),
                "use at least that many tokens, or set mamba_cache_mode to all");
  };
  const SchedulerOptions& scheduler = options.scheduler;
  if (scheduler.max_num_batched_tokens < block_size) return too_few("max_num_batched_tokens", scheduler.max_num_batched_tokens);
  if (const std::uint32_t chunk = scheduler.long_prefill_token_threshold; chunk > 0 && chunk < block_size)
    return too_few("long_prefill_token_threshold", chunk);
  return {};
}

Result<Blocks> plan_blocks(const ModelInfo& model, const EngineOptions& options) {
  const CacheOptions& cache = options.cache;
  const std::uint64_t token_bytes =
      std::uint64_t{2} * model.num_kv_heads * row_elements(cache.dtype, model.head_dim) * element_bytes(cache.dtype);
  Blocks blocks{.block_size = cache.block_size, .page_bytes = token_bytes * cache.block_size, .states = MambaCacheMode::none};
  const auto refuse = [](const char* problem, const char* remedy) {
    return fail(ErrorCode::invalid_argument, "mamba_cache_mode", problem, remedy);
  };
  if (!model.has_states()) {
    if (!cache.mamba_cache_mode) return blocks;
    return refuse("is set, but no layer of the model has a state", "leave it out");
  }
  const std::uint64_t bytes = state_bytes(model);
  const std::uint64_t factor = (bytes + blocks.page_bytes - 1) / blocks.page_bytes;
  if (factor > kMaxStateBlock / cache.block_size) {
    return fail(ErrorCode::unsupported, "block_size",
                fmt::format("a state of {} bytes needs blocks larger than the limit of {} tokens", bytes, kMaxStateBlock),
                "use a model with smaller states");
  }
  blocks.block_size = static_cast<std::uint32_t>(cache.block_size * factor);
  blocks.page_bytes *= factor;
  if (!cache.enable_prefix_caching) {
    if (cache.mamba_cache_mode.value_or(MambaCacheMode::none) == MambaCacheMode::none) return blocks;
    return refuse("keeps states for later requests, but prefix caching is off", "turn prefix caching on, or leave mamba_cache_mode out");
  }
  // A chunk of one block must fit into a step together with one token of each other request.
  const bool has_room = std::uint64_t{blocks.block_size} + options.scheduler.max_num_seqs <= options.scheduler.max_num_batched_tokens;
  const bool aligns = factor > 1 && has_room && check_chunks(options, blocks.block_size).has_value();
  blocks.states = cache.mamba_cache_mode.value_or(aligns ? MambaCacheMode::align : MambaCacheMode::all);
  if (blocks.states == MambaCacheMode::none)
    return refuse("is none, but prefix caching is on", "turn prefix caching off, or leave mamba_cache_mode out");
  if (blocks.states == MambaCacheMode::align)
    if (auto valid = check_chunks(options, blocks.block_size); !valid) return std::unexpected(std::move(valid.error()));
  return blocks;
}

template <class Spec>
Spec shape_of(const ModelInfo& model, const CacheOptions& cache, const Blocks& blocks) {
  Spec spec;
  spec.block_size = blocks.block_size;
  spec.num_kv_heads = model.num_kv_heads;
  spec.head_size = row_elements(cache.dtype, model.head_dim);
  spec.dtype = cache_dtype_of(cache.dtype);
  return spec;
}

// Returns the spec of a layer with states. Without prefix caching, a request has one state, and one more for each draft token, so that
// rejected draft tokens can be rolled back.
MambaSpec state_spec(const ModelInfo& model, const EngineOptions& options, const Blocks& blocks) {
  const std::uint32_t longest = options.scheduler.max_model_len;
  return {.block_size = blocks.states != MambaCacheMode::none ? blocks.block_size
                        : longest == 0                        ? model.context_length
                                                              : longest,
          .shapes = model.state_shapes,
          .dtypes = std::vector<CacheDtype>(model.state_shapes.size(), {"float32", sizeof(float)}),
          .page_size_padded = blocks.page_bytes,
          .mamba_type = model.state_kind,
          .mode = blocks.states,
          .num_speculative_blocks = options.speculation.num_speculative_tokens};
}

LayerSpecs layer_specs(const ModelInfo& model, const EngineOptions& options, const Blocks& blocks) {
  LayerSpecs layers;
  // Number of the next unused layer name. A layer that has both attention and a state needs a second name for its state, and each
  // cross-attention part needs a name.
  std::uint32_t num_names = model.num_layers;
  for (std::uint32_t i = 0; i < model.num_layers; ++i) {
    const LayerMemory memory = model.layer_memories.empty() ? LayerMemory::attention : model.layer_memories[i];
    if (memory != LayerMemory::attention)
      layers.push_back({std::to_string(memory == LayerMemory::both ? num_names++ : i), state_spec(model, options, blocks)});
    if (memory == LayerMemory::state) continue;
    const std::uint32_t window = model.sliding_windows.empty() ? 0 : model.sliding_windows[i];
    LayerKvSpec spec = shape_of<FullAttentionSpec>(model, options.cache, blocks);
    if (model.latent_attention) spec = shape_of<MlaAttentionSpec>(model, options.cache, blocks);
    if (window > 0) {
      auto windowed = shape_of<SlidingWindowSpec>(model, options.cache, blocks);
      windowed.sliding_window = window;
      spec = windowed;
    }
    layers.push_back({std::to_string(i), std::move(spec)});
  }
  if (model.has_encoder())
    for (std::uint32_t i = 0; i < model.num_layers; ++i)
      layers.push_back({std::to_string(num_names++), shape_of<CrossAttentionSpec>(model, options.cache, blocks)});
  return layers;
}

// Returns the configured number of blocks, or the number of blocks that fit into the memory.
Result<std::uint32_t> num_blocks(const CacheOptions& cache, std::uint64_t bytes_per_block) {
  if (cache.num_blocks != 0) {
    if (cache.num_blocks >= 2 && cache.num_blocks <= kMaxBlocks) return cache.num_blocks;
    return fail(ErrorCode::invalid_argument, "num_blocks", fmt::format("is {}", cache.num_blocks),
                fmt::format("use a value from 2 to {}", kMaxBlocks));
  }
  const std::uint64_t fitting = cache.kv_cache_bytes / bytes_per_block;
  if (fitting < 2) {
    return fail(ErrorCode::invalid_argument, "kv_cache_bytes",
                fmt::format("{} bytes hold only {} blocks of {} bytes", cache.kv_cache_bytes, fitting, bytes_per_block),
                fmt::format("use at least {} bytes", 2 * bytes_per_block));
  }
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(fitting, kMaxBlocks));
}

// Returns the number of blocks of one request that max_memory_usage_bytes() does not count: the blocks for the states of draft tokens.
std::uint64_t num_spare_blocks(const LayerKvSpec& spec) {
  const auto* state = std::get_if<MambaSpec>(&spec);
  return state != nullptr && state->mode == MambaCacheMode::all ? state->num_speculative_blocks : 0;
}

std::uint64_t num_spare_blocks(const KvCacheConfig& config) {
  std::uint64_t count = 0;
  for (const KvCacheGroup& group : config.groups) count += num_spare_blocks(group.spec);
  return count;
}

}  // namespace

Result<KvPlan> plan_kv(const ModelInfo& model, const EngineOptions& options) {
  const auto blocks = plan_blocks(model, options);
  if (!blocks) return std::unexpected(blocks.error());
  const LayerSpecs layers = layer_specs(model, options, *blocks);
  const auto groups = kv_cache_groups(layers, false);
  if (!groups) return std::unexpected(groups.error());
  const auto one_block = kv_cache_config(*groups, 0, {.num_blocks_override = 1});
  if (!one_block) return std::unexpected(one_block.error());
  const std::uint64_t bytes_per_block = make_kv_layout(*one_block, options.cache.dtype).bytes_per_block();
  const auto count = num_blocks(options.cache, bytes_per_block);
  if (!count) return std::unexpected(count.error());
  // The memory that requests may use: without the null block, and without the blocks for states of draft tokens, which plan_kv_cache() does
  // not count.
  const std::uint64_t num_set_aside = 1 + num_spare_blocks(*one_block);
  const std::int64_t usable = static_cast<std::int64_t>((*count - std::min<std::uint64_t>(*count, num_set_aside)) * bytes_per_block);
  const bool as_long_as_fits = options.scheduler.max_model_len == 0;
  auto plan = plan_kv_cache({&layers, 1}, {&usable, 1},
                            {.max_model_len = as_long_as_fits ? model.context_length : options.scheduler.max_model_len,
                             .auto_fit_max_model_len = as_long_as_fits,
                             .max_num_batched_tokens = options.scheduler.max_num_batched_tokens,
                             .max_num_encoder_input_tokens = model.encoder.num_positions,
                             .mamba_cache_mode = blocks->states,
                             .num_blocks_override = *count});
  if (!plan) return std::unexpected(std::move(plan.error()));
  if (as_long_as_fits && model.has_states() && plan->max_model_len < model.context_length) {
    // A block for a state is as long as the longest request, so the plan is repeated with the resolved max_model_len.
    EngineOptions fitting = options;
    fitting.scheduler.max_model_len = plan->max_model_len;
    return plan_kv(model, fitting);
  }
  KvLayout layout = make_kv_layout(plan->workers.front(), options.cache.dtype);
  return KvPlan{.config = scheduler_kv_cache_config(plan->workers.front()),
                .layout = std::move(layout),
                .block_size = blocks->block_size,
                .states = blocks->states,
                .max_model_len = plan->max_model_len};
}

Result<KvLayout> plan_kv_layout(const ModelInfo& model, const EngineOptions& options) {
  auto plan = plan_kv(model, options);
  if (!plan) return std::unexpected(std::move(plan.error()));
  return std::move(plan->layout);
}

std::uint64_t num_tokens_in(const KvCacheConfig& config, std::uint64_t num_blocks) {
  std::uint64_t num_growing = 0;
  std::uint32_t tokens = 0;
  for (const KvCacheGroup& group : config.groups) {
    const auto* const state = std::get_if<MambaSpec>(&group.spec);
    if ((state != nullptr && state->mode != MambaCacheMode::all) || std::holds_alternative<CrossAttentionSpec>(group.spec)) continue;
    ++num_growing;
    tokens = block_size_of(group.spec);
  }
  return num_growing == 0 ? 0 : num_blocks / num_growing * tokens;
}

Result<KvLayout> plan_draft_kv(const ModelInfo& draft, const EngineOptions& options, const KvLayout& target) {
  EngineOptions own = options;
  own.cache.mamba_cache_mode.reset();
  const auto blocks = plan_blocks(draft, own);
  if (!blocks) return std::unexpected(blocks.error());
  const auto groups = kv_cache_groups(layer_specs(draft, own, *blocks), false);
  if (!groups) return std::unexpected(groups.error());
  const auto one_block = kv_cache_config(*groups, 0, {.num_blocks_override = 1});
  if (!one_block) return std::unexpected(one_block.error());
  const std::uint64_t bytes_per_block = make_kv_layout(*one_block, own.cache.dtype).bytes_per_block();
  // Each group's capacity alone is an upper bound, because a group may keep only some of the tokens.
  std::uint64_t num_tokens = 0;
  for (const KvGroupLayout& group : target.groups)
    num_tokens = std::max(num_tokens, std::uint64_t{target.num_blocks - 1} * group.block_size);
  num_tokens = std::min(num_tokens, std::uint64_t{own.scheduler.max_num_seqs} * own.scheduler.max_model_len);
  const std::uint64_t num_needed = (num_tokens + blocks->block_size - 1) / blocks->block_size * groups->size();
  const std::uint64_t num_affordable = target.total_bytes() / 4 / bytes_per_block;
  const auto num_blocks =
      static_cast<std::uint32_t>(std::clamp<std::uint64_t>(std::min(num_needed, num_affordable), groups->size(), kMaxBlocks - 1));
  const auto config = kv_cache_config(*groups, 0, {.num_blocks_override = 1 + num_blocks});
  if (!config) return std::unexpected(config.error());
  return make_kv_layout(*config, own.cache.dtype);
}

std::uint64_t kv_blocks_per_request(const KvLayout& layout, std::uint32_t num_tokens, std::uint32_t max_num_batched_tokens) {
  KvMemoryOptions options;
  options.max_model_len = num_tokens;
  options.max_num_batched_tokens = max_num_batched_tokens;
  std::uint64_t blocks = 0;
  for (const KvGroupLayout& group : layout.groups) {
    if (const auto* state = std::get_if<MambaSpec>(&group.spec)) options.mamba_cache_mode = state->mode;
    blocks += max_memory_usage_bytes(group.spec, options) / page_size_bytes(group.spec) + num_spare_blocks(group.spec);
  }
  return blocks;
}

}  // namespace quire
