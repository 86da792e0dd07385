#pragma once
// NaiveFences computes the fences of each plan from the blocks it writes to and from the transfers that are open as far as the core knows.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "core/schedule/harness.h"
#include "quire/base/plan.h"

namespace quire::test {

class NaiveFences {
 public:
  explicit NaiveFences(const Harness& harness) : h_(harness) {}

  // Checks the fences of a plan before its transfers run.
  void check(const StepPlan& plan) {
    std::erase_if(reported_, [&](const auto& reported) {
      const auto found = h_.completions.find(reported.first);
      if (found != h_.completions.end() && !found->second.empty()) return false;
      for (const TransferId id : reported.second) open_.erase(id);
      return true;
    });
    const std::set<BlockId> written = written_blocks(plan);
    std::set<TransferId> wanted;
    for (const Transfer& transfer : plan.transfers)
      if (transfer.direction == TransferDirection::store) open(transfer);
    for (const auto& [id, blocks] : open_)
      if (std::ranges::any_of(blocks, [&](BlockId block) { return written.contains(block); })) wanted.insert(id);
    for (const Transfer& transfer : plan.transfers)
      if (transfer.direction == TransferDirection::load) open(transfer);
    EXPECT_EQ(std::set<TransferId>(plan.fences.begin(), plan.fences.end()), wanted);
    EXPECT_EQ(plan.fences.size(), wanted.size()) << "each fence is listed once";
    EXPECT_EQ(h_.core->counters().num_open_transfers, open_.size());
  }
  // Records the transfers that finish with a plan, once they are known.
  void note_ends() {
    for (const auto& [step, completions] : h_.completions) {
      if (completions.empty()) continue;
      reported_[step].clear();
      for (const TransferCompletion& completion : completions) reported_[step].push_back(completion.transfer);
    }
  }

 private:
  void open(const Transfer& transfer) { open_[transfer.id].assign(transfer.blocks.begin(), transfer.blocks.end()); }

  // Returns the blocks written. The forward pass writes after the computed tokens, and loads that begin with the plan fill their blocks.
  [[nodiscard]] std::set<BlockId> written_blocks(const StepPlan& plan) const {
    std::set<BlockId> written;
    for (const BlockTableDelta& delta : plan.table_deltas) {
      const auto scheduled = std::ranges::find(plan.scheduled, delta.id, &ScheduledRequest::id);
      EXPECT_NE(scheduled, plan.scheduled.end());
      for (std::size_t i = 0; i < delta.blocks.size(); ++i)
        if (delta.update != TableUpdate::replace_all || i >= scheduled->num_computed_tokens / h_.config.block_size)
          written.insert(delta.blocks[i]);
    }
    for (const Transfer& transfer : plan.transfers)
      if (transfer.direction == TransferDirection::load) written.insert(transfer.blocks.begin(), transfer.blocks.end());
    return written;
  }

  const Harness& h_;
  std::map<TransferId, std::vector<BlockId>> open_;
  std::map<StepId, std::vector<TransferId>> reported_;  // finished transfers, by the result that reports them
};

}  // namespace quire::test
