// A request whose blocks are in transfer, and of which a result says twice that this is over: in a list and by the end of its transfer.
#include <gtest/gtest.h>

#include "core/schedule/core_driver.h"

namespace quire::test {
namespace {

// Stores the first block of request 1 with the first plan, and keeps its blocks.
class StoringTier final : public Connector {
 public:
  Ids told_sent;
  std::vector<TransferCompletion> begun;

  ExternalMatch match(const RequestView& /*request*/, std::uint32_t /*num_local_tokens*/) override {
    return {.num_tokens = 0, .load_async = false};
  }
  void allocated(const RequestView& /*request*/, GroupBlocks groups, std::uint32_t /*num_external_tokens*/) override {
    wanted_.assign(groups[0].begin(), groups[0].begin() + 1);
  }
  bool finished(const RequestView& /*request*/, GroupBlocks /*blocks*/) override { return true; }
  void planned(const StepPlan& /*plan*/) override {}
  void plan_transfers(const StepPlan& /*plan*/, TransferList& transfers) override {
    if (wanted_.empty()) return;
    const std::uint64_t place = 0;
    begun.push_back({.transfer = *transfers.add({.id = {},
                                                 .request = RequestId{1},
                                                 .direction = TransferDirection::store,
                                                 .blocks = wanted_,
                                                 .places = std::span(&place, 1)})});
    wanted_.clear();
  }
  void sent(RequestId request) override { told_sent.push_back(request.value); }
  void step_output() override {}
  bool reset() override { return true; }

 private:
  std::vector<BlockId> wanted_;
};

TEST(NamedTwice, ByAListAndByTheEndOfItsLastTransferARequestIsLetGoOnce) {
  for (const bool in_list : {false, true}) {
    for (const bool ends_late : {false, true}) {
      StoringTier tier;
      CoreDriver d(sync_config(), {.connector = &tier});
      d.add(1, 10, 1);
      d.plan();
      std::vector<TransferCompletion> over = std::exchange(tier.begun, {});
      ASSERT_EQ(over.size(), 1U);
      d.apply({}, {.completions = ends_late ? std::span<const TransferCompletion>() : over});
      ASSERT_TRUE(d.known(1)) << "the connector keeps its blocks";
      EXPECT_EQ(test::values(d.plan().finished), Ids({1}));
      const std::vector<RequestId> sent(in_list ? 1 : 0, RequestId{1});
      StepResult result{.step = {}, .has_connector_output = in_list, .finished_sending = sent};
      if (ends_late) result.completions = over;
      EXPECT_EQ(d.apply({}, result).retired, Ids({1}));
      EXPECT_EQ(tier.told_sent, Ids({1}));
      EXPECT_TRUE(d.core->all_blocks_free());
    }
  }
}

}  // namespace
}  // namespace quire::test
