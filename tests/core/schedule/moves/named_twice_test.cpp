// Tests a request whose blocks are in transfer when one result reports the end twice: in a list and by the end of the transfer.
#include <gtest/gtest.h>

#include "core/schedule/core_driver.h"
#include "support/scripted_connector.h"

namespace quire::test {
namespace {

TEST(FinishedSending, RetiresARequestOnceWhenAListAndATransferReportItsEnd) {
  for (const bool in_list : {false, true}) {
    for (const bool ends_late : {false, true}) {
      const BlockId first[] = {BlockId{1}};  // the first block of the request
      ScriptedConnector tier;
      tier.keeps_all = true;
      tier.transfers = {transfer_of(RequestId{1}, first, TransferDirection::store)};
      CoreDriver d(sync_config(), {.connector = &tier});
      d.add(1, 10, 1);
      d.plan();
      ASSERT_EQ(d.blocks(1).at(0), first[0]);
      const TransferCompletion over[] = {{.transfer = tier.ids.at(0).value()}};
      d.apply({}, {.completions = ends_late ? std::span<const TransferCompletion>() : std::span(over)});
      ASSERT_TRUE(d.known(1)) << "the connector keeps its blocks";
      EXPECT_EQ(test::values(d.plan().finished), Ids({1}));
      const std::vector<RequestId> sent(in_list ? 1 : 0, RequestId{1});
      StepResult result{.step = {}, .has_connector_output = in_list, .finished_sending = sent};
      if (ends_late) result.completions = over;
      EXPECT_EQ(d.apply({}, result).retired, Ids({1}));
      EXPECT_EQ(tier.sent_requests, Ids({1}));
      EXPECT_TRUE(d.core->all_blocks_free());
    }
  }
}

}  // namespace
}  // namespace quire::test
