// Tests which blocks a request loads from another server, and which blocks this server keeps for others, call by call.
#include "engine/tiers/peer_connector.h"

#include <gtest/gtest.h>

#include <vector>

#include "engine/tiers/hashed_request.h"
#include "runtime/remote/scripted_peer.h"

namespace quire {
namespace {

using test::HashedRequest;

constexpr std::uint32_t kPeerSlots = 6, kMostKept = 5;

// Opens transfers with rising IDs.
class PeerTransfers final : public TransferList {
 public:
  struct Begun {
    RequestId request;
    TransferDirection direction;
    std::uint32_t group;
    std::vector<BlockId> blocks;
    std::size_t num_places;
  };
  std::optional<TransferId> add(const Transfer& transfer) override {
    if (is_full) return std::nullopt;
    begun.push_back({.request = transfer.request,
                     .direction = transfer.direction,
                     .group = transfer.group,
                     .blocks = {transfer.blocks.begin(), transfer.blocks.end()},
                     .num_places = transfer.places.size()});
    return TransferId{++last_id};
  }
  bool is_full = false;
  std::uint64_t last_id = 0;
  std::vector<Begun> begun;
};

class PeerConnectorTest : public testing::Test {
 protected:
  // By default no server listens at the port.
  static KvTransferParams source(std::uint32_t num_blocks, std::uint16_t port = 1) {
    KvTransferParams params{.do_remote_prefill = true,
                            .remote_engine_id = "producer",
                            .remote_request_id = "request",
                            .remote_host = "127.0.0.1",
                            .remote_port = port};
    if (num_blocks > 0) params.remote_block_ids = {std::vector<std::uint32_t>(num_blocks)};
    return params;
  }
  std::uint32_t match(const HashedRequest& request, std::uint32_t num_local = 0) {
    return connector_.match(request.view, num_local).num_tokens.value();
  }
  void allocate(const HashedRequest& request, std::uint32_t num_tokens) {
    const std::span<const BlockId> blocks[1] = {request.blocks};
    connector_.allocated(request.view, blocks, num_tokens);
  }
  bool finish(HashedRequest& request, RequestStatus status = RequestStatus::finished_length) {
    request.view.status = status;
    const std::span<const BlockId> blocks[1] = {request.blocks};
    return connector_.finished(request.view, blocks);
  }
  // Ends a prefill for another server. Returns how many blocks are kept.
  std::size_t keep(std::uint64_t request, std::uint32_t num_tokens) {
    HashedRequest prompt(request, num_tokens, 100 * request);
    connector_.expect(prompt.view.id, {.do_remote_decode = true});
    const bool keeps = finish(prompt);
    const auto answer = connector_.take_transfer_params(prompt.view.id);
    EXPECT_NE(answer, nullptr);
    const std::size_t num_kept = answer->remote_block_ids.at(0).size();
    EXPECT_EQ(keeps, num_kept > 0);
    return num_kept;
  }
  void plan() { connector_.plan_transfers({}, transfers_); }
  bool comes_to_leases(std::uint32_t count) {
    return test::comes_true([&] { return store_.server()->stats().num_open_leases == count; });
  }

  // Returns the next message that the producer gets.
  static PeerKind next_message(test::TestListener& producer) {
    test::ScriptedPeer peer(producer);
    peer.welcome("producer");
    const auto [kind, request] = peer.next_request();
    EXPECT_EQ(request.request_id, "request");
    return kind;
  }

  PeerStore store_{
      PeerServer::open({.host = "127.0.0.1", .port = 0, .secret = {}, .engine_id = "this"}).value(),
      std::make_unique<PeerFetcher>(PeerFetcherOptions{.secret = std::vector(16, std::byte{1}), .block_bytes = test::kSmallBlockBytes}),
      kPeerSlots, test::kSmallBlockBytes};
  StoreTransport transport_{std::shared_ptr<BlockStore>(std::shared_ptr<void>(), &store_), 60.0};
  PeerConnector connector_{store_,
                           transport_,
                           {.block_size = test::kSmallBlock,
                            .block_bytes = test::kSmallBlockBytes,
                            .max_kept_blocks = kMostKept,
                            .engine_id = "this",
                            .host = "here",
                            .port = 77}};
  PeerTransfers transfers_;
};

TEST_F(PeerConnectorTest, MatchesFullBlocksBeforeTheLastToken) {
  struct Case {
    std::uint32_t num_tokens, num_remote, num_local, num_matched;
  };
  std::uint64_t id = 0;
  for (const Case& one : {Case{17, 4, 0, 16},
                          {16, 4, 0, 12},
                          {17, 3, 0, 12},
                          {17, 9, 0, 16},
                          {17, 4, 8, 8},
                          {17, 4, 16, 0},
                          {17, 3, 16, 0},
                          {17, 4, 6, 0},
                          {4, 1, 0, 0},
                          {5, 1, 0, 4},
                          {17, 0, 0, 0},
                          {25, 6, 0, 24},
                          {29, 7, 0, 0},
                          {29, 7, 4, 24}}) {
    SCOPED_TRACE(one.num_tokens * 10000 + one.num_remote * 100 + one.num_local);
    const HashedRequest request(++id, one.num_tokens, 1);
    EXPECT_EQ(match(request, one.num_local), 0U) << "a request without parameters";
    connector_.expect(request.view.id, source(one.num_remote));
    const ExternalMatch found = connector_.match(request.view, one.num_local);
    EXPECT_EQ(found.num_tokens, one.num_matched);
    EXPECT_EQ(found.load_async, one.num_matched > 0);
  }
  const HashedRequest prefill(99, 17, 1);
  connector_.expect(prefill.view.id, {.do_remote_decode = true, .remote_block_ids = {{1, 2}}});
  EXPECT_EQ(match(prefill), 0U) << "it does not load";
}

TEST_F(PeerConnectorTest, LoadsTheBlocksAfterItsOwnOnce) {
  const HashedRequest request(1, 17, 1), other(2, 25, 50);
  connector_.expect(request.view.id, source(4));
  connector_.expect(other.view.id, source(6));
  EXPECT_EQ(match(request, 4), 12U);
  allocate(request, 12);
  EXPECT_EQ(match(request, 4), 0U) << "a request has one transfer";
  EXPECT_EQ(match(other), 0U) << "only three slots are free";
  transfers_.is_full = true;
  plan();
  EXPECT_TRUE(transfers_.begun.empty());
  transfers_.is_full = false;
  plan();
  plan();
  ASSERT_EQ(transfers_.begun.size(), 1U);
  EXPECT_EQ(transfers_.begun[0].request, request.view.id);
  EXPECT_EQ(transfers_.begun[0].direction, TransferDirection::load);
  EXPECT_EQ(transfers_.begun[0].group, 0U);
  EXPECT_EQ(transfers_.begun[0].blocks, (std::vector{BlockId{11}, BlockId{12}, BlockId{13}}));
  EXPECT_EQ(transfers_.begun[0].num_places, 3U);
  connector_.completed({.transfer = TransferId{5}});  // of another connector
  EXPECT_EQ(connector_.num_loaded_tokens(), 0U);
  connector_.completed({.transfer = TransferId{1}});
  EXPECT_EQ(connector_.num_loaded_tokens(), 12U);
  EXPECT_EQ(match(other), 24U) << "all slots are free again";
}

TEST_F(PeerConnectorTest, CountsOnlyTokensOfBlocksThatArrived) {
  const std::vector<BlockId> bad{BlockId{10}};
  std::uint64_t id = 0;
  for (const auto& [bad_blocks, num_tokens] : {std::pair(std::span<const BlockId>(bad), 8U), {std::span<const BlockId>(), 8U}}) {
    HashedRequest request(++id, 13, 1);
    connector_.expect(request.view.id, source(3));
    EXPECT_EQ(match(request), 12U);
    allocate(request, 12);
    plan();
    connector_.completed({.transfer = TransferId{id}, .outcome = TransferOutcome::failed, .bad_blocks = bad_blocks});
    EXPECT_EQ(connector_.num_loaded_tokens(), num_tokens) << "without a list, no block has arrived";
    EXPECT_FALSE(finish(request));
  }
}

TEST_F(PeerConnectorTest, DropsTheLoadOfARequestThatEndsBeforeItsPlan) {
  HashedRequest request(1, 25, 1);
  const HashedRequest other(2, 25, 50);
  connector_.expect(request.view.id, source(6));
  connector_.expect(other.view.id, source(6));
  EXPECT_EQ(match(request), 24U);
  allocate(request, 24);
  EXPECT_EQ(match(other), 0U);
  EXPECT_EQ(store_.fetcher()->num_open(), 1U);
  EXPECT_FALSE(finish(request, RequestStatus::finished_aborted));
  EXPECT_TRUE(test::comes_true([&] { return store_.fetcher()->num_open() == 0; }));
  plan();
  EXPECT_TRUE(transfers_.begun.empty());
  EXPECT_EQ(match(other), 24U) << "its slots are free";
  EXPECT_EQ(connector_.take_transfer_params(request.view.id), nullptr);
}

TEST_F(PeerConnectorTest, RenewsTheLeaseOfAWaitingRequestEveryFiveSeconds) {
  using Clock = std::chrono::steady_clock;
  test::TestListener producer;
  HashedRequest request(1, 17, 1), other(2, 17, 1);
  const auto before = Clock::now();
  connector_.expect(request.view.id, source(4, producer.port()));
  connector_.expect(other.view.id, {.do_remote_decode = true, .remote_host = "127.0.0.1", .remote_port = producer.port()});
  const auto after = Clock::now();
  connector_.renew(before + std::chrono::seconds(5) - std::chrono::nanoseconds(1));
  connector_.renew(after + std::chrono::seconds(5));
  EXPECT_EQ(next_message(producer), PeerKind::renew);
  connector_.renew(after + std::chrono::milliseconds(9999));
  connector_.renew(after + std::chrono::seconds(10));
  EXPECT_EQ(next_message(producer), PeerKind::renew);
  EXPECT_FALSE(finish(request, RequestStatus::finished_aborted));
  EXPECT_EQ(next_message(producer), PeerKind::done) << "the producer may free the blocks";
  connector_.renew(after + std::chrono::hours(1));
  EXPECT_TRUE(test::comes_true([&] { return store_.fetcher()->num_open() == 0; }));
  EXPECT_FALSE(producer.has_connection());
}

TEST_F(PeerConnectorTest, ReleasesTheBlocksThatARequestDoesNotNeed) {
  test::TestListener producer;
  HashedRequest request(1, 17, 1), empty(2, 17, 1);
  connector_.expect(request.view.id, source(4, producer.port()));
  connector_.expect(empty.view.id, source(0, producer.port()));
  allocate(request, 0);
  EXPECT_EQ(next_message(producer), PeerKind::done);
  allocate(empty, 0);
  EXPECT_FALSE(finish(request));
  EXPECT_FALSE(finish(empty)) << "the producer keeps no blocks for it";
  EXPECT_TRUE(test::comes_true([&] { return store_.fetcher()->num_open() == 0; }));
  EXPECT_FALSE(producer.has_connection());
}

TEST_F(PeerConnectorTest, KeepsTheFullBlocksOfAPromptForAnotherServer) {
  HashedRequest prompt(8, 14, 1);
  connector_.expect(prompt.view.id, {.do_remote_decode = true});
  EXPECT_TRUE(finish(prompt));
  EXPECT_TRUE(comes_to_leases(1));
  const auto answer = connector_.take_transfer_params(prompt.view.id);
  ASSERT_NE(answer, nullptr);
  EXPECT_TRUE(answer->remote_request_id.starts_with("8-")) << answer->remote_request_id;
  EXPECT_EQ(answer->remote_request_id.size(), 18U) << "16 random digits";
  KvTransferParams wanted{.do_remote_prefill = true,
                          .remote_block_ids = {{10, 11, 12}},
                          .remote_engine_id = "this",
                          .remote_request_id = answer->remote_request_id,
                          .remote_host = "here",
                          .remote_port = 77};
  EXPECT_EQ(*answer, wanted);
  EXPECT_EQ(connector_.take_transfer_params(prompt.view.id), nullptr) << "the answer is given once";
  plan();
  ASSERT_EQ(transfers_.begun.size(), 1U);
  EXPECT_EQ(transfers_.begun[0].direction, TransferDirection::store);
  EXPECT_EQ(transfers_.begun[0].blocks, prompt.blocks);
  connector_.completed({.transfer = TransferId{1}});
  EXPECT_TRUE(comes_to_leases(0));
  EXPECT_EQ(connector_.num_loaded_tokens(), 0U);
  EXPECT_FALSE(finish(prompt)) << "the request is not known any more";
}

TEST_F(PeerConnectorTest, KeepsOnlyBlocksOfThePromptThatWereComputed) {
  for (const auto& [num_prompt, num_computed, num_kept] : {std::tuple(12U, 12U, 3U), {11U, 12U, 2U}, {12U, 11U, 2U}, {3U, 12U, 0U}}) {
    HashedRequest prompt(100 + num_prompt + num_computed * 20, 12, 1);
    prompt.view.num_prompt_tokens = num_prompt;
    prompt.view.num_computed_tokens = num_computed;
    connector_.expect(prompt.view.id, {.do_remote_decode = true});
    EXPECT_EQ(finish(prompt), num_kept > 0);
    EXPECT_EQ(connector_.take_transfer_params(prompt.view.id)->remote_block_ids.at(0).size(), num_kept);
    connector_.sent(prompt.view.id);
  }
}

TEST_F(PeerConnectorTest, KeepsNothingOfARequestThatDidNotReachItsLength) {
  HashedRequest prompt(1, 12, 1), plain(2, 12, 1);
  connector_.expect(prompt.view.id, {.do_remote_decode = true});
  EXPECT_FALSE(finish(prompt, RequestStatus::finished_stopped));
  EXPECT_EQ(connector_.take_transfer_params(prompt.view.id), nullptr);
  connector_.expect(plain.view.id, {});
  EXPECT_FALSE(finish(plain)) << "no other server continues it";
  EXPECT_EQ(connector_.take_transfer_params(plain.view.id), nullptr);
  EXPECT_EQ(store_.server()->stats().num_leases, 0U);
}

TEST_F(PeerConnectorTest, KeepsNoMoreBlocksThanItsLimit) {
  EXPECT_EQ(keep(1, 12), 3U);
  EXPECT_EQ(keep(2, 12), 0U) << "six blocks are more than five";
  EXPECT_EQ(keep(3, 8), 2U);
  EXPECT_EQ(keep(4, 4), 0U);
  plan();
  EXPECT_EQ(transfers_.begun.size(), 2U);
  connector_.completed({.transfer = TransferId{1}});
  EXPECT_EQ(keep(5, 12), 3U) << "the first three are free again";
}

TEST_F(PeerConnectorTest, ReleasesKeptBlocksThatMustNotBeGiven) {
  for (const bool is_planned : {false, true}) {
    for (const int way : {0, 1, 2}) {
      SCOPED_TRACE(way + (is_planned ? 10 : 0));
      HashedRequest prompt(1 + static_cast<std::uint64_t>(way) + (is_planned ? 10 : 0), 20, 1);
      connector_.expect(prompt.view.id, {.do_remote_decode = true});
      ASSERT_TRUE(finish(prompt));
      if (is_planned) plan();
      EXPECT_TRUE(comes_to_leases(1));
      if (way == 0) connector_.sent(prompt.view.id);
      if (way == 1) connector_.forget_blocks(prompt.view);
      if (way == 2) connector_.invalidated(prompt.view, 4);
      EXPECT_TRUE(comes_to_leases(0));
      EXPECT_EQ(connector_.take_transfer_params(prompt.view.id), nullptr);
      if (is_planned) connector_.completed({.transfer = TransferId{transfers_.last_id}});
    }
  }
  plan();
  EXPECT_EQ(transfers_.begun.size(), 3U) << "released blocks are in no plan";
  EXPECT_TRUE(connector_.reset());
}

}  // namespace
}  // namespace quire
