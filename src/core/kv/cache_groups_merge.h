#pragma once
// When layers may share a block table.
#include <optional>
#include <span>

#include "core/kv/cache_groups.h"

namespace quire {

// One spec that stands for all layers; nullopt: they are too different. Error: windows or chunks of unequal size in layers that are kept
// alike otherwise, which vLLM refuses instead of grouping them in another way. At least one layer.
Result<std::optional<LayerKvSpec>> merge_specs(std::span<const LayerSpec> layers);

// Whether all layers always need the same number of slots, whatever the size of their pages. Error: a kind that never shares.
Result<bool> is_uniform_type(std::span<const LayerSpec> layers);

}  // namespace quire
