#pragma once
// Explains why tokens of an admitted request were not found: each of their blocks is looked up in the records of blocks.
#include <cstdint>
#include <optional>
#include <span>

#include "core/explain/block_history_table.h"
#include "quire/base/request.h"
#include "quire/lab/explain.h"

namespace quire {

// The last look-up of a request before it was admitted.
struct LookUpResult {
  std::uint64_t tenant = 0;  // tenant in BlockHistoryTable
  bool is_known = false;     // it was looked up; false for a request that shares its beginning with another one
  bool in_cache = false;     // the look-up included the prefix cache
  std::uint32_t num_cached = 0, num_external = 0;
  std::uint64_t at = 0;  // BlockHistoryTable::now()
};

// Returns the key of a block of `options.block_size` tokens. `block_hashes` are the request's (RequestView::block_hashes). nullopt: the
// block has no hash.
[[nodiscard]] std::optional<std::uint64_t> key_of_block(std::span<const std::uint8_t> block_hashes, std::uint32_t block,
                                                        const ExplainOptions& options);

// Fills the members of `facts` from num_tokens to misses. `num_computed` of the `num_tokens` tokens need not be computed. `view` shows the
// request at its admission.
void explain_admission(const RequestView& view, const LookUpResult& look_up, std::uint32_t num_computed, std::uint32_t num_tokens,
                       const BlockHistoryTable& memory, const ExplainOptions& options, RequestExplanation& facts);

}  // namespace quire
