#pragma once
// Decides when layers may share a block table.
#include <optional>
#include <span>

#include "core/kv/cache_groups.h"

namespace quire {

// Returns one spec that represents all layers, or nullopt if the layers differ too much. Error: the layers differ only in the sizes of
// their windows or chunks. vLLM refuses such layers instead of grouping them in another way. `layers` must not be empty.
Result<std::optional<LayerKvSpec>> merge_specs(std::span<const LayerSpec> layers);

// Returns whether all layers always need the same number of blocks, regardless of the page size. Error: a kind of layer that cannot be
// combined.
Result<bool> is_uniform_type(std::span<const LayerSpec> layers);

}  // namespace quire
