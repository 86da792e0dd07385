#pragma once
// Decoding rows whose contexts begin with the same blocks: who shares with whom, and the attention items that read what they share once
// (cascade attention). Called while the rows of a pass are laid out, on the thread that leads it; it allocates nothing. No row's bits show
// it (attention.h says why).
#include <cstdint>
#include <span>

#include "quire/base/ids.h"
#include "runtime/model/layers/pass.h"

namespace quire {

// Row `row` of the pass, whose result becomes row `out_row`. True: it waits in group.lone for others that may share its context.
bool wait_for_sharers(const Pass& pass, GroupPass& group, std::span<const BlockId> blocks, std::uint32_t row, std::uint32_t out_row);

// When all rows of the pass are known: items of those that share. Who shares with nobody stays in group.lone.
void add_shared_items(const Pass& pass, GroupPass& group, std::uint32_t block_size);

}  // namespace quire
