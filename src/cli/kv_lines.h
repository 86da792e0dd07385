#pragma once
// What a KV cache costs, in words.
#include <cstdint>
#include <string>
#include <vector>

#include "quire/base/kv_layout.h"

namespace quire {

// "22.50 KiB per token, 360.00 KiB per block of 16 tokens (bf16)"
std::string describe_kv_cost(const KvLayout& layout);

// A line per cache group: "group 0: 22 layers with a window of 512 tokens: ..."
std::vector<std::string> describe_kv_groups(const KvLayout& layout);

// Tokens that so many blocks hold, with one in each group that grows with a request.
std::uint64_t num_kept_tokens(const KvLayout& layout, std::uint64_t num_blocks);

}  // namespace quire
