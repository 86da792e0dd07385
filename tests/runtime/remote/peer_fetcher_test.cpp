// Tests the consumer of a request's blocks against a producer that the test plays, message by message.
#include "runtime/remote/peer_fetcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "runtime/remote/peer_store.h"
#include "runtime/remote/scripted_peer.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {
namespace {

constexpr std::uint32_t kFetchBlock = 1000;

// A fetcher, and the outcomes of its jobs.
class FetchRig {
 public:
  explicit FetchRig(double timeout_s = 60.0)
      : fetcher(std::make_unique<PeerFetcher>(PeerFetcherOptions{.secret = std::vector(16, std::byte{1}),
                                                                 .fingerprint = tier_fingerprint(7),
                                                                 .block_bytes = kFetchBlock,
                                                                 .timeout_s = timeout_s})) {}
  PeerSource source(const std::string& request_id = "r") const {
    return {.host = "127.0.0.1", .port = listener.port(), .engine_id = "producer", .request_id = request_id};
  }
  // Fetches blocks `first` to `first + count - 1`. `unwanted`: the block that its user does not need any more.
  void fetch(std::uint64_t ticket, std::uint32_t first, std::uint32_t count, std::uint32_t unwanted = UINT32_MAX) {
    fetcher->expect(ticket, source("r" + std::to_string(ticket)), first, count);
    add_jobs(ticket, first, count, unwanted);
  }
  void add_jobs(std::uint64_t ticket, std::uint32_t first, std::uint32_t count, std::uint32_t unwanted = UINT32_MAX) {
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint32_t block = first + i;
      fetcher->add(ticket, i,
                   {.verb = TierJob::Verb::load,
                    .place = 0,
                    .name = tier_name(block),
                    .bytes = kFetchBlock,
                    .copy =
                        [block, unwanted](std::span<std::byte> bytes) {
                          EXPECT_TRUE(std::ranges::equal(bytes, tier_block(block, kFetchBlock))) << "a wrong byte";
                          return block != unwanted;
                        },
                    .over =
                        [this, source = fetcher.get()](TierOutcome outcome) {
                          const std::string problem = source->stats().problem;
                          const std::lock_guard lock(mutex_);
                          outcomes_.push_back(outcome);
                          problems_.push_back(problem);
                        }});
    }
  }
  // Waits until this many jobs are over and returns their outcomes in order.
  std::vector<TierOutcome> outcomes(std::size_t count) {
    EXPECT_TRUE(comes_true([&] {
      const std::lock_guard lock(mutex_);
      return outcomes_.size() >= count;
    }));
    const std::lock_guard lock(mutex_);
    return outcomes_;
  }
  // Returns whether a job ended with this problem.
  [[nodiscard]] bool saw_problem(const std::string& problem) {
    const std::lock_guard lock(mutex_);
    return std::ranges::find(problems_, problem) != problems_.end();
  }
  [[nodiscard]] bool comes_to_open(std::size_t count) const {
    return comes_true([&] { return fetcher->num_open() == count; });
  }
  [[nodiscard]] std::string problem() const { return fetcher->stats().problem; }
  [[nodiscard]] std::string problem_with(const std::string& why) const {
    return "127.0.0.1:" + std::to_string(listener.port()) + ": " + why;
  }
  // Expects that the fetcher notifies the producer that the blocks of this request may be freed.
  void expect_release(const std::string& request_id, PeerKind kind = PeerKind::done) {
    ScriptedPeer producer(listener);
    producer.welcome();
    const auto [said, request] = producer.next_request();
    EXPECT_EQ(said, kind);
    EXPECT_EQ(request.request_id, request_id);
    EXPECT_EQ(request.first_block, 0U);
    EXPECT_EQ(request.num_blocks, 0U);
    PeerFrameCodec::add_bye(producer.out(), PeerCloseReason::served);
    producer.flush();
    EXPECT_TRUE(producer.is_closed());
  }

  TestListener listener;

 private:
  std::mutex mutex_;
  std::vector<TierOutcome> outcomes_;
  std::vector<std::string> problems_;  // the last problem when each job ended

 public:
  std::unique_ptr<PeerFetcher> fetcher;
};

constexpr auto kDone = TierOutcome::done, kFailed = TierOutcome::failed, kRefused = TierOutcome::refused,
               kCancelled = TierOutcome::cancelled;

// Plays a producer up to the request for blocks.
std::unique_ptr<ScriptedPeer> accept_read(FetchRig& rig, const std::string& request_id, std::uint32_t first, std::uint32_t count) {
  auto producer = std::make_unique<ScriptedPeer>(rig.listener);
  producer->welcome();
  EXPECT_EQ(producer->session.fingerprint, tier_fingerprint(7));
  EXPECT_NE(producer->session.consumer, PeerNonce{});
  const auto [kind, request] = producer->next_request();
  EXPECT_EQ(kind, PeerKind::read);
  EXPECT_EQ(request.request_id, request_id);
  EXPECT_EQ(request.first_block, first);
  EXPECT_EQ(request.num_blocks, count);
  return producer;
}

TEST(PeerFetcherScript, AsksForItsBlocksOnceAndReleasesThem) {
  FetchRig rig;
  rig.fetch(4, 7, 12);
  EXPECT_EQ(rig.fetcher->num_open(), 1U);
  const auto producer = accept_read(rig, "r4", 7, 12);
  for (std::uint32_t i = 7; i < 19; ++i) producer->send_block(i, tier_name(i), tier_block(i, kFetchBlock));
  const auto [kind, request] = producer->next_request();
  EXPECT_EQ(kind, PeerKind::done);
  EXPECT_EQ(request.request_id, "r4");
  EXPECT_EQ(request.num_blocks, 0U);
  EXPECT_EQ(rig.outcomes(12), std::vector(12, kDone));
  EXPECT_EQ(rig.fetcher->num_open(), 1U) << "until the producer has answered";
  PeerFrameCodec::add_bye(producer->out(), PeerCloseReason::served);
  producer->flush();
  EXPECT_TRUE(producer->is_closed());
  EXPECT_TRUE(rig.comes_to_open(0));
  const PeerFetcherStats stats = rig.fetcher->stats();
  EXPECT_EQ(stats.num_loaded, 12U);
  EXPECT_EQ(stats.bytes_loaded, 12U * kFetchBlock);
  EXPECT_EQ(stats.num_refused, 0U);
  EXPECT_EQ(stats.num_failed, 0U);
  EXPECT_EQ(stats.problem, "");
  EXPECT_FALSE(rig.listener.has_connection()) << "the blocks are released once";
}

TEST(PeerFetcherScript, SendsReleasesAndRenewals) {
  FetchRig rig;
  rig.fetcher->release(rig.source("unwanted"));
  EXPECT_EQ(rig.fetcher->num_open(), 1U);
  rig.expect_release("unwanted");
  EXPECT_TRUE(rig.comes_to_open(0));
  rig.fetcher->renew(rig.source("needed"));
  rig.expect_release("needed", PeerKind::renew);
  EXPECT_TRUE(rig.comes_to_open(0));
  EXPECT_EQ(rig.problem(), "");
  // A fetch that is cancelled before its jobs came has no blocks to end.
  rig.fetcher->expect(1, rig.source("cancelled"), 0, 2);
  EXPECT_EQ(rig.fetcher->num_open(), 1U);
  rig.fetcher->cancel(1);
  rig.expect_release("cancelled");
  EXPECT_TRUE(rig.comes_to_open(0));
  rig.fetcher->cancel(1);
  EXPECT_EQ(rig.fetcher->num_open(), 0U);
}

TEST(PeerFetcherScript, EndsWithAReasonWhenTheProducerSaysBye) {
  for (const auto& [reason, text, releases] : std::vector<std::tuple<PeerCloseReason, const char*, bool>>{
           {PeerCloseReason::served, "served", false},
           {PeerCloseReason::other_model, "its model, KV layout or arithmetic differs", false},
           {PeerCloseReason::unknown_request, "it holds no blocks of that request", false},
           {PeerCloseReason::busy, "it is busy", true}}) {
    FetchRig rig;
    rig.fetch(1, 0, 3);
    auto producer = accept_read(rig, "r1", 0, 3);
    producer->send_block(0, tier_name(0), tier_block(0, kFetchBlock));
    PeerFrameCodec::add_bye(producer->out(), reason);
    producer->flush();
    EXPECT_EQ(rig.outcomes(3), (std::vector{kDone, kFailed, kFailed})) << text;
    EXPECT_TRUE(producer->is_closed()) << text;
    EXPECT_EQ(rig.problem(), rig.problem_with(text));
    EXPECT_EQ(rig.fetcher->stats().num_failed, 2U);
    EXPECT_EQ(rig.fetcher->stats().num_loaded, 1U);
    EXPECT_EQ(rig.fetcher->stats().num_refused, 0U);
    // Only a producer that still has the blocks is notified.
    if (releases) rig.expect_release("r1");
    EXPECT_TRUE(rig.comes_to_open(0)) << text;
    EXPECT_FALSE(rig.listener.has_connection()) << text;
  }
}

TEST(PeerFetcherScript, TrustsOnlyTheServerThatItWasSentTo) {
  for (const bool is_other_server : {true, false}) {
    FetchRig rig;
    rig.fetch(1, 0, 2);
    ScriptedPeer producer(rig.listener, is_other_server ? 1 : 2);
    producer.welcome(is_other_server ? "somebody" : "producer");
    EXPECT_EQ(rig.outcomes(2), std::vector(2, kFailed));
    EXPECT_TRUE(producer.is_closed()) << "no request is sent";
    EXPECT_EQ(rig.problem(), rig.problem_with(is_other_server ? "another server has this address now" : "it has another key"));
    EXPECT_TRUE(rig.comes_to_open(0)) << "it is not asked to free anything";
    EXPECT_FALSE(rig.listener.has_connection());
  }
}

TEST(PeerFetcherScript, RefusesAWrongBlockAndReleasesTheRest) {
  const std::vector<std::function<void(ScriptedPeer&)>> cases = {
      [](ScriptedPeer& producer) { producer.send_block(4, tier_name(4), tier_block(4, kFetchBlock)); },      // the next block
      [](ScriptedPeer& producer) { producer.send_block(3, tier_name(4), tier_block(3, kFetchBlock)); },      // other tokens
      [](ScriptedPeer& producer) { producer.send_block(3, tier_name(3), tier_block(3, kFetchBlock - 8)); },  // another size
      [](ScriptedPeer& producer) { producer.codec.add_gone(producer.out(), producer.session, 3), producer.flush(); }};
  for (const auto& say : cases) {
    FetchRig rig;
    rig.fetch(1, 2, 3);
    const auto producer = accept_read(rig, "r1", 2, 3);
    producer->send_block(2, tier_name(2), tier_block(2, kFetchBlock));
    say(*producer);
    EXPECT_EQ(rig.outcomes(3), (std::vector{kDone, kRefused, kFailed}));
    EXPECT_TRUE(producer->is_closed());
    EXPECT_EQ(rig.problem(), rig.problem_with("a block from it does not match the requested offload key"));
    rig.expect_release("r1");
    const PeerFetcherStats stats = rig.fetcher->stats();
    EXPECT_EQ(stats.num_loaded, 1U);
    EXPECT_EQ(stats.num_refused, 1U);
    EXPECT_EQ(stats.num_failed, 1U);
    EXPECT_EQ(stats.bytes_loaded, kFetchBlock);
    EXPECT_TRUE(rig.comes_to_open(0));
  }
}

TEST(PeerFetcherScript, IgnoresTheBlocksAfterAWrongOne) {
  FetchRig rig;
  rig.fetch(1, 0, 3);
  const auto producer = accept_read(rig, "r1", 0, 3);
  // All blocks come together. The second one has other bytes.
  for (std::uint32_t i = 0; i < 3; ++i) {
    std::ranges::copy(tier_block(i, kFetchBlock), PeerFrameCodec::add_block(producer->out(), i, kFetchBlock).begin());
    producer->codec.seal_block(producer->out(), producer->session, tier_name(i == 1 ? 7 : i), kFetchBlock);
  }
  producer->flush();
  EXPECT_EQ(rig.outcomes(3), (std::vector{kDone, kRefused, kFailed}));
  rig.expect_release("r1");
  EXPECT_TRUE(rig.comes_to_open(0));
  EXPECT_EQ(rig.problem(), rig.problem_with("a block from it does not match the requested offload key"));
  EXPECT_FALSE(rig.listener.has_connection()) << "the blocks are released once";
}

TEST(PeerFetcherScript, EndsWhenABlockIsNotWantedAnyMore) {
  FetchRig rig;
  rig.fetch(1, 0, 3, 1);
  const auto producer = accept_read(rig, "r1", 0, 3);
  for (std::uint32_t i = 0; i < 2; ++i) producer->send_block(i, tier_name(i), tier_block(i, kFetchBlock));
  EXPECT_EQ(rig.outcomes(3), (std::vector{kDone, kCancelled, kFailed}));
  EXPECT_TRUE(producer->is_closed());
  rig.expect_release("r1");
  EXPECT_EQ(rig.problem(), "") << "this is no problem of the producer";
  EXPECT_EQ(rig.fetcher->stats().num_loaded, 1U);
  EXPECT_EQ(rig.fetcher->stats().num_refused, 0U);
}

TEST(PeerFetcherScript, EndsWhenMoreThanTheRequestedBlocksCome) {
  FetchRig rig;
  rig.fetch(1, 0, 2);
  const auto producer = accept_read(rig, "r1", 0, 2);
  for (std::uint32_t i = 0; i < 3; ++i) producer->send_block(i, tier_name(i), tier_block(i, kFetchBlock));
  EXPECT_EQ(rig.outcomes(2), std::vector(2, kDone));
  EXPECT_TRUE(comes_true([&] { return rig.problem() == rig.problem_with("it sent more than was requested"); }));
  EXPECT_TRUE(rig.comes_to_open(0));
  EXPECT_EQ(rig.fetcher->stats().num_loaded, 2U);
  EXPECT_EQ(rig.fetcher->stats().num_failed, 0U);
  EXPECT_FALSE(rig.listener.has_connection()) << "it was asked to free the blocks already";
}

TEST(PeerFetcherScript, ReportsALostConnectionAndReleasesTheBlocks) {
  FetchRig rig;
  rig.fetch(1, 0, 2);
  accept_read(rig, "r1", 0, 2).reset();
  EXPECT_EQ(rig.outcomes(2), std::vector(2, kFailed));
  EXPECT_EQ(rig.problem(), rig.problem_with("the connection was closed"));
  rig.expect_release("r1");
  EXPECT_TRUE(rig.comes_to_open(0));
}

TEST(PeerFetcherScript, ReportsAProducerThatDoesNotAnswer) {
  FetchRig rig(0.5);
  rig.fetch(1, 0, 2);
  ScriptedPeer silent(rig.listener);
  EXPECT_EQ(rig.outcomes(2), std::vector(2, kFailed));
  EXPECT_EQ(rig.problem(), rig.problem_with("it did not answer within the time limit"));
}

TEST(PeerFetcherScript, CancelsAFetchInFlight) {
  FetchRig rig;
  rig.fetch(1, 0, 2);
  const auto producer = accept_read(rig, "r1", 0, 2);
  rig.fetcher->cancel(1);
  EXPECT_EQ(rig.outcomes(2), std::vector(2, kCancelled));
  EXPECT_TRUE(producer->is_closed());
  rig.expect_release("r1");
  EXPECT_TRUE(rig.comes_to_open(0));
  EXPECT_EQ(rig.problem(), "");
  EXPECT_EQ(rig.fetcher->stats().num_failed, 0U);
}

TEST(PeerFetcherScript, StartsWhenItsLastJobHasCome) {
  FetchRig rig;
  rig.fetcher->expect(1, rig.source("r1"), 0, 2);
  rig.fetcher->release(rig.source("other"));
  rig.expect_release("other");
  EXPECT_FALSE(rig.listener.has_connection());
  rig.add_jobs(1, 0, 2);
  accept_read(rig, "r1", 0, 2);
}

TEST(PeerFetcherScript, OpensAFewConnectionsAndPrefersBlocksToNotices) {
  constexpr std::size_t kConnections = 8, kNotices = 1024;
  FetchRig rig;
  for (std::uint64_t ticket = 1; ticket <= kConnections; ++ticket) rig.fetch(ticket, 0, 1);
  std::vector<std::unique_ptr<ScriptedPeer>> producers;
  for (std::size_t i = 0; i < kConnections; ++i) producers.push_back(std::make_unique<ScriptedPeer>(rig.listener));
  for (std::size_t i = 0; i < kNotices + 20; ++i) rig.fetcher->release(rig.source("notice" + std::to_string(i)));
  EXPECT_EQ(rig.fetcher->num_open(), kConnections + kNotices) << "further notices are dropped";
  rig.fetch(50, 0, 1);
  rig.fetch(51, 0, 1);
  EXPECT_FALSE(rig.listener.has_connection());
  // The next connections are for the blocks, although the notices came before.
  for (const char* request_id : {"r50", "r51"}) {
    producers.pop_back();
    producers.insert(producers.begin(), accept_read(rig, request_id, 0, 1));
  }
  producers.pop_back();
  rig.expect_release("notice0");
  rig.fetcher.reset();
  EXPECT_EQ(rig.outcomes(10).size(), 10U) << "each job ends once";
}

// A fetch that has no connection within the time limit would come too late. A busy machine may need several tries, because the connections
// before it must not time out first.
TEST(PeerFetcherScript, GivesUpAFetchThatWaitsTooLongForAConnection) {
  constexpr double kTimeout_s = 0.6;
  const std::string expected = "too many other fetches are in progress";
  bool was_given_up = false;
  for (int attempt = 0; attempt < 10 && !was_given_up; ++attempt) {
    FetchRig rig(kTimeout_s);
    for (std::uint64_t ticket = 1; ticket <= 8; ++ticket) rig.fetch(ticket, 0, 2);
    std::vector<std::unique_ptr<ScriptedPeer>> producers;
    for (int i = 0; i < 8; ++i) {
      auto& producer = producers.emplace_back(std::make_unique<ScriptedPeer>(rig.listener));
      producer->welcome();
      if (!producer->next()) break;
    }
    const auto begin = std::chrono::steady_clock::now();
    rig.fetch(50, 0, 1);
    std::this_thread::sleep_until(begin +
                                  std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(kTimeout_s / 2)));
    for (auto& producer : producers) producer->send_block(0, tier_name(0), tier_block(0, kFetchBlock));
    std::this_thread::sleep_until(begin +
                                  std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(1.1 * kTimeout_s)));
    producers.clear();
    rig.outcomes(17);
    was_given_up = rig.saw_problem(rig.problem_with(expected));
  }
  EXPECT_TRUE(was_given_up);
}

TEST(PeerFetcherScript, CancelsEverythingWhenItIsDestroyed) {
  FetchRig rig;
  rig.fetch(1, 0, 2);
  const auto producer = accept_read(rig, "r1", 0, 2);
  rig.fetcher.reset();
  EXPECT_EQ(rig.outcomes(2), std::vector(2, kCancelled));
}

TEST(PeerFetcherScript, CancelsFetchesWithoutAConnectionWhenItIsDestroyed) {
  FetchRig rig;
  for (std::uint64_t ticket = 1; ticket <= 10; ++ticket) rig.fetch(ticket, 0, 1);
  std::vector<std::unique_ptr<ScriptedPeer>> producers;
  for (int i = 0; i < 8; ++i) producers.push_back(std::make_unique<ScriptedPeer>(rig.listener));
  EXPECT_FALSE(rig.listener.has_connection());
  rig.fetcher.reset();
  EXPECT_EQ(rig.outcomes(10), std::vector(10, kCancelled));
}

TEST(PeerFetcherScript, AsksOtherMachinesOnlyWithAKey) {
  PeerFetcher fetcher({.secret = {}, .fingerprint = tier_fingerprint(7), .block_bytes = kFetchBlock});
  TestListener listener;
  fetcher.release({.host = "127.0.0.1", .port = listener.port(), .engine_id = "producer", .request_id = "r"});
  ScriptedPeer local(listener);
  EXPECT_TRUE(local.next()) << "a server on this machine is asked";
}

TEST(PeerStoreRooms, ReportsItsSlotsAndBlockSize) {
  const PeerStore store(nullptr, nullptr, 200, 9001);
  EXPECT_EQ(store.num_places(), 200U);
  EXPECT_EQ(store.block_bytes(), 9001U);
  EXPECT_EQ(store.server(), nullptr);
  EXPECT_EQ(store.fetcher(), nullptr);
}

TEST(PeerStoreRoomsDeathTest, ChecksSlotsAndDirections) {
  PeerStore store(nullptr, nullptr, 2, 9001);
  store.use(1, {.ticket = 1, .index = 0});
  EXPECT_DEATH(store.use(2, {.ticket = 1, .index = 0}), "below the number of slots");
  for (const TierJob::Verb verb : {TierJob::Verb::store, TierJob::Verb::load}) {
    EXPECT_DEATH(store.submit({.verb = verb, .place = 2, .name = {}, .bytes = 1, .copy = {}, .over = {}}), "below the number of slots");
    EXPECT_DEATH(store.submit({.verb = verb, .place = 1, .name = {}, .bytes = 1, .copy = {}, .over = {}}), "a producer stores blocks");
  }
}

}  // namespace
}  // namespace quire::test
