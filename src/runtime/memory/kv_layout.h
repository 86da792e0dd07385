#pragma once
// Converts cache groups and tensors, which contain layers by name, to offsets and strides by layer number.
#include <cstdint>
#include <span>

#include "quire/base/kv_layout.h"
#include "quire/base/kv_spec.h"
#include "quire/base/options.h"

namespace quire {

// Returns the layout. `config` groups the layers "0", "1", ... of a model: attention layers with elements of `dtype`, and layers with a
// state. `kernel_block_sizes` has one size per group; if it is empty, each group keeps its block size.
KvLayout make_kv_layout(const KvCacheConfig& config, KvDtype dtype, std::span<const std::uint32_t> kernel_block_sizes = {});

}  // namespace quire
