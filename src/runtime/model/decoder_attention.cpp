// Where the rows of a pass attend: per cache group, the same for all its layers.
#include <algorithm>

#include "base/check.h"
#include "runtime/model/decoder.h"

namespace quire {

// Positions of every row, and for each cache group places and attention items: the same for all its layers.
void Decoder::lay_out(const BatchInput& input, const KvLayout& layout, const BlockTables& tables) {
  std::uint32_t row = 0;
  for (const BatchSequence& sequence : input.sequences)
    for (std::uint32_t i = 0; i < sequence.num_tokens; ++i) workspace_.positions[row++] = sequence.first_position + i;
  for (std::uint32_t group = 0; group < layout.groups.size(); ++group) {
    workspace_.groups[group].window = layout.groups[group].sliding_window();
    lay_out_group(input, tables, group);
  }
}

void Decoder::lay_out_group(const BatchInput& input, const BlockTables& tables, std::uint32_t group) {
  GroupPass& pass = workspace_.groups[group];
  pass.items.clear();
  pass.work = 0;
  std::uint32_t row = 0;
  for (const BatchSequence& sequence : input.sequences) {
    for (std::uint32_t i = 0; i < sequence.num_tokens; ++i)
      pass.kv_slots[row + i] = tables.kv_slot(group, sequence.slot, sequence.first_position + i);
    add_items(pass, tables.row(group, sequence.slot).data(), row, sequence.num_tokens, row);
    row += sequence.num_tokens;
  }
  cut_long_rows(pass);
}

// What attends for `count` rows of one sequence; their results become rows `out_row` and on.
void Decoder::add_items(GroupPass& pass, const BlockId* blocks, std::uint32_t row, std::uint32_t count, std::uint32_t out_row) {
  const Workspace& w = workspace_;
  for (std::uint32_t done = 0; done < count; done += kAttentionItemRows) {
    const std::uint32_t rows = std::min(kAttentionItemRows, count - done);
    const std::uint32_t last = w.positions[row + done] + rows - 1;
    pass.work += std::uint64_t{rows} * (last + 1 - window_begin(pass.window, w.positions[row + done])) * config_.q_size();
    for (std::uint32_t head = 0; head < config_.num_kv_heads; ++head) {
      pass.items.push_back({.q = w.qkv + (row + done) * qkv_size(),
                            .out = w.attention + std::size_t{out_row + done} * config_.q_size(),
                            .q_stride = qkv_size(),
                            .out_stride = config_.q_size(),
                            .rows = rows,
                            .first_position = w.positions[row + done],
                            .kv_head = head,
                            .group = config_.group(),
                            .blocks = blocks,
                            .scale = config_.attention_scale,
                            .window = pass.window,
                            .soft_cap = config_.attention_soft_cap});
    }
  }
}

// A few decoding rows of long contexts are too few items for all threads: each segment becomes an item of its own.
void Decoder::cut_long_rows(GroupPass& pass) {
  pass.joins.clear();
  const std::size_t num_items = pass.items.size();
  if (pool_.num_threads() == 1 || num_items >= std::size_t{kItemsPerThread} * pool_.num_threads()) return;
  float* partials = workspace_.partials;
  for (std::size_t i = 0; i < num_items; ++i) {
    AttentionItem item = pass.items[i];
    const std::uint32_t first_segment = window_begin(item.window, item.first_position) / kSegmentTokens;
    item.first_segment = first_segment;
    item.end_segment = item.first_position / kSegmentTokens + 1;
    if (item.rows > 1 || item.end_segment == first_segment + 1) continue;
    item.partials = partials;
    partials += item.end_segment * attention_partial_floats(config_.head_dim, item.group);
    pass.joins.push_back(item);
    for (; item.first_segment < pass.joins.back().end_segment; ++item.first_segment) {
      item.end_segment = item.first_segment + 1;
      item.first_segment == first_segment ? pass.items[i] = item : pass.items.emplace_back(item);
    }
  }
}

// After the last layer's keys and values are written, only the rows whose logits are wanted go on: they become the first ones.
void Decoder::keep_logit_rows(const BatchInput& input, const BlockTables& tables, std::uint32_t group) {
  GroupPass& pass = workspace_.groups[group];
  const std::size_t width = config_.hidden_size;
  const std::span<const std::uint32_t> wanted = input.logit_rows;
  pass.items.clear();
  pass.work = 0;
  std::uint32_t end = 0;
  std::uint32_t kept = 0;
  for (const BatchSequence& sequence : input.sequences) {
    end += sequence.num_tokens;
    while (kept < wanted.size() && wanted[kept] < end) {
      const std::uint32_t row = wanted[kept];
      std::uint32_t count = 1;
      while (kept + count < wanted.size() && wanted[kept + count] == row + count && row + count < end) ++count;
      std::copy_n(workspace_.hidden + row * width, row == kept ? 0 : count * width, workspace_.hidden + kept * width);
      add_items(pass, tables.row(group, sequence.slot).data(), row, count, kept);
      kept += count;
    }
  }
  rows_ = kept;
  cut_long_rows(pass);
}

void Decoder::run_attention(const PagedKvLayer& kv, const GroupPass& pass) {
  // Below some tens of microseconds of work a second thread does not pay.
  constexpr std::uint64_t kWorthSharing = 100'000;
  const auto num_items = static_cast<std::uint32_t>(pass.items.size());
  const std::uint32_t shared_grain = std::max(1U, num_items / (pool_.num_threads() * 16));
  const std::uint32_t grain = pass.work < kWorthSharing ? num_items : shared_grain;
  pool_.parallel_for(num_items, grain, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t thread) {
    for (std::uint32_t i = begin; i < end; ++i) kernels_.attend(kv, pass.items[i], workspace_.attention_scratch(thread));
  });
  for (const AttentionItem& item : pass.joins) kernels_.join_segments(kv, item);
}

PagedKvLayer Decoder::kv_layer(const KvCache& cache, std::uint32_t layer) {
  const KvLayerLayout& layout = cache.layout().layers[layer];
  return {.keys = cache.keys(layer),
          .values = cache.values(layer),
          .dtype = cache.layout().dtype,
          .block_size = cache.layout().groups[layout.group].kernel_block_size,
          .num_kv_heads = layout.num_kv_heads,
          .head_dim = layout.head_dim,
          .block_stride = layout.block_stride,
          .head_stride = layout.head_stride,
          .token_stride = layout.token_stride};
}

}  // namespace quire
