#include "server/operate/metrics.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "server/operate/cache_status.h"

namespace quire {
namespace {

TEST(Metrics, HaveTheNamesThatVllmDashboardsRead) {
  EngineStats engine;
  engine.num_running = 3;
  engine.num_blocks = 10;
  engine.num_free_blocks = 5;
  engine.num_waiting = 4;
  engine.num_preemptions = 2;
  engine.num_forks = 6;
  engine.num_copied_blocks = 5;
  engine.prefix_cache_queries = 100;
  engine.prefix_cache_hits = 48;
  engine.external_prefix_cache_queries = 52;
  engine.external_prefix_cache_hits = 32;
  engine.prompt_tokens = 90;
  engine.prompt_tokens_cached = 32;
  engine.is_paused = true;
  engine.finished_length = 7;
  engine.time_to_first_token_s = {{0.1, 1.0}, {1, 2, 4}, 3.5};
  const std::string text = metrics_text(engine, {}, "m\"x");
  for (const char* line :
       {"vllm:num_requests_running{engine=\"0\",model_name=\"m\\\"x\"} 3\n",
        "vllm:num_requests_waiting{engine=\"0\",model_name=\"m\\\"x\"} 4\n",
        "vllm:num_preemptions_total{engine=\"0\",model_name=\"m\\\"x\"} 2\n", "quire:forks_total{engine=\"0\",model_name=\"m\\\"x\"} 6\n",
        "quire:copied_blocks_total{engine=\"0\",model_name=\"m\\\"x\"} 5\n",
        "vllm:prefix_cache_queries_total{engine=\"0\",model_name=\"m\\\"x\"} 100\n",
        "vllm:prefix_cache_hits_total{engine=\"0\",model_name=\"m\\\"x\"} 48\n",
        "vllm:external_prefix_cache_queries_total{engine=\"0\",model_name=\"m\\\"x\"} 52\n",
        "vllm:external_prefix_cache_hits_total{engine=\"0\",model_name=\"m\\\"x\"} 32\n",
        "vllm:prompt_tokens_total{engine=\"0\",model_name=\"m\\\"x\"} 90\n",
        "vllm:prompt_tokens_cached_total{engine=\"0\",model_name=\"m\\\"x\"} 32\n", "quire:paused{engine=\"0\",model_name=\"m\\\"x\"} 1\n",
        "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\\\"x\"} 0.5\n",
        "vllm:request_success_total{engine=\"0\",model_name=\"m\\\"x\",finished_reason=\"length\"} 7\n",
        "vllm:time_to_first_token_seconds_bucket{engine=\"0\",model_name=\"m\\\"x\",le=\"0.1\"} 1\n",
        "vllm:time_to_first_token_seconds_bucket{engine=\"0\",model_name=\"m\\\"x\",le=\"+Inf\"} 4\n",
        "vllm:time_to_first_token_seconds_count{engine=\"0\",model_name=\"m\\\"x\"} 4\n", "# TYPE vllm:num_preemptions_total counter\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
}

TEST(Metrics, IncludeAdaptersWhenServed) {
  EngineStats engine;
  EXPECT_EQ(metrics_text(engine, {}, "m").find("lora"), std::string::npos);
  engine.adapters = AdapterStats{
      .max_loras = 2, .num_known = 5, .num_resident = 3, .bytes = 99, .num_loads = 8, .num_evictions = 4, .num_failed_loads = 1};
  engine.running_adapters = {"chat", "s\"ql"};
  engine.waiting_adapters = {"chat"};
  const std::string text = metrics_text(engine, {}, "m");
  for (const char* line :
       {"vllm:lora_requests_info{engine=\"0\",model_name=\"m\",max_lora=\"2\",running_lora_adapters=\"chat,s\\\"ql\","
        "waiting_lora_adapters=\"chat\"} ",
        "quire:loras_registered{engine=\"0\",model_name=\"m\"} 5\n", "quire:loras_resident{engine=\"0\",model_name=\"m\"} 3\n",
        "quire:lora_bytes{engine=\"0\",model_name=\"m\"} 99\n", "quire:lora_loads_total{engine=\"0\",model_name=\"m\"} 8\n",
        "quire:lora_evictions_total{engine=\"0\",model_name=\"m\"} 4\n",
        "quire:lora_load_failures_total{engine=\"0\",model_name=\"m\"} 1\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
}

TEST(Metrics, IncludeExpertReads) {
  EngineStats engine;
  EXPECT_EQ(metrics_text(engine, {}, "m").find("expert"), std::string::npos);
  engine.expert_reads = {.num_used = 9, .num_read = 4, .bytes_read = 4096, .num_damaged = 1};
  const std::string text = metrics_text(engine, {}, "m");
  for (const char* line :
       {"quire:experts_used_total{engine=\"0\",model_name=\"m\"} 9\n", "quire:experts_read_total{engine=\"0\",model_name=\"m\"} 4\n",
        "quire:expert_bytes_read_total{engine=\"0\",model_name=\"m\"} 4096\n",
        "quire:expert_matrices_corrupted_total{engine=\"0\",model_name=\"m\"} 1\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
}

TEST(Metrics, IncludeDraftTokensByTheirPosition) {
  EngineStats engine;
  EXPECT_EQ(metrics_text(engine, {}, "m").find("spec_decode"), std::string::npos);
  engine.speculation = {.num_drafts = 9, .num_draft_tokens = 27, .num_accepted_tokens = 12, .num_accepted_per_position = {7, 4, 1}};
  const std::string text = metrics_text(engine, {}, "m");
  for (const char* line :
       {"num_drafts_total{engine=\"0\",model_name=\"m\"} 9\n", "num_draft_tokens_total{engine=\"0\",model_name=\"m\"} 27\n",
        "num_accepted_tokens_total{engine=\"0\",model_name=\"m\"} 12\n",
        "num_accepted_tokens_per_pos_total{engine=\"0\",model_name=\"m\",position=\"0\"} 7\n",
        "num_accepted_tokens_per_pos_total{engine=\"0\",model_name=\"m\",position=\"1\"} 4\n",
        "num_accepted_tokens_per_pos_total{engine=\"0\",model_name=\"m\",position=\"2\"} 1\n"})
    EXPECT_NE(text.find(std::string("\nvllm:spec_decode_") + line), std::string::npos) << line << text;
  EXPECT_EQ(text.find("position=\"3\""), std::string::npos);
}

TEST(Metrics, IncludePressureAndSwap) {
  EngineStats engine;
  engine.num_blocks = 10;
  engine.num_free_blocks = 1;
  engine.is_admission_stopped = true;
  engine.num_admission_stops = 3;
  const std::string without = metrics_text(engine, {}, "m");
  EXPECT_EQ(without.find("kv_swap"), std::string::npos);
  for (const char* line :
       {"quire:kv_pressure{engine=\"0\",model_name=\"m\"} 0.9\n", "quire:admission_stopped{engine=\"0\",model_name=\"m\"} 1\n",
        "quire:admission_stops_total{engine=\"0\",model_name=\"m\"} 3\n"})
    EXPECT_NE(without.find(line), std::string::npos) << line;
  engine.kv_swap = {.num_places = 1,
                    .num_used_slots = 2,
                    .num_out = 3,
                    .num_out_blocks = 4,
                    .num_in = 5,
                    .num_in_blocks = 6,
                    .num_in_tokens = 7,
                    .num_lost = 8,
                    .num_skipped_no_slot = 9,
                    .num_skipped_no_gain = 10,
                    .num_corrupted_blocks = 11,
                    .out_bytes_per_s = 12.5,
                    .in_bytes_per_s = 13.5};
  const std::string text = metrics_text(engine, {}, "m");
  for (const char* line :
       {"places", "used_places", "out_requests_total", "out_blocks_total", "in_requests_total", "in_blocks_total", "in_tokens_total",
        "lost_total", "no_place_total", "no_gain_total", "refused_total", "out_bytes_per_second", "in_bytes_per_second"})
    EXPECT_NE(text.find(std::string("\nquire:kv_swap_") + line + "{"), std::string::npos) << line;
  EXPECT_NE(text.find("quire:kv_swap_in_tokens_total{engine=\"0\",model_name=\"m\"} 7\n"), std::string::npos);
  EXPECT_NE(text.find("quire:kv_swap_lost_total{engine=\"0\",model_name=\"m\"} 8\n"), std::string::npos);
}

TEST(Metrics, IncludeBlockResidencyWhenTracked) {
  EngineStats engine;
  EXPECT_EQ(metrics_text(engine, {}, "m").find("kv_block"), std::string::npos);
  engine.kv_residency = {
      .lifetime_s = {{1.0}, {2, 3}, 9.5}, .idle_before_evict_s = {{1.0}, {4, 5}, 6.5}, .reuse_gap_s = {{1.0}, {6, 7}, 8.5}};
  const std::string text = metrics_text(engine, {}, "m");
  for (const char* line :
       {"lifetime_seconds_bucket{engine=\"0\",model_name=\"m\",le=\"1\"} 2\n", "lifetime_seconds_sum{engine=\"0\",model_name=\"m\"} 9.5\n",
        "idle_before_evict_seconds_count{engine=\"0\",model_name=\"m\"} 5\n", "reuse_gap_seconds_sum{engine=\"0\",model_name=\"m\"} 8.5\n"})
    EXPECT_NE(text.find(std::string("\nvllm:kv_block_") + line), std::string::npos) << line << text;
}

TEST(Metrics, IncludeCommonPrefixBlocksWhenCounted) {
  EngineStats engine;
  EXPECT_EQ(metrics_text(engine, {}, "m").find("common_prefix"), std::string::npos);
  engine.common_prefix_blocks = {{1.0}, {2, 3}, 9.0};
  EXPECT_NE(metrics_text(engine, {}, "m").find("\nquire:common_prefix_blocks_sum{engine=\"0\",model_name=\"m\"} 9\n"), std::string::npos);
}

TEST(Metrics, IncludeEachTier) {
  EngineStats engine;
  EXPECT_EQ(metrics_text(engine, {}, "m").find("kv_tier"), std::string::npos);
  engine.kv_tiers.push_back({.name = "dram", .num_stored_blocks = 11});
  engine.kv_tiers.push_back({.name = "disk",
                             .budget_bytes = 100,
                             .num_places = 9,
                             .num_used_slots = 8,
                             .num_unread_slots = 1,
                             .num_restored_blocks = 2,
                             .num_stored_blocks = 3,
                             .num_loaded_blocks = 4,
                             .bytes_stored = 30,
                             .bytes_loaded = 40,
                             .tokens_loaded = 64,
                             .num_without_slot = 5,
                             .num_corrupted_blocks = 6,
                             .num_failed_blocks = 7,
                             .num_deferred_by_limit = 8,
                             .num_stored_when_idle = 12,
                             .num_filtered_blocks = 13,
                             .num_computed_tokens = 9,
                             .load_bytes_per_s = 1.5,
                             .compute_tokens_per_s = 2.5,
                             .num_demoted_blocks = 13,
                             .num_dropped_blocks = 14,
                             .stores_left_out = true,
                             .num_times_disabled = 10,
                             .num_queried_blocks = 15,
                             .num_found_blocks = 16,
                             .num_query_timeouts = 17,
                             .num_vanished_blocks = 18,
                             .num_open_leases = 19,
                             .num_leases = 20,
                             .num_expired_leases = 21});
  const std::string text = metrics_text(engine, {}, "m");
  for (const char* line : {"budget_bytes 100",
                           "places 9",
                           "used_places 8",
                           "unread_places 1",
                           "restored_blocks_total 2",
                           "stored_blocks_total 3",
                           "loaded_blocks_total 4",
                           "stored_bytes_total 30",
                           "loaded_bytes_total 40",
                           "loaded_tokens_total 64",
                           "without_room_total 5",
                           "refused_total 6",
                           "failed_total 7",
                           "held_back_total 8",
                           "stored_at_end_total 12",
                           "taken_blocks_total 13",
                           "dropped_total 14",
                           "asked_blocks_total 15",
                           "found_blocks_total 16",
                           "late_answers_total 17",
                           "absent_blocks_total 18",
                           "open_leases 19",
                           "leases_total 20",
                           "expired_leases_total 21",
                           "computed_tokens_total 9",
                           "load_bytes_per_second 1.5",
                           "compute_tokens_per_second 2.5",
                           "loads_left_out 0",
                           "stores_left_out 1",
                           "left_out_total 10"}) {
    const std::string sample(line);
    const std::size_t space = sample.find(' ');
    const std::string wanted =
        "\nquire:kv_tier_" + sample.substr(0, space) + R"({engine="0",model_name="m",tier="disk"})" + sample.substr(space) + "\n";
    EXPECT_NE(text.find(wanted), std::string::npos) << wanted << text;
  }
  EXPECT_NE(text.find(R"(stored_blocks_total{engine="0",model_name="m",tier="dram"} 11)"), std::string::npos);
  EXPECT_EQ(text.find("# TYPE quire:kv_tier_slots"), text.rfind("# TYPE quire:kv_tier_slots")) << "the type must be written once";
}

TEST(CacheStatus, WritesTheCacheAndItsTiersAsJson) {
  EngineStats engine;
  engine.num_blocks = 99;
  engine.num_free_blocks = 98;
  EXPECT_EQ(
      cache_status(engine, 16),
      R"({"object":"cache","memory":{"block_size":16,"blocks":99,"free_blocks":98,"query_tokens":0,"hit_tokens":0,"evicted_blocks":0},)"
      R"("tiers":[]})");
  engine.kv_tiers.push_back({.name = "dram", .num_stored_blocks = 11});
  engine.kv_tiers.push_back({.name = "disk", .bytes_loaded = std::uint64_t{1} << 40});
  const std::string text = cache_status(engine, 16);
  EXPECT_NE(text.find(R"({"tier":"dram","budget_bytes":0,)"), std::string::npos) << text;
  EXPECT_NE(text.find(R"(,"stored_blocks":11,)"), std::string::npos) << text;
  EXPECT_NE(text.find(R"(},{"tier":"disk",)"), std::string::npos) << text;
  EXPECT_NE(text.find(R"(,"loaded_bytes":1099511627776,)"), std::string::npos) << text;
}

TEST(Metrics, EveryLineIsACommentOrASample) {
  EngineStats engine;
  engine.kv_tiers.emplace_back();
  const std::string text = metrics_text(engine, {}, "m");
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const bool sample = line.find("{engine=\"0\",model_name=\"m\"") != std::string::npos && line.find("} ") != std::string::npos;
    EXPECT_TRUE(line.starts_with("# HELP ") || line.starts_with("# TYPE ") || sample) << line;
  }
  EXPECT_GT(resident_bytes(), 1U << 20);
}

// One version reports renamed metrics and fields under both names, so that dashboards can follow (docs/metrics.md).
TEST(Metrics, ReportsRenamedMetricsUnderTheirOldNamesToo) {
  EngineStats engine;
  engine.num_cached_blocks = 7;
  engine.kv_tiers.push_back({.name = "disk", .num_corrupted_blocks = 6});
  const std::string text = metrics_text(engine, {}, "m");
  for (const char* sample :
       {R"(quire:kv_cache_cached_blocks{engine="0",model_name="m"} 7)", R"(quire:kv_cache_named_blocks{engine="0",model_name="m"} 7)",
        R"(quire:kv_tier_checksum_failures_total{engine="0",model_name="m",tier="disk"} 6)",
        R"(quire:kv_tier_refused_total{engine="0",model_name="m",tier="disk"} 6)"})
    EXPECT_NE(text.find(std::string("\n") + sample + "\n"), std::string::npos) << sample << text;
  EXPECT_NE(text.find("# HELP quire:kv_cache_named_blocks Old name of quire:kv_cache_cached_blocks.\n"), std::string::npos);
  const std::string json = cache_status(engine, 16);
  EXPECT_NE(json.find(R"("checksum_failures":6)"), std::string::npos) << json;
  EXPECT_NE(json.find(R"("refused":6)"), std::string::npos) << json;
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

}  // namespace
}  // namespace quire
