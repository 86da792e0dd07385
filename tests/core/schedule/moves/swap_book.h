#pragma once
// SwapBook records the swap events of a core and compares them with the core's counters and the transfers of its plans.
#include <gtest/gtest.h>

#include <map>

#include "quire/base/events.h"
#include "quire/core.h"

namespace quire::test {

class SwapBook final : public EventSink {
 public:
  const Core* core = nullptr;

  void on_event(const Event& event) override {
    switch (event.what) {
      case EventKind::preempted:
        why_[event.owner] = event.cause;
        break;
      case EventKind::swapped_out:
        EXPECT_EQ(event.cause, why_.at(event.owner)) << "the swap has the cause of the preemption";
        ++num_out_;
        num_out_blocks_ += event.amount;
        out_[event.owner] = out_now_[event.owner] = event.amount;
        break;
      case EventKind::swapped_in:
        ++num_in_;
        num_in_blocks_ += event.amount;
        num_in_tokens_ += event.total;
        EXPECT_EQ(event.amount, out_.at(event.owner));
        EXPECT_EQ(event.total, core->view(event.owner).value().num_computed_tokens);
        break;
      case EventKind::swap_lost:
        ++num_lost_;
        if (event.cause == EventCause::lack_of_blocks)
          EXPECT_NE(core->view(event.owner).value().status, RequestStatus::waiting_for_remote_kv)
              << "loads still write to the blocks of the request";
        EXPECT_EQ(event.amount, out_.at(event.owner));
        out_now_.erase(event.owner);
        break;
      case EventKind::swap_declined:
        ++(event.cause == EventCause::no_place ? num_no_place_ : num_no_gain_);
        EXPECT_EQ(event.amount, core->view(event.owner).value().num_blocks);
        break;
      default:
        break;
    }
  }

  // Checks that all blocks swapped out in this step are stored with its plan, and that loads return as many blocks as were swapped out.
  void check(const StepPlan& plan) {
    std::map<RequestId, std::uint64_t> stored, loaded;
    for (const Transfer& transfer : plan.transfers)
      (transfer.direction == TransferDirection::store ? stored : loaded)[transfer.request] += transfer.blocks.size();
    std::erase_if(out_now_, [](const auto& one) { return one.second == 0; });  // all blocks of the request are shared
    EXPECT_EQ(stored, out_now_);
    out_now_.clear();
    for (const auto& [request, num_blocks] : loaded) EXPECT_EQ(num_blocks, out_.at(request));
    const CoreCounters counters = core->counters();
    EXPECT_EQ(counters.num_swapped_out, num_out_);
    EXPECT_EQ(counters.num_swapped_out_blocks, num_out_blocks_);
    EXPECT_EQ(counters.num_swapped_in, num_in_);
    EXPECT_EQ(counters.num_swapped_in_blocks, num_in_blocks_);
    EXPECT_EQ(counters.num_swapped_in_tokens, num_in_tokens_);
    EXPECT_EQ(counters.num_swaps_lost, num_lost_);
    EXPECT_EQ(counters.num_swaps_no_slot, num_no_place_);
    EXPECT_EQ(counters.num_swaps_no_gain, num_no_gain_);
  }

 private:
  std::map<RequestId, EventCause> why_;         // cause of the newest preemption
  std::map<RequestId, std::uint64_t> out_;      // number of blocks of the last swap
  std::map<RequestId, std::uint64_t> out_now_;  // swapped out in the current step
  std::uint64_t num_out_ = 0, num_out_blocks_ = 0, num_in_ = 0, num_in_blocks_ = 0, num_in_tokens_ = 0;
  std::uint64_t num_lost_ = 0, num_no_place_ = 0, num_no_gain_ = 0;
};

}  // namespace quire::test
