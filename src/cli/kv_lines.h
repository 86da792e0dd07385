#pragma once
// Describes as text how much memory a KV cache needs.
#include <cstdint>
#include <string>
#include <vector>

#include "quire/base/kv_layout.h"

namespace quire {

// Returns the memory per token and per block, as "22.50 KiB per token, 360.00 KiB per block of 16 tokens (bf16)".
std::string describe_kv_cost(const KvLayout& layout);

// Returns one line per cache group, such as "group 0: 22 layers with a window of 512 tokens: ...".
std::vector<std::string> describe_kv_groups(const KvLayout& layout);

// Returns the number of tokens that fit into `num_blocks` blocks if all cache groups share the blocks equally. Groups of encoder outputs,
// and of states unless every state is cached (MambaCacheMode::all), are not counted.
std::uint64_t num_cacheable_tokens(const KvLayout& layout, std::uint64_t num_blocks);

}  // namespace quire
