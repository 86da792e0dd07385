#pragma once
// The attention phase of a layer: its items are shared out, and rows whose context several threads share are joined.
#include <algorithm>

#include "runtime/model/layers/pass.h"

namespace quire {

// The rows of an item that lie beside each other, as an item each.
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

// sinks: [num_heads], or null. done(item): its rows and heads are in pass.workspace.attention; called by whoever computed them.
template <class Done>
void attend_items(Pass& pass, const PagedKvLayer& kv, const GroupPass& group, const float* sinks, Done done) {
  // Below some tens of microseconds of work a second thread does not pay.
  constexpr std::uint64_t kWorthSharing = 100'000;
  // Where products are rounded anyway, attention is, too.
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
