// Tests what a watch frame contains: the blocks and requests of a snapshot, and uses counted while blocks are watched. Watching changes no
// decision.
#include "quire/watch.h"

#include <algorithm>

#include "base/random.h"
#include "core/schedule/core_driver.h"
#include "support/scripted_connector.h"

namespace quire::test {
namespace {

WatchFrame watch(CoreDriver& d) {
  WatchFrame frame;
  d.core->watch(frame);
  return frame;
}

const WatchedRequest& request_in(const WatchFrame& frame, std::uint64_t id) {
  const auto found = std::ranges::find(frame.requests, RequestId{id}, &WatchedRequest::id);
  EXPECT_NE(found, frame.requests.end()) << id;
  return *found;
}

TEST(Watch, ShowsStatesAndOwnersOfBlocks) {
  CoreConfig config = sync_config(16);
  config.scheduler.max_num_batched_tokens = 8;
  config.scheduler.max_num_seqs = 1;
  CoreDriver d(config);
  Tokens prompt = CoreDriver::prompt(1, 12);
  NewRequest first = CoreDriver::request(1, prompt, 4);
  const RequestTags tags{.tenant = "them"};
  first.name = "cmpl-1";
  first.tags = &tags;
  d.add(first);
  d.add(2, 5, 4);
  d.step();
  WatchFrame frame = watch(d);
  ASSERT_EQ(frame.blocks.size(), 16U);
  EXPECT_EQ(frame.blocks[0], WatchedBlock{}) << "the null block has no owner";
  for (const BlockId block : d.blocks(1)) {
    EXPECT_EQ(frame.blocks[block.value].owner, 1U);
    EXPECT_EQ(frame.blocks[block.value].num_holders, 1U);
    EXPECT_EQ(frame.blocks[block.value].flags, WatchedBlock::kCached) << "its eight tokens fill two blocks";
  }
  ASSERT_EQ(frame.requests.size(), 2U);
  EXPECT_EQ(frame.text, "cmpl-1them");
  EXPECT_EQ(frame.requests[0].id, RequestId{1}) << "running requests come first";
  EXPECT_EQ(frame.requests[0].name_size, 6U);
  EXPECT_EQ(frame.requests[0].tenant_size, 4U);
  EXPECT_EQ(frame.requests[0].state, WatchedState::prefill);
  EXPECT_EQ(frame.requests[0].num_prompt_tokens, 12U);
  EXPECT_EQ(frame.requests[0].num_computed_tokens, 8U);
  EXPECT_EQ(frame.requests[0].num_cached_tokens, 0);
  EXPECT_EQ(frame.requests[0].num_blocks, 2U);
  EXPECT_EQ(frame.requests[1].state, WatchedState::queued);
  EXPECT_EQ(frame.requests[1].num_cached_tokens, -1);
  d.step();
  d.step();
  frame = watch(d);
  EXPECT_EQ(request_in(frame, 1).state, WatchedState::decode);
  EXPECT_EQ(request_in(frame, 1).num_tokens, 14U);
}

TEST(Watch, CountsUsesWhileItWatchesAndForgetsThemAfter) {
  CoreDriver d(sync_config(16));
  const Tokens prompt = CoreDriver::prompt(1, 9);
  EXPECT_EQ(watch(d).blocks[1], WatchedBlock{});
  const auto run = [&](std::uint64_t id) {
    d.add(CoreDriver::request(id, prompt, 1));
    const double planned_s = d.now + 1.0;
    d.step();
    return planned_s;
  };
  run(1);
  WatchFrame frame = watch(d);
  EXPECT_EQ(frame.blocks[1].num_hits, 0U);
  EXPECT_EQ(frame.blocks[1].last_use, static_cast<std::uint32_t>(d.now * 10)) << "the result frees the block";
  EXPECT_EQ(frame.blocks[1].num_holders, 0U);
  EXPECT_EQ(frame.blocks[1].flags, WatchedBlock::kCached);
  EXPECT_EQ(frame.blocks[5].last_use, 0U) << "the block was not used since the watch began";
  for (std::uint64_t id = 2; id < 5; ++id) run(id);
  frame = watch(d);
  EXPECT_EQ(frame.blocks[1].num_hits, 3U);
  EXPECT_EQ(frame.blocks[2].num_hits, 3U);
  EXPECT_EQ(frame.blocks[3].num_hits, 0U) << "the block is not full, so no lookup finds it";
  d.core->end_watch();
  run(5);
  EXPECT_EQ(watch(d).blocks[1].num_hits, 0U);
  run(6);
  EXPECT_EQ(watch(d).blocks[1].num_hits, 1U);
}

TEST(Watch, ShowsTheFirstRequestInTheBatchAsOwnerOfSharedBlocks) {
  CoreDriver d(sync_config(32));
  Tokens prompt = CoreDriver::prompt(1, 12);
  d.add(CoreDriver::request(1, prompt, 9));
  d.step();
  prompt.resize(8);
  prompt.insert(prompt.end(), {7, 8, 9, 10, 11});
  d.add(CoreDriver::request(2, prompt, 9));
  d.step();
  const WatchFrame frame = watch(d);
  const std::vector<BlockId> blocks = d.blocks(2);
  ASSERT_EQ(blocks.size(), 4U);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_EQ(frame.blocks[blocks[i].value].owner, i < 2 ? 1U : 2U) << i;
    EXPECT_EQ(frame.blocks[blocks[i].value].num_holders, i < 2 ? 2U : 1U) << i;
  }
}

TEST(Watch, MarksBlocksThatAreBeingLoaded) {
  ScriptedConnector connector;
  CoreDriver d(sync_config(16), {.connector = &connector});
  connector.matches[RequestId{1}] = {.num_tokens = 8, .load_async = true};
  d.add(1, 9, 4);
  d.step();
  const WatchFrame frame = watch(d);
  EXPECT_EQ(request_in(frame, 1).state, WatchedState::loading);
  EXPECT_EQ(frame.blocks[d.blocks(1)[0].value].owner, 1U);
}

TEST(Watch, CountsRequestsThatItDoesNotShow) {
  CoreConfig config = sync_config(16);
  config.scheduler.max_num_waiting = 3000;
  CoreDriver d(config);
  for (std::uint64_t id = 1; id <= WatchFrame::kMaxRequests + 7; ++id) d.add(id, 1, 1);
  const WatchFrame frame = watch(d);
  EXPECT_EQ(frame.requests.size(), WatchFrame::kMaxRequests);
  EXPECT_EQ(frame.num_left_out, 7U);
}

CoreConfig crowded(bool has_window) {
  CoreConfig config = sync_config(24);
  if (!has_window) return config;
  SlidingWindowSpec window;
  window.block_size = kBlockSize;
  window.sliding_window = 8;
  config.kv.groups.push_back({.layer_names = {"window"}, .spec = window, .layer_specs = {}});
  return config;
}

void expect_as_snapshot(const WatchFrame& frame, const CoreSnapshot& snapshot) {
  std::vector<std::vector<std::uint64_t>> holders(snapshot.blocks.size());
  for (const CoreSnapshot::Request& request : snapshot.requests)
    for (const auto& blocks : request.blocks)
      for (const BlockId block : blocks) holders[block.value].push_back(request.id.value);
  ASSERT_EQ(frame.blocks.size(), snapshot.blocks.size());
  for (std::size_t i = 1; i < frame.blocks.size(); ++i) {
    const WatchedBlock& block = frame.blocks[i];
    EXPECT_EQ(block.num_holders, snapshot.blocks[i].ref_count) << i;
    EXPECT_EQ((block.flags & WatchedBlock::kCached) != 0, !snapshot.blocks[i].key.empty()) << i;
    if (block.owner != WatchedBlock::kNoOwner) EXPECT_EQ(std::ranges::count(holders[i], block.owner), 1) << i;
    if (holders[i].empty()) EXPECT_EQ(block.owner, WatchedBlock::kNoOwner) << i;
  }
  EXPECT_EQ(frame.requests.size(), snapshot.running.size() + snapshot.waiting.size() + snapshot.skipped_waiting.size());
}

// Two cores receive the same calls, and one of them is watched between all calls.
TEST(Watch, ChangesNoDecisionAndShowsWhatASnapshotReports) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const CoreConfig config = crowded(seed % 2 == 1);
    CoreDriver alone(config), watched(config);
    Random random(seed);
    WatchFrame frame;
    for (std::uint64_t step = 1; step < 60; ++step) {
      if (random.below(2) == 0) {
        Tokens prompt = CoreDriver::prompt(random.below(3), 1 + static_cast<std::uint32_t>(random.below(40)));
        const auto max_tokens = static_cast<std::uint32_t>(1 + random.below(12));
        alone.add(CoreDriver::request(step, prompt, max_tokens));
        watched.add(CoreDriver::request(step, prompt, max_tokens));
      }
      watched.core->watch(frame);
      alone.step();
      watched.plan();
      watched.core->watch(frame);
      watched.apply();
      if (random.below(9) == 0) watched.core->end_watch();
      watched.core->watch(frame);
      expect_as_snapshot(frame, watched.snapshot());
      ASSERT_EQ(alone.core->checkpoint(), watched.core->checkpoint()) << "seed " << seed << ", step " << step;
    }
  }
}

}  // namespace
}  // namespace quire::test
