// Tests the log lines for operators: which line follows which change, with which numbers, and that a change is logged once.
#include "engine/engine_log.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "support/pipe.h"

namespace quire {
namespace {

using LogLines = std::vector<std::string>;

// Returns the lines that the calls write, without their times.
LogLines lines_of(const std::function<void(EngineLog&)>& calls) {
  Pipe pipe;
  {
    EngineLog log(std::make_shared<Logger>(LogOptions{.descriptor = pipe.writer()}));
    calls(log);
  }
  LogLines lines = pipe.lines();
  for (std::string& line : lines) line.erase(0, line.find(' ') + 1);
  return lines;
}

TEST(EngineLog, ReportsTheModelAndTheLimitsAtTheStart) {
  ModelInfo model;
  model.name = "small";
  EngineOptions options;
  options.cache.num_blocks = 10;
  options.scheduler.max_model_len = 64;
  options.scheduler.max_num_seqs = 3;
  options.speculation.num_speculative_tokens = 4;
  const std::string started = "info engine_started model=small blocks=9 max_model_len=64 max_num_seqs=3";
  EXPECT_EQ(lines_of([&](EngineLog& log) { log.started(model, options); }), LogLines{started});
  options.draft_model = "/draft.gguf";
  EXPECT_EQ(lines_of([&](EngineLog& log) { log.started(model, options); }),
            (LogLines{started, "info draft_model model=/draft.gguf num_speculative_tokens=4"}));
}

TEST(EngineLog, WarnsOfATierThatOneRequestCanFill) {
  const auto opened = [](std::uint64_t capacity_tokens) {
    return lines_of([&](EngineLog& log) {
      log.opened({{.name = "remote", .num_places = 7}, {.name = "disk", .num_places = 5, .capacity_tokens = capacity_tokens}}, 80);
    });
  };
  EXPECT_EQ(opened(0), LogLines{}) << "tiers that hold no blocks of this server have no line";
  EXPECT_EQ(opened(80), LogLines{"info kv_tier tier=disk blocks=5 tokens=80"});
  EXPECT_EQ(opened(79),
            (LogLines{"info kv_tier tier=disk blocks=5 tokens=79",
                      "warning kv_tier_small tier=disk tokens=79 max_model_len=80 why=\"A request can be larger than the tier. The tier "
                      "then keeps at most the first blocks of the request. Make the tier larger.\""}));
}

TEST(EngineLog, ReportsEachIncreaseOfACounterOnce) {
  struct Case {
    const char* event;
    std::uint64_t EngineStats::* counter;
  };
  for (const Case& c :
       {Case{"requests_failed", &EngineStats::finished_error}, Case{"transfers_failed", &EngineStats::num_failed_transfers},
        Case{"transfers_unknown", &EngineStats::num_stray_transfers}, Case{"trace_steps_lost", &EngineStats::trace_steps_dropped}}) {
    const LogLines lines = lines_of([&](EngineLog& log) {
      for (const std::uint64_t count : {0U, 3U, 3U, 5U, 6U}) {
        EngineStats stats;
        stats.*c.counter = count;
        log.report(stats);
      }
    });
    const std::string event = std::string("warning ") + c.event;
    EXPECT_EQ(lines, (LogLines{event + " count=3 total=3", event + " count=2 total=5", event + " count=1 total=6"})) << c.event;
  }
}

TEST(EngineLog, ReportsTheBlocksThatATierCouldNotLoadOrStore) {
  struct Case {
    const char* event;
    std::uint64_t KvTierStats::* counter;
  };
  for (const Case& c :
       {Case{"kv_tier_refused", &KvTierStats::num_corrupted_blocks}, Case{"kv_tier_failed", &KvTierStats::num_failed_blocks}}) {
    const LogLines lines = lines_of([&](EngineLog& log) {
      EngineStats stats;
      stats.kv_tiers = {{.name = "dram"}, {.name = "disk"}};
      for (const std::uint64_t count : {0U, 2U, 2U, 6U}) {
        stats.kv_tiers[1].*c.counter = count;
        log.report(stats);
      }
      stats.kv_tiers[0].*c.counter = 1;
      log.report(stats);
    });
    const std::string event = std::string("warning ") + c.event;
    EXPECT_EQ(lines,
              (LogLines{event + " tier=disk count=2 total=2", event + " tier=disk count=4 total=6", event + " tier=dram count=1 total=1"}));
  }
}

TEST(EngineLog, ReportsWhenATierIsLeftOutAndWhenItIsBack) {
  struct Case {
    const char* what;
    bool KvTierStats::* flag;
  };
  for (const Case& c : {Case{"loads", &KvTierStats::loads_left_out}, Case{"stores", &KvTierStats::stores_left_out}}) {
    const LogLines lines = lines_of([&](EngineLog& log) {
      EngineStats stats;
      stats.kv_tiers = {{.name = "disk"}};
      KvTierStats& tier = stats.kv_tiers[0];
      for (const char* problem : {"", "no space"})
        for (const bool is_left_out : {true, true, false, false}) {
          tier.problem = problem;
          tier.*c.flag = is_left_out;
          log.report(stats);
        }
    });
    const std::string out = std::string("warning kv_tier_left_out tier=disk what=") + c.what;
    const std::string back = std::string("info kv_tier_back tier=disk what=") + c.what;
    EXPECT_EQ(lines, (LogLines{out, back, out + " why=\"no space\"", back})) << "the last problem says nothing about a tier that works";
  }
}

TEST(EngineLog, ReportsTheEndOfTheJournalOnce) {
  const LogLines lines = lines_of([](EngineLog& log) {
    EngineStats stats;
    stats.journal_bytes = 70;
    log.report(stats);
    stats.journal_ended = "budget";
    log.report(stats);
    stats.journal_bytes = 80;
    log.report(stats);
  });
  EXPECT_EQ(lines, LogLines{"warning journal_ended why=budget bytes=70"});
}

TEST(EngineLog, ReportsStepsAbortedRequestsAndOpenTransfersAtTheStop) {
  const LogLines lines = lines_of([](EngineLog& log) {
    EngineStats stats;
    stats.num_steps = 12;
    stats.num_awaiting_transfers = 2;
    log.stopped(stats, 3);
  });
  EXPECT_EQ(lines, LogLines{"info engine_stopped steps=12 aborted=3 transfers_left=2"});
}

}  // namespace
}  // namespace quire
