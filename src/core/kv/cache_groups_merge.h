#pragma once
// Decides when layers may share a block table.
#include <optional>
#include <span>

#include "core/kv/cache_groups.h"

namespace quire {

// Returns one spec that stands for all layers, or nullopt if they differ too much. Error: otherwise equal layers have windows or chunks of
// different sizes, which vLLM refuses instead of grouping them in another way. `layers` must not be empty.
Result<std::optional<LayerKvSpec>> merge_specs(std::span<const LayerSpec> layers);

// Returns whether all layers always need the same number of slots, regardless of page size. Error: a kind that never shares.
Result<bool> is_uniform_type(std::span<const LayerSpec> layers);

}  // namespace quire
