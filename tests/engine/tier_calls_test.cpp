// Tests when the engine calls its tiers: between steps, for requests with kv_transfer_params, and for statistics and predictions.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>

#include "engine/publish/kv_event_publisher.h"
#include "engine/recording_tier.h"
#include "engine/trace/trace_folder.h"
#include "runtime/tier/tier_support.h"

namespace quire {
namespace {

using test::RecordingTier;
using test::start_with_tiers;

EngineRequest request_from(const std::string& host) {
  EngineRequest request = make_request(20, 4);
  request.kv_transfer = KvTransferParams{.do_remote_decode = true, .remote_host = host};
  return request;
}

TEST(TierCalls, MaintainATierUntilItHasNothingToDo) {
  const auto tier = std::make_shared<RecordingTier>();
  tier->num_busy = 20;
  const auto engine = start_with_tiers({tier});
  EXPECT_TRUE(test::comes_true([&] { return tier->num_maintained() > 20; })) << "no request came meanwhile";
}

TEST(TierCalls, MaintainATierWhenItNotifiesTheEngine) {
  const auto tier = std::make_shared<RecordingTier>();
  const auto engine = start_with_tiers({std::make_shared<RecordingTier>(), tier});
  ASSERT_TRUE(test::comes_true([&] { return tier->can_notify() && tier->num_maintained() > 0; }));
  const std::uint32_t before = tier->num_maintained();
  // The first call may come before the engine sleeps.
  EXPECT_TRUE(test::comes_true([&] {
    tier->notify();
    return tier->num_maintained() > before + 3;
  }));
  engine->stop(10.0);
  EXPECT_FALSE(tier->can_notify()) << "a tier may outlive the engine";
}

TEST(TierCalls, ExpectARequestBeforeTheConnectorIsAsked) {
  for (const bool first_has_role : {false, true}) {
    const auto first = std::make_shared<RecordingTier>(), second = std::make_shared<RecordingTier>();
    (first_has_role ? first : second)->tier_role = KvRole::producer;
    const auto engine = start_with_tiers({first, second});
    Collector sink;
    const RequestId plain = engine->submit(make_request(20, 4, 60), sink).value();
    sink.wait(plain);
    const auto id = engine->submit(request_from("host"), sink);
    ASSERT_TRUE(id.has_value()) << id.error().to_string();
    sink.wait(*id);
    engine->stop(10.0);
    const std::string expected_call = fmt::format("expect {} from host", id->value), asked = fmt::format("match {}", id->value);
    const std::vector<std::string> calls = first->calls();
    EXPECT_EQ(first->num_calls(expected_call), 1U);
    EXPECT_EQ(second->num_calls(expected_call), 1U);
    EXPECT_LT(std::ranges::find(calls, expected_call), std::ranges::find(calls, asked));
    EXPECT_NE(std::ranges::find(calls, asked), calls.end());
    EXPECT_EQ(first->num_calls(fmt::format("expect {} from host", plain.value)), 0U);
    for (const auto& tier : {first, second}) EXPECT_EQ(tier->num_calls("decline host"), 0U) << "the request was accepted";
  }
}

TEST(TierCalls, DeclineARequestThatIsRefused) {
  const auto first = std::make_shared<RecordingTier>(), second = std::make_shared<RecordingTier>();
  first->tier_role = KvRole::producer;
  second->refused_host = "bad";
  const auto engine = start_with_tiers({first, second});
  Collector sink;
  const auto by_tier = engine->submit(request_from("bad"), sink);
  ASSERT_FALSE(by_tier.has_value());
  EXPECT_EQ(by_tier.error().field, "kv_transfer_params.remote_host");
  EngineRequest empty = request_from("good");
  empty.prompt.clear();
  EXPECT_EQ(engine->submit(empty, sink).error().field, "prompt");
  EXPECT_FALSE(engine->submit(EngineRequest(), sink).has_value());
  for (const auto& tier : {first, second})
    EXPECT_EQ(tier->calls(), (std::vector<std::string>{"decline bad", "decline good"})) << "the third request had no params";
}

TEST(TierCalls, RefuseTransferParamsWithoutATierThatTransfers) {
  const auto engine = start_with_tiers({std::make_shared<RecordingTier>()});
  Collector sink;
  const auto refused = engine->submit(request_from("host"), sink);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
  EXPECT_EQ(refused.error().field, "kv_transfer_params");
}

TEST(TierCalls, DeclineARequestThatEndsInTheQueue) {
  const auto tier = std::make_shared<RecordingTier>();
  tier->tier_role = KvRole::producer;
  Gate gate;
  const auto engine = start_with_tiers({tier}, {.options = {}, .before_step = [&](const StepPlan&) { gate.pass(); }});
  Collector sink;
  const RequestId running = engine->submit(make_request(20, 4, 60), sink).value();
  gate.is_full.wait(false);
  const RequestId queued = engine->submit(request_from("host"), sink).value();
  engine->finish(queued, FinishReason::abort);
  gate.open_for_good();
  EXPECT_EQ(sink.wait(queued).reason, FinishReason::abort);
  sink.wait(running);
  EXPECT_EQ(tier->num_calls("decline host"), 1U);
  EXPECT_EQ(tier->num_calls(fmt::format("expect {} from host", queued.value)), 0U);
}

TEST(TierCalls, GiveTheClientTheParamsOfTheTierThatTransfers) {
  const auto first = std::make_shared<RecordingTier>(), second = std::make_shared<RecordingTier>();
  second->tier_role = KvRole::producer;
  for (const auto& tier : {first, second})
    tier->for_client = std::make_shared<const KvTransferParams>(KvTransferParams{.remote_host = tier == second ? "right" : "wrong"});
  const auto engine = start_with_tiers({first, second});
  Collector sink;
  const Collector::Answer answer = sink.wait(engine->submit(request_from("host"), sink).value());
  ASSERT_NE(answer.kv_transfer, nullptr);
  EXPECT_EQ(answer.kv_transfer->remote_host, "right");
  Collector other;
  const auto without = start_with_tiers({first});
  EXPECT_EQ(other.wait(without->submit(make_request(20, 4), other).value()).kv_transfer, nullptr);
}

TEST(TierCalls, TakeEventsInTheFormatOfTheCache) {
  for (const auto& [hash, hash_bytes] : {std::pair(HashAlgorithm::canonical, 32U), {HashAlgorithm::xxhash, 16U}}) {
    TraceFolder folder;
    std::filesystem::create_directories(folder.file("events"));
    quire::Setup setup;
    setup.options.cache.block_size = 4;
    setup.options.cache.hash = hash;
    setup.options.kv_events.enable_kv_cache_events = true;
    setup.options.kv_events.endpoint = "ipc://" + folder.file("events/socket");
    if (!KvEventPublisher::create(setup.options.kv_events, {}, nullptr).has_value()) GTEST_SKIP() << "built without ZeroMQ";
    const auto first = std::make_shared<RecordingTier>(), second = std::make_shared<RecordingTier>();
    const auto engine = start_with_tiers({first, second}, setup);
    engine->stop(10.0);
    for (const auto& tier : {first, second})
      EXPECT_GE(tier->num_calls(fmt::format("take_events hash_bytes={} block_size=4", hash_bytes)), 1U);
  }
  const auto tier = std::make_shared<RecordingTier>();
  start_with_tiers({tier})->stop(10.0);
  EXPECT_TRUE(tier->calls().empty()) << "no events are published";
}

TEST(TierStats, CountTheTokensThatFitIntoATierThatHoldsBlocks) {
  const auto holds = std::make_shared<RecordingTier>(), refers = std::make_shared<RecordingTier>();
  holds->numbers = refers->numbers = {.name = "tier", .num_places = 7};
  refers->has_blocks = false;
  const auto engine = start_with_tiers({holds, refers});
  const std::vector<KvTierStats> tiers = engine->stats().kv_tiers;
  ASSERT_EQ(tiers.size(), 2U);
  EXPECT_EQ(tiers[0].capacity_tokens, 7 * 16U);
  EXPECT_EQ(tiers[1].capacity_tokens, 0U);
  EXPECT_EQ(engine->stats().kv_swap, std::nullopt);
}

// Probes a prompt that is not in the cache. The answer of the first tier says what the tiers have of it.
class ProbedTiers : public testing::Test {
 protected:
  Result<EngineProbe> probe() {
    if (engine_ == nullptr) {
      engine_ = start_with_tiers({near_, far_});
      Collector sink;
      sink.wait(engine_->submit(make_request(100, 1, 60), sink).value());  // long enough to measure the speed of prefill
    }
    std::promise<Result<EngineProbe>> answer;
    engine_->probe(make_request(100, 1), [&](Result<EngineProbe> found) { answer.set_value(std::move(found)); });
    return answer.get_future().get();
  }

  std::shared_ptr<RecordingTier> near_ = std::make_shared<RecordingTier>(), far_ = std::make_shared<RecordingTier>();
  std::unique_ptr<Engine> engine_;
};

TEST_F(ProbedTiers, PredictTheTimeOfALoadFromTheBytesOfATokenSoFar) {
  near_->numbers = {.name = "near", .place_bytes = 1600, .bytes_loaded = 640, .tokens_loaded = 10, .load_bytes_per_s = 1000.0};
  far_->numbers = {.name = "far", .place_bytes = 1600, .bytes_loaded = 999, .load_bytes_per_s = 500.0};
  near_->found = {{.tier = 0, .num_tokens = 32}};
  EXPECT_DOUBLE_EQ(probe()->load_s.value(), 32 * 64 / 1000.0);
  near_->found = {{.tier = 1, .num_tokens = 16}};
  EXPECT_DOUBLE_EQ(probe()->load_s.value(), 16 * (1600 / 16) / 500.0) << "nothing was loaded yet: a slot holds one block";
  near_->found = {{.tier = 0, .num_tokens = 32}, {.tier = 1, .num_tokens = 16}};
  EXPECT_DOUBLE_EQ(probe()->load_s.value(), 32 * 64 / 1000.0 + 16 * 100 / 500.0);
  near_->found.emplace();
  EXPECT_EQ(probe()->load_s, 0.0) << "nothing is loaded";
}

TEST_F(ProbedTiers, PredictNoLoadTimeWithoutASpeed) {
  near_->numbers = {.name = "near", .place_bytes = 1600, .load_bytes_per_s = 1000.0};
  near_->found = {{.tier = 0, .num_tokens = 32}, {.tier = 1, .num_tokens = 16}};
  EXPECT_EQ(probe()->load_s, std::nullopt) << "the speed of the second tier is not known";
  EXPECT_TRUE(probe()->compute_s.has_value());
  near_->found = {{.tier = 2, .num_tokens = 32}};
  EXPECT_EQ(probe()->load_s, std::nullopt) << "there is no third tier";
  near_->found = {{.tier = 0, .num_tokens = 32}};
  EXPECT_DOUBLE_EQ(probe()->load_s.value(), 3.2);
}

}  // namespace
}  // namespace quire
