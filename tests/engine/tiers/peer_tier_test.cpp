// Tests disaggregated prefill between two engines: the tokens do not change, and only required blocks are transferred. When a request, a
// lease or an engine ends, no block stays held and no request waits long. The simulated worker stops the program when a block does not hold
// what the plan says.
#include "engine/tiers/peer_tier.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>

#include "engine/simulated_engine.h"
#include "engine/tiers/dram_tier.h"
#include "runtime/remote/peer_relay.h"
#include "runtime/remote/scripted_peer.h"
#include "runtime/tier/tier_support.h"
#include "support/small_cache.h"

namespace quire {
namespace {

using test::PeerRelay;
using test::RelayFault;
using test::small_cache;
using test::small_layout;

struct PeerEngine {
  KvRole role = KvRole::both;
  double lease_s = 60.0;
  std::uint8_t fingerprint = 7;
  EngineOptions options = small_cache();
  std::uint64_t dram_bytes = 0;
  std::vector<std::string> producers = {"127.0.0.1"};
};

std::unique_ptr<Engine> start_peer(const Mode& mode, const PeerEngine& peer) {
  quire::Setup setup{.options = peer.options};
  const CoreConfig config = resolve_options(peer.options, setup.model, {1, 0}).value().core;
  if (peer.dram_bytes > 0)
    setup.tiers.push_back(DramTier::create({.bytes = peer.dram_bytes, .policy = KvTierPolicy::exact}, config, small_layout()).value());
  setup.tiers.push_back(PeerTier::open({.role = peer.role,
                                        .host = "127.0.0.1",
                                        .port = 0,
                                        .lease_s = peer.lease_s,
                                        .producers = peer.role == KvRole::producer ? std::vector<std::string>() : peer.producers},
                                       config, small_layout(), test::tier_fingerprint(peer.fingerprint))
                            .value());
  EXPECT_TRUE(connect_tiers(setup.tiers, setup.seams, {}, true));
  return start(mode, setup);
}

// Returns the prefill request that a proxy sends.
EngineRequest first_half(EngineRequest request) {
  request.sampling.max_tokens = 1;
  request.sampling.min_tokens = 0;
  request.kv_transfer = KvTransferParams{.do_remote_decode = true};
  return request;
}

// Returns the params for the consumer. They are empty if the producer keeps nothing.
KvTransferParams prefill(Engine& producer, const EngineRequest& request) {
  Collector sink;
  const Collector::Answer answer = sink.wait(producer.submit(first_half(request), sink).value());
  return answer.kv_transfer == nullptr ? KvTransferParams{} : *answer.kv_transfer;
}

EngineRequest second_half(EngineRequest request, const KvTransferParams& params) {
  if (params.do_remote_prefill) request.kv_transfer = params;
  return request;
}

KvTierStats tier_of(const Engine& engine) {
  return engine.stats().kv_tiers.back();
}

bool comes_true(const std::function<bool()>& what, double seconds = 60.0) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!what())
    if (std::chrono::steady_clock::now() > until)
      return false;
    else
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return true;
}

bool is_empty(const Engine& engine) {
  const EngineStats stats = engine.stats();
  return stats.num_free_blocks == stats.num_blocks && stats.num_open_transfers == 0 && stats.num_awaiting_transfers == 0;
}

class PeerTierTest : public testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, PeerTierTest, testing::ValuesIn(played_modes()), mode_name);

TEST_P(PeerTierTest, PrefillsOnTheProducerAndDecodesOnTheConsumer) {
  const auto producer = start_peer(GetParam(), {.role = KvRole::producer}), consumer = start_peer(GetParam(), {.role = KvRole::consumer});
  const EngineRequest request = make_request(50, 20);
  const KvTransferParams params = prefill(*producer, request);
  ASSERT_TRUE(params.do_remote_prefill);
  EXPECT_FALSE(params.do_remote_decode);
  ASSERT_EQ(params.remote_block_ids.size(), 1U);
  EXPECT_EQ(params.remote_block_ids[0].size(), 12U) << "the full blocks of 50 tokens";
  EXPECT_EQ(params.remote_host, "127.0.0.1");
  EXPECT_NE(params.remote_port, 0);
  EXPECT_EQ(params.tp_size, 1U);
  EXPECT_TRUE(comes_true([&] { return tier_of(*producer).num_open_leases == 1; }));
  EXPECT_FALSE(is_empty(*producer)) << "the producer keeps the blocks";

  Collector sink;
  const Collector::Answer answer = sink.wait(consumer->submit(second_half(request, params), sink).value());
  expect_equal(answer, expected(request));
  EXPECT_EQ(answer.num_cached_tokens, 48U);
  EXPECT_EQ(answer.kv_transfer, nullptr);
  EXPECT_TRUE(comes_true([&] { return is_empty(*producer) && is_empty(*consumer); }));
  EXPECT_EQ(tier_of(*producer).num_stored_blocks, 12U);
  EXPECT_EQ(tier_of(*consumer).num_loaded_blocks, 12U);
  EXPECT_EQ(tier_of(*consumer).bytes_loaded, 12 * test::kSmallBlockBytes);
  EXPECT_EQ(tier_of(*consumer).tokens_loaded, 48U);
  // Cached blocks are not transferred again.
  const KvTransferParams again = prefill(*producer, request);
  expect_equal(sink.wait(consumer->submit(second_half(request, again), sink).value()), expected(request));
  EXPECT_EQ(tier_of(*consumer).num_loaded_blocks, 12U);
  EXPECT_TRUE(comes_true([&] { return is_empty(*producer); })) << "the producer releases the blocks nevertheless";
  EXPECT_EQ(producer->stop(10.0) + consumer->stop(10.0), 0U);
}

TEST_P(PeerTierTest, ChangesNoTokenOfConcurrentRequests) {
  for (const std::uint64_t dram_blocks : {0, 30}) {
    const PeerEngine peer{.dram_bytes = dram_blocks * test::kSmallBlockBytes};
    const auto producer = start_peer(GetParam(), peer), consumer = start_peer(GetParam(), peer);
    Random random(17);
    Collector first_sink, sink;  // the two engines use the same ids
    for (int round = 0; round < 8; ++round) {
      std::vector<EngineRequest> requests;
      std::map<RequestId, Expected> wanted;
      std::map<RequestId, std::size_t> of;
      for (int i = 0; i < 20; ++i) {
        requests.push_back(random_request(random));
        of[producer->submit(first_half(requests.back()), first_sink).value()] = requests.size() - 1;
      }
      for (const auto& [id, index] : of) {
        const auto params = first_sink.wait(id).kv_transfer;
        const EngineRequest second = second_half(requests[index], params == nullptr ? KvTransferParams{} : *params);
        const RequestId to = consumer->submit(second, sink).value();
        wanted[to] = expected(requests[index]);
        // Some requests are aborted at any time.
        if (random.chance(0.2)) {
          consumer->finish(to, FinishReason::abort);
          wanted.erase(to);
        }
      }
      for (const auto& [id, answer] : wanted) expect_equal(sink.wait(id), answer);
      ASSERT_TRUE(comes_true([&] { return is_empty(*producer) && is_empty(*consumer); })) << "round " << round;
    }
    EXPECT_GT(tier_of(*consumer).num_loaded_blocks, dram_blocks == 0 ? 100U : 20U) << "the test covers too few cases";
    EXPECT_GE(tier_of(*producer).num_stored_blocks, tier_of(*consumer).num_loaded_blocks);
    EXPECT_EQ(tier_of(*consumer).num_corrupted_blocks, 0U);
    EXPECT_EQ(tier_of(*producer).num_expired_leases, 0U);
    EXPECT_EQ(producer->stop(10.0) + consumer->stop(10.0), 0U);
  }
}

TEST_P(PeerTierTest, AbortsFreeBothSides) {
  const auto producer = start_peer(GetParam(), {}), consumer = start_peer(GetParam(), {});
  PeerRelay relay(static_cast<std::uint16_t>(prefill(*producer, make_request(9, 1)).remote_port));
  Collector sink;
  // The first request is aborted while it loads.
  relay.fault = RelayFault::stalls;
  relay.at = 300;
  const EngineRequest request = make_request(60, 20, 7);
  KvTransferParams params = prefill(*producer, request);
  params.remote_port = relay.port();
  const RequestId loading = consumer->submit(second_half(request, params), sink).value();
  EXPECT_TRUE(comes_true([&] { return relay.num_connections > 0; }));
  relay.fault = RelayFault::none;
  const auto begin = std::chrono::steady_clock::now();
  consumer->finish(loading, FinishReason::abort);
  EXPECT_TRUE(comes_true([&] { return is_empty(*consumer); }));
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 1.7)
      << "the abort does not wait for the peer's timeout";
  // The second request is aborted before its turn.
  Answered paused;
  consumer->pause({.mode = PauseMode::keep, .clear_cache = false}, paused.callback());
  EXPECT_TRUE(paused.wait());
  const EngineRequest other = make_request(60, 20, 70);
  const RequestId waiting = consumer->submit(second_half(other, prefill(*producer, other)), sink).value();
  consumer->finish(waiting, FinishReason::abort);
  // The third request is refused.
  const EngineRequest third = make_request(60, 20, 30);
  EngineRequest refused = second_half(third, prefill(*producer, third));
  refused.sampling.temperature = -1.0F;
  EXPECT_FALSE(consumer->submit(refused, sink));
  // The last request is aborted on the producer, which keeps nothing and notifies no consumer.
  Collector first_sink;
  const RequestId aborted = producer->submit(first_half(make_request(200, 20, 3)), first_sink).value();
  producer->finish(aborted, FinishReason::abort);
  first_sink.wait(aborted);
  EXPECT_TRUE(comes_true([&] { return tier_of(*producer).num_open_leases <= 1; })) << "only the lease of the first prompt remains";
  Answered resumed;
  consumer->resume(resumed.callback());
  EXPECT_TRUE(resumed.wait());
  EXPECT_EQ(consumer->stop(10.0), 0U);
}

TEST_P(PeerTierTest, ComputesThePromptAfterTheLeaseHasExpired) {
  const auto producer = start_peer(GetParam(), {.lease_s = 0.05}), consumer = start_peer(GetParam(), {});
  const EngineRequest request = make_request(50, 20);
  const KvTransferParams params = prefill(*producer, request);
  EXPECT_TRUE(comes_true([&] { return tier_of(*producer).num_expired_leases == 1 && is_empty(*producer); }));
  Collector sink;
  const Collector::Answer answer = sink.wait(consumer->submit(second_half(request, params), sink).value());
  expect_equal(answer, expected(request));
  EXPECT_TRUE(comes_true([&] { return is_empty(*consumer); }));
  EXPECT_EQ(tier_of(*consumer).num_failed_blocks, 12U);
  EXPECT_EQ(consumer->stop(10.0), 0U);
}

TEST_P(PeerTierTest, ChangesNoTokenAndWaitsBrieflyWhenATransferFails) {
  const auto producer = start_peer(GetParam(), {.lease_s = 2.0});
  const auto consumer = start_peer(GetParam(), {}), other_model = start_peer(GetParam(), {.fingerprint = 8});
  Collector sink, other_sink;
  Random random(5);
  KvTransferParams first = prefill(*producer, make_request(50, 1));
  PeerRelay relay(first.remote_port);
  for (int i = 0; i < 30; ++i) {
    const EngineRequest request = make_request(static_cast<std::uint32_t>(random.between(20, 90)), 5, static_cast<TokenId>(i * 5));
    KvTransferParams params = prefill(*producer, request);
    if (!params.do_remote_prefill) continue;
    params.remote_port = relay.port();
    relay.fault = i % 10 == 9 ? RelayFault::stalls : i % 2 == 0 ? RelayFault::flips : RelayFault::cuts;
    relay.at = random.below(1500);
    if (i % 7 == 0) params.remote_engine_id = "somebody";
    if (i % 7 == 1) params.remote_request_id = "something";
    const auto begin = std::chrono::steady_clock::now();
    Engine& to = i % 7 == 2 ? *other_model : *consumer;
    Collector& at = i % 7 == 2 ? other_sink : sink;
    expect_equal(at.wait(to.submit(second_half(request, params), at).value()), expected(request));
    EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 30.0)
        << "the product waits for less than 2 s";
  }
  EXPECT_TRUE(comes_true([&] { return is_empty(*producer) && is_empty(*consumer); }));
  EXPECT_EQ(producer->stop(10.0) + consumer->stop(10.0), 0U);
}

TEST_P(PeerTierTest, DoesNotWaitForAStoppedProducer) {
  auto producer = start_peer(GetParam(), {});
  const auto consumer = start_peer(GetParam(), {});
  const EngineRequest request = make_request(50, 20);
  const KvTransferParams params = prefill(*producer, request);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(producer->stop(10.0), 0U);
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 5.0)
      << "stopping does not wait for the lease of a minute";
  producer.reset();
  Collector sink;
  expect_equal(sink.wait(consumer->submit(second_half(request, params), sink).value()), expected(request));
  EXPECT_EQ(consumer->stop(10.0), 0U);
}

TEST_P(PeerTierTest, KeepsAtMostHalfOfTheCache) {
  const auto producer = start_peer(GetParam(), {});
  std::uint32_t num_kept = 0, num_not_kept = 0;
  for (int i = 0; i < 6; ++i) {
    const KvTransferParams params = prefill(*producer, make_request(41, 1, static_cast<TokenId>(20 * i)));
    ASSERT_TRUE(params.do_remote_prefill);
    ASSERT_EQ(params.remote_block_ids.size(), 1U);
    ++(params.remote_block_ids[0].empty() ? num_not_kept : num_kept);
  }
  EXPECT_EQ(num_kept, 3U) << "each prompt has 10 blocks, and the cache has 60";
  EXPECT_EQ(num_not_kept, 3U);
  EXPECT_EQ(producer->stop(10.0), 0U);
}

TEST_P(PeerTierTest, RefusesRequestsThatItCannotServe) {
  Collector sink;  // outlives the engines: one request is accepted and may be answered at the end
  const auto producer = start_peer(GetParam(), {.role = KvRole::producer}), consumer = start_peer(GetParam(), {.role = KvRole::consumer});
  const auto none = start(GetParam(), {.options = small_cache()});
  const auto field_of = [&](Engine& engine, const KvTransferParams& params, std::uint32_t n = 1) {
    EngineRequest request = make_request(20, 1);
    request.kv_transfer = params;
    request.n = n;
    const auto id = engine.submit(request, sink);
    return id ? std::string() : id.error().field;
  };
  const KvTransferParams asks{.do_remote_decode = true};
  KvTransferParams source{.do_remote_prefill = true, .remote_block_ids = {{1, 2}}};
  EXPECT_EQ(field_of(*none, asks), "kv_transfer_params");
  EXPECT_EQ(field_of(*consumer, asks), "kv_transfer_params");
  EXPECT_EQ(field_of(*producer, source), "kv_transfer_params");
  EXPECT_EQ(field_of(*consumer, source), "kv_transfer_params") << "the source names no engine";
  source.remote_engine_id = source.remote_request_id = "x";
  source.remote_host = "127.0.0.1";
  source.remote_port = 1;
  EXPECT_EQ(field_of(*consumer, source), "");
  EXPECT_EQ(field_of(*consumer, source, 2), "n");
  source.remote_host = std::string(200, 'h');
  EXPECT_EQ(field_of(*consumer, source), "kv_transfer_params");
}

TEST_P(PeerTierTest, LoadsOnlyFromItsProducers) {
  Collector sink;
  const auto consumer = start_peer(GetParam(), {.role = KvRole::consumer, .producers = {"127.0.0.9:77", "localhost", "[::1]:9"}});
  const auto field_of = [&](const std::string& host, std::uint16_t port) {
    EngineRequest request = make_request(20, 1);
    request.kv_transfer = KvTransferParams{.do_remote_prefill = true,
                                           .remote_block_ids = {{1}},
                                           .remote_engine_id = "e",
                                           .remote_request_id = "r",
                                           .remote_host = host,
                                           .remote_port = port};
    request.sampling.temperature = -1.0F;  // the error that a request with a known producer gets
    return consumer->submit(request, sink).error().field;
  };
  const std::string is_unknown = "kv_transfer_params.remote_host";
  for (const char* host : {"127.0.0.8", "127.0.0.9.", "10.1.2.3", "", "localhost.evil", "127.0.0.09"})
    EXPECT_NE(field_of(host, 77), "temperature") << host;
  EXPECT_EQ(field_of("127.0.0.9", 78), is_unknown);
  EXPECT_EQ(field_of("127.0.0.9", 77), "temperature");
  EXPECT_EQ(field_of("LocalHost", 1), "temperature") << "any port of this host";
  EXPECT_EQ(field_of("0:0:0:0:0:0:0:1", 9), "temperature");
  EXPECT_EQ(field_of("[::1]", 10), is_unknown);
}

std::shared_ptr<PeerTier> open_consumer(std::vector<std::string> producers) {
  return PeerTier::open({.role = KvRole::consumer, .host = "127.0.0.1", .port = 0, .producers = std::move(producers)}, test::small_config(),
                        small_layout(), test::tier_fingerprint())
      .value();
}

TEST(PeerTier, AcceptsOnlyTheServersThatItsOperatorLists) {
  const auto tier = open_consumer({"127.0.0.1:77", "localhost"});
  struct Case {
    bool loads;
    const char* host;
    std::uint16_t port;
    bool is_good;
  };
  for (const Case& one : {Case{true, "127.0.0.1", 77, true},
                          {true, "127.0.0.1", 78, false},
                          {true, "LOCALHOST", 78, true},
                          {true, "", 0, true},  // names no server
                          {true, "", 77, false},
                          {true, "127.0.0.2", 0, false},
                          {false, "127.0.0.2", 77, true}}) {
    const Result<void> checked = tier->check({.do_remote_prefill = one.loads, .remote_host = one.host, .remote_port = one.port});
    EXPECT_EQ(checked.has_value(), one.is_good) << one.host << " " << one.port;
    if (!checked)
      EXPECT_EQ(
          checked.error().to_string(),
          "kv_transfer_params.remote_host: '" + std::string(one.host) + "' with remote_port " + std::to_string(one.port) +
              " is not a producer of this server; send the values from a producer's answer; the operator of this server must list its "
              "producers with --kv-producers HOST:PORT");
  }
}

TEST(PeerTier, ReleasesTheBlocksOfADeclinedRequestAtItsProducer) {
  test::TestListener producer, stranger;
  const auto tier = open_consumer({"127.0.0.1:" + std::to_string(producer.port())});
  KvTransferParams params{.do_remote_prefill = true,
                          .remote_block_ids = {{1}},
                          .remote_engine_id = "e",
                          .remote_request_id = "r",
                          .remote_host = "127.0.0.1",
                          .remote_port = stranger.port()};
  tier->decline(params);  // nothing is sent to a server that is not a producer
  params.remote_port = producer.port();
  params.do_remote_prefill = false;
  tier->decline(params);
  params.do_remote_prefill = true;
  params.remote_block_ids.clear();
  tier->decline(params);
  params.remote_block_ids = {{1}};
  tier->decline(params);
  const int socket = producer.accept_one();
  EXPECT_FALSE(producer.has_connection()) << "only the last request keeps blocks there";
  EXPECT_FALSE(stranger.has_connection());
  close(socket);
}

}  // namespace
}  // namespace quire
