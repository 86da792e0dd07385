// Tests what a simulation reads from a journal: the requests, their outputs, and the duration of steps. For cores that are stepped by hand,
// every time and count follows by hand.
#include "lab/replay/journal_runs.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "core/schedule/core_driver.h"
#include "engine/simulated_engine.h"
#include "lab/replay/stepped_run.h"
#include "quire/journal.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {
namespace {

// Thirty requests, some with a shared prefix; keeps their prompts in order and their number of output tokens.
struct Served {
  std::vector<std::vector<TokenId>> prompts;
  std::vector<std::size_t> num_outputs;
};

Served serve_thirty(const JournalOptions& journal) {
  EngineOptions options;
  options.cache.num_blocks = 200;
  options.scheduler.max_num_seqs = 8;
  options.journal = journal;
  auto engine = start(kModes[0], {.options = options});
  Collector sink;
  Random random(3);
  Served served;
  std::vector<RequestId> ids;
  for (int i = 0; i < 30; ++i) {
    EngineRequest request = random_request(random);
    request.priority = 0;
    served.prompts.push_back(request.prompt);
    ids.push_back(engine->submit(request, sink).value());
  }
  for (const RequestId id : ids) served.num_outputs.push_back(sink.wait(id).tokens.size());
  engine->stop(10.0);
  return served;
}

SimulationResult simulated(const Workload& workload) {
  SimulationOptions options;
  options.num_blocks = 200;
  return simulate(workload, options).value();
}

TEST(JournalRuns, WorkloadHasPromptsAndOutputLengths) {
  const TempFolder folder;
  const Served served = serve_thirty({.folder = folder.path()});
  const Workload workload = read_workload({.path = only_file(folder.path())}).value();
  ASSERT_EQ(workload.requests.size(), 30U);
  double last_s = 0.0;
  for (std::size_t i = 0; i < 30; ++i) {
    const WorkloadRequest& request = workload.requests[i];
    EXPECT_GE(request.start_s, last_s);
    last_s = request.start_s;
    ASSERT_EQ(request.prompt_tokens, served.prompts[i].size());
    EXPECT_TRUE(std::equal(served.prompts[i].begin(), served.prompts[i].end(),
                           workload.tokens.begin() + static_cast<std::ptrdiff_t>(request.first_token)));
    EXPECT_EQ(request.output_tokens, std::max<std::size_t>(1, served.num_outputs[i])) << "request " << i;
  }
  EXPECT_EQ(workload.requests.front().start_s, 0.0);
  EXPECT_EQ(simulated(workload).num_finished, 30U);
  EXPECT_EQ(read_workload({.path = only_file(folder.path()), .max_requests = 7}).value().requests.size(), 7U);
}

TEST(JournalRuns, PromptsShareTheirPrefixesWithoutTokens) {
  const TempFolder with, without;
  (void)serve_thirty({.folder = with.path()});
  (void)serve_thirty({.folder = without.path(), .tokens = false});
  const auto cached = [](const TempFolder& folder) {
    const auto result = simulated(read_workload({.path = only_file(folder.path())}).value());
    EXPECT_EQ(result.num_finished, 30U);
    return result.cached_tokens;
  };
  // The machine decides which requests run together, so the hits may differ, but some prefix must be shared.
  EXPECT_GT(cached(with), 0U);
  EXPECT_GT(cached(without), 0U);
}

// Runs a core whose worker takes a known time per step, exact to the last digit.
TEST(JournalRuns, RecoversTheWorkersStepTimes) {
  const TempFolder folder;
  CoreConfig config = async_config(200);
  config.scheduler.max_model_len = 400;
  auto journal = CoreJournal::create({.folder = folder.path(), .memory_bytes = 0}, config, {}).value();
  const auto core = Core::create(config, journal->seams()).value();
  Random random(5);
  const WorkerModel truth{.step_s = 0.010, .prefill_token_s = 0.002, .decode_row_s = 0.001, .context_token_s = 1e-5, .prefill_pair_s = 0.0};
  double now = 100.0;
  for (std::uint64_t id = 1; id <= 60; ++id) {
    const Tokens prompt = CoreDriver::prompt(id, static_cast<std::uint32_t>(random.between(2, 90)));
    ASSERT_TRUE(core->add(CoreDriver::request(id, prompt, static_cast<std::uint32_t>(random.between(1, 30))), {.now = now}).has_value());
    for (std::uint64_t i = random.below(6); (i > 0 || id == 60) && core->has_work(); --i) {
      const StepPlan& plan = core->schedule({.now = now});
      StepSizes sizes;
      std::vector<SampledToken> sampled;
      for (const ScheduledRequest& s : plan.scheduled) {
        if (s.samples) sampled.push_back({s.id, kSomeToken});
        if (s.num_tokens == 1) {
          ++sizes.decode_rows;
          sizes.context_tokens += s.num_computed_tokens + 1.0;
        } else {
          sizes.prefill_tokens += s.num_tokens;
        }
      }
      if (plan.num_scheduled_tokens > 0) now += truth.seconds(sizes);
      ASSERT_TRUE(core->apply({.step = plan.step, .sampled = sampled}, {.now = now}).has_value());
      // Idle time must not count as step time.
      if (!core->has_work()) now += 50.0;
    }
  }
  journal.reset();
  const FitReport report = fit_worker_to_steps(only_file(folder.path())).value();
  EXPECT_GT(report.num_used, 50U);
  EXPECT_LT(report.mean_error, 1e-6);
  EXPECT_NEAR(report.worker.step_s, truth.step_s, 1e-6);
  EXPECT_NEAR(report.worker.prefill_token_s, truth.prefill_token_s, 1e-7);
  EXPECT_NEAR(report.worker.decode_row_s, truth.decode_row_s, 1e-7);
  EXPECT_NEAR(report.worker.context_token_s, truth.context_token_s, 1e-8);
}

TEST(JournalRuns, RefusesFilesThatAreNotJournals) {
  EXPECT_FALSE(is_journal("/nowhere"));
  const TempFolder folder;
  const std::string path = folder.path() + "/cut.qj";
  std::ofstream(path) << "quirejq";
  EXPECT_FALSE(is_journal(path));
  std::ofstream(path, std::ios::trunc) << "quireqj\x01 of another version";
  ASSERT_TRUE(is_journal(path));
  EXPECT_FALSE(read_workload({.path = path}).has_value());
  EXPECT_FALSE(fit_worker_to_steps(path).has_value());
}

std::string requests_of(const Workload& workload) {
  std::string text;
  for (const WorkloadRequest& one : workload.requests)
    text += fmt::format("{:g}s session {} {} -> {} from {} {}{}{}\n", one.start_s, one.session, one.prompt_tokens, one.output_tokens,
                        one.first_token, one.has_tokens ? "tokens" : "", one.ends_session ? " ends" : "",
                        one.after == kNoRequest ? "" : " follows");
  return text;
}

TEST(JournalByHand, WorkloadHasArrivalsPromptsAndOutputs) {
  SteppedRun run;
  play_three(run, true);
  const std::string path = run.path();
  const Workload workload = workload_of_journal(path).value();
  EXPECT_EQ(requests_of(workload),
            "90.5s session 0 8 -> 3 from 0 tokens ends\n"
            "91s session 1 5 -> 1 from 8 tokens ends\n"
            "96.5s session 2 6 -> 2 from 13 tokens ends\n");
  Tokens tokens;
  for (const auto& [id, size] : {std::pair(1U, 8U), {2U, 5U}, {3U, 6U}})
    for (const TokenId token : CoreDriver::prompt(id, size)) tokens.push_back(token);
  EXPECT_EQ(workload.tokens, tokens);
  EXPECT_EQ(workload.name, std::filesystem::path(path).filename());
  EXPECT_EQ(workload.notes,
            (std::vector<std::string>{"recorded with --kv-blocks 32 --block-size 4 --max-num-seqs 8 --max-num-batched-tokens 64 "
                                      "--max-model-len 100 --no-async-scheduling",
                                      "prompts do not hit cached blocks of earlier outputs"}));
  const auto starts = [&](const WorkloadOptions& options) {
    WorkloadOptions of = options;
    of.path = path;
    std::vector<double> times;
    for (const WorkloadRequest& one : read_workload(of).value().requests) times.push_back(one.start_s);
    return times;
  };
  EXPECT_EQ(starts({}), (std::vector{0.0, 0.5, 6.0}));
  EXPECT_EQ(starts({.rate_scale = 2.0}), (std::vector{0.0, 0.25, 3.0}));
  EXPECT_EQ(starts({.max_requests = 2}), (std::vector{0.0, 0.5}));
  EXPECT_EQ(starts({.max_requests = 3}), (std::vector{0.0, 0.5, 6.0}));
  EXPECT_EQ(starts({.max_requests = 9}), (std::vector{0.0, 0.5, 6.0}));
}

TEST(JournalByHand, WorkloadHasTheTimesOfTheCoreIfArrivalsAreMissing) {
  SteppedRun run(async_config());
  play_three(run, false);
  const Workload workload = workload_of_journal(run.path()).value();
  EXPECT_TRUE(requests_of(workload).starts_with("100s session 0")) << requests_of(workload);
  EXPECT_EQ(workload.requests[1].start_s, 101.0);
  EXPECT_EQ(workload.requests[2].start_s, 105.0);
  EXPECT_TRUE(workload.notes.front().ends_with("--max-model-len 100")) << workload.notes.front();
}

TEST(JournalByHand, RefusesJournalsWithoutRequestsOrThatDiffer) {
  SteppedRun empty;
  const std::string path = empty.path();
  EXPECT_EQ(workload_of_journal(path).error().to_string(),
            fmt::format("JOURNAL: '{}' contains no requests; use a journal with traffic", path));
  EXPECT_TRUE(steps_of_journal(path).value().empty());
  SteppedRun run;
  play_three(run, true);
  const Planted planted = plant(run.path(), run.new_path("planted"), 1, false);
  for (const Error& error : {workload_of_journal(planted.path).error(), steps_of_journal(planted.path).error()}) {
    EXPECT_EQ(error.code, ErrorCode::corrupt);
    EXPECT_EQ(error.field, "JOURNAL");
    EXPECT_TRUE(error.message.starts_with(fmt::format("'{}' does not replay: schedule(): ", planted.path))) << error.message;
    EXPECT_EQ(error.remedy, "run quire replay to see the first difference");
  }
}

std::string text_of_steps(const std::string& path) {
  std::string text;
  for (const TimedStep& step : steps_of_journal(path).value())
    text += fmt::format("{:g}s prefill {:g} pairs {:g} rows {:g} context {:g}\n", step.seconds, step.sizes.prefill_tokens,
                        step.sizes.prefill_pairs, step.sizes.decode_rows, step.sizes.context_tokens);
  return text;
}

TEST(JournalByHand, StepsHaveTheirSizesAndTheWorkersTime) {
  SteppedRun run;
  run.add(1, 8, 3, 100.0);
  run.step(100.0, 101.0);
  run.add(2, 3, 2, 101.0);
  run.step(101.5, 104.0);  // the worker was idle from 101 to 101.5
  run.step(104.0, 104.0);  // takes no time
  run.step(105.0, 106.0);  // computes nothing
  run.add(3, 1, 1, 200.0);
  run.step(200.0, 200.25);
  EXPECT_EQ(text_of_steps(run.path()),
            "1s prefill 8 pairs 36 rows 0 context 0\n"
            "2.5s prefill 3 pairs 6 rows 1 context 9\n"
            "0.25s prefill 0 pairs 0 rows 1 context 1\n");
}

TEST(JournalByHand, AStepThatIsPlannedAheadBeginsAtTheEndOfThePreviousOne) {
  SteppedRun run(async_config());
  run.add(1, 70, 4, 100.0);
  run.plan(100.0);
  run.plan(100.5);
  run.apply(102.0);
  run.plan(102.0);
  run.apply(103.0);
  run.plan(105.0);
  run.apply(107.0);
  run.apply(107.5);
  EXPECT_EQ(text_of_steps(run.path()),
            "2s prefill 64 pairs 2080 rows 0 context 0\n"
            "1s prefill 6 pairs 405 rows 0 context 0\n"
            "4s prefill 0 pairs 0 rows 1 context 71\n"
            "0.5s prefill 0 pairs 0 rows 1 context 72\n");
}

TEST(JournalByHand, AFitNamesItsSteps) {
  const auto report_of = [](int num_steps) {
    SteppedRun run;
    run.add(1, 2, 60, 100.0);
    for (int i = 0; i < num_steps; ++i) run.step(100.0 + 0.5 * i, 100.5 + 0.5 * i);
    return fit_worker_to_steps(run.path());
  };
  const auto report = report_of(25);
  ASSERT_TRUE(report.has_value()) << report.error().to_string();
  EXPECT_EQ(report->num_used, 25U);
  EXPECT_LT(report->mean_error, 1e-9);
  EXPECT_EQ(report->lines.at(0), "from plan to result: 25 steps, mean error 0.00 %");
  EXPECT_EQ(report->worker.source, "25 steps of a journal, mean error 0.0 %");
  EXPECT_EQ(report_of(20)->num_used, 20U);
  EXPECT_EQ(report_of(19).error().message, "has only 19 steps with a known duration");
}

}  // namespace
}  // namespace quire::test
