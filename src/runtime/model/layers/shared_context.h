#pragma once
// Finds decoding rows with contexts that begin with the same blocks, and makes attention items that read the shared blocks once (cascade
// attention). Called while the rows of a pass are laid out, on the thread that leads it; it allocates nothing. Sharing does not change a
// row's bits (attention.h explains why).
#include <cstdint>
#include <span>

#include "quire/base/ids.h"
#include "runtime/model/layers/pass.h"

namespace quire {

// The result of row `row` of the pass becomes row `out_row`. Returns true if the row waits in `group.decode_rows` for others that may share
// its context.
bool defer_to_sharers(const Pass& pass, GroupPass& group, std::span<const BlockId> blocks, std::uint32_t row, std::uint32_t out_row);

// Makes the items of rows that share, after all rows of the pass are known. Rows that share with no other row stay in `group.decode_rows`.
void add_shared_items(const Pass& pass, GroupPass& group, std::uint32_t block_size);

}  // namespace quire
