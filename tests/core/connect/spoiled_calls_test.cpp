// The rest of spoiled_test.cpp: a connector that is called as no core calls it, and members that do what none may.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "core/connect/composite_connector.h"
#include "core/connect/offload_driver.h"

namespace quire {
namespace {

using test::kBlockSize;
using test::OffloadDriver;

TEST(SpoiledConnectCallsDeathTest, OfBlocksThatMoveBetweenTiersAKeyHasOnePlace) {
  OffloadDriver joined({.cpu_bytes_to_use = 32, .block_size = 2 * kBlockSize});
  const OffloadKey key{};
  EXPECT_DEATH((void)joined.connector->hold(key), "a key has one place");
  EXPECT_DEATH((void)joined.connector->adopt(key), "a key has one place");
  EXPECT_DEATH(joined.connector->found_outside(key), "a key has one place");
  OffloadDriver o;
  EXPECT_DEATH(o.connector->release(key), "what was held is there");
  EXPECT_DEATH(o.connector->adopted(key, true), "what was adopted has a slot until it is over");
  EXPECT_DEATH(o.connector->adopted(key, false), "what was adopted has a slot until it is over");
}

// It knows the numbers of no places.
class NoPlaces final : public TierPlaces {
 public:
  std::uint64_t assign(std::uint64_t slot, const OffloadKey& /*key*/) override { return slot; }
};

TEST(SpoiledConnectCallsDeathTest, PlacesAndBlocksAreThoseOfTheTierAndTheRequest) {
  OffloadDriver o;
  o.add(1, 1, 10, 1);
  OffloadConnector& connector = *o.connector;
  NoPlaces places;
  EXPECT_DEATH(
      {
        connector.places_ = &places;
        (void)connector.assign(0, {});
      },
      "a place of the tier");
  EXPECT_DEATH(
      {
        connector.places_ = &places;
        (void)connector.number_of(0);
      },
      "a place of the tier has a number");
  EXPECT_DEATH((void)connector.keys_held(o.d.view(1), 0, 1), "what is planned has blocks");
  o.run();
}

TEST(SpoiledConnectCallsDeathTest, ATransferMovesBlocksToTheirPlaces) {
  class Refusing final : public TransferList {
   public:
    std::optional<TransferId> add(const Transfer& /*transfer*/) override { return std::nullopt; }
  };
  OffloadDriver o;
  Refusing refusing;
  OffloadConnector::Moving moving{};
  EXPECT_DEATH(o.connector->begin(moving, refusing), "a transfer moves something, each block to its place");
  moving.blocks = {BlockId{1}};
  EXPECT_DEATH(o.connector->begin(moving, refusing), "a transfer moves something, each block to its place");
  moving.places = {0};
  EXPECT_FALSE(o.connector->begin(moving, refusing));
  EXPECT_DEATH((void)o.connector->holds_blocks(moving), "each block has its place in the table");
  moving.keys.resize(2);
  OffloadConnector::Tracked tracked{.next_stored = 1, .storing = {}};
  EXPECT_DEATH(o.connector->drop_bad(moving, {}, tracked), "each key has its blocks");
}

TEST(SpoiledConnectCallsDeathTest, WhoEndsHasRunInACore) {
  OffloadConnectorOptions options{.cpu_bytes_to_use = 32};
  options.max_storing_blocks = 1;
  OffloadDriver o(options);
  OffloadConnector::Tracked tracked{.next_stored = 0, .storing = {}};
  RequestView view;
  view.status = RequestStatus::finished_length;
  EXPECT_DEATH(o.connector->store_rest(view, tracked), "a request that ran has tokens");
  EXPECT_DEATH(
      {
        o.connector->core_ = nullptr;
        o.connector->store_rest(view, tracked);
      },
      "a connector is bound before a request ends");
}

// A list that calls all transfers alike, and a member that begins two.
class OneName final : public TransferList {
 public:
  std::optional<TransferId> add(const Transfer& /*transfer*/) override { return TransferId{7}; }
};

class BeginsTwo final : public Connector {
 public:
  ExternalMatch match(const RequestView& /*request*/, std::uint32_t /*num_local*/) override { return {}; }
  void allocated(const RequestView& /*request*/, GroupBlocks /*blocks*/, std::uint32_t /*num_external*/) override {}
  bool finished(const RequestView& /*request*/, GroupBlocks /*blocks*/) override { return false; }
  void planned(const StepPlan& /*plan*/) override {}
  void plan_transfers(const StepPlan& /*plan*/, TransferList& transfers) override {
    for (int i = 0; i < 2; ++i) transfers.add({});
  }
  void step_output() override {}
  bool reset() override { return true; }
};

TEST(SpoiledConnectCallsDeathTest, ATransferHasOneOwnerAndWhoWaitedIsAmongThoseThatFailed) {
  CompositeConnector composite({{.connector = std::make_shared<BeginsTwo>()}});
  OneName transfers;
  EXPECT_DEATH(composite.plan_transfers({}, transfers), "a transfer has one owner");
  std::vector<RequestId> failed = {RequestId{1}};
  EXPECT_DEATH(composite.order_failed(2, failed, failed), "who waited for its blocks is among those that failed");
}

}  // namespace
}  // namespace quire
