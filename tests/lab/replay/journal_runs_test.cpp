// Tests what a simulation reads from a journal: the requests, their outputs, and the duration of steps.
#include "lab/replay/journal_runs.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "core/schedule/core_driver.h"
#include "engine/simulated_engine.h"
#include "quire/journal.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {
namespace {

std::string only_file(const std::string& folder) {
  return std::filesystem::directory_iterator(folder)->path();
}

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

}  // namespace
}  // namespace quire::test
