// Tests what a recorded workload notes of the calls of a core: its steps, limits, arrivals and ends, and the features that cannot be
// played.
#include "lab/replay/recorded_workload.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <unordered_map>

#include "core/schedule/core_driver.h"

namespace quire::test {
namespace {

TEST(RecordedWorkload, StepsRunOneAfterAnother) {
  RecordedWorkload recorded;
  const std::vector<SampledToken> some = {{RequestId{1}, 5}};
  const auto plan = [&](double now) { recorded.on_call(core_call::Schedule{.input = {.now = now}}); };
  const auto apply = [&](double now, std::span<const SampledToken> sampled) {
    recorded.on_call(core_call::Apply{.result = {.step = StepId{0}, .sampled = sampled}, .input = {.now = now}});
  };
  plan(1.0);
  plan(2.0);
  apply(3.0, some);
  apply(4.0, some);
  plan(10.0);
  apply(11.5, some);
  plan(12.0);
  plan(13.0);
  apply(14.0, {});
  apply(15.0, some);
  apply(20.0, some);  // without a plan
  plan(30.0);
  apply(29.0, some);
  EXPECT_EQ(recorded.step_s, (std::vector{2.0, 1.0, 1.5, 1.0, 0.0, 0.0}));
}

TEST(RecordedWorkload, LimitsApplyFromTheNextStepOn) {
  constexpr double kBefore = -std::numeric_limits<double>::infinity();
  const auto limits_of = [](const std::vector<CoreCall>& calls) {
    RecordedWorkload recorded;
    for (const CoreCall& call : calls) recorded.on_call(call);
    std::vector<std::pair<double, std::uint32_t>> limits;
    for (const auto& [from_s, one] : recorded.prefill_limits) limits.emplace_back(from_s, one.beside_decodes);
    return limits;
  };
  const auto limit = [](std::uint32_t tokens) { return core_call::SetPrefillLimits{.limits = {.beside_decodes = tokens}}; };
  const auto plan = [](double now) { return core_call::Schedule{.input = {.now = now}}; };
  using Limits = std::vector<std::pair<double, std::uint32_t>>;
  EXPECT_EQ(limits_of({plan(1.0), plan(2.0)}), (Limits{}));
  EXPECT_EQ(limits_of({limit(5), plan(1.0), plan(2.0), limit(7), plan(3.0), limit(7), plan(4.0), limit(0), limit(9), plan(5.0)}),
            (Limits{{kBefore, 5}, {3.0, 7}, {5.0, 9}}));
  EXPECT_EQ(limits_of({plan(1.0), limit(5), plan(2.0), limit(0), plan(3.0)}), (Limits{{2.0, 5}, {3.0, 0}}));
}

TEST(RecordedWorkload, NamesTheFirstFeatureThatCannotBePlayed) {
  const auto missing = [](const std::vector<CoreCall>& calls) {
    RecordedWorkload recorded;
    for (const CoreCall& call : calls) recorded.on_call(call);
    return recorded.missing;
  };
  EXPECT_EQ(missing({core_call::EndPins{}, core_call::SetSwapCosts{}, core_call::SetPrefillLimits{}, core_call::MakeStats{},
                     core_call::Finish{}, core_call::FinishAll{}, core_call::Schedule{}, core_call::Apply{}, core_call::Add{}}),
            "");
  const std::pair<CoreCall, const char*> calls[] = {{core_call::Fork{}, "forks"},
                                                    {core_call::ContinueSession{}, "sessions"},
                                                    {core_call::SetDrafts{}, "draft tokens"},
                                                    {core_call::SetDraftsInPlan{}, "draft tokens"},
                                                    {core_call::ForgetBlocks{}, "outputs with NaN or Inf"},
                                                    {core_call::ResetPrefixCache{}, "cache resets"},
                                                    {core_call::ResetConnectorCache{}, "cache resets"},
                                                    {core_call::ResetEncoderCache{}, "cache resets"},
                                                    {core_call::SetPauseState{}, "pauses"}};
  for (const auto& [call, text] : calls) EXPECT_EQ(missing({call}), text);
  EXPECT_EQ(missing({core_call::SetPauseState{}, core_call::Fork{}}), "pauses");
  NewRequest session, pooling, grammar;
  session.resumable = pooling.pooling = grammar.structured_output = true;
  EXPECT_EQ(missing({core_call::Add{.request = session}}), "sessions");
  EXPECT_EQ(missing({core_call::Add{.request = pooling}}), "pooling requests");
  EXPECT_EQ(missing({core_call::Add{.request = grammar}}), "grammars");
}

TEST(RecordedWorkload, NotesArrivalsEndsAndJobsWithoutTools) {
  RecordedWorkload recorded;
  const auto add = [&](std::uint64_t id, double now, double arrival_time, const RequestTags* tags) {
    const Tokens prompt(id, 7);
    NewRequest request = CoreDriver::request(id, prompt, 1);
    request.arrival_time = arrival_time;
    request.tags = tags;
    recorded.on_call(core_call::Add{.request = request, .input = {.now = now}});
    return recorded.needs_tool_namer;
  };
  RequestTags none, tool, job;
  tool.job = job.job = "a";
  tool.tool = "ls";
  EXPECT_FALSE(add(1, 2.0, 0.0, nullptr));
  EXPECT_FALSE(add(2, 3.0, 1.0, &none));
  EXPECT_FALSE(add(3, 4.0, -1.0, &tool));
  EXPECT_TRUE(add(4, 5.0, 1.0, &job));
  EXPECT_TRUE(add(5, 6.0, 1.0, &none));
  std::string text;
  for (const RecordedWorkload::Arrival& one : recorded.arrivals)
    text += fmt::format("{} at {:g} {} {}\n", one.id.value, one.time_s, one.num_prompt_tokens, one.has_arrival_time);
  EXPECT_EQ(text, "1 at 2 1 false\n2 at 3 2 true\n3 at 4 3 false\n4 at 5 4 true\n5 at 6 5 true\n");
  const std::vector<RequestId> both = {RequestId{1}, RequestId{2}};
  recorded.on_call(core_call::Finish{.id = RequestId{1}, .input = {.now = 7.0}});
  recorded.on_call(core_call::FinishAll{.ids = both, .input = {.now = 8.0}});
  EXPECT_EQ(recorded.ended_s, (std::unordered_map<RequestId, double>{{RequestId{1}, 7.0}, {RequestId{2}, 8.0}}));
}

}  // namespace
}  // namespace quire::test
