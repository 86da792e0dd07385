#pragma once
// The fences of each plan, worked out from what it writes to and from the transfers that are open as far as the core knows.
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

  // Before anything of the plan is moved.
  void check(const StepPlan& plan) {
    std::erase_if(told_, [&](const auto& told) {
      const auto found = h_.completions.find(told.first);
      if (found != h_.completions.end() && !found->second.empty()) return false;
      for (const TransferId id : told.second) open_.erase(id);
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
    EXPECT_EQ(plan.fences.size(), wanted.size()) << "each is named once";
    EXPECT_EQ(h_.core->counters().num_open_transfers, open_.size());
  }
  // When it is known which transfers are over with the plan.
  void note_ends() {
    for (const auto& [step, completions] : h_.completions) {
      if (completions.empty()) continue;
      told_[step].clear();
      for (const TransferCompletion& completion : completions) told_[step].push_back(completion.transfer);
    }
  }

 private:
  void open(const Transfer& transfer) { open_[transfer.id].assign(transfer.blocks.begin(), transfer.blocks.end()); }

  // The pass writes behind what is computed, and loads that begin with the plan fill their blocks.
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
  std::map<StepId, std::vector<TransferId>> told_;  // that are over, by the result that is to say so
};

}  // namespace quire::test
