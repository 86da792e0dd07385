// Tests the statistics that the step loop measures itself or copies from the worker, the publisher, the trace and the journal.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <variant>
#include <vector>

#include "engine/loop/metered_loop.h"
#include "quire/journal.h"

namespace quire::test {
namespace {

// Keeps the published events.
class KeptEvents final : public KvEventPublisher {
 public:
  void publish(std::span<const KvEvent> events) override {
    all.insert(all.end(), events.begin(), events.end());
    if (on_publish) on_publish();
  }
  [[nodiscard]] std::uint64_t num_published() const override { return 5; }
  [[nodiscard]] std::uint64_t num_without_subscriber() const override { return 6; }
  [[nodiscard]] std::uint64_t num_dropped() const override { return 7; }

  std::vector<KvEvent> all;
  std::function<void()> on_publish;
};

class EndedJournal final : public CoreJournal {
 public:
  [[nodiscard]] CoreSeams seams() const override { return {}; }
  [[nodiscard]] std::string path() const override { return {}; }
  void flush() override {}
  [[nodiscard]] std::uint64_t num_bytes() const override { return 11; }
  [[nodiscard]] std::optional<JournalEnd> end() const override { return ended; }
  void save(JournalSaveCallback /*answer*/) override {}
  [[nodiscard]] std::uint64_t memory_bytes() const override { return 12; }

  std::optional<JournalEnd> ended;
};

// Advances the clock when a step is planned.
class SlowPlans final : public EventSink {
 public:
  void on_event(const Event& event) override {
    if (event.what == EventKind::step_begins && clock != nullptr) clock->now += plan_s;
  }
  ManualClock* clock = nullptr;
  double plan_s = 0.25;
};

TEST(LoopStats, CopyTheTotalsOfTheWorker) {
  MeteredLoop bench;
  bench.worker->transfers = {.num_loads = 1, .num_stores = 2, .bytes_loaded = 3, .bytes_stored = 4, .num_failed = 5, .num_unexpected = 6};
  bench.worker->expert_reads = {.num_used = 7, .num_read = 8, .bytes_read = 9, .num_damaged = 10};
  bench.run(1, make_request(5, 2));
  const EngineStats& stats = bench.loop->stats();
  EXPECT_EQ(stats.num_loads, 1U);
  EXPECT_EQ(stats.num_stores, 2U);
  EXPECT_EQ(stats.bytes_loaded, 3U);
  EXPECT_EQ(stats.bytes_stored, 4U);
  EXPECT_EQ(stats.num_failed_transfers, 5U);
  EXPECT_EQ(stats.num_stray_transfers, 6U);
  EXPECT_EQ(stats.expert_reads.num_used, 7U);
  EXPECT_EQ(stats.expert_reads.num_read, 8U);
  EXPECT_EQ(stats.expert_reads.bytes_read, 9U);
  EXPECT_EQ(stats.expert_reads.num_damaged, 10U);
}

TEST(LoopStats, CopyTheCountsOfThePublisherAndTheJournal) {
  const auto journal = std::make_shared<EndedJournal>();
  const MeteredLoop bench({.eos_ids = {}, .journal = journal, .kv_events = std::make_shared<KeptEvents>()});
  EXPECT_EQ(bench.loop->stats().kv_event_batches, 5U);
  EXPECT_EQ(bench.loop->stats().kv_event_batches_without_subscriber, 6U);
  EXPECT_EQ(bench.loop->stats().kv_event_batches_dropped, 7U);
  EXPECT_EQ(bench.loop->stats().journal_bytes, 11U);
  EXPECT_EQ(bench.loop->stats().journal_memory_bytes, 12U);
  EXPECT_EQ(bench.loop->stats().journal_ended, "");
  journal->ended = JournalEnd::disk;
  EXPECT_EQ(bench.loop->stats().journal_ended, "disk");
}

TEST(LoopStats, MeasureThePartsOfAStep) {
  SlowPlans plans;
  const auto events = std::make_shared<KeptEvents>();
  MeteredLoop bench({.eos_ids = {}, .kv_events = events}, {.events = &plans});
  plans.clock = bench.clock.get();
  events->on_publish = [&] { bench.clock->now += 0.125; };
  bench.worker->step_s = 1.0;
  bench.worker->forward_s = 0.75;
  bench.worker->sample_s = 0.0625;
  bench.clock->now = 10.0;
  bench.add(1, make_request(5, 2));
  bench.clock->now = 12.0;
  bench.run();
  const EngineStats& stats = bench.loop->stats();
  EXPECT_EQ(stats.step_time_s.sum, 2 * (0.25 + 1.0 + 0.125));
  EXPECT_EQ(stats.scheduler_time_s.sum, 2 * (0.25 + 0.125));
  EXPECT_EQ(stats.forward_time_s.sum, 1.5);
  EXPECT_EQ(stats.sample_time_s.sum, 0.125);
  EXPECT_EQ(stats.queue_time_s.sum, 2.25) << "the request waits until its plan is made";
  EXPECT_EQ(stats.time_to_first_token_s.sum, 3.25);
  EXPECT_EQ(stats.inter_token_latency_s.sum, 1.375);
  EXPECT_EQ(stats.e2e_latency_s.sum, 2 + 2 * 1.375) << "until its last output is made";
}

TEST(LoopStats, MeasureThePrefillSpeedInStepsThatAreLargeEnough) {
  struct Case {
    double target_s;
    std::uint32_t num_tokens;
    double tokens_per_s;
  };
  for (const Case& one : {Case{0.0, 63, 0.0}, Case{0.0, 64, 32.0}, Case{9.0, 15, 0.0}, Case{9.0, 16, 8.0}}) {
    MeteredLoop bench({.eos_ids = {}, .step_time_target_s = one.target_s});
    bench.worker->step_s = bench.worker->forward_s = 2.0;
    bench.run(1, make_request(one.num_tokens, 3));
    EXPECT_DOUBLE_EQ(bench.loop->compute_tokens_per_s(), one.tokens_per_s) << one.num_tokens << " tokens, target " << one.target_s;
  }
}

// The first prompt shows that a prompt token takes a 16th of a second.
TEST(LoopStats, CompareThePredictedTimeOfStepsWithTheMeasuredTime) {
  MeteredLoop bench({.eos_ids = {}, .step_time_target_s = 1.0});
  bench.worker->step_s = 1.0;
  bench.run(1, make_request(16, 1));
  EXPECT_EQ(bench.loop->stats().prefill_limit, 64U) << "the limit before anything is known";
  EXPECT_EQ(bench.loop->stats().predicted_steps_s, 0.0);
  EXPECT_EQ(bench.loop->stats().measured_steps_s, 0.0) << "only predicted steps count";
  bench.run(2, make_request(32, 1, 60));
  EXPECT_EQ(bench.loop->stats().prefill_limit, 16U);
  EXPECT_EQ(bench.loop->stats().predicted_steps_s, 2.0);
  EXPECT_EQ(bench.loop->stats().measured_steps_s, 1.0);

  MeteredLoop decodes({.eos_ids = {}, .step_time_target_s = 1.0});
  decodes.worker->step_s = 0.5;
  decodes.run(1, make_request(1, 3));
  EXPECT_EQ(decodes.loop->stats().predicted_steps_s, 1.0) << "a single token is no prompt to measure";
  EXPECT_EQ(decodes.loop->stats().measured_steps_s, 1.0);
}

TEST(LoopStats, CountVerifiedAndAcceptedDrafts) {
  EngineOptions options;
  options.speculation.num_speculative_tokens = 3;
  MeteredLoop bench({}, {}, options);
  bench.add(1, make_request(5, 20));
  bench.step();
  EXPECT_FALSE(bench.loop->stats().speculation.has_value()) << "nothing was verified";
  const std::vector<TokenId> drafts = {11, 11, 5};
  const Draft draft[] = {{RequestId{1}, drafts}};
  bench.core->set_drafts(draft);
  bench.worker->num_verified = 3;
  bench.worker->num_accepted = 2;
  bench.step();
  ASSERT_TRUE(bench.loop->stats().speculation.has_value());
  EXPECT_EQ(bench.loop->stats().speculation->num_drafts, 1U);
  EXPECT_EQ(bench.loop->stats().speculation->num_draft_tokens, 3U);
  EXPECT_EQ(bench.loop->stats().speculation->num_accepted_tokens, 2U);
  EXPECT_EQ(bench.loop->stats().generation_tokens, 4U);
  bench.loop->abort_all();
}

TEST(LoopStats, CountCommonBlocksOnlyIfAsked) {
  for (const bool counts : {false, true}) {
    EngineOptions options;
    options.cache.count_common_prefix = counts;
    MeteredLoop bench({.eos_ids = {}, .counts_common_prefix = counts}, {}, options);
    bench.add(1, make_request(40, 2));
    bench.add(2, make_request(40, 2));
    bench.run();
    EXPECT_EQ(bench.loop->stats().common_prefix_blocks.has_value(), counts);
  }
}

// An idle loop makes no step by itself, so the events of a reset need one.
TEST(LoopEvents, AResetOfAnIdleLoopIsPublished) {
  for (const bool publishes : {true, false}) {
    EngineOptions options;
    options.kv_events.enable_kv_cache_events = true;
    const auto events = std::make_shared<KeptEvents>();
    StepLoop::Options loop;
    if (publishes) loop.kv_events = events;
    MeteredLoop bench(std::move(loop), {}, options);
    bench.run(1, make_request(40, 2));
    EXPECT_FALSE(bench.loop->can_step());
    events->all.clear();
    EXPECT_EQ(bench.loop->reset_prefix_cache({}), true);
    EXPECT_EQ(bench.loop->can_step(), publishes);
    for (int i = 0; i < 5 && bench.loop->can_step(); ++i) bench.step();
    EXPECT_FALSE(bench.loop->can_step());
    ASSERT_EQ(events->all.size(), publishes ? 1U : 0U);
    if (publishes) EXPECT_TRUE(std::holds_alternative<AllBlocksCleared>(events->all[0]));
  }
}

TEST(LoopCommands, CountFreeRowsAndAbortedRequests) {
  MeteredLoop bench({.eos_ids = {}, .max_num_seqs = 3});
  EXPECT_EQ(bench.loop->num_free_rows(), 3U);
  for (std::uint64_t id = 1; id <= 2; ++id) bench.add(id, make_request(5, 9));
  EXPECT_EQ(bench.loop->num_free_rows(), 1U);
  for (std::uint64_t id = 3; id <= 5; ++id) bench.add(id, make_request(5, 9));
  EXPECT_EQ(bench.loop->num_free_rows(), 0U);
  bench.step();
  EXPECT_EQ(bench.loop->abort_all(), 5U);
  EXPECT_EQ(bench.loop->abort_all(), 0U);
  bench.run();
  bench.loop->deliver();
  for (std::uint64_t id = 1; id <= 5; ++id) EXPECT_EQ(bench.sink.wait(RequestId{id}).reason, FinishReason::abort);
  EXPECT_EQ(bench.loop->stats().finished_abort, 5U);
  EXPECT_EQ(bench.loop->num_free_rows(), 3U);
  bench.loop->check_all_free();
}

TEST(LoopCommands, ACancelledSubmissionEndsAllItsRequests) {
  MeteredLoop bench;
  EngineRequest request = make_request(5, 9);
  request.n = 3;
  bench.clock->now = 4.0;
  const Submission submission = bench.submission(7, request);
  bench.clock->now = 6.0;
  bench.loop->cancel(submission, FinishReason::stop);
  bench.loop->deliver();
  EXPECT_EQ(bench.sink.finished_order(), (std::vector<RequestId>{RequestId{7}, RequestId{8}, RequestId{9}}));
  EXPECT_EQ(bench.sink.wait(RequestId{9}).reason, FinishReason::stop);
  EXPECT_EQ(bench.loop->stats().finished_stop, 3U);
  EXPECT_EQ(bench.loop->stats().e2e_latency_s.sum, 6.0);
  EXPECT_FALSE(bench.loop->has_work());
}

TEST(LoopCommands, ReportWhichOptionIsMissing) {
  MeteredLoop bench;
  EXPECT_EQ(bench.loop->explain("x").error().to_string(),
            "explained_requests: is 0, so no request is recorded; start the server with --explained-requests");
  EXPECT_EQ(bench.loop->explain("x").error().code, ErrorCode::unsupported);
  Submission own = bench.submission(1, make_request(5, 1));
  own.request.probes_tenant_blocks = true;
  EXPECT_EQ(bench.loop->probe(own).error().to_string(),
            "explained_requests: is 0, so the owners of cached blocks are not recorded; start the server with --explained-requests or "
            "--tenant-secret");
  EXPECT_EQ(bench.loop->probe(own).error().code, ErrorCode::unsupported);
  const Error reset = bench.loop->reset_prefix_cache({.external = true}).error();
  EXPECT_EQ(reset.to_string(), "reset_external: no connector is attached, so nothing is cached outside of this engine; leave it out");
  EXPECT_FALSE(bench.loop->reset_encoder_cache());
}

TEST(LoopCommands, AResetOfTheExternalCacheAsksTheConnector) {
  for (const bool external : {false, true}) {
    ScriptedConnector connector;
    MeteredLoop bench({}, {.connector = &connector});
    EXPECT_EQ(bench.loop->reset_prefix_cache({.external = external}), true);
    EXPECT_EQ(connector.num_logged("reset"), external ? 1U : 0U);
  }
}

}  // namespace
}  // namespace quire::test
