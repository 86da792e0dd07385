// Lays out the rows of a pass. Called by the decoder at the beginning of a pass and before the last sublayer that needs all rows, on the
// thread that leads the pass. Attention items are split so that all threads have work: by rows and KV heads, and, if items are few and
// contexts long, by segments of the context. The split does not change the bits (attention.h explains why).
#include "runtime/model/layers/row_layout.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "runtime/memory/state_slots.h"
#include "runtime/model/layers/shared_context.h"

namespace quire {
namespace {

// Returns the maximum number of rows per item: fewer in a pass with few items, so that all threads have work, but at least kLeastRows,
// because each item reads the keys and values again.
std::uint32_t item_rows(const Pass& pass, const BatchInput& input) {
  constexpr std::uint32_t kLeastRows = 8;
  const std::uint32_t wanted = pass.pool.num_threads() == 1 ? 0 : kItemsPerThread * pass.pool.num_threads();
  std::uint32_t rows = kAttentionItemRows;
  const auto num_items = [&] {
    std::uint32_t num = 0;
    for (const BatchSequence& sequence : input.sequences) num += (sequence.num_tokens + rows - 1) / rows * pass.shape.num_kv_heads;
    return num;
  };
  while (rows > kLeastRows && num_items() < wanted) rows /= 2;
  return rows;
}

// Returns how many rows from `row` on form one item: several rows that attend only to positions up to their own, or one row that attends to
// later positions.
std::uint32_t rows_of_item(const Workspace& w, std::uint32_t row, std::uint32_t most) {
  const auto sees_more = [&w](std::uint32_t at) { return w.last_seen[at] > w.positions[at]; };
  std::uint32_t rows = 1;
  while (rows < most && !sees_more(row) && !sees_more(row + rows)) ++rows;
  return rows;
}

// Adds attention items for `count` rows of one sequence; their results become rows `out_row` and following. A row that attends to later
// positions is passed to the kernel at the last position that it attends to, with a window that is larger by the difference.
void add_items(const Pass& pass, GroupPass& group, const BlockId* blocks, std::uint32_t row, std::uint32_t count, std::uint32_t out_row) {
  const Workspace& w = pass.workspace;
  const LayerShape& shape = pass.shape;
  for (std::uint32_t done = 0, rows = 0; done < count; done += rows) {
    const std::uint32_t first = row + done, more = w.last_seen[first] - w.positions[first];
    rows = rows_of_item(w, first, std::min(count - done, group.item_rows));
    const std::uint32_t window = group.window == 0 ? 0 : group.window + more;
    group.work += std::uint64_t{rows} * (w.last_seen[first + rows - 1] + 1 - window_begin(window, w.last_seen[first])) * shape.q_size();
    for (std::uint32_t head = 0; head < shape.num_kv_heads; ++head) {
      group.items.push_back({.q = w.qkv + first * shape.qkv_size(),
                             .out = w.mixed + std::size_t{out_row + done} * shape.q_size(),
                             .q_stride = shape.qkv_size(),
                             .out_stride = shape.q_size(),
                             .rows = rows,
                             .first_position = w.last_seen[first],
                             .kv_head = head,
                             .group = shape.group(),
                             .blocks = blocks,
                             .scale = shape.attention_scale,
                             .window = window,
                             .soft_cap = shape.attention_soft_cap});
    }
  }
}

// Adds items like add_items(), but defers a single row that may share its context with other rows. The items of deferred rows are added
// when all rows are known.
void add_rows(const Pass& pass, GroupPass& group, std::span<const BlockId> blocks, std::uint32_t row, std::uint32_t count,
              std::uint32_t out_row) {
  if (count == 1 && defer_to_sharers(pass, group, blocks, row, out_row)) return;
  add_items(pass, group, blocks.data(), row, count, out_row);
}

void begin_items(GroupPass& group) {
  group.items.clear();
  group.decode_rows.clear();
  group.sharing.clear();
  group.work = 0;
}

void end_items(const Pass& pass, GroupPass& group, std::uint32_t block_size) {
  add_shared_items(pass, group, block_size);
  for (const DecodeRow& decode_row : group.decode_rows)
    add_items(pass, group, decode_row.blocks.data(), decode_row.row, 1, decode_row.out_row);
}

// Adds items for rows of one sequence that attend to an encoder's whole output. Each row is a separate item.
void add_cross_items(const Pass& pass, GroupPass& group, const BlockId* blocks, std::uint32_t first, std::uint32_t count) {
  const Workspace& w = pass.workspace;
  const LayerShape& shape = pass.shape;
  group.work += std::uint64_t{count} * group.cross * shape.q_size();
  for (std::uint32_t row = first; row < first + count; ++row) {
    for (std::uint32_t head = 0; head < shape.num_kv_heads; ++head) {
      group.items.push_back({.q = w.qkv + row * shape.qkv_size(),
                             .out = w.mixed + std::size_t{row} * shape.q_size(),
                             .q_stride = shape.qkv_size(),
                             .out_stride = shape.q_size(),
                             .rows = 1,
                             .first_position = group.cross - 1,
                             .kv_head = head,
                             .group = shape.group(),
                             .blocks = blocks,
                             .scale = shape.attention_scale});
    }
  }
}

// Splits rows with long contexts into one item per segment, if the pass has too few items for all threads.
void cut_long_rows(const Pass& pass, GroupPass& group) {
  group.joins.clear();
  const std::size_t num_items = group.items.size();
  if (pass.pool.num_threads() == 1 || num_items >= std::size_t{kItemsPerThread} * pass.pool.num_threads()) return;
  float* partials = pass.workspace.partials;
  for (std::size_t i = 0; i < num_items; ++i) {
    AttentionItem item = group.items[i];
    const std::uint32_t first_segment = window_begin(item.window, item.first_position) / kSegmentTokens;
    item.first_segment = first_segment;
    item.end_segment = item.first_position / kSegmentTokens + 1;
    if (item.rows > 1 || item.end_segment == first_segment + 1) continue;
    item.partials = partials;
    partials += item.end_segment * attention_partial_floats(pass.shape.head_dim, item.group);
    group.joins.push_back(item);
    for (; item.first_segment < group.joins.back().end_segment; ++item.first_segment) {
      item.end_segment = item.first_segment + 1;
      item.first_segment == first_segment ? group.items[i] = item : group.items.emplace_back(item);
    }
  }
}

// Records that rows [begin, begin + count) of one sequence use `adapter`.
void add_lora(LoraRows& adapted, const Adapter* adapter, std::uint32_t begin, std::uint32_t count) {
  if (adapted.max_rank == 0) return;
  std::uint32_t index = LoraRows::kNoPart;
  if (adapter != nullptr && count > 0) {
    const auto part = std::ranges::find(adapted.parts, adapter, &AdapterPart::adapter);
    index = static_cast<std::uint32_t>(part - adapted.parts.begin());
    if (part == adapted.parts.end()) adapted.parts.push_back({adapter, 0, 0});
    adapted.parts[index].count += count;
  }
  std::fill_n(adapted.part_of + begin, count, index);
}

// Groups the rows by adapter, after all rows have been added.
void group_lora_rows(LoraRows& adapted, std::uint32_t num_rows) {
  std::uint32_t first = 0;
  for (AdapterPart& part : adapted.parts) {
    part.first = first;
    first += std::exchange(part.count, 0);
  }
  for (std::uint32_t row = 0; row < num_rows && !adapted.parts.empty(); ++row) {
    if (adapted.part_of[row] == LoraRows::kNoPart) continue;
    AdapterPart& part = adapted.parts[adapted.part_of[row]];
    adapted.rows[part.first + part.count++] = row;
  }
}

// Adds the state steps of a sequence. A step ends at a token after which the state is kept (state_slots.h).
void add_steps(GroupPass& group, const BatchSequence& sequence, const StateSlots& slots, std::uint32_t block_size, std::uint32_t row) {
  if (sequence.num_tokens == 0) return;
  const auto first = static_cast<std::uint32_t>(group.steps.size());
  BlockId from = sequence.first_position == 0 ? kNullBlock : slots.before();
  QUIRE_CHECK(sequence.first_position == 0 || from != kNullBlock, "the state of the previous tokens has a block");
  std::uint32_t begin = 0;
  const auto end_step = [&](std::uint32_t end) {
    const BlockId to = slots.after(end - 1);
    if (to == kNullBlock) return;
    group.steps.push_back({row + begin, end - begin, from, to});
    begin = end;
    from = to;
  };
  const std::uint32_t first_saved_row = slots.first_saved_row();
  for (std::uint32_t end = block_size - sequence.first_position % block_size; end <= first_saved_row; end += block_size) end_step(end);
  for (std::uint32_t end = first_saved_row + 1; end <= sequence.num_tokens; ++end) end_step(end);
  group.runs.push_back({first, static_cast<std::uint32_t>(group.steps.size()) - first});
}

void lay_out_states(Pass& pass, const BatchInput& input, const KvLayout& layout, const BlockTables& tables, std::uint32_t index) {
  GroupPass& group = pass.workspace.groups[index];
  group.steps.clear();
  group.runs.clear();
  const KvGroupLayout& kept = layout.groups[index];
  std::uint32_t row = 0;
  for (const BatchSequence& sequence : input.sequences) {
    const StateRows rows{sequence.first_position, sequence.num_tokens, sequence.num_drafts};
    add_steps(group, sequence, {tables.row(index, sequence.slot), kept.block_size, kept.num_spare_blocks(), rows}, kept.block_size, row);
    row += sequence.num_tokens;
  }
}

void lay_out_group(Pass& pass, const BatchInput& input, const BlockTables& tables, std::uint32_t index) {
  GroupPass& group = pass.workspace.groups[index];
  begin_items(group);
  group.item_rows = item_rows(pass, input);
  std::uint32_t row = 0;
  for (const BatchSequence& sequence : input.sequences) {
    for (std::uint32_t i = 0; i < sequence.num_tokens; ++i)
      group.kv_slots[row + i] = tables.kv_slot(index, sequence.slot, sequence.first_position + i);
    add_rows(pass, group, tables.row(index, sequence.slot), row, sequence.num_tokens, row);
    row += sequence.num_tokens;
  }
  end_items(pass, group, tables.table(index).limits().kernel_block_size);
  cut_long_rows(pass, group);
}

void lay_out_cross(Pass& pass, const BatchInput& input, const BlockTables& tables, std::uint32_t index) {
  GroupPass& group = pass.workspace.groups[index];
  group.items.clear();
  group.work = 0;
  group.cross = pass.shape.cross_positions;
  std::uint32_t row = 0;
  for (const BatchSequence& sequence : input.sequences) {
    const std::span<const BlockId> blocks = tables.row(index, sequence.slot);
    QUIRE_CHECK(blocks.size() * tables.table(index).limits().kernel_block_size >= group.cross, "the encoder output has blocks");
    add_cross_items(pass, group, blocks.data(), row, sequence.num_tokens);
    row += sequence.num_tokens;
  }
  cut_long_rows(pass, group);
}

}  // namespace

void lay_out(Pass& pass, const BatchInput& input, const KvLayout& layout, const BlockTables& tables) {
  LoraRows& adapted = pass.workspace.adapted;
  adapted.parts.clear();
  std::uint32_t row = 0;
  for (const BatchSequence& sequence : input.sequences) {
    add_lora(adapted, sequence.adapter, row, sequence.num_tokens);
    for (std::uint32_t i = 0; i < sequence.num_tokens; ++i) {
      pass.workspace.sources[row] = row;
      pass.workspace.last_seen[row] = input.last_seen.empty() ? sequence.first_position + i : input.last_seen[row];
      pass.workspace.positions[row++] = sequence.first_position + i;
    }
  }
  group_lora_rows(adapted, row);
  for (std::uint32_t group = 0; group < layout.groups.size(); ++group) {
    if (layout.groups[group].keeps_states()) {
      lay_out_states(pass, input, layout, tables, group);
      continue;
    }
    if (layout.groups[group].keeps_encoder_output()) {
      lay_out_cross(pass, input, tables, group);
      continue;
    }
    pass.workspace.groups[group].window = layout.groups[group].sliding_window();
    lay_out_group(pass, input, tables, group);
  }
}

void compact_to_output_rows(Pass& pass, const BatchInput& input, const BlockTables& tables, std::optional<std::uint32_t> index) {
  GroupPass* group = index ? &pass.workspace.groups[*index] : nullptr;
  const std::size_t width = pass.shape.hidden_size;
  const std::span<const std::uint32_t> wanted = input.output_rows;
  LoraRows& adapted = pass.workspace.adapted;
  adapted.parts.clear();
  const auto is_looked_at = [&](const GroupPass& other) { return &other == group || other.cross > 0; };
  for (GroupPass& other : pass.workspace.groups)
    if (is_looked_at(other)) begin_items(other);
  std::uint32_t end = 0;
  std::uint32_t kept = 0;
  for (const BatchSequence& sequence : input.sequences) {
    end += sequence.num_tokens;
    while (kept < wanted.size() && wanted[kept] < end) {
      const std::uint32_t row = wanted[kept];
      std::uint32_t count = 1;
      while (kept + count < wanted.size() && wanted[kept + count] == row + count && row + count < end) ++count;
      std::copy_n(pass.workspace.hidden + row * width, row == kept ? 0 : count * width, pass.workspace.hidden + kept * width);
      for (std::uint32_t i = 0; i < count; ++i) pass.workspace.sources[kept + i] = row + i;
      if (index) add_rows(pass, *group, tables.row(*index, sequence.slot), row, count, kept);
      for (std::uint32_t i = 0; i < pass.workspace.groups.size(); ++i)
        if (GroupPass& other = pass.workspace.groups[i]; other.cross > 0)
          add_cross_items(pass, other, tables.row(i, sequence.slot).data(), kept, count);
      add_lora(adapted, sequence.adapter, kept, count);
      kept += count;
    }
  }
  if (index) end_items(pass, *group, tables.table(*index).limits().kernel_block_size);
  pass.rows = kept;
  group_lora_rows(adapted, kept);
  for (GroupPass& other : pass.workspace.groups)
    if (is_looked_at(other)) cut_long_rows(pass, other);
}

}  // namespace quire
