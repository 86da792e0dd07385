#pragma once
// Where the rows of a pass are: their positions, and for each cache group places and attention items, the same for all its layers.
#include <cstdint>
#include <optional>

#include "runtime/memory/block_tables.h"
#include "runtime/memory/kv_cache.h"
#include "runtime/model/layers/batch_input.h"
#include "runtime/model/layers/pass.h"

namespace quire {

// Of all rows of the input.
void lay_out(Pass& pass, const BatchInput& input, const KvLayout& layout, const BlockTables& tables);
// After the last layer's keys and values, or states, are written, only the output rows go on: they become the first ones. `group`: that of
// the layer, if it attends.
void keep_output_rows(Pass& pass, const BatchInput& input, const BlockTables& tables, std::optional<std::uint32_t> group);

}  // namespace quire
