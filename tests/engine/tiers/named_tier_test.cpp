// Tests the wrapper of connectors that were requested by name: what it counts, and that every call reaches the connector.
#include "engine/tiers/named_tier.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/tiers/hashed_request.h"
#include "engine/tiers/tier_check.h"
#include "runtime/tier/memory_transport.h"
#include "support/scripted_connector.h"

namespace quire {
namespace {

using test::kSmallBlock;
using test::kSmallBlockBytes;

// Opens transfers with rising IDs, until it is full.
class NumberedTransfers final : public TransferList {
 public:
  std::optional<TransferId> add(const Transfer& transfer) override {
    if (is_full) return std::nullopt;
    added.push_back(transfer);
    return TransferId{++last_id};
  }
  bool is_full = false;
  std::uint64_t last_id = 0;
  std::vector<Transfer> added;
};

class AskedConnector final : public test::ScriptedConnector {
 public:
  [[nodiscard]] bool supports_groups() const override { return true; }
  void bind(const Core& core) override { bound = &core; }
  const Core* bound = nullptr;
};

struct NamedRig {
  std::shared_ptr<AskedConnector> inner = std::make_shared<AskedConnector>();
  std::shared_ptr<MemoryTransport> transport = MemoryTransport::create({.num_places = 1, .block_bytes = 32}).value();
  NamedTier tier{"Mine", {.connector = inner, .transport = transport}, KvTierPolicy::measured, 32};
  NumberedTransfers transfers;

  void plan(std::vector<Transfer> wanted) {
    inner->transfers = std::move(wanted);
    tier.connector().plan_transfers({}, transfers);
  }
};

TEST(NamedTier, CountsTransfersByDirection) {
  NamedRig rig;
  const std::vector<BlockId> blocks{BlockId{1}, BlockId{2}, BlockId{3}, BlockId{4}, BlockId{5}}, bad{BlockId{1}};
  const auto some = [&](std::size_t count, TransferDirection direction) {
    return test::transfer_of(RequestId{1}, std::span(blocks).first(count), direction);
  };
  rig.plan({some(3, TransferDirection::load), some(2, TransferDirection::store), some(5, TransferDirection::load),
            some(4, TransferDirection::load)});
  rig.transfers.is_full = true;
  rig.plan({some(1, TransferDirection::store)});
  EXPECT_EQ(rig.inner->ids,
            (std::vector<std::optional<TransferId>>{TransferId{1}, TransferId{2}, TransferId{3}, TransferId{4}, std::nullopt}));
  EXPECT_EQ(rig.transfers.added.size(), 4U);
  Connector& connector = rig.tier.connector();
  connector.completed({.transfer = TransferId{1}, .bytes = 96, .seconds = 0.5});
  connector.completed({.transfer = TransferId{2}, .bytes = 64, .seconds = 0.25});
  connector.completed({.transfer = TransferId{3}, .outcome = TransferOutcome::failed, .bytes = 128, .seconds = 0.5, .bad_blocks = bad});
  connector.completed({.transfer = TransferId{4}, .outcome = TransferOutcome::failed});
  connector.completed({.transfer = TransferId{4}, .outcome = TransferOutcome::failed});  // reported twice
  connector.completed({.transfer = TransferId{9}, .bytes = 1000});                       // of another connector
  connector.allocated({}, {}, 12);
  connector.allocated({}, {}, 8);
  const KvTierStats stats = rig.tier.stats();
  EXPECT_EQ(stats.name, "Mine");
  EXPECT_EQ(stats.num_loaded_blocks, 3U + 4U);
  EXPECT_EQ(stats.bytes_loaded, 96U + 128U);
  EXPECT_EQ(stats.num_stored_blocks, 2U);
  EXPECT_EQ(stats.bytes_stored, 64U);
  EXPECT_EQ(stats.num_failed_blocks, 1U + 4U);
  EXPECT_EQ(stats.tokens_loaded, 20U);
  EXPECT_EQ(stats.num_places, 0U) << "only quire's connector has slots";
  EXPECT_EQ(rig.inner->over.size(), 6U) << "the connector sees all ends";
  EXPECT_EQ(rig.inner->num_logged("allocated"), 2U);
}

TEST(NamedTier, MeasuresTheSpeedOfLoads) {
  NamedRig rig;
  const std::vector<BlockId> blocks{BlockId{1}};
  const auto load = [&](std::uint64_t bytes, double seconds) {
    rig.plan({test::transfer_of(RequestId{1}, blocks)});
    rig.tier.connector().completed({.transfer = TransferId{rig.transfers.last_id}, .bytes = bytes, .seconds = seconds});
    EXPECT_FALSE(rig.tier.maintain(100.0)) << "the connector takes no costs";
    return rig.tier.stats().load_bytes_per_s;
  };
  EXPECT_EQ(rig.tier.stats().load_bytes_per_s, 0.0);
  EXPECT_DOUBLE_EQ(load(1000, 0.5), 2000.0);
  const double kept = std::exp(-0.5 / kLoadHorizon_s);
  EXPECT_DOUBLE_EQ(load(3000, 0.5), (1000 * kept + 3000) / (0.5 * kept + 0.5));
  EXPECT_EQ(rig.tier.stats().compute_tokens_per_s, 0.0);
}

TEST(NamedTier, PassesEachCallToTheConnector) {
  NamedRig rig;
  Connector& connector = rig.tier.connector();
  EXPECT_TRUE(connector.supports_groups());
  EXPECT_FALSE(connector.supports_states());
  rig.inner->has_states = true;
  EXPECT_TRUE(connector.supports_states());
  RequestView request;
  request.id = RequestId{4};
  rig.inner->answer = {.num_tokens = 16, .load_async = true};
  const ExternalMatch match = connector.match(request, 8);
  EXPECT_EQ(match.num_tokens, 16U);
  EXPECT_TRUE(match.load_async);
  EXPECT_EQ(rig.inner->local, 8U);
  std::vector<TierMatch> matches;
  EXPECT_FALSE(connector.peek(request, 4, matches));
  rig.inner->found = std::vector<TierMatch>{{.num_tokens = 12, .load_async = true}};
  EXPECT_TRUE(connector.peek(request, 4, matches));
  EXPECT_EQ(matches.size(), 1U);
  EXPECT_EQ(rig.inner->local, 4U);
  EXPECT_FALSE(connector.finished(request, {}));
  rig.inner->keeps_all = true;
  EXPECT_TRUE(connector.finished(request, {}));
  connector.planned({});
  std::vector<RequestId> finishing{RequestId{1}, RequestId{2}}, reported;
  rig.inner->reverses_failed = true;
  connector.order_failed(1, finishing, reported);
  EXPECT_EQ(finishing, (std::vector{RequestId{2}, RequestId{1}}));
  connector.forget_blocks(request);
  connector.invalidated(request, 24);
  EXPECT_EQ(rig.inner->invalidated_after.at(RequestId{4}), 24U);
  connector.sent(RequestId{4});
  EXPECT_EQ(rig.inner->sent_requests, std::vector<std::uint64_t>{4});
  connector.step_output();
  EXPECT_TRUE(connector.reset());
  rig.inner->resets = false;
  EXPECT_FALSE(connector.reset());
  for (const char* call : {"planned", "order_failed 1 of 2", "forget 4", "step_output", "reset", "finished 4"})
    EXPECT_GT(rig.inner->num_logged(call), 0U) << call;
  EXPECT_EQ(&rig.tier.transport(), rig.transport.get());
  EXPECT_FALSE(rig.tier.is_builtin());
  EXPECT_TRUE(rig.tier.holds_blocks());
  EXPECT_EQ(rig.tier.policy(), KvTierPolicy::measured);
  std::vector<KvEvent> events;
  rig.tier.take_events({}, events);
  EXPECT_TRUE(events.empty()) << "the connector has no events";
}

std::shared_ptr<OffloadConnector> offload_of_two_blocks(std::uint64_t num_slots) {
  CoreConfig config = test::small_config();
  return OffloadConnector::create(
             {.cpu_bytes_to_use = num_slots * 2 * kSmallBlockBytes, .block_size = 2 * kSmallBlock, .enable_events = true}, config,
             kSmallBlockBytes)
      .value();
}

TEST(NamedTier, ReportsTheSlotsOfTheOffloadingConnector) {
  const auto offload = offload_of_two_blocks(5);
  NamedTier tier("OffloadingConnector", {.connector = offload, .transport = nullptr}, KvTierPolicy::exact, kSmallBlockBytes);
  EXPECT_FALSE(tier.maintain(100.0)) << "the policy needs no costs";
  const KvTierStats stats = tier.stats();
  EXPECT_EQ(stats.budget_bytes, 10 * kSmallBlockBytes);
  EXPECT_EQ(stats.place_bytes, 2 * kSmallBlockBytes);
  EXPECT_EQ(stats.num_places, 5U);
  EXPECT_EQ(stats.num_used_slots, 0U);
  EXPECT_EQ(stats.tokens_loaded, 0U);
  EXPECT_EQ(stats.compute_tokens_per_s, 0.0);
}

TEST(NamedTier, GivesTheCostsOfLoadsToTheOffloadingConnector) {
  const std::shared_ptr<OffloadConnector> offload =
      OffloadConnector::create({.cpu_bytes_to_use = 5 * kSmallBlockBytes}, test::small_config(), kSmallBlockBytes).value();
  test::add_key(*offload, 1);
  NamedTier tier("OffloadingConnector", {.connector = offload, .transport = nullptr}, KvTierPolicy::measured, kSmallBlockBytes);
  EXPECT_EQ(tier.stats().num_used_slots, 1U);
  EXPECT_TRUE(tier.maintain(1e9));
  EXPECT_FALSE(tier.maintain(1e9)) << "the costs have not changed";
  EXPECT_EQ(tier.stats().compute_tokens_per_s, 1e9);
  // Load the block with a bad speed: a second load takes longer than computing.
  const test::HashedRequest request(1, 6, 1), other(2, 6, 1);
  const std::span<const BlockId> blocks[1] = {request.blocks};
  Connector& connector = tier.connector();
  ASSERT_EQ(connector.match(request.view, 0).num_tokens, kSmallBlock);
  connector.allocated(request.view, blocks, kSmallBlock);
  NumberedTransfers transfers;
  connector.plan_transfers({}, transfers);
  ASSERT_EQ(transfers.last_id, 1U);
  connector.completed({.transfer = TransferId{1}, .bytes = kSmallBlockBytes, .seconds = 1.0});
  EXPECT_TRUE(tier.maintain(1e9));
  EXPECT_EQ(connector.match(other.view, 0).num_tokens, 0U) << "computing is faster";
  connector.allocated(other.view, blocks, 0);
  const KvTierStats stats = tier.stats();
  EXPECT_EQ(stats.num_computed_tokens, kSmallBlock);
  EXPECT_EQ(stats.tokens_loaded, kSmallBlock);
  EXPECT_EQ(stats.load_bytes_per_s, static_cast<double>(kSmallBlockBytes));
}

TEST(NamedTier, BindsTheConnectorToTheCoreOfItsEngine) {
  auto inner = std::make_shared<AskedConnector>();
  const std::shared_ptr<NamedTier> tier = std::make_shared<NamedTier>(
      "Mine", ConnectorAndTransport{.connector = inner, .transport = MemoryTransport::create({.num_places = 1, .block_bytes = 32}).value()},
      KvTierPolicy::exact, 32);
  quire::Setup setup{.options = test::small_cache(), .tiers = {tier}};
  ASSERT_TRUE(connect_tiers(setup.tiers, setup.seams));
  const auto engine = start(kModes[0], setup);
  EXPECT_NE(inner->bound, nullptr);
  engine->stop(1.0);
}

}  // namespace
}  // namespace quire
