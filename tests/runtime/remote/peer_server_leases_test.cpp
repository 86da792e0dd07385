// Tests the leases of a server that gives blocks, message by message: which blocks of a lease are sent, and how a lease ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/remote/lease_server.h"
#include "runtime/remote/scripted_peer.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {
namespace {

// Expects blocks `first` to `end - 1` of a lease.
void expect_blocks(ScriptedPeer& consumer, std::uint32_t first, std::uint32_t end) {
  for (std::uint32_t i = first; i < end; ++i) {
    const auto frame = consumer.next();
    ASSERT_TRUE(frame) << i;
    const auto bytes = consumer.codec.read_block(*frame, consumer.session, tier_name(i), i, kLeaseBlock);
    ASSERT_TRUE(bytes) << i;
    EXPECT_TRUE(std::ranges::equal(*bytes, tier_block(i, kLeaseBlock))) << i;
  }
}

TEST(PeerServerScript, SendsExactlyTheRequestedBlocks) {
  LeaseServer lender;
  lender.lend(1, 20);
  ScriptedPeer consumer(lender.server->port());
  EXPECT_EQ(consumer.greet(), "lender");
  std::uint32_t num_sent = 0;
  for (const auto& [first, count] : std::vector<std::pair<std::uint32_t, std::uint32_t>>{{0, 20}, {19, 1}, {3, 9}, {0, 1}, {12, 8}}) {
    consumer.ask(PeerKind::read, {.request_id = "request1", .first_block = first, .num_blocks = count});
    expect_blocks(consumer, first, first + count);
    num_sent += count;
  }
  // The next message is the answer to the next request, so no block too many came.
  consumer.ask(PeerKind::renew, {.request_id = "request1"});
  EXPECT_EQ(consumer.next_bye(), PeerCloseReason::served);
  EXPECT_TRUE(consumer.is_closed());
  const PeerServerStats stats = lender.server->stats();
  EXPECT_EQ(stats.num_sent, num_sent);
  EXPECT_EQ(stats.bytes_sent, std::uint64_t{num_sent} * kLeaseBlock);
  EXPECT_EQ(stats.num_open_leases, 1U) << "a renewed lease goes on";
  EXPECT_EQ(stats.num_leases, 1U);
  EXPECT_EQ(stats.num_refused, 0U);
  EXPECT_EQ(stats.num_evicted_clients, 0U);
  EXPECT_EQ(lender.num_promised_copies, static_cast<int>(num_sent));
}

TEST(PeerServerScript, ClosesTheConnectionOnAnInvalidRange) {
  LeaseServer lender;
  lender.lend(1, 20);
  for (const auto& [first, count] : std::vector<std::pair<std::uint32_t, std::uint32_t>>{
           {0, 0}, {0, 21}, {20, 1}, {19, 2}, {20, 0}, {UINT32_MAX, 1}, {1, UINT32_MAX}, {UINT32_MAX, UINT32_MAX}}) {
    ScriptedPeer consumer(lender.server->port());
    consumer.greet();
    consumer.ask(PeerKind::read, {.request_id = "request1", .first_block = first, .num_blocks = count});
    EXPECT_TRUE(consumer.is_closed()) << first << " " << count;
  }
  EXPECT_EQ(lender.server->stats().num_sent, 0U);
  EXPECT_EQ(lender.server->stats().num_open_leases, 1U);
}

TEST(PeerServerScript, EndsALeaseAsServedWhenTheConsumerIsDone) {
  LeaseServer lender;
  lender.lend(1, 2);
  lender.lend(2, 2);
  std::array<TierOutcome, 2> outcomes{TierOutcome::failed, TierOutcome::failed};
  std::atomic<int> num_over = 0;
  for (std::uint32_t i = 0; i < 2; ++i) lender.keep(1, i, outcomes[i], num_over);
  EXPECT_EQ(num_over, 0);
  ScriptedPeer consumer(lender.server->port());
  consumer.greet();
  consumer.ask(PeerKind::done, {.request_id = "request1"});
  EXPECT_EQ(consumer.next_bye(), PeerCloseReason::served);
  EXPECT_TRUE(comes_true([&] { return num_over == 2; }));
  EXPECT_EQ(outcomes, (std::array{TierOutcome::done, TierOutcome::done}));
  EXPECT_TRUE(lender.comes_to_leases(1)) << "other leases go on";
  EXPECT_EQ(lender.server->stats().num_expired_leases, 0U);
  // The request id may be used again.
  ScriptedPeer late(lender.server->port());
  late.greet();
  late.ask(PeerKind::done, {.request_id = "request1"});
  EXPECT_EQ(late.next_bye(), PeerCloseReason::unknown_request);
  lender.lend(1, 1);
  EXPECT_EQ(lender.server->stats().num_leases, 3U);
}

TEST(PeerServerScript, CopiesKeptBlocksByTheirJobs) {
  LeaseServer lender;
  lender.lend(1, 3);
  TierOutcome outcome = TierOutcome::failed;
  std::atomic<int> num_over = 0;
  lender.keep(1, 1, outcome, num_over);
  ScriptedPeer consumer(lender.server->port());
  consumer.greet();
  consumer.ask(PeerKind::read, {.request_id = "request1", .first_block = 0, .num_blocks = 3});
  expect_blocks(consumer, 0, 3);
  EXPECT_EQ(lender.num_promised_copies, 2);
  EXPECT_EQ(lender.num_kept_copies, 1);
  lender.server->end(1);
  EXPECT_TRUE(comes_true([&] { return num_over == 1; }));
  EXPECT_EQ(outcome, TierOutcome::done) << "a block was sent";
}

TEST(PeerServerScript, EndsALeaseWhoseBlockCannotBeCopied) {
  LeaseServer lender;
  lender.lend(1, 3);
  TierOutcome outcome = TierOutcome::failed;
  std::atomic<int> num_over = 0;
  lender.keep(1, 1, outcome, num_over, false);
  ScriptedPeer consumer(lender.server->port());
  consumer.greet();
  consumer.ask(PeerKind::read, {.request_id = "request1", .first_block = 0, .num_blocks = 3});
  expect_blocks(consumer, 0, 1);
  EXPECT_EQ(consumer.next_bye(), PeerCloseReason::unknown_request);
  EXPECT_TRUE(consumer.is_closed());
  EXPECT_TRUE(lender.comes_to_leases(0));
  EXPECT_TRUE(comes_true([&] { return num_over == 1; }));
  EXPECT_EQ(lender.server->stats().num_sent, 1U);
  EXPECT_EQ(lender.server->stats().num_refused, 1U);
}

TEST(PeerServerScript, CancelsBlocksOfALeaseThatWasNeverUsed) {
  LeaseServer lender;
  lender.lend(1, 1);
  TierOutcome outcome = TierOutcome::failed;
  std::atomic<int> num_over = 0;
  lender.keep(1, 0, outcome, num_over);
  lender.server->end(1);
  EXPECT_TRUE(comes_true([&] { return num_over == 1; }));
  EXPECT_EQ(outcome, TierOutcome::cancelled);
  EXPECT_TRUE(lender.comes_to_leases(0));
  // A block for a lease that is over ends immediately.
  outcome = TierOutcome::failed;
  lender.keep(1, 0, outcome, num_over);
  EXPECT_TRUE(comes_true([&] { return num_over == 2; }));
  EXPECT_EQ(outcome, TierOutcome::cancelled);
  lender.server->end(77);
  EXPECT_EQ(lender.server->stats().num_expired_leases, 0U);
  EXPECT_EQ(lender.num_kept_copies, 0);
}

TEST(PeerServerScript, EndsItsLeasesWhenItIsDestroyed) {
  TierOutcome outcome = TierOutcome::failed;
  std::atomic<int> num_over = 0;
  {
    LeaseServer lender;
    lender.lend(1, 1);
    lender.keep(1, 0, outcome, num_over);
  }
  EXPECT_EQ(num_over, 1);
  EXPECT_EQ(outcome, TierOutcome::cancelled);
}

TEST(PeerServerScript, ShortensPresentAndFutureLeasesButLengthensNone) {
  LeaseServer lender(600.0);
  lender.lend(1, 1);
  lender.server->expire_leases(5000.0);
  // The server looks for leases that have expired between the greeting and the request.
  ScriptedPeer consumer(lender.server->port());
  consumer.greet();
  consumer.ask(PeerKind::renew, {.request_id = "request1"});
  EXPECT_EQ(consumer.next_bye(), PeerCloseReason::served);
  EXPECT_EQ(lender.server->stats().num_open_leases, 1U);
  lender.server->expire_leases(0.01);
  EXPECT_TRUE(lender.comes_to_leases(0));
  EXPECT_EQ(lender.server->stats().num_expired_leases, 1U);
  lender.server->expire_leases(600.0);
  lender.lend(2, 1);
  EXPECT_TRUE(lender.comes_to_leases(0)) << "a longer limit does not replace the shorter one";
  EXPECT_EQ(lender.server->stats().num_expired_leases, 2U);
  LeaseServer brief(0.01);
  brief.server->expire_leases(600.0);
  brief.lend(1, 1);
  EXPECT_TRUE(brief.comes_to_leases(0));
}

// The server's thread waits without a limit until it has a lease or a connection.
TEST(PeerServerScript, ExpiresALeaseThatNobodyEverAsksFor) {
  LeaseServer lender(0.02);
  for (std::uint64_t ticket = 1; ticket <= 3; ++ticket) {
    lender.lend(ticket, 1);
    EXPECT_TRUE(lender.comes_to_leases(0)) << ticket;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(lender.server->stats().num_expired_leases, 3U);
}

TEST(PeerServerScript, KeepsALeaseWhileItsBlocksAreRead) {
  LeaseServer lender(0.05, 600.0);
  lender.lend(1, 2);
  lender.lend(2, 2);
  // On a busy machine the lease may be over before the request.
  for (std::uint64_t ticket = 2;; ++ticket) {
    ScriptedPeer consumer(lender.server->port());
    consumer.greet();
    consumer.ask(PeerKind::read, {.request_id = "request" + std::to_string(ticket), .first_block = 0, .num_blocks = 1});
    const auto frame = consumer.next();
    ASSERT_TRUE(frame);
    if (frame->kind == PeerKind::block) break;
    ASSERT_LT(ticket, 50U);
    lender.lend(ticket + 1, 2);
  }
  EXPECT_TRUE(lender.comes_to_leases(1)) << "the lease that nobody reads expires";
  std::this_thread::sleep_for(std::chrono::milliseconds(120));
  EXPECT_EQ(lender.server->stats().num_open_leases, 1U) << "the consumer has more time after each block";
}

}  // namespace
}  // namespace quire::test
