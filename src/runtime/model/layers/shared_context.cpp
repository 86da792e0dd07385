#include "runtime/model/layers/shared_context.h"

#include <algorithm>

#include "base/check.h"

namespace quire {
namespace {

// Fewer do not pay for widening the keys and values of a tile: with two a step takes a tenth longer (SmolLM2-135M at 1,088 tokens), with
// four a twentieth less, with eight a sixth.
constexpr std::uint32_t kMinSharers = 4;
// Items per thread, so that none waits long for the last one.
constexpr std::uint32_t kWantedItems = 4;

// Tokens of the blocks that both begin with; before the token of either row.
std::uint32_t common_tokens(const Workspace& w, const LoneRow& a, const LoneRow& b, std::uint32_t block_size) {
  const std::uint32_t most = std::min(w.positions[a.row], w.positions[b.row]) / block_size;
  QUIRE_CHECK(most <= a.blocks.size() && most <= b.blocks.size(), "what a row sees has blocks");
  const auto first_other = std::mismatch(a.blocks.begin(), a.blocks.begin() + most, b.blocks.begin()).first;
  return static_cast<std::uint32_t>(first_other - a.blocks.begin()) * block_size;
}

// Joins the rows that save most by it, or none: then it is the first of others to come.
void join_sharers(const Workspace& w, GroupPass& group, LoneRow& lone, std::uint32_t block_size) {
  std::uint64_t most_saved = 0;
  std::uint32_t tokens = 0;
  lone.sharers = static_cast<std::uint32_t>(group.sharers.size());
  for (std::uint32_t i = 0; i < group.sharers.size(); ++i) {
    const Sharers& sharers = group.sharers[i];
    const std::uint32_t common = common_tokens(w, group.lone[sharers.first], lone, block_size);
    const std::uint32_t shared = std::min(sharers.tokens, common) / kTileTokens * kTileTokens;
    const std::uint64_t before = std::uint64_t{sharers.count - 1} * sharers.tokens, with_it = std::uint64_t{sharers.count} * shared;
    if (with_it <= before + most_saved) continue;
    most_saved = with_it - before;
    tokens = shared;
    lone.sharers = i;
  }
  if (most_saved == 0) {
    const auto index = static_cast<std::uint32_t>(&lone - group.lone.data());
    group.sharers.push_back({.first = index, .count = 1, .tokens = w.positions[lone.row]});
    return;
  }
  ++group.sharers[lone.sharers].count;
  group.sharers[lone.sharers].tokens = tokens;
}

// `rows` of them, from `first` of group.sharing on.
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

void add_sharers(const Pass& pass, GroupPass& group, std::uint32_t index) {
  const Workspace& w = pass.workspace;
  const LayerShape& shape = pass.shape;
  const Sharers& sharers = group.sharers[index];
  std::size_t first = group.sharing.size();
  for (const LoneRow& lone : group.lone) {
    if (lone.sharers != index) continue;
    const std::uint32_t position = w.positions[lone.row];
    group.work += std::uint64_t{position + 1} * shape.q_size();
    group.sharing.push_back({.q = w.qkv + lone.row * shape.qkv_size(),
                             .out = w.mixed + std::size_t{lone.out_row} * shape.q_size(),
                             .position = position,
                             .blocks = lone.blocks.data()});
  }
  const std::uint32_t fair = sharers.count * shape.num_kv_heads / (kWantedItems * pass.pool.num_threads());
  const std::uint32_t most = std::clamp(fair, kMinSharers, kAttentionItemRows);
  for (std::uint32_t parts = (sharers.count + most - 1) / most, left = sharers.count; parts > 0; --parts) {
    const std::uint32_t rows = (left + parts - 1) / parts;
    add_items(pass, group, first, rows, sharers.tokens);
    first += rows;
    left -= rows;
  }
}

}  // namespace

bool wait_for_sharers(const Pass& pass, GroupPass& group, std::span<const BlockId> blocks, std::uint32_t row, std::uint32_t out_row) {
  const Workspace& w = pass.workspace;
  const bool sees_all = group.window == 0 || w.positions[row] < group.window;
  const bool may_share = sees_all && w.last_seen[row] == w.positions[row] && w.positions[row] >= kTileTokens;
  if (!may_share || group.lone.size() == group.lone.capacity()) return false;
  group.lone.push_back({.row = row, .out_row = out_row, .blocks = blocks, .sharers = 0});
  return true;
}

void add_shared_items(const Pass& pass, GroupPass& group, std::uint32_t block_size) {
  group.sharers.clear();
  group.sharing.clear();
  // So few items that a row's segments are shared out (cut_long_rows) are worth more.
  const std::size_t num_items = group.items.size() + group.lone.size() * pass.shape.num_kv_heads;
  if (pass.pool.num_threads() > 1 && num_items < std::size_t{kItemsPerThread} * pass.pool.num_threads()) return;
  for (LoneRow& lone : group.lone) join_sharers(pass.workspace, group, lone, block_size);
  // All threads are to have an item.
  const auto pays = [&](const Sharers& sharers) {
    return sharers.count >= kMinSharers && sharers.count / kMinSharers * pass.shape.num_kv_heads >= pass.pool.num_threads();
  };
  for (std::uint32_t i = 0; i < group.sharers.size(); ++i)
    if (pays(group.sharers[i])) add_sharers(pass, group, i);
  std::erase_if(group.lone, [&](const LoneRow& lone) { return pays(group.sharers[lone.sharers]); });
}

}  // namespace quire
