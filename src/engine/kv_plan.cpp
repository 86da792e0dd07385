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

template <class Spec>
Spec shape_of(const ModelInfo& model, const CacheOptions& cache) {
  Spec spec;
  spec.block_size = cache.block_size;
  spec.num_kv_heads = model.num_kv_heads;
  spec.head_size = model.head_dim;
  spec.dtype = cache.dtype == KvDtype::bf16 ? CacheDtype{"bfloat16", 2} : CacheDtype{"float32", 4};
  return spec;
}

LayerSpecs layer_specs(const ModelInfo& model, const CacheOptions& cache) {
  LayerSpecs layers;
  for (std::uint32_t i = 0; i < model.num_layers; ++i) {
    const std::uint32_t window = model.sliding_windows.empty() ? 0 : model.sliding_windows[i];
    LayerKvSpec spec = shape_of<FullAttentionSpec>(model, cache);
    if (model.latent_attention) spec = shape_of<MlaAttentionSpec>(model, cache);
    if (window > 0) {
      auto windowed = shape_of<SlidingWindowSpec>(model, cache);
      windowed.sliding_window = window;
      spec = windowed;
    }
    layers.push_back({std::to_string(i), std::move(spec)});
  }
  return layers;
}

// As many blocks as the memory holds, or as asked for.
Result<std::uint32_t> num_blocks(const CacheOptions& cache, std::uint64_t bytes_per_block) {
  if (cache.num_blocks != 0) {
    if (cache.num_blocks >= 2 && cache.num_blocks <= kMaxBlocks) return cache.num_blocks;
    return fail(ErrorCode::invalid_argument, "num_blocks", fmt::format("is {}", cache.num_blocks),
                fmt::format("give a value from 2 to {}", kMaxBlocks));
  }
  const std::uint64_t fitting = cache.kv_cache_bytes / bytes_per_block;
  if (fitting < 2) {
    return fail(ErrorCode::invalid_argument, "kv_cache_bytes",
                fmt::format("{} bytes hold {} blocks of {} bytes", cache.kv_cache_bytes, fitting, bytes_per_block),
                fmt::format("give at least {} bytes", 2 * bytes_per_block));
  }
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(fitting, kMaxBlocks));
}

}  // namespace

Result<KvPlan> plan_kv(const ModelInfo& model, const EngineOptions& options) {
  const LayerSpecs layers = layer_specs(model, options.cache);
  const auto groups = kv_cache_groups(layers, false);
  if (!groups) return std::unexpected(groups.error());
  const auto one_block = kv_cache_config(*groups, 0, {.num_blocks_override = 1});
  if (!one_block) return std::unexpected(one_block.error());
  const std::uint64_t bytes_per_block = make_kv_layout(*one_block, options.cache.dtype).bytes_per_block();
  const auto blocks = num_blocks(options.cache, bytes_per_block);
  if (!blocks) return std::unexpected(blocks.error());
  // What requests may use: the null block holds nothing.
  const std::int64_t usable = static_cast<std::int64_t>((std::uint64_t{*blocks} - 1) * bytes_per_block);
  const bool as_long_as_fits = options.scheduler.max_model_len == 0;
  auto plan = plan_kv_cache({&layers, 1}, {&usable, 1},
                            {.max_model_len = as_long_as_fits ? model.context_length : options.scheduler.max_model_len,
                             .auto_fit_max_model_len = as_long_as_fits,
                             .max_num_batched_tokens = options.scheduler.max_num_batched_tokens,
                             .num_blocks_override = *blocks});
  if (!plan) return std::unexpected(std::move(plan.error()));
  KvLayout layout = make_kv_layout(plan->workers.front(), options.cache.dtype);
  return KvPlan{scheduler_kv_cache_config(plan->workers.front()), std::move(layout), plan->max_model_len};
}

Result<KvLayout> plan_kv_layout(const ModelInfo& model, const EngineOptions& options) {
  auto plan = plan_kv(model, options);
  if (!plan) return std::unexpected(std::move(plan.error()));
  return std::move(plan->layout);
}

std::uint64_t kv_blocks_per_request(const KvLayout& layout, std::uint32_t num_tokens, std::uint32_t max_num_batched_tokens) {
  KvMemoryOptions options;
  options.max_model_len = num_tokens;
  options.max_num_batched_tokens = max_num_batched_tokens;
  std::uint64_t blocks = 0;
  for (const KvGroupLayout& group : layout.groups) blocks += max_memory_usage_bytes(group.spec, options) / page_size_bytes(group.spec);
  return blocks;
}

}  // namespace quire
