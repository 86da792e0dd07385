#include "runtime/model/layers/shared_context.h"

#include <algorithm>

#include "base/check.h"

namespace quire {
namespace {

// Least number of rows that share. With fewer rows, widening the keys and values of a tile does not pay off: a step takes a tenth longer
// with two rows (SmolLM2-135M at 1,088 tokens), a twentieth less with four, and a sixth less with eight.
constexpr std::uint32_t kMinSharingRows = 4;
// Number of items per thread, so that no thread waits long for the last item.
constexpr std::uint32_t kWantedItems = 4;

// Returns the number of tokens in the blocks with which both contexts begin. Counts only whole blocks before both rows' tokens.
std::uint32_t common_tokens(const Workspace& w, const DecodeRow& a, const DecodeRow& b, std::uint32_t block_size) {
  const std::uint32_t most = std::min(w.positions[a.row], w.positions[b.row]) / block_size;
  QUIRE_CHECK(most <= a.blocks.size() && most <= b.blocks.size(), "the tokens that a row attends to have blocks");
  const auto first_other = std::mismatch(a.blocks.begin(), a.blocks.begin() + most, b.blocks.begin()).first;
  return static_cast<std::uint32_t>(first_other - a.blocks.begin()) * block_size;
}

// Adds the row to the sharing set in which the row saves the most reads. If it would save none in any set, the row begins a new set.
void join_sharing_set(const Workspace& w, GroupPass& group, DecodeRow& decode_row, std::uint32_t block_size) {
  std::uint64_t most_saved = 0;
  std::uint32_t tokens = 0;
  decode_row.sharing_set = static_cast<std::uint32_t>(group.sharing_sets.size());
  for (std::uint32_t i = 0; i < group.sharing_sets.size(); ++i) {
    const SharingSet& sharing_set = group.sharing_sets[i];
    const std::uint32_t common = common_tokens(w, group.decode_rows[sharing_set.first], decode_row, block_size);
    const std::uint32_t shared = std::min(sharing_set.tokens, common) / kTileTokens * kTileTokens;
    const std::uint64_t before = std::uint64_t{sharing_set.count - 1} * sharing_set.tokens,
                        with_it = std::uint64_t{sharing_set.count} * shared;
    if (with_it <= before + most_saved) continue;
    most_saved = with_it - before;
    tokens = shared;
    decode_row.sharing_set = i;
  }
  if (most_saved == 0) {
    const auto index = static_cast<std::uint32_t>(&decode_row - group.decode_rows.data());
    group.sharing_sets.push_back({.first = index, .count = 1, .tokens = w.positions[decode_row.row]});
    return;
  }
  ++group.sharing_sets[decode_row.sharing_set].count;
  group.sharing_sets[decode_row.sharing_set].tokens = tokens;
}

// Adds the items of `rows` sharing rows, from `first` of group.sharing on.
void add_items(const Pass& pass, GroupPass& group, std::size_t first, std::uint32_t rows, std::uint32_t tokens) {
  const LayerShape& shape = pass.shape;
  for (std::uint32_t head = 0; head < shape.num_kv_heads; ++head) {
    group.items.push_back({.rows = rows,
                           .kv_head = head,
                           .group = shape.group(),
                           .blocks = group.sharing[first].blocks,
                           .scale = shape.attention_scale,
                           .soft_cap = shape.attention_soft_cap,
                           .sharing = &group.sharing[first],
                           .shared_tokens = tokens});
  }
}

void add_sharing_set(const Pass& pass, GroupPass& group, std::uint32_t index) {
  const Workspace& w = pass.workspace;
  const LayerShape& shape = pass.shape;
  const SharingSet& sharing_set = group.sharing_sets[index];
  std::size_t first = group.sharing.size();
  for (const DecodeRow& decode_row : group.decode_rows) {
    if (decode_row.sharing_set != index) continue;
    const std::uint32_t position = w.positions[decode_row.row];
    group.work += std::uint64_t{position + 1} * shape.q_size();
    group.sharing.push_back({.q = w.qkv + decode_row.row * shape.qkv_size(),
                             .out = w.mixed + std::size_t{decode_row.out_row} * shape.q_size(),
                             .position = position,
                             .blocks = decode_row.blocks.data()});
  }
  const std::uint32_t fair = sharing_set.count * shape.num_kv_heads / (kWantedItems * pass.pool.num_threads());
  const std::uint32_t most = std::clamp(fair, kMinSharingRows, kAttentionItemRows);
  for (std::uint32_t parts = (sharing_set.count + most - 1) / most, left = sharing_set.count; parts > 0; --parts) {
    const std::uint32_t rows = (left + parts - 1) / parts;
    add_items(pass, group, first, rows, sharing_set.tokens);
    first += rows;
    left -= rows;
  }
}

}  // namespace

bool defer_to_sharers(const Pass& pass, GroupPass& group, std::span<const BlockId> blocks, std::uint32_t row, std::uint32_t out_row) {
  const Workspace& w = pass.workspace;
  const bool is_full_attention = group.window == 0 || w.positions[row] < group.window;
  const bool may_share = is_full_attention && w.last_seen[row] == w.positions[row] && w.positions[row] >= kTileTokens;
  if (!may_share || group.decode_rows.size() == group.decode_rows.capacity()) return false;
  group.decode_rows.push_back({.row = row, .out_row = out_row, .blocks = blocks, .sharing_set = 0});
  return true;
}

void add_shared_items(const Pass& pass, GroupPass& group, std::uint32_t block_size) {
  group.sharing_sets.clear();
  group.sharing.clear();
  // With so few items, splitting rows into segments is better (cut_long_rows).
  const std::size_t num_items = group.items.size() + group.decode_rows.size() * pass.shape.num_kv_heads;
  if (pass.pool.num_threads() > 1 && num_items < std::size_t{kItemsPerThread} * pass.pool.num_threads()) return;
  for (DecodeRow& decode_row : group.decode_rows) join_sharing_set(pass.workspace, group, decode_row, block_size);
  // All threads must have an item.
  const auto pays = [&](const SharingSet& sharing_set) {
    return sharing_set.count >= kMinSharingRows && sharing_set.count / kMinSharingRows * pass.shape.num_kv_heads >= pass.pool.num_threads();
  };
  for (std::uint32_t i = 0; i < group.sharing_sets.size(); ++i)
    if (pays(group.sharing_sets[i])) add_sharing_set(pass, group, i);
  std::erase_if(group.decode_rows, [&](const DecodeRow& decode_row) { return pays(group.sharing_sets[decode_row.sharing_set]); });
}

}  // namespace quire
