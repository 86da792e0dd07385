// Tests the contents of the frames of /v1/watch: changed blocks, counters, and causes of waiting.
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "server/operate/watch.h"
#include "server/played_router.h"

namespace quire {
namespace {

namespace json = boost::json;

TEST(WatchedRuns, SkipUnchangedBlocks) {
  const WatchedBlock used{.owner = 7, .last_use = 30, .num_hits = 300, .num_holders = 2, .flags = 5};
  std::vector<WatchedBlock> blocks = {{}, used, used, {}, used};
  const auto bytes_of = [&](const std::vector<std::uint32_t>& changed, std::uint32_t since, double now_s) {
    std::string shown;
    for (const char c : changed_blocks(blocks, changed, since, now_s)) shown += std::to_string(static_cast<unsigned char>(c)) + " ";
    return shown;
  };
  // Skipped, length, flags, holders, hits in two bytes, owner + 1, age + 1.
  EXPECT_EQ(bytes_of({0, 3, 3, 0, 3}, 2, 4.0), "1 2 5 2 172 2 8 11 1 1 5 2 172 2 8 11 ");
  EXPECT_EQ(bytes_of({0, 3, 3, 0, 3}, 3, 4.0), "") << "nothing has changed since";
  EXPECT_EQ(bytes_of({0, 3, 4, 0, 3}, 3, 4.0), "2 1 5 2 172 2 8 11 ");
  EXPECT_EQ(bytes_of({1, 0, 0, 0, 0}, 0, 4.0), "0 1 0 0 0 0 0 ") << "a block without owner and use";
  EXPECT_EQ(bytes_of({0, 1, 0, 0, 0}, 0, 2.0), "1 1 5 2 172 2 8 1 ") << "a use in the future has no age";
  blocks[4].num_hits = 127;
  EXPECT_EQ(bytes_of({0, 0, 0, 0, 1}, 0, 3.0), "4 1 5 2 127 8 1 ");
  blocks[4].num_hits = 128;
  EXPECT_EQ(bytes_of({0, 0, 0, 0, 1}, 0, 3.0), "4 1 5 2 128 1 8 1 ");
}

class WatchAnswers : public PlayedRouter {
 protected:
  json::object frame_of(const std::string& query = {}) {
    HttpRequest request;
    request.method = "GET";
    request.target = "/v1/watch" + query;
    const Reply reply = router_.handle(request, [] {});
    run_posted();
    return json::parse(reply.pending == nullptr ? reply.response.body : reply.pending->reply.value().response.body).as_object();
  }
  json::object later_frame(const std::string& query = {}) {
    std::this_thread::sleep_for(WatchRoute::kInterval + std::chrono::milliseconds(5));
    return frame_of(query);
  }
};

TEST_F(WatchAnswers, ReportABlockThatIsNewInThisFrame) {
  const WatchedBlock used{.owner = 7, .last_use = 30, .num_hits = 3, .num_holders = 1, .flags = WatchedBlock::kCached};
  engine_.watched.now_s = 10.0;
  engine_.watched.blocks = {used, used, used};
  (void)frame_of();
  (void)later_frame();
  engine_.watched.blocks.resize(2);
  const json::object small = later_frame();
  EXPECT_EQ(small.at("blocks").at("count"), 2);
  engine_.watched.blocks = {used, used, used};
  const json::object large = later_frame("?since=" + std::to_string(small.at("frame").to_number<std::uint64_t>()));
  EXPECT_EQ(large.at("since"), small.at("frame"));
  EXPECT_EQ(large.at("blocks").at("count"), 3);
  EXPECT_NE(large.at("blocks").at("changes"), "") << "the third block was not in the frame before";
}

TEST_F(WatchAnswers, HaveAllCountersOfTheEngine) {
  EngineStats& stats = engine_.told_stats();
  std::uint64_t next = 1;
  for (auto* const counter : {&stats.num_steps, &stats.num_forks, &stats.num_preemptions, &stats.num_evicted_blocks, &stats.prompt_tokens,
                              &stats.prompt_tokens_cached, &stats.generation_tokens, &stats.prefix_cache_queries, &stats.prefix_cache_hits,
                              &stats.external_prefix_cache_queries, &stats.external_prefix_cache_hits, &stats.finished_stop,
                              &stats.finished_repetition, &stats.finished_length, &stats.finished_abort, &stats.finished_error})
    *counter = next++;
  stats.num_running = 21;
  stats.num_waiting = 22;
  stats.num_pinned = 23;
  stats.num_blocks = 24;
  stats.num_free_blocks = 25;
  stats.num_open_transfers = 26;
  stats.is_paused = true;
  stats.is_admission_stopped = true;
  stats.explained.missed_tokens[static_cast<std::size_t>(MissCause::diverged)] = 31;
  stats.explained.waited_s[static_cast<std::size_t>(EventCause::paused)] = 1.5;
  stats.explained.preemptions[static_cast<std::size_t>(EventCause::above_high)] = 33;
  stats.kv_swap.emplace();
  stats.kv_swap->num_places = 41;
  stats.kv_swap->num_used_slots = 42;
  stats.kv_swap->num_out_blocks = 43;
  stats.kv_swap->num_in_blocks = 44;
  stats.kv_swap->place_bytes = 45;
  engine_.watched.now_s = 10.25;
  const json::object frame = frame_of();
  EXPECT_EQ(frame.at("engine"), json::parse(R"({"running":21,"waiting":22,"pinned":23,"blocks":24,"free_blocks":25,"open_transfers":26,
      "paused":true,"admission_stopped":true,"steps":1,"forks":2,"preemptions":3,"evicted_blocks":4,"prompt_tokens":5,
      "prompt_tokens_cached":6,"generation_tokens":7,"query_tokens":8,"hit_tokens":9,"tier_query_tokens":10,"tier_hit_tokens":11,
      "ended":{"stop":25,"length":14,"abort":15,"error":16}})"));
  EXPECT_EQ(frame.at("swap"), json::parse(R"({"slots":41,"used_slots":42,"out_blocks":43,"in_blocks":44,"slot_bytes":45})"));
  EXPECT_EQ(frame.at("missed_tokens"), json::parse(R"({"diverged":31})"));
  EXPECT_EQ(frame.at("waited_s"), json::parse(R"({"paused":1.5})"));
  EXPECT_EQ(frame.at("preemptions_by_cause"), json::parse(R"({"pressure":33})"));
  EXPECT_EQ(frame.at("interval_ms"), 250);
  EXPECT_EQ(frame.at("time_s"), 10.25);
  EXPECT_EQ(frame.at("requests_left_out"), 0);
  EXPECT_EQ(frame.at("block_size"), engine_.options().cache.block_size);
}

TEST_F(WatchAnswers, NameTheCauseOnlyOfRequestsThatWait) {
  const char* const states[] = {"queued", "grammar", "loading", "input", "preempted", "prefill", "decode", "pinned"};
  for (const std::uint32_t explained_requests : {0U, 1U}) {
    engine_.set_explained_requests(explained_requests);
    engine_.watched.requests.clear();
    for (std::size_t i = 0; i < kNumWatchedStates; ++i)
      engine_.watched.requests.push_back({.id = RequestId{i}, .state = static_cast<WatchedState>(i), .waits_for = EventCause::paused});
    const json::object frame = explained_requests == 0 ? frame_of() : later_frame();
    const json::array& rows = frame.at("requests").as_array();
    ASSERT_EQ(rows.size(), kNumWatchedStates);
    for (std::size_t i = 0; i < kNumWatchedStates; ++i) {
      EXPECT_EQ(rows[i].as_array()[3], states[i]);
      EXPECT_EQ(rows[i].as_array()[4], explained_requests > 0 && i < 5 ? json::value("paused") : json::value(nullptr)) << states[i];
    }
  }
}

TEST_F(WatchAnswers, SayWhatIsWrongWithTheFrameNumber) {
  const json::object refused = frame_of("?since=x");
  EXPECT_EQ(refused.at("error").at("message"),
            "since: is not a frame number; send the `frame` of the last answer, or leave it out for all blocks");
}

}  // namespace
}  // namespace quire
