#pragma once
// KV layouts for tests that have a model and no planner. There is one group per distinct window and one for states, in layer order. States
// are kept for every block.
#include <algorithm>
#include <string>
#include <vector>

#include "quire/base/model_info.h"
#include "quire/base/options.h"
#include "runtime/memory/kv_layout.h"

namespace quire::test {

struct LayoutOptions {
  std::uint32_t block_size = 16;
  std::uint32_t num_blocks = 0;
  KvDtype dtype = KvDtype::bf16;
  std::uint32_t kernel_block_size = 0;  // 0 means block_size
};

inline KvCacheConfig kv_config_of(const ModelInfo& model, const LayoutOptions& options) {
  KvCacheConfig config{.num_blocks = options.num_blocks, .groups = {}, .tensors = {}};
  const CacheDtype dtype = cache_dtype_of(options.dtype);
  const std::uint32_t row = row_elements(options.dtype, model.head_dim);
  const AttentionShape shape{options.block_size, model.num_kv_heads, row, dtype, {}};
  std::uint64_t page = std::uint64_t{2} * model.num_kv_heads * row * options.block_size * dtype.bytes;
  std::uint64_t state_bytes = 0;
  for (const auto& part : model.state_shapes) state_bytes += part[0] * part[1] * (part.size() > 2 ? part[2] : 1) * sizeof(float);
  page = std::max(page, (state_bytes + page - 1) / page * page);
  const MambaSpec state{.block_size = options.block_size,
                        .shapes = model.state_shapes,
                        .dtypes = std::vector<CacheDtype>(model.state_shapes.size(), {"float32", sizeof(float)}),
                        .page_size_padded = page,
                        .mamba_type = model.state_kind,
                        .mode = MambaCacheMode::all};
  const auto add = [&config](const LayerKvSpec& spec, std::uint32_t layer) {
    auto group = std::ranges::find(config.groups, spec, &KvCacheGroup::spec);
    if (group == config.groups.end()) group = config.groups.insert(group, {.layer_names = {}, .spec = spec, .layer_specs = {}});
    group->layer_names.push_back(std::to_string(layer));
    if (group->layer_names.size() > config.tensors.size()) config.tensors.emplace_back();
  };
  std::uint32_t num_names = model.num_layers;
  for (std::uint32_t layer = 0; layer < model.num_layers; ++layer) {
    const std::uint32_t window = model.sliding_windows.empty() ? 0 : model.sliding_windows[layer];
    LayerKvSpec spec = FullAttentionSpec{shape, 0, {}, {}};
    if (window > 0) spec = SlidingWindowSpec{shape, window};
    const LayerMemory memory = model.layer_memories.empty() ? LayerMemory::attention : model.layer_memories[layer];
    if (memory != LayerMemory::state) add(spec, layer);
    if (memory != LayerMemory::attention) add(state, memory == LayerMemory::both ? num_names++ : layer);
  }
  if (model.has_encoder())
    for (std::uint32_t layer = 0; layer < model.num_layers; ++layer) add(CrossAttentionSpec{shape}, num_names++);
  for (KvCacheTensor& tensor : config.tensors) tensor.size = page * options.num_blocks;
  return config;
}

inline KvLayout kv_layout_of(const ModelInfo& model, const LayoutOptions& options) {
  const KvCacheConfig config = kv_config_of(model, options);
  const std::vector<std::uint32_t> kernel_sizes(config.groups.size(),
                                                options.kernel_block_size == 0 ? options.block_size : options.kernel_block_size);
  return make_kv_layout(config, options.dtype, kernel_sizes);
}

}  // namespace quire::test
