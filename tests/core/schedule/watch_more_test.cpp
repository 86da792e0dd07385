// Continues watch_test.cpp: pins, frames that are filled again, and hashes that are removed while blocks are watched.
#include <algorithm>
#include <numeric>

#include "core/schedule/requests/turns.h"
#include "quire/watch.h"
#include "support/scripted_connector.h"

namespace quire::test {
namespace {

TEST(WatchMore, ShowsAPinnedRequestWithItsBlocks) {
  CoreDriver d(continuum_config(32));
  add_turn(d, 1, 8, {.job = "job", .tool = "ls", .tenant = "them"});
  d.step();
  ASSERT_EQ(pinned(d), Ids{1});
  const std::vector<BlockId> blocks = d.blocks(1);
  ASSERT_FALSE(blocks.empty());
  d.add(2, 5, 4);
  WatchFrame frame;
  d.core->watch(frame);
  ASSERT_EQ(frame.requests.size(), 2U);
  EXPECT_EQ(frame.requests[0].id, RequestId{2}) << "pinned requests come last";
  EXPECT_EQ(frame.requests[1].id, RequestId{1});
  EXPECT_EQ(frame.requests[1].state, WatchedState::pinned);
  EXPECT_EQ(frame.requests[1].num_blocks, blocks.size());
  EXPECT_EQ(frame.requests[1].num_prompt_tokens, 8U);
  EXPECT_EQ(frame.text, "them");
  for (const BlockId block : blocks) EXPECT_EQ(frame.blocks[block.value].owner, 1U);
  EXPECT_EQ(frame.num_left_out, 0U);
}

TEST(WatchMore, FillsAFrameAgain) {
  CoreDriver d(sync_config());
  Tokens prompt = CoreDriver::prompt(1, 12);
  NewRequest request = CoreDriver::request(1, prompt, 4);
  const RequestTags tags{.tenant = "them"};
  request.name = "cmpl-1";
  request.tags = &tags;
  d.add(request);
  d.step();
  WatchFrame frame, other;
  d.core->watch(frame);
  d.core->watch(frame);
  d.core->watch(other);
  EXPECT_EQ(frame.text, "cmpl-1them");
  EXPECT_EQ(frame.requests.size(), 1U);
  EXPECT_EQ(frame.blocks, other.blocks);
  frame.num_left_out = 7;
  d.core->finish(RequestId{1}, RequestStatus::finished_aborted);
  d.core->watch(frame);
  EXPECT_EQ(frame.text, "");
  EXPECT_TRUE(frame.requests.empty());
  EXPECT_EQ(frame.num_left_out, 0U);
  for (const WatchedBlock& block : frame.blocks) EXPECT_EQ(block.owner, WatchedBlock::kNoOwner);
}

TEST(WatchMore, ShowsEachRequestAsItsView) {
  CoreConfig config = sync_config(24);
  config.scheduler.max_num_batched_tokens = 12;
  CoreDriver d(config);
  for (std::uint64_t id = 1; id <= 6; ++id) d.add(id, 3 + static_cast<std::uint32_t>(id) * 2, 9);
  WatchFrame frame;
  bool has_preempted = false;
  for (int i = 0; i < 40; ++i) {
    d.step();
    d.core->watch(frame);
    const CoreSnapshot snapshot = d.snapshot();
    for (const WatchedRequest& shown : frame.requests) {
      const bool is_chunk = std::ranges::find(snapshot.requests, shown.id, &CoreSnapshot::Request::id)->is_prefill_chunk;
      const RequestView view = d.view(shown.id.value);
      EXPECT_EQ(shown.num_prompt_tokens, view.num_prompt_tokens);
      EXPECT_EQ(shown.num_tokens, view.tokens.size());
      EXPECT_EQ(shown.num_computed_tokens, view.num_computed_tokens);
      EXPECT_EQ(shown.num_preemptions, view.num_preemptions);
      EXPECT_EQ(shown.num_blocks, d.blocks(shown.id.value).size());
      EXPECT_EQ(shown.arrival_s, static_cast<double>(shown.id.value));
      const bool decodes = view.status == RequestStatus::running && !is_chunk && view.tokens.size() > view.num_prompt_tokens;
      EXPECT_EQ(shown.state == WatchedState::decode, decodes);
      EXPECT_EQ(shown.state == WatchedState::prefill, view.status == RequestStatus::running && !decodes);
      EXPECT_EQ(shown.state == WatchedState::preempted, view.status == RequestStatus::preempted);
      EXPECT_EQ(shown.state == WatchedState::queued, view.status == RequestStatus::waiting);
      has_preempted |= view.status == RequestStatus::preempted;
    }
  }
  EXPECT_TRUE(has_preempted);
}

// Request 2 computes a block that request 1 has computed. Request 3 finds the block of request 1, followed by a block of request 2.
TEST(WatchMore, StopsTheSearchForOwnersAtABlockThatHasAnOwner) {
  CoreDriver d(sync_config());
  const Tokens longer = CoreDriver::prompt(1, 9);
  d.add(CoreDriver::request(1, Tokens(longer.begin(), longer.begin() + 5), 9));
  NewRequest unread = CoreDriver::request(2, longer, 9);
  unread.skip_reading_prefix_cache = true;
  d.add(unread);
  d.step();
  const BlockId first = d.blocks(1).at(0);
  d.core->finish(RequestId{1}, RequestStatus::finished_aborted);
  d.add(CoreDriver::request(3, longer, 9));
  d.step();
  const std::vector<BlockId> of_2 = d.blocks(2), of_3 = d.blocks(3);
  ASSERT_EQ(of_3.at(0), first);
  ASSERT_EQ(of_3.at(1), of_2.at(1));
  ASSERT_NE(of_2.at(0), first);
  WatchFrame frame;
  d.core->watch(frame);
  for (const BlockId block : of_2) EXPECT_EQ(frame.blocks[block.value].owner, 2U);
  EXPECT_EQ(frame.blocks[of_3.at(2).value].owner, 3U);
  EXPECT_EQ(frame.blocks[first.value].owner, WatchedBlock::kNoOwner) << "the other holder of the block has ended";
}

TEST(WatchMore, ShowsABlockWithoutAHashAsNotCached) {
  ScriptedConnector connector;
  connector.matches[RequestId{1}] = {.num_tokens = 8, .load_async = false};
  CoreConfig config = sync_config(16);
  config.kv_load_failure = KvLoadFailurePolicy::fail;
  CoreDriver d(config, {.connector = &connector});
  WatchFrame frame;
  d.core->watch(frame);
  d.add(1, 14, 4);
  d.plan();
  const std::vector<BlockId> blocks = d.blocks(1);
  d.core->watch(frame);
  ASSERT_EQ(blocks.size(), 4U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(frame.blocks[blocks[i].value].flags, WatchedBlock::kCached) << i;
  const std::vector<BlockId> invalid = {blocks[1]};
  d.apply({}, {.step = {}, .has_connector_output = true, .invalid_blocks = invalid});
  EXPECT_FALSE(d.known(1));
  d.core->watch(frame);
  EXPECT_EQ(frame.blocks[blocks[0].value].flags, WatchedBlock::kCached);
  for (std::size_t i = 1; i < 4; ++i) EXPECT_EQ(frame.blocks[blocks[i].value].flags, 0U) << i;
  EXPECT_TRUE(d.core->reset_prefix_cache().value());
  d.core->watch(frame);
  for (const WatchedBlock& block : frame.blocks) EXPECT_EQ(block.flags, 0U);
}

// The test has more requests than are fetched ahead.
TEST(Visit, VisitsRunningAndWaitingRequestsInQueueOrder) {
  CoreConfig config = sync_config(64);
  config.scheduler.max_num_seqs = 20;
  CoreDriver d(config);
  for (std::uint64_t id = 1; id <= 25; ++id) d.add(id, 1 + static_cast<std::uint32_t>(id % 3), 4);
  d.step();
  Ids running, waiting;
  d.core->visit([&](QueueKind queue, const RequestView& view) {
    EXPECT_EQ(view.tokens.size(), d.view(view.id.value).tokens.size());
    (queue == QueueKind::running ? running : waiting).push_back(view.id.value);
  });
  Ids first(20), last(5);
  std::iota(first.begin(), first.end(), std::uint64_t{1});
  std::iota(last.begin(), last.end(), std::uint64_t{21});
  EXPECT_EQ(running, first);
  EXPECT_EQ(waiting, last);
}

}  // namespace
}  // namespace quire::test
