#pragma once
// From cache groups and tensors by name to bytes and strides by layer number.
#include <cstdint>
#include <span>

#include "quire/base/kv_layout.h"
#include "quire/base/kv_spec.h"
#include "quire/base/options.h"

namespace quire {

// `config` groups the layers "0", "1", ... of a model: attention layers, with elements of `dtype`, and layers with a state. Kernel block
// sizes are per group; empty: the groups' own.
KvLayout make_kv_layout(const KvCacheConfig& config, KvDtype dtype, std::span<const std::uint32_t> kernel_block_sizes = {});

}  // namespace quire
