#pragma once
// Describes the memory that a KV cache needs, in words.
#include <cstdint>
#include <string>
#include <vector>

#include "quire/base/kv_layout.h"

namespace quire {

// Returns "22.50 KiB per token, 360.00 KiB per block of 16 tokens (bf16)".
std::string describe_kv_cost(const KvLayout& layout);

// Returns one line per cache group: "group 0: 22 layers with a window of 512 tokens: ...".
std::vector<std::string> describe_kv_groups(const KvLayout& layout);

// Returns the tokens that `num_blocks` blocks hold, if they are shared equally by the groups that grow with a request.
std::uint64_t num_cacheable_tokens(const KvLayout& layout, std::uint64_t num_blocks);

}  // namespace quire
