#pragma once
// Finds decoding rows with contexts that begin with the same blocks, and adds attention items that read the shared blocks once (cascade
// attention). Called while the rows of a pass are laid out, on the thread that leads the pass; allocates no memory. Sharing does not change
// a row's bits (attention.h explains why).
#include <cstdint>
#include <span>

#include "quire/base/ids.h"
#include "runtime/model/layers/pass.h"

namespace quire {

// Adds the row to `group.decode_rows` and returns true if the row may share its context with others; its items are then added by
// add_shared_items(). The row's result becomes row `out_row`.
bool defer_to_sharers(const Pass& pass, GroupPass& group, std::span<const BlockId> blocks, std::uint32_t row, std::uint32_t out_row);

// Adds the items of rows that share, after all rows of the pass are known. Rows that share with no other row stay in `group.decode_rows`.
void add_shared_items(const Pass& pass, GroupPass& group, std::uint32_t block_size);

}  // namespace quire
