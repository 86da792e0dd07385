// Tests every field that the operators' routes write, and each of their errors.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/operate/admin.h"
#include "server/operate/cache_curve.h"
#include "server/operate/cache_status.h"
#include "server/operate/explanation.h"
#include "server/operate/metrics.h"
#include "server/operate/watch.h"
#include "server/played_router.h"
#include "server/running_server.h"

namespace quire::operate_parts_test {
namespace {

namespace json = boost::json;

RequestExplanation full_explanation() {
  RequestExplanation facts;
  facts.admitted_s = 2.0;
  facts.ended_s = 3.0;
  facts.waits = {{EventCause::no_slot, 1.5, 3}, {EventCause::none, 0.5, 0}};
  facts.later_waits = {{EventCause::input, 0.25, 1}};
  facts.blocked_by_name = "front";
  facts.num_tokens = 40;
  facts.num_cached = 10;
  facts.num_external = 4;
  facts.num_shared = 2;
  facts.num_missed = 24;
  facts.missed[static_cast<std::size_t>(MissCause::evicted)] = 16;
  facts.missed[static_cast<std::size_t>(MissCause::diverged)] = 8;
  facts.misses = {{.cause = MissCause::evicted, .first_token = 16, .num_tokens = 16, .step = StepId{9}, .by_name = "taker"},
                  {.cause = MissCause::forgotten, .first_token = 1, .num_tokens = 2, .step = StepId{7}, .by_name = "taker"},
                  {.cause = MissCause::reset, .first_token = 3, .num_tokens = 4, .step = StepId{8}},
                  {.cause = MissCause::diverged,
                   .first_token = 32,
                   .num_tokens = 8,
                   .step = StepId{5},
                   .differs_at = 33,
                   .before = {'a', 'b'},
                   .own = {'c'},
                   .stored = {'d'}}};
  facts.num_preemptions = 2;
  facts.preemptions = {{.step = StepId{11},
                        .cause = EventCause::lack_of_blocks,
                        .by_name = "other",
                        .num_missing_blocks = 2,
                        .swapped_out = true,
                        .num_lost_tokens = 40}};
  facts.remembered_since = StepId{1};
  return facts;
}

json::value explained(const RequestExplanation& facts, bool includes_other_prompts = true) {
  const auto tokenizer = Tokenizer::create(*byte_model().tokenizer).value();
  const json::value whole = json::parse(explanation_json("id", std::vector{facts}, *tokenizer, includes_other_prompts));
  EXPECT_EQ(whole.at("object"), "request.explanation");
  EXPECT_EQ(whole.at("id"), "id");
  EXPECT_EQ(whole.at("requests").as_array().size(), 1U);
  return whole.at("requests").as_array().at(0);
}

TEST(Explanations, HaveAllFacts) {
  json::value wanted = json::parse(R"~({"state":"ended","waited_s":2.0,"waits":[
      {"cause":"no_slot","text":"all batch slots were in use (--max-num-seqs)","seconds":1.5,"steps":3},
      {"cause":"next_step","text":"it arrived while a step was running","seconds":0.5,"steps":0}],"waited_again_s":0.25,"waits_again":[
      {"cause":"input","text":"it is a session and was waiting for its next input","seconds":0.25,"steps":1}],"blocked_by":"front",
      "behind":"front","prompt":{"tokens":40,"cached":10,"from_tiers":4,"shared":2,"missed":24,
      "missed_by_cause":{"diverged":8,"evicted":16},"remembered_since_step":1},"misses":[
      {"cause":"evicted","text":"their blocks were evicted for other requests","first_token":16,"tokens":16,"step":9,"by":"taker"},
      {"cause":"forgotten","text":"their blocks were removed because the content was in doubt","first_token":1,"tokens":2,"step":7},
      {"cause":"reset","text":"the prefix cache was reset after they were stored","first_token":3,"tokens":4,"step":8},
      {"cause":"diverged","text":"the prompt diverges from the cached prefix","first_token":32,"tokens":8,"differs_at":33,
       "before":"ab","own":"c","stored":"d"}],"num_preemptions":2,"preemptions":[
      {"cause":"lack_of_blocks","text":"the KV cache had too few free blocks (--kv-cache-memory)","step":11,"by":"other",
       "missing_blocks":2,"swapped_out":true,"lost_tokens":40}]})~");
  wanted.as_object().emplace("summary",
                             "waited 2.000 s, most of it because all batch slots were in use (--max-num-seqs); 16 of 40 prompt tokens did "
                             "not need to be computed, 16 were missed because their blocks were evicted for other requests; preempted 2 "
                             "times");
  EXPECT_EQ(explained(full_explanation()), wanted) << json::serialize(explained(full_explanation()));
  wanted.at("misses").as_array()[3].as_object().erase("stored");
  EXPECT_EQ(explained(full_explanation(), false), wanted) << "stored tokens may be another tenant's text";
}

TEST(Explanations, LeaveOutWhatIsNotKnown) {
  RequestExplanation facts;
  EXPECT_EQ(explained(facts), json::parse(R"({"state":"waiting","summary":"waited 0.000 s","waited_s":0.0,"waits":[],"waited_again_s":0.0,
      "waits_again":[],"blocked_by":null,"behind":null,"prompt":{"tokens":0,"cached":0,"from_tiers":0,"shared":0,"missed":0,
      "missed_by_cause":{}},"misses":[],"num_preemptions":0,"preemptions":[]})"));
  facts.admitted_s = 1.0;
  facts.waits = {{EventCause::no_slot, 0.0, 1}};
  facts.num_tokens = 3;
  facts.num_preemptions = 1;
  EXPECT_EQ(explained(facts).at("state"), "admitted");
  EXPECT_EQ(explained(facts).at("summary"), "waited 0.000 s; 3 of 3 prompt tokens did not need to be computed; preempted 1 time")
      << "a wait of no time has no cause";
  facts.num_missed = 1;
  facts.missed[0] = 1;
  facts.preemptions.emplace_back();
  EXPECT_EQ(
      explained(facts).at("summary"),
      "waited 0.000 s; 2 of 3 prompt tokens did not need to be computed, 1 were missed because they were not computed before, or this "
      "is no longer remembered; preempted 1 time");
  EXPECT_TRUE(explained(facts).at("preemptions").as_array()[0].at("by").is_null());
}

TEST(Explanations, NameEveryCause) {
  const char* const events[] = {"next_step",     "lack_of_blocks", "expired", "replaced",        "job_over", "reset",     "pressure",
                                "pressure_over", "no_place",       "no_gain", "failed_transfer", "paused",   "no_tokens", "no_slot",
                                "preempting",    "grammar",        "loading", "connector",       "adapter",  "input"};
  for (std::size_t i = 0; i < kNumEventCauses; ++i) EXPECT_EQ(name_of(static_cast<EventCause>(i)), events[i]);
  const char* const misses[] = {"never_stored", "diverged",    "evicted",       "forgotten",   "reset",        "behind_a_miss",
                                "last_token",   "other_group", "partial_block", "load_failed", "not_looked_up"};
  for (std::size_t i = 0; i < kNumMissCauses; ++i) EXPECT_EQ(name_of(static_cast<MissCause>(i)), misses[i]);
}

using ExplainRoute = RunningServer;

TEST_F(ExplainRoute, SaysWhyARequestIsNotExplained) {
  start();
  const ClientResponse answer = HttpClient(port).get("/v1/requests/x/explain");
  EXPECT_EQ(answer.status, 404U);
  EXPECT_EQ(answer.error_message(),
            "id: the request is unknown, or ended too long ago; ask sooner, or start the server with a larger --explained-requests");
}

HttpRequest request_to(const std::string& target) {
  HttpRequest request;
  request.target = target;
  request.is_local = true;
  return request;
}

template <class Value>
std::string problem_of(const Result<Value>& parsed) {
  return parsed ? "accepted" : parsed.error().to_string();
}

TEST(OperatorCalls, AreParsedWithTheirDefaults) {
  const auto pause = [](const std::string& query) {
    const auto parsed = parse_pause(request_to("/pause" + query));
    if (!parsed) return parsed.error().to_string();
    const char* const modes[] = {"abort", "wait", "keep"};
    std::string mode = "?";
    for (const auto& [value, name] : {std::pair(PauseMode::abort, modes[0]), {PauseMode::wait, modes[1]}, {PauseMode::keep, modes[2]}})
      if (parsed->mode == value) mode = name;
    return mode + (parsed->clear_cache ? " clear" : " leave");
  };
  EXPECT_EQ(pause(""), "abort clear");
  EXPECT_EQ(pause("?mode=abort&clear_cache=false"), "abort leave");
  EXPECT_EQ(pause("?mode=keep"), "keep clear");
  EXPECT_EQ(pause("?mode=keep&wait_for_inflight_requests=1"), "wait clear");
  EXPECT_EQ(pause("?mode=keep&wait_for_inflight_requests=0"), "keep clear");
  EXPECT_EQ(pause("?mode=stop"), "mode: is 'stop'; use abort, wait or keep");
  EXPECT_EQ(pause("?mode=" + std::string(200, 'x')), "mode: is '" + std::string(100, 'x') + "'; use abort, wait or keep");
  EXPECT_EQ(pause("?mod=keep"), "mod: is not a parameter of this endpoint; did you mean 'mode'?");
  const auto reset = [](const std::string& query) {
    const auto parsed = parse_cache_reset(request_to("/reset_prefix_cache" + query));
    if (!parsed) return parsed.error().to_string();
    return std::string(parsed->preempt_running ? "running " : "") + (parsed->external ? "external" : "");
  };
  EXPECT_EQ(reset(""), "");
  EXPECT_EQ(reset("?reset_running_requests=true"), "running ");
  EXPECT_EQ(reset("?reset_external=true"), "external");
  EXPECT_EQ(reset("?reset_external=x"), "reset_external: is 'x'; use true or false");
  EXPECT_EQ(problem_of(parse_no_parameters(request_to("/x"))), "accepted");
  EXPECT_EQ(problem_of(parse_no_parameters(request_to("/x?a=1"))), "a: is not a parameter of this endpoint; known parameters: ");
}

TEST(OperatorCalls, AreForThisMachine) {
  const auto admitted = [](bool is_local, bool has_origin, const ServerOptions& options) {
    HttpRequest request = request_to("/pause");
    request.is_local = is_local;
    if (has_origin) request.origin = "http://localhost";
    return problem_of(admit_operator(request, options));
  };
  const std::string remote =
      "this endpoint accepts only direct requests from the server's own machine; send the request from that machine without a proxy, or "
      "start the server with --api-key and --allow-remote-admin";
  const std::string page = "Origin: this endpoint does not accept requests from web pages; use curl, or start the server with --api-key";
  EXPECT_EQ(admitted(true, false, {}), "accepted");
  EXPECT_EQ(admitted(false, false, {}), remote);
  EXPECT_EQ(admitted(false, false, {.api_key = "k"}), remote);
  EXPECT_EQ(admitted(false, false, {.api_key = "k", .allow_remote_admin = true}), "accepted");
  EXPECT_EQ(admitted(true, true, {}), page);
  EXPECT_EQ(admitted(true, true, {.api_key = "k"}), "accepted");
}

TEST(OperatorCalls, AnswerWithVllmsBodies) {
  EXPECT_EQ(cache_reset_body(true), R"({"reset":true})");
  EXPECT_EQ(cache_reset_body(false),
            R"({"reset":false,"reason":"requests hold blocks; wait for them, or send reset_running_requests=true"})");
  EXPECT_EQ(encoder_reset_body(true), R"({"reset":true})");
  EXPECT_EQ(encoder_reset_body(false), R"({"reset":false,"reason":"the model does not support images, so no encoder output is cached"})");
  EXPECT_EQ(pause_body(true), R"({"status":"paused"})");
  EXPECT_EQ(pause_body(false), R"({"status":"resumed"})");
  SavedJournal saved;
  saved.path = "/a";
  saved.num_bytes = 7;
  saved.num_steps = 8;
  saved.covered_s = 1.5;
  EXPECT_EQ(json::parse(saved_journal_body(saved)), json::parse(R"({"path":"/a","bytes":7,"steps":8,"seconds":1.5})"));
}

EngineHitRateCurve curve_of_sizes() {
  const auto counts = [](std::string tenant, std::vector<double> hits) {
    return CurveCounts{
        .tenant = std::move(tenant), .num_requests = 4, .query_tokens = 1000, .found_tokens = 500, .hit_tokens = std::move(hits)};
  };
  return {.curve = {.num_blocks = 10,
                    .block_size = 16,
                    .sizes = {5, 10, 20},
                    .seconds = 100.0,
                    .all = counts({}, {300, 480, 780}),
                    .tenants = {counts({}, {0, 1, 2}), counts("us", {300, 380, 580})}},
          .costs = {.block_bytes = 1024, .prefill_tokens_per_s = 0.0, .named = {}}};
}

TEST(CurveAnswers, EndWhereTheCurveEnds) {
  const EngineHitRateCurve known = curve_of_sizes();
  const auto more = [&](std::uint64_t bytes) {
    const auto text = cache_curve_json(known, {.tenant = {}, .more_bytes = bytes});
    if (!text) return text.error().to_string();
    const json::value row = json::parse(*text).at("curves").as_array().at(0).at("more");
    return json::serialize(row.at("blocks")) + " " + json::serialize(row.at("bytes"));
  };
  EXPECT_EQ(more(0), "10 10240");
  EXPECT_EQ(more(1023), "10 10240") << "less than a block";
  EXPECT_EQ(more(1024), "11 11264");
  EXPECT_EQ(more(10 * 1024), "20 20480");
  EXPECT_EQ(more(10 * 1024 + 1), "more_bytes: is 10241, beyond the end of the curve; send at most 10240");
  const json::value all = json::parse(cache_curve_json(known, {}).value());
  EXPECT_EQ(all.at("object"), "cache.curve");
  EXPECT_EQ(all.at("block_size"), 16);
  EXPECT_EQ(all.at("block_bytes"), 1024);
  EXPECT_EQ(all.at("blocks"), 10);
  EXPECT_EQ(all.at("seconds"), 100);
  EXPECT_TRUE(all.at("prefill_tokens_per_s").is_null());
  ASSERT_EQ(all.at("curves").as_array().size(), 2U) << "requests without a tenant have no separate curve";
  EXPECT_TRUE(all.at("curves").as_array()[0].at("tenant").is_null());
  EXPECT_EQ(all.at("curves").as_array()[1].at("tenant"), "us");
  EXPECT_FALSE(all.at("curves").as_array()[0].as_object().contains("more"));
  EXPECT_EQ(all.at("curves").as_array()[0].at("requests").to_number<int>(), 4);
  EXPECT_EQ(all.at("curves").as_array()[0].at("prompt_tokens").to_number<int>(), 1000);
  EXPECT_EQ(all.at("curves").as_array()[0].at("found_tokens").to_number<int>(), 500);
  const json::value own = json::parse(cache_curve_json(known, {.tenant = "us", .more_bytes = {}}).value());
  ASSERT_EQ(own.at("curves").as_array().size(), 1U);
  EXPECT_EQ(own.at("curves").as_array()[0].at("tenant"), "us");
}

TEST(CacheStatusAnswer, HasTheBlocksOfMemoryAndTiers) {
  EngineStats stats;
  stats.num_blocks = 10;
  stats.num_free_blocks = 4;
  stats.prefix_cache_queries = 100;
  stats.prefix_cache_hits = 60;
  stats.num_evicted_blocks = 3;
  stats.kv_tiers = {{.name = "disk", .num_places = 9, .num_used_slots = 4, .bytes_loaded = 77}};
  const json::value status = json::parse(cache_status(stats, 16));
  EXPECT_EQ(status.at("object"), "cache");
  EXPECT_EQ(status.at("memory"), json::parse(R"({"block_size":16,"blocks":10,"free_blocks":4,"query_tokens":100,"hit_tokens":60,
      "evicted_blocks":3})"));
  const json::object& tier = status.at("tiers").as_array().at(0).as_object();
  EXPECT_EQ(tier.at("tier"), "disk");
  EXPECT_EQ(tier.at("loaded_bytes"), 77);
  for (const auto& [name, value] : tier) {
    EXPECT_FALSE(std::string_view(name).contains("quire:")) << name;
    EXPECT_FALSE(std::string_view(name).ends_with("_total")) << name;
  }
}

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

class OperateRoutes : public RunningServer {
 protected:
  ClientResponse get(const std::string& path) { return HttpClient(port).get(path); }
};

TEST_F(OperateRoutes, AnswerWithTheirBodiesAndHeaders) {
  engine.answer_with("x");
  start();
  EXPECT_EQ(get("/health").body, R"({"status":"ok"})");
  EXPECT_EQ(get("/ready").body, R"({"status":"ready"})");
  EXPECT_EQ(get("/is_paused").body, R"({"is_paused":false})");
  EXPECT_EQ(post("/reset_mm_cache", "").body,
            R"({"reset":false,"reason":"decoded images are not cached; POST /reset_encoder_cache clears the encoder outputs"})");
  EXPECT_EQ(post("/reset_mm_cache?x=1", "").status, 400U);
  for (const char* path : {"/", "/docs", "/dashboard"}) {
    const ClientResponse page = get(path);
    EXPECT_EQ(page.status, 200U);
    EXPECT_EQ(page.header("Content-Type"), "text/html; charset=utf-8");
    EXPECT_EQ(page.header("Cache-Control"), "no-cache");
    EXPECT_EQ(page.header("X-Content-Type-Options"), "nosniff");
    EXPECT_TRUE(page.header("Content-Security-Policy").starts_with("default-src 'none'; ")) << page.head;
    EXPECT_TRUE(page.header("Content-Security-Policy").ends_with("frame-ancestors 'none'")) << page.head;
  }
  EXPECT_EQ(get("/metrics").header("Content-Type"), "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_EQ(get("/health").header("Content-Type"), "application/json");
  engine.set_paused(true);
  const ClientResponse paused = get("/ready");
  EXPECT_EQ(paused.status, 503U);
  EXPECT_EQ(paused.error_message(), "the engine is paused; send POST /resume");
  EXPECT_EQ(paused.header("Retry-After"), "1");
  EXPECT_EQ(get("/is_paused").body, R"({"is_paused":true})");
  engine.stop(0.0);
  EXPECT_EQ(get("/ready").error_message(), "the engine has been stopped; restart the server");
  EXPECT_EQ(get("/ready").status, 503U);
}

TEST_F(OperateRoutes, RefuseWrongAdapterCalls) {
  start({.served_model_aliases = {"alias"}, .allow_runtime_lora_updating = true});
  const auto load = [&](const std::string& body) { return post("/v1/load_lora_adapter", body).error_message(); };
  const auto unload = [&](const std::string& body) { return post("/v1/unload_lora_adapter", body).error_message(); };
  EXPECT_EQ(load(R"({"lora_path":"p"})"), "lora_name: Both 'lora_name' and 'lora_path' must be provided.");
  EXPECT_EQ(load(R"({"lora_name":"a"})"), "lora_path: Both 'lora_name' and 'lora_path' must be provided.");
  EXPECT_EQ(unload("{}"), "lora_name: 'lora_name' needs to be provided to unload a LoRA adapter.");
  EXPECT_EQ(unload(R"({"lora_name":")" + std::string(257, 'x') + "\"}"), "lora_name: has 257 bytes; use at most 256 bytes");
  EXPECT_EQ(post("/v1/unload_lora_adapter", R"({"lora_name":")" + std::string(256, 'x') + "\"}").status, 404U);
  EXPECT_EQ(load(R"({"lora_name":"alias","lora_path":"p"})"),
            "lora_name: 'alias' is the name of the model; choose another name for the adapter");
  EXPECT_EQ(load(R"({"lora_name":"a","lora_path":"p","load_inplace":3})"),
            "load_inplace: must be a boolean, not integer 3; send true or false");
  EXPECT_EQ(unload(R"({"lora_name":"a","lora_path":"p"})"), "lora_path: is not a field of this request; did you mean 'lora_name'?");
  const ClientResponse added = post("/v1/load_lora_adapter", R"({"lora_name":"a","lora_path":"p","lora_int_id":3})");
  EXPECT_EQ(added.body, "Success: LoRA adapter 'a' added successfully.");
  EXPECT_EQ(added.header("Content-Type"), "text/plain; charset=utf-8");
  EXPECT_EQ(load(R"({"lora_name":"a","lora_path":"p"})"), "lora_name: is already loaded");
  EXPECT_EQ(post("/v1/load_lora_adapter", R"({"lora_name":"a","lora_path":"q","load_inplace":true})").status, 200U);
  EXPECT_EQ(post("/v1/unload_lora_adapter", R"({"lora_name":"a","base_model_name":"b"})").body,
            "Success: LoRA adapter 'a' removed successfully.");
  const ClientResponse gone = post("/v1/unload_lora_adapter", R"({"lora_name":"a"})");
  EXPECT_EQ(gone.status, 404U);
  EXPECT_EQ(gone.error_param(), "lora_name");
  engine.fail_to_read(Error{ErrorCode::corrupt, "adapter_config.json", "is wrong", ""});
  EXPECT_EQ(post("/v1/load_lora_adapter", R"({"lora_name":"a","lora_path":"p"})").status, 400U) << "the client named the folder";
  engine.fail_to_read(Error{ErrorCode::io, "adapter_config.json", "is wrong", ""});
  EXPECT_EQ(post("/v1/load_lora_adapter", R"({"lora_name":"a","lora_path":"p"})").status, 500U);
  EXPECT_EQ(engine.adapter_calls().at(1), "load a p");
}

TEST(MetricsText, EscapesLabelsAndCountsResponses) {
  EngineStats engine;
  engine.num_running = 3;
  engine.explained.missed_tokens[static_cast<std::size_t>(MissCause::evicted)] = 48;
  engine.explained.waited_s[static_cast<std::size_t>(EventCause::no_slot)] = 1.5;
  engine.explained.preemptions[static_cast<std::size_t>(EventCause::lack_of_blocks)] = 2;
  ServerStats server;
  server.num_connections = 4;
  server.connections_given_up_total = 5;
  server.responses_total[200] = 6;
  server.responses_total[404] = 7;
  const std::string text = metrics_text(engine, server, "a\"b\\c\nd");
  const std::string labels = R"({engine="0",model_name="a\"b\\c d")";
  const auto has = [&](const std::string& line) { return text.contains("\n" + line + "\n"); };
  EXPECT_TRUE(has("vllm:num_requests_running" + labels + "} 3")) << text.substr(0, 2000);
  EXPECT_TRUE(has("quire:connections" + labels + "} 4"));
  EXPECT_TRUE(has("quire:connections_reclaimed_total" + labels + "} 5"));
  EXPECT_TRUE(has("quire:connections_given_up_total" + labels + "} 5")) << "the old name has the same value";
  EXPECT_TRUE(has("# HELP quire:connections_given_up_total Old name of quire:connections_reclaimed_total."));
  EXPECT_TRUE(has("# TYPE quire:connections_given_up_total counter"));
  EXPECT_TRUE(has("quire:http_responses_total" + labels + R"(,status="200"} 6)"));
  EXPECT_TRUE(has("quire:http_responses_total" + labels + R"(,status="404"} 7)"));
  EXPECT_TRUE(has("quire:prompt_tokens_missed_total" + labels + R"(,cause="evicted"} 48)"));
  EXPECT_TRUE(has("quire:request_wait_seconds_total" + labels + R"(,cause="no_slot"} 1.5)"));
  EXPECT_TRUE(has("quire:request_waited_seconds_total" + labels + R"(,cause="no_slot"} 1.5)"));
  EXPECT_TRUE(has("quire:preemptions_by_cause_total" + labels + R"(,cause="lack_of_blocks"} 2)"));
  EXPECT_FALSE(text.contains(R"(cause="diverged")")) << "causes without a value have no line";
  EXPECT_TRUE(has("# TYPE quire:connections gauge"));
  EXPECT_TRUE(has("# TYPE quire:http_responses_total counter"));
  EXPECT_FALSE(text.contains("quire:common_prefix_blocks"));
  EXPECT_FALSE(text.contains("vllm:lora_requests_info"));
  engine.common_prefix_blocks.emplace();
  engine.common_prefix_blocks->bounds = {1.0, 2.0};
  engine.common_prefix_blocks->counts = {3, 5, 9};
  engine.common_prefix_blocks->sum = 12.5;
  const std::string more = metrics_text(engine, server, "m");
  for (const char* line : {R"(_bucket{engine="0",model_name="m",le="1"} 3)", R"(_bucket{engine="0",model_name="m",le="2"} 5)",
                           R"(_bucket{engine="0",model_name="m",le="+Inf"} 9)", R"(_sum{engine="0",model_name="m"} 12.5)",
                           R"(_count{engine="0",model_name="m"} 9)"})
    EXPECT_TRUE(more.contains("\nquire:common_prefix_blocks" + std::string(line) + "\n")) << line;
  EXPECT_GT(resident_bytes(), std::uint64_t{1} << 20);
}

TEST(ServerOptionErrors, NameTheOptionTheProblemAndTheFix) {
  const auto error = [](auto change) {
    ServerOptions options;
    change(options);
    return problem_of(options.validate());
  };
  EXPECT_EQ(error([](auto&) {}), "accepted");
  EXPECT_EQ(error([](auto& options) { options.allowed_hosts = {"a", "*"}; }), "accepted");
  EXPECT_EQ(error([](auto& options) { options.allowed_hosts = {"a", "b:1"}; }),
            "allowed_host: 'b:1' is not a host name; use a host name without scheme and port");
  EXPECT_EQ(error([](auto& options) { options.cors_allow_origins = {"*", "null", "https://a:1"}; }), "accepted");
  for (const char* wrong : {"a", "https://a/", "https://u@a", "https://a?b", "https://a#b", "https:"})
    EXPECT_EQ(error([&](auto& options) { options.cors_allow_origins = {wrong}; }),
              "cors_allow_origin: '" + std::string(wrong) +
                  "' is not an origin; use only scheme, host and port, such as https://chat.example.com");
  EXPECT_EQ(error([](auto& options) { options.trusted_proxies = {"127.0.0.1", "::1"}; }), "accepted");
  EXPECT_EQ(error([](auto& options) { options.trusted_proxies = {"localhost"}; }),
            "trusted_proxy: 'localhost' is not an IP address; use an IP address such as 127.0.0.1");
  for (const char* key : {"a b", "a\tb", "a\r", "\na"})
    EXPECT_EQ(error([&](auto& options) { options.api_key = key; }), "api_key: contains white space; use a key of visible characters");
  EXPECT_EQ(error([](auto& options) { options.allow_remote_admin = true; }),
            "allow_remote_admin: is set without api_key: anyone could pause the engine; set --api-key as well");
  EXPECT_EQ(error([](auto& options) { options.allow_remote_admin = true, options.api_key = "k"; }), "accepted");
  EXPECT_TRUE(error([](auto& options) {
                options.max_body_bytes_in_flight = 2 * options.max_body_bytes - 1;
              }).starts_with("max_body_bytes_in_flight: "));
  EXPECT_EQ(error([](auto& options) { options.max_body_bytes_in_flight = 2 * options.max_body_bytes; }), "accepted");
  EXPECT_TRUE(error([](auto& options) {
                options.max_audio_bytes_in_flight = options.max_audio_seconds * 64'000 - 1;
              }).starts_with("max_audio_bytes_in_flight: "));
  EXPECT_EQ(error([](auto& options) { options.max_audio_bytes_in_flight = options.max_audio_seconds * 64'000; }), "accepted");
  EXPECT_TRUE(error([](auto& options) { options.otlp_traces_endpoint = "x"; }).starts_with("otlp_traces_endpoint: 'x' is not a valid URL"));
  EXPECT_TRUE(error([](auto& options) { options.allowed_media_domains = {"a:1"}; }).starts_with("allowed_media_domains: 'a:1'"));
}

}  // namespace
}  // namespace quire::operate_parts_test
