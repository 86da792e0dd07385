#pragma once
// The attention phase of a layer: distributes the items over threads, and joins rows that several threads have computed in segments.
#include <algorithm>

#include "runtime/model/layers/pass.h"

namespace quire {

// Calls done(item). The rows of an item with `sharing` need not be adjacent, so done() gets each of these rows as a separate item.
template <class Done>
void each_row(const AttentionItem& item, Done done) {
  if (item.sharing == nullptr) return done(item);
  for (std::uint32_t row = 0; row < item.rows; ++row) {
    AttentionItem one = item;
    one.out = item.sharing[row].out;
    one.rows = 1;
    done(one);
  }
}

// Computes all items of the group. `sinks`: [num_heads], or null. The thread that computed an item calls done(item) when the item's outputs
// are in pass.workspace.mixed.
template <class Done>
void attend_items(Pass& pass, const PagedKvLayer& kv, const GroupPass& group, const float* sinks, Done done) {
  // Number of multiplications from which a second thread pays off: some tens of microseconds of work.
  constexpr std::uint64_t kWorthSharing = 100'000;
  // If the activation mode rounds products anyway, attention uses bf16 pairs, too.
  const bool in_pairs = kv.dtype == KvDtype::bf16 && (pass.mode == ActivationMode::int8 || pass.mode == ActivationMode::bf16);
  const auto num_items = static_cast<std::uint32_t>(group.items.size());
  const std::uint32_t shared_grain = std::max(1U, num_items / (pass.pool.num_threads() * 16));
  const std::uint32_t grain = group.work < kWorthSharing ? num_items : group.sharing.empty() ? shared_grain : 1;
  pass.pool.parallel_for(num_items, grain, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t thread) {
    for (std::uint32_t i = begin; i < end; ++i) {
      AttentionItem item = group.items[i];
      if (i + 1 < end) item.next = &group.items[i + 1];
      item.sinks = sinks;
      item.in_pairs = in_pairs;
      pass.kernels.attend(kv, item, pass.workspace.attention_scratch(thread));
      if (item.partials == nullptr) each_row(item, done);
    }
  });
  for (AttentionItem item : group.joins) {
    item.sinks = sinks;
    item.in_pairs = in_pairs;
    pass.kernels.join_segments(kv, item);
    done(item);
  }
}

}  // namespace quire
