#pragma once
// Explains why tokens of an admitted request were not found: looks up each of their blocks in the records of block hashes.
#include <cstdint>
#include <optional>
#include <span>

#include "core/explain/block_history_table.h"
#include "quire/base/request.h"
#include "quire/lab/explain.h"

namespace quire {

// Result of the last look-up of a request before it was admitted.
struct LookUpResult {
  std::uint64_t tenant = 0;  // the tenant's number in BlockHistoryTable
  bool is_known = false;     // false for a fork, which shares blocks without a look-up
  bool in_cache = false;     // whether the prefix cache was searched
  std::uint32_t num_cached = 0, num_external = 0;
  std::uint64_t at = 0;  // BlockHistoryTable::now() at the look-up
};

// Returns the key of a block of `options.block_size` tokens, or nullopt if the block has no hash. `block_hashes` are the request's hashes
// (RequestView::block_hashes).
[[nodiscard]] std::optional<std::uint64_t> key_of_block(std::span<const std::uint8_t> block_hashes, std::uint32_t block,
                                                        const ExplainOptions& options);

// Fills the members of `facts` from num_tokens to misses. `num_computed` of the `num_tokens` tokens are already computed. `view` is the
// request at its admission.
void explain_admission(const RequestView& view, const LookUpResult& look_up, std::uint32_t num_computed, std::uint32_t num_tokens,
                       const BlockHistoryTable& memory, const ExplainOptions& options, RequestExplanation& facts);

}  // namespace quire
