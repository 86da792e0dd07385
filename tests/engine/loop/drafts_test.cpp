// Draft tokens change how many steps an answer takes, but not the answer.
#include "engine/check_served.h"
#include "engine/loop/step_loop.h"
#include "engine/simulated_engine.h"

namespace quire {
namespace {

struct Outcome {
  std::vector<Collector::Answer> answers;
  std::uint64_t num_steps = 0, num_drafts = 0, num_preemptions = 0;
};

std::vector<std::tuple<TokenId, float, std::uint32_t>> entries_of(const Collector::Answer& answer) {
  std::vector<std::tuple<TokenId, float, std::uint32_t>> entries;
  for (const PositionLogprobs& position : answer.logprobs)
    for (const TokenLogprob& entry : position.entries) entries.emplace_back(entry.token, entry.logprob, entry.rank);
  return entries;
}

Outcome run(const std::vector<EngineRequest>& requests, std::uint32_t num_spec_tokens, bool async_scheduling = false) {
  EngineOptions given;
  given.cache.block_size = 4;
  given.cache.num_blocks = 60;
  given.scheduler.max_num_seqs = 5;
  given.scheduler.async_scheduling = async_scheduling;
  const ResolvedEngine resolved = resolve_options(given, simulated_model(), {1, 0}).value();
  CoreConfig config = resolved.core;
  config.speculation.num_spec_tokens = num_spec_tokens;
  Outcome outcome;
  SimulatedWorkerOptions worker{.limits = resolved.limits,
                                .block_size = 4,
                                .num_blocks = 60,
                                .vocab_size = kVocab,
                                .poison = kPoison,
                                .before_step =
                                    [&](const StepPlan& plan) {
                                      outcome.num_steps += plan.scheduled.empty() ? 0 : 1;
                                      for (const ScheduledRequest& s : plan.scheduled) outcome.num_drafts += s.drafts.size();
                                    },
                                .num_spec_tokens = num_spec_tokens};
  auto core = Core::create(config).value();
  const Core& books = *core;
  StepLoop loop(std::move(core), std::make_unique<SimulatedWorker>(std::move(worker)),
                StepLoop::Options{.eos_ids = {kEos}, .async_scheduling = async_scheduling});
  Collector sink;
  for (std::size_t i = 0; i < requests.size(); ++i)
    loop.add({.id = RequestId{8 * i}, .request = requests[i], .block_keys = {}, .sink = &sink, .arrival_s = static_cast<double>(i)});
  while (loop.has_work()) {
    loop.step();
    loop.deliver();
  }
  loop.check_all_free();
  outcome.num_preemptions = books.counters().num_preemptions;
  for (std::size_t i = 0; i < requests.size(); ++i) outcome.answers.push_back(sink.wait(RequestId{8 * i}));
  return outcome;
}

class Drafts : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Modes, Drafts, testing::Bool(), [](const auto& mode) { return std::string(mode.param ? "async" : "sync"); });

TEST_P(Drafts, TakeFewerStepsWithoutChangingAnswers) {
  Random random(5);
  std::uint64_t num_steps = 0, num_fewer = 0, num_drafts = 0, num_preemptions = 0, num_failed = 0;
  for (int round = 0; round < 60; ++round) {
    std::vector<EngineRequest> requests;
    for (std::uint64_t i = random.between(1, 12); i > 0; --i) requests.push_back(random_request(random));
    const Outcome plain = run(requests, 0);
    const Outcome drafted = run(requests, 1 + static_cast<std::uint32_t>(random.below(5)), GetParam());
    for (std::size_t i = 0; i < requests.size(); ++i) {
      expect_equal(drafted.answers[i], expected(requests[i], kPoison));
      ASSERT_EQ(drafted.answers[i].tokens, plain.answers[i].tokens);
      ASSERT_EQ(entries_of(drafted.answers[i]), entries_of(plain.answers[i]));
      num_failed += drafted.answers[i].reason == FinishReason::error ? 1 : 0;
    }
    EXPECT_EQ(plain.num_drafts, 0U);
    num_steps += plain.num_steps;
    num_fewer += plain.num_steps - std::min(plain.num_steps, drafted.num_steps);
    num_drafts += drafted.num_drafts;
    num_preemptions += drafted.num_preemptions;
  }
  EXPECT_GT(num_drafts, 10'000U) << "too few draft tokens";
  EXPECT_GT(num_preemptions, 20U);
  EXPECT_GT(num_failed, 20U);
  EXPECT_GT(num_fewer * 3, num_steps) << "three of four draft tokens are right";
}

TEST(DraftsTest, AreRefusedWhenTheWorkerDoesNotSupportThem) {
  CoreConfig config;
  config.speculation.num_spec_tokens = 3;
  EXPECT_TRUE(check_served(config, {.num_spec_tokens = 3}).has_value());
  EXPECT_EQ(check_served(config, {.num_spec_tokens = 2}).error().field, "speculation.num_spec_tokens");
}

}  // namespace
}  // namespace quire
