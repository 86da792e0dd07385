#pragma once
// Lays out the rows of a pass: their positions, and for each cache group the KV slots and attention items, which all layers of the group
// share.
#include <cstdint>
#include <optional>

#include "runtime/memory/block_tables.h"
#include "runtime/memory/kv_cache.h"
#include "runtime/model/layers/batch_input.h"
#include "runtime/model/layers/pass.h"

namespace quire {

// Lays out all rows of the input.
void lay_out(Pass& pass, const BatchInput& input, const KvLayout& layout, const BlockTables& tables);
// Keeps only the output rows, which become the first rows. Called after the last layer has written keys and values, or states. `group` is
// the cache group of this layer, if it has attention.
void compact_to_output_rows(Pass& pass, const BatchInput& input, const BlockTables& tables, std::optional<std::uint32_t> group);

}  // namespace quire
