// Tests tiers and named connectors that are joined: which one is asked, and that the tokens do not depend on it.
#include "engine/tiers/connector_joiner.h"

#include <gtest/gtest.h>

#include <memory>

#include "engine/simulated_engine.h"
#include "engine/tiers/dram_tier.h"
#include "quire/connector_registry.h"
#include "support/small_cache.h"

namespace quire {
namespace {

using test::kSmallBlockBytes;

// A tier that has a fixed number of tokens of every prompt.
class CountingTier final : public KvTier, public Connector, public Transport {
 public:
  explicit CountingTier(std::uint32_t num_tokens) : num_tokens_(num_tokens) {}

  Connector& connector() override { return *this; }
  Transport& transport() override { return *this; }
  [[nodiscard]] KvTierPolicy policy() const override { return KvTierPolicy::exact; }
  [[nodiscard]] KvTierStats stats() const override { return {.name = "counting"}; }

  ExternalMatch match(const RequestView& /*request*/, std::uint32_t /*num_local*/) override {
    return {.num_tokens = num_tokens_, .load_async = true};
  }
  void allocated(const RequestView& /*request*/, GroupBlocks /*blocks*/, std::uint32_t num_external) override {
    num_loaded += num_external;
  }
  bool finished(const RequestView& /*request*/, GroupBlocks /*blocks*/) override { return false; }
  void planned(const StepPlan& /*plan*/) override {}
  void plan_transfers(const StepPlan& /*plan*/, TransferList& transfers) override {
    if (std::exchange(stores, false))
      transfers.add({.id = {}, .request = {}, .direction = TransferDirection::store, .blocks = {}, .places = {}});
  }
  void step_output() override {}
  bool reset() override { return true; }

  void attach(const KvPages& /*pages*/, std::function<void()> /*notify*/) override {}
  void start(const Transfer& transfer) override { started.push_back(transfer.id); }
  void poll(std::vector<TransferCompletion>& /*over*/) override {}
  void wait(TransferId /*transfer*/) override {}
  void detach() override {}

  bool stores = false;
  std::uint32_t num_loaded = 0;
  std::vector<TransferId> started;

 private:
  std::uint32_t num_tokens_;
};

// Opens each requested transfer and starts it immediately.
class OpenAll final : public TransferList {
 public:
  explicit OpenAll(Transport& transport) : transport_(transport) {}
  std::optional<TransferId> add(const Transfer& transfer) override {
    Transfer opened = transfer;
    opened.id = TransferId{++last_id_};
    transport_.start(opened);
    return opened.id;
  }

 private:
  Transport& transport_;
  std::uint64_t last_id_ = 0;
};

struct Joined {
  Joined(std::vector<std::uint32_t> tiers, std::vector<std::uint32_t> others, bool prefers_longest_match, bool are_stacked = false) {
    KvTiers given;
    std::vector<ConnectorAndTransport> halves;
    for (const std::uint32_t num_tokens : tiers) given.push_back(all.emplace_back(std::make_shared<CountingTier>(num_tokens)));
    for (const std::uint32_t num_tokens : others) {
      const auto& one = all.emplace_back(std::make_shared<CountingTier>(num_tokens));
      halves.push_back({.connector = one, .transport = one});
    }
    seams.choice.prefers_longest_match = prefers_longest_match;
    EXPECT_TRUE(connect_tiers(given, seams, std::move(halves), are_stacked));
  }
  // Returns the position in `all` of the member that loads a request.
  std::size_t loader() {
    RequestView request;
    request.id = RequestId{1};
    const std::span<const BlockId> none[1];
    seams.connector->allocated(request, none, seams.connector->match(request, 0).num_tokens.value());
    const auto found = std::ranges::find_if(all, [](const auto& one) { return one->num_loaded > 0; });
    return static_cast<std::size_t>(found - all.begin());
  }

  std::vector<std::shared_ptr<CountingTier>> all;
  EngineSeams seams;
};

TEST(ConnectorJoiner, PrefersATierWithAnyTokensToConnectors) {
  EXPECT_EQ(Joined({4, 8}, {}, false).loader(), 1U) << "the tier with the most tokens loads";
  EXPECT_EQ(Joined({4, 8}, {16, 20}, false).loader(), 1U);
  EXPECT_EQ(Joined({0, 0}, {16, 20}, false).loader(), 2U) << "the first connector loads";
  EXPECT_EQ(Joined({4, 8}, {16, 20}, true).loader(), 3U);
  EXPECT_EQ(Joined({4, 32}, {16, 20}, true).loader(), 1U);
  EXPECT_EQ(Joined({4}, {16}, false).loader(), 0U);
  EXPECT_EQ(Joined({}, {16, 20}, false).loader(), 0U);
  EXPECT_EQ(Joined({}, {16}, false).loader(), 0U);
  EXPECT_EQ(Joined({0}, {0}, false).loader(), 2U) << "no member loads";
}

TEST(ConnectorJoiner, LoadsPartsOfAPromptFromEachStackedTier) {
  Joined joined({4, 8}, {}, false, true);
  RequestView request;
  request.id = RequestId{1};
  EXPECT_EQ(joined.seams.connector->match(request, 0).num_tokens, 12U) << "each tier adds its tokens";
  EXPECT_EQ(Joined({4, 8}, {}, false).seams.connector->match(request, 0).num_tokens, 8U);
}

TEST(ConnectorJoiner, ReturnsASinglePairUnchanged) {
  const Joined tier({4}, {}, false), other({}, {4}, false);
  for (const Joined* joined : {&tier, &other}) {
    EXPECT_EQ(joined->seams.connector.get(), static_cast<Connector*>(joined->all[0].get()));
    EXPECT_EQ(joined->seams.transport.get(), static_cast<Transport*>(joined->all[0].get()));
  }
}

TEST(ConnectorJoiner, RoutesTransfersToTheirOwner) {
  for (const auto& [num_tiers, num_others] : {std::pair(2U, 2U), {1U, 1U}, {2U, 0U}, {0U, 3U}, {1U, 0U}, {0U, 1U}}) {
    Joined joined(std::vector<std::uint32_t>(num_tiers), std::vector<std::uint32_t>(num_others), false);
    for (const auto& one : joined.all) {
      one->stores = true;
      OpenAll list(*joined.seams.transport);
      joined.seams.connector->plan_transfers({}, list);
      for (const auto& other : joined.all) EXPECT_EQ(other->started.size(), other == one ? 1U : 0U) << num_tiers << " and " << num_others;
      one->started.clear();
      joined.seams.connector->completed({.transfer = TransferId{1}});
    }
  }
}

TEST(ConnectorJoiner, RefusesToJoinACustomConnector) {
  EngineSeams seams;
  const auto tier = std::make_shared<CountingTier>(0);
  seams.connector = tier;
  EXPECT_EQ(connect_tiers({tier}, seams).error().field, "kv_counting");  // the field is the tier's name
  const Error refused = connect_tiers({}, seams, {{.connector = tier, .transport = tier}}).error();
  EXPECT_EQ(refused.to_string(), "kv_connector: is set, but the engine already has a connector; use only one of the two");
  EngineSeams transport_only;
  transport_only.transport = tier;
  EXPECT_FALSE(connect_tiers({tier}, transport_only)) << "a transport alone is also a custom one";
  EXPECT_TRUE(connect_tiers({}, seams)) << "there is nothing to join";
}

class JoinedConnectorsTest : public testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, JoinedConnectorsTest, testing::ValuesIn(played_modes()), mode_name);

// A small tier in host memory is joined with a small and a large connector.
TEST_P(JoinedConnectorsTest, ChangeNoToken) {
  for (const bool prefers_longest_match : {false, true}) {
    quire::Setup setup{.options = test::small_cache()};
    setup.seams.choice.prefers_longest_match = prefers_longest_match;
    const CoreConfig config = resolve_options(setup.options, setup.model, {1, 0}).value().core;
    setup.tiers.push_back(
        DramTier::create({.bytes = 20 * kSmallBlockBytes, .policy = KvTierPolicy::exact}, config, test::small_layout()).value());
    ConnectorRegistry registry;
    std::vector<ConnectorAndTransport> others;
    for (const char* text : {"OffloadingConnector,cpu_bytes_to_use=960", "OffloadingConnector,cpu_bytes_to_use=64000"})
      others.push_back(
          registry.create(parse_named_connector(text).value(), {.config = &config, .bytes_per_block = kSmallBlockBytes}).value());
    ASSERT_TRUE(connect_tiers(setup.tiers, setup.seams, std::move(others)));
    const std::unique_ptr<Engine> engine = start(GetParam(), setup);
    Collector sink;
    Random random(75);
    std::vector<EngineRequest> requests;
    for (int i = 0; i < 60; ++i) requests.push_back(random_request(random));
    for (int round = 0; round < 2; ++round)
      for (const EngineRequest& request : requests) expect_equal(sink.wait(engine->submit(request, sink).value()), expected(request));
    expect_random_answers(*engine, sink, 76, 60);
    EXPECT_EQ(engine->stop(60.0), 0U);
    const EngineStats stats = engine->stats();
    EXPECT_EQ(stats.num_open_transfers, 0U);
    EXPECT_EQ(stats.num_free_blocks, stats.num_blocks);
    EXPECT_GT(stats.kv_tiers.at(0).num_stored_blocks, 50U) << "the test covers too few cases";
    EXPECT_GT(stats.bytes_loaded, stats.kv_tiers.at(0).bytes_loaded) << "connectors serve blocks that the tier has no room for";
  }
}

}  // namespace
}  // namespace quire
