// Tests when a request asks a shared store for blocks, how long it waits for the answer, and what the answer changes.
#include "engine/tiers/remote_connector.h"

#include <gtest/gtest.h>

#include "engine/tiers/hashed_request.h"
#include "engine/tiers/scripted_shared_store.h"

namespace quire {
namespace {

using test::HashedRequest;
using test::small_key;

class RemoteConnectorTest : public testing::Test {
 protected:
  explicit RemoteConnectorTest(std::chrono::steady_clock::duration patience = std::chrono::hours(1))
      : connector_(OffloadConnector::create({.cpu_bytes_to_use = 8 * test::kSmallBlockBytes}, test::small_config(), test::kSmallBlockBytes)
                       .value(),
                   store_, patience) {}
  // nullopt: the request must ask again.
  std::optional<std::uint32_t> match(const HashedRequest& request, std::uint32_t num_local = 0) {
    return connector_.match(request.view, num_local).num_tokens;
  }
  void answer(std::vector<bool> has, bool is_whole = true) { store_.questions.back().over({.has = std::move(has), .is_whole = is_whole}); }

  test::ScriptedSharedStore store_;
  RemoteConnector connector_;
  const HashedRequest request_{1, 14, 1};  // with blocks 1, 2 and 3
};

TEST_F(RemoteConnectorTest, AsksOnceForEachRequestAndLoadsWhatTheStoreHas) {
  EXPECT_EQ(match(request_), std::nullopt);
  ASSERT_EQ(store_.questions.size(), 1U);
  EXPECT_EQ(store_.questions[0].names, (std::vector{small_key(1), small_key(2), small_key(3)}));
  EXPECT_TRUE(store_.questions[0].is_wanted());
  EXPECT_EQ(match(request_), std::nullopt) << "the answer has not come";
  EXPECT_EQ(store_.questions.size(), 1U);
  EXPECT_EQ(connector_.num_tracked(), 1U);
  answer({true, true, false});
  const ExternalMatch found = connector_.match(request_.view, 0);
  EXPECT_EQ(found.num_tokens, 8U);
  EXPECT_TRUE(found.load_async);
  EXPECT_FALSE(store_.questions[0].is_wanted());
  EXPECT_EQ(match(request_), 8U);
  EXPECT_EQ(store_.questions.size(), 1U);
  EXPECT_EQ(connector_.num_timed_out(), 0U);
  EXPECT_FALSE(connector_.is_learning());
  EXPECT_FALSE(connector_.finished(request_.view, {}));
  EXPECT_EQ(connector_.num_tracked(), 0U);
  EXPECT_TRUE(connector_.supports_groups() && connector_.supports_states());
}

TEST_F(RemoteConnectorTest, AsksOnlyForBlocksThatTheCacheDoesNotHave) {
  EXPECT_EQ(match(request_, 8), std::nullopt);
  EXPECT_EQ(store_.questions.at(0).names, std::vector{small_key(3)});
  EXPECT_EQ(match({2, 3, 20}), 0U) << "the prompt has no full block";
  EXPECT_EQ(match({3, 12, 30}, 12), 0U) << "the cache has all blocks";
  EXPECT_EQ(store_.questions.size(), 1U);
  EXPECT_EQ(connector_.num_tracked(), 1U);
}

TEST_F(RemoteConnectorTest, ForgetsBlocksThatTheStoreNoLongerHas) {
  for (std::uint64_t number = 1; number <= 3; ++number) connector_.offload().on_query_hit(small_key(number));
  EXPECT_EQ(match(request_), std::nullopt) << "the store may have removed the blocks";
  std::vector<TierMatch> matches;
  EXPECT_TRUE(connector_.peek(request_.view, 0, matches));
  EXPECT_EQ(matches.at(0).num_tokens, 12U) << "known without asking";
  answer({true, false, true});
  EXPECT_EQ(match(request_), 4U);
  EXPECT_FALSE(connector_.offload().ledger().contains(small_key(2)));
}

TEST_F(RemoteConnectorTest, KeepsWhatItKnowsWhenAnAnswerIsIncomplete) {
  for (std::uint64_t number = 1; number <= 2; ++number) connector_.offload().on_query_hit(small_key(number));
  EXPECT_EQ(match(request_), std::nullopt);
  answer({false, false, true}, false);
  EXPECT_EQ(match(request_), 12U);
  EXPECT_EQ(connector_.num_timed_out(), 1U);
}

TEST_F(RemoteConnectorTest, DropsTheQuestionOfARequestThatHasEnded) {
  EXPECT_EQ(match(request_), std::nullopt);
  connector_.finished(request_.view, {});
  EXPECT_FALSE(store_.questions[0].is_wanted());
  answer({true, true, true});
  EXPECT_FALSE(connector_.offload().ledger().contains(small_key(1)));
}

TEST_F(RemoteConnectorTest, AsksNothingWhileLoadsAreLeftOut) {
  connector_.serve({.loads = false, .stores = true});
  EXPECT_EQ(match(request_), 0U);
  EXPECT_TRUE(store_.questions.empty());
  connector_.serve({});
  EXPECT_EQ(match(request_), std::nullopt);
  EXPECT_EQ(store_.questions.size(), 1U);
}

TEST_F(RemoteConnectorTest, AsksNothingAfterAReset) {
  EXPECT_EQ(match(request_), std::nullopt);
  EXPECT_TRUE(connector_.reset());
  EXPECT_FALSE(store_.questions[0].is_wanted());
  EXPECT_EQ(match(request_), 0U);
  EXPECT_EQ(match({2, 9, 20}), 0U);
  EXPECT_EQ(store_.questions.size(), 1U);
  EXPECT_EQ(connector_.num_timed_out(), 0U);
}

TEST_F(RemoteConnectorTest, MarksTheBlocksOfARequestWithBadValues) {
  for (std::uint64_t number = 1; number <= 4; ++number) connector_.offload().on_query_hit(small_key(number));
  connector_.forget_blocks(request_.view);
  EXPECT_EQ(store_.untrusted, (std::vector{small_key(1), small_key(2), small_key(3)}));
  EXPECT_FALSE(connector_.offload().ledger().contains(small_key(1)));
  EXPECT_TRUE(connector_.offload().ledger().contains(small_key(4)));
}

class ImpatientConnectorTest : public RemoteConnectorTest {
 protected:
  ImpatientConnectorTest() : RemoteConnectorTest(std::chrono::steady_clock::duration(0)) {}
};

TEST_F(ImpatientConnectorTest, WaitsNoLongerThanItsPatience) {
  EXPECT_EQ(match(request_), std::nullopt);
  EXPECT_EQ(match(request_), 0U);
  EXPECT_EQ(connector_.num_timed_out(), 1U);
  EXPECT_FALSE(store_.questions[0].is_wanted());
  answer({true, true, true});
  EXPECT_EQ(match(request_), 0U) << "a late answer changes nothing";
  EXPECT_EQ(connector_.num_timed_out(), 1U);
}

TEST_F(ImpatientConnectorTest, TakesAnAnswerThatCameBeforeItIsAskedAgain) {
  EXPECT_EQ(match(request_), std::nullopt);
  answer({true, false, false});
  EXPECT_EQ(match(request_), 4U);
  EXPECT_EQ(connector_.num_timed_out(), 0U);
}

}  // namespace
}  // namespace quire
