// Tests what the lab reads from journals of cores that are stepped by hand at known times: every time and count follows by hand.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <limits>
#include <set>

#include "core/schedule/core_driver.h"
#include "lab/replay/journal_runs.h"
#include "lab/replay/placeholder_tokens.h"
#include "lab/replay/planted.h"
#include "lab/replay/recorded_workload.h"
#include "quire/journal.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {
namespace {

// A core whose calls a journal records. Each sampling row gets its request's next token.
class SteppedRun {
 public:
  explicit SteppedRun(CoreConfig config = sync_config(), bool tokens = true)
      : journal_(CoreJournal::create({.folder = folder_.path(), .memory_bytes = 0, .tokens = tokens}, config, {}).value()),
        core_(Core::create(config, journal_->seams()).value()) {}

  void add(std::uint64_t id, const Tokens& prompt, std::uint32_t max_tokens, double now, double arrival_time) {
    NewRequest request = CoreDriver::request(id, prompt, max_tokens);
    request.arrival_time = arrival_time;
    ASSERT_TRUE(core_->add(request, {.now = now}).has_value());
  }
  void add(std::uint64_t id, std::uint32_t num_prompt_tokens, std::uint32_t max_tokens, double now) {
    add(id, CoreDriver::prompt(id, num_prompt_tokens), max_tokens, now, now);
  }
  void plan(double now) {
    const StepPlan& plan = core_->schedule({.now = now});
    std::vector<SampledToken> sampled;
    for (const ScheduledRequest& s : plan.scheduled)
      if (s.samples) sampled.push_back({s.id, next_token_++});
    open_.push_back({plan.step, sampled});
  }
  void apply(double now) {
    ASSERT_TRUE(core_->apply({.step = open_.front().first, .sampled = open_.front().second}, {.now = now}).has_value());
    open_.pop_front();
  }
  void step(double planned_s, double applied_s) {
    plan(planned_s);
    apply(applied_s);
  }
  Core& core() { return *core_; }
  // Ends the recording.
  std::string path() {
    core_.reset();
    journal_.reset();
    return only_file(folder_.path());
  }
  [[nodiscard]] std::string new_path(const std::string& name) const { return folder_.path() + "/" + name; }

 private:
  TempFolder folder_;
  std::unique_ptr<CoreJournal> journal_;
  std::unique_ptr<Core> core_;
  std::deque<std::pair<StepId, std::vector<SampledToken>>> open_;
  TokenId next_token_ = 50;
};

std::string requests_of(const Workload& workload) {
  std::string text;
  for (const WorkloadRequest& one : workload.requests)
    text += fmt::format("{:g}s session {} {} -> {} from {} {}{}{}\n", one.start_s, one.session, one.prompt_tokens, one.output_tokens,
                        one.first_token, one.has_tokens ? "tokens" : "", one.ends_session ? " ends" : "",
                        one.after == kNoRequest ? "" : " follows");
  return text;
}

// Three requests. The second is aborted before its first token.
void play_three(SteppedRun& run, bool all_have_arrival_times) {
  run.add(1, CoreDriver::prompt(1, 8), 3, 100.0, 90.5);
  run.step(100.0, 101.0);
  run.add(2, CoreDriver::prompt(2, 5), 3, 101.0, all_have_arrival_times ? 91.0 : 0.0);
  run.core().finish(RequestId{2}, RequestStatus::finished_aborted, {.now = 101.5});
  run.step(102.0, 104.0);
  run.add(3, CoreDriver::prompt(3, 6), 2, 105.0, 96.5);
  run.step(105.0, 108.0);
  run.step(108.0, 109.0);
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

// ---- placeholder tokens

// The second prompt begins with the first prompt and its outputs. The third shares nothing.
TEST(PlaceholderTokens, AreEqualInEqualBlocksOnly) {
  SteppedRun run(sync_config(), false);
  run.add(1, CoreDriver::prompt(1, 6), 6, 100.0, 100.0);
  for (int i = 0; i < 6; ++i) run.step(100.0 + i, 101.0 + i);
  Tokens continued = CoreDriver::prompt(1, 6);
  for (TokenId token = 50; token < 56; ++token) continued.push_back(token);
  continued.push_back(77);
  run.add(2, continued, 1, 110.0, 110.0);
  run.step(110.0, 111.0);
  run.add(3, CoreDriver::prompt(3, 9), 2, 120.0, 120.0);
  run.add(4, CoreDriver::prompt(4, 9), 2, 120.0, 120.0);
  run.core().finish(RequestId{4}, RequestStatus::finished_aborted, {.now = 120.0});
  run.step(120.0, 121.0);
  run.step(121.0, 122.0);
  const std::string path = run.path();
  RecordedWorkload workload;
  const ReplayReport report = replay(path, {.also = &workload}).value();
  ASSERT_FALSE(report.difference.has_value()) << report.difference->what;
  ASSERT_TRUE(report.header.seams.omits_tokens);
  ASSERT_EQ(workload.arrivals.size(), 4U);
  for (const auto& [id, count] : {std::pair(1U, 6U), {2U, 1U}, {3U, 2U}}) ASSERT_EQ(workload.tokens[RequestId{id}].size(), count);
  fill_placeholder_tokens(workload, report.header.config);
  std::vector<Tokens> known;  // prompt and outputs of each request
  for (const RecordedWorkload::Arrival& arrival : workload.arrivals) {
    ByteReader in(arrival.call);
    RecordedCall call;
    call.read(in);
    const NewRequest& request = std::get<core_call::Add>(call.call()).request;
    EXPECT_EQ(request.id, arrival.id);
    EXPECT_EQ(request.prompt.size(), arrival.num_prompt_tokens);
    EXPECT_TRUE(request.block_hashes.empty()) << "the tokens replace them";
    known.emplace_back(request.prompt.begin(), request.prompt.end());
    EXPECT_EQ(known.back().size(), (std::vector<std::size_t>{6, 13, 9, 9}[known.size() - 1]));
    const Tokens& outputs = workload.tokens[arrival.id];
    known.back().insert(known.back().end(), outputs.begin(), outputs.end());
  }
  std::vector<std::size_t> sizes;
  std::multiset<TokenId> all;
  for (const Tokens& tokens : known) {
    sizes.push_back(tokens.size());
    all.insert(tokens.begin(), tokens.end());
  }
  EXPECT_EQ(sizes, (std::vector<std::size_t>{12, 14, 11, 9}));
  EXPECT_GE(*all.begin(), TokenId{1} << 30U) << "no token of a model is that large";
  // The last output was never computed, so two blocks of four tokens have a hash.
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(known[0][i], known[1][i]) << i;
  for (std::size_t i = 8; i < 12; ++i) EXPECT_NE(known[0][i], known[1][i]) << i;
  EXPECT_EQ(std::set<TokenId>(all.begin(), all.end()).size(), 12U + 14U - 8U + 11U + 9U) << "all other tokens differ";
  EXPECT_EQ(workload_of_journal(path).value().notes.front(),
            "the journal has no tokens: prompts get random tokens that share blocks as the recorded prompts did");
}

// ---- the recorded workload

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

// ---- replays

TEST(ReplayByHand, CountsWhatTheCoreDid) {
  SteppedRun run;
  play_three(run, true);
  const std::string path = run.path();
  std::vector<double> told;
  const ReplayReport report = replay(path, {.progress = [&](double done) { told.push_back(done); }}).value();
  EXPECT_FALSE(report.difference.has_value());
  EXPECT_EQ(report.damage, "");
  EXPECT_EQ(report.end, JournalEnd::stopped);
  EXPECT_EQ(report.num_calls, 12U);  // three requests, an abort, and four steps
  EXPECT_EQ(report.num_steps, 4U);
  EXPECT_EQ(report.num_requests, 3U);
  EXPECT_EQ(report.num_forks, 0U);
  EXPECT_EQ(report.num_tokens, 5U);
  EXPECT_EQ(report.num_preemptions, 0U);
  EXPECT_EQ(report.num_checkpoints, 0U);
  EXPECT_FALSE(report.start.has_value());
  EXPECT_DOUBLE_EQ(report.recorded_s, 8.0);
  EXPECT_EQ(report.last.progress, (JournalProgress{.num_calls = 12, .num_steps = 4, .now_s = 108.0}));
  EXPECT_EQ(report.last.run_start_s, report.header.start_time_s);
  EXPECT_FALSE(report.last_state.empty());
  ASSERT_FALSE(told.empty());
  EXPECT_TRUE(std::ranges::is_sorted(told));
  EXPECT_GT(told.front(), 0.0);
  EXPECT_EQ(std::ranges::count(told, 1.0), 1);
  EXPECT_EQ(told.back(), 1.0);
  EXPECT_EQ(replay("/nowhere/journal").error().to_string(),
            "JOURNAL: '/nowhere/journal' cannot be read: No such file or directory; use a file that quire serve --journal has written");
}

// More requests than an error text lists.
TEST(ReplayByHand, ADifferenceShowsThePlanAndTheQueues) {
  CoreConfig config = sync_config(64);
  config.scheduler.max_num_seqs = 26;
  SteppedRun run(config);
  for (std::uint64_t id = 1; id <= 52; ++id) run.add(id, 2, 4, 100.0);
  run.step(100.0, 101.0);
  run.step(101.0, 102.0);
  const Planted planted = plant(run.path(), run.new_path("planted"), 54, false);
  ASSERT_EQ(planted.call, 54U);  // the second plan
  const ReplayReport report = replay(planted.path).value();
  ASSERT_TRUE(report.difference.has_value());
  EXPECT_EQ(report.difference->call, 54U);
  EXPECT_EQ(report.difference->step, StepId{1});
  EXPECT_EQ(report.num_calls, 55U);
  std::string rows, running, waiting;
  for (int id = 1; id <= 24; ++id) {
    rows += fmt::format(" {}[2+1]", id);
    running += fmt::format(" {}", id);
    waiting += fmt::format(" {}", id + 26);
  }
  EXPECT_EQ(report.difference->state, fmt::format("last plan: step 1, 26 requests, 26 tokens:{} ...; preempted 0:; 0 transfers\n"
                                                  "running 26:{} ...\nwaiting 26:{} ...; skipped 0:\n"
                                                  "blocks: 37 of 63 free, 0 cached; 1 plans outstanding",
                                                  rows, running, waiting));
  const std::string& what = report.difference->what;
  EXPECT_TRUE(what.starts_with("schedule(): the journal has plan ")) << what;
  EXPECT_NE(what.find(", the replay has plan "), std::string::npos) << what;
  const Planted outcome = plant(planted.path, run.new_path("outcome"), 53, false);
  const ReplayReport early = replay(outcome.path).value();
  ASSERT_TRUE(early.difference.has_value());
  EXPECT_TRUE(early.difference->what.starts_with("apply(0): the journal has outcome ")) << early.difference->what;
  EXPECT_NE(early.difference->what.find(", the replay has outcome "), std::string::npos);
  EXPECT_EQ(early.difference->step, StepId{0});
  // Another configuration differs in its first plan.
  const ReplayReport changed = replay(planted.path, {.change_config = [](CoreConfig& other) { other.scheduler.max_num_seqs = 3; }}).value();
  ASSERT_TRUE(changed.difference.has_value());
  EXPECT_EQ(changed.difference->call, 52U);
  EXPECT_TRUE(
      changed.difference->state.starts_with("last plan: step 0, 3 requests, 6 tokens: 1[0+2] 2[0+2] 3[0+2]; preempted 0:; 0 transfers\n"
                                            "running 3: 1 2 3\nwaiting 49: 4 5 "))
      << changed.difference->state;
}

// ---- questions about another configuration

std::string text_of_run(const WhatIfRun& run) {
  return fmt::format("{} steps, {} preempted, {} refused, {} of {} tokens hit, TTFT {:g} steps {:g} {:g} {:g} s, end {:g} s", run.num_steps,
                     run.num_preemptions, run.num_refused, run.num_hit_tokens, run.num_prompt_tokens, run.mean_ttft_steps, run.mean_ttft_s,
                     run.p50_ttft_s, run.p90_ttft_s, run.end_s);
}

// The steps take 1, 2 and 3 s. Alone, the first request needs all three, and further steps take the mean of 2 s.
TEST(WhatIfByHand, TimesFollowFromTheRecordedSteps) {
  SteppedRun run;
  run.add(1, 8, 3, 100.0);
  run.step(100.0, 101.0);
  run.add(2, 8, 2, 101.0);
  run.add(3, 8, 1, 101.0);
  run.step(101.0, 103.0);
  run.step(103.0, 106.0);
  const std::string path = run.path();
  const WhatIf one = what_if(path, [](CoreConfig& config) { config.scheduler.max_num_seqs = 1; }).value();
  EXPECT_EQ(one.num_requests, 3U);
  EXPECT_EQ(text_of_run(one.before), "3 steps, 0 preempted, 0 refused, 0 of 24 tokens hit, TTFT 1 steps 1.66667 2 2 s, end 6 s");
  EXPECT_EQ(text_of_run(one.after), "6 steps, 0 preempted, 0 refused, 0 of 24 tokens hit, TTFT 3 steps 6.33333 7 7 s, end 12 s");
  EXPECT_EQ(one.first_difference, StepId{1});
  const WhatIf shorter = what_if(path, [](CoreConfig& config) { config.scheduler.max_model_len = 7; }).value();
  EXPECT_EQ(text_of_run(shorter.after), "0 steps, 0 preempted, 3 refused, 0 of 0 tokens hit, TTFT 0 steps 0 0 0 s, end 0 s");
  EXPECT_EQ(shorter.first_difference, StepId{0});
  EXPECT_FALSE(what_if(path, [](CoreConfig& config) { config.kv.num_blocks = 31; }).value().first_difference.has_value());
}

// A shared prompt is found, and a pause between two requests takes no step.
TEST(WhatIfByHand, HitsAndPausesAreKept) {
  SteppedRun run;
  run.add(1, CoreDriver::prompt(1, 9), 2, 100.0, 100.0);
  run.step(100.0, 101.0);
  run.step(101.0, 102.0);
  run.add(2, CoreDriver::prompt(1, 9), 2, 150.0, 150.0);
  run.step(150.0, 154.0);
  run.step(154.0, 155.0);
  const WhatIf answer = what_if(run.path(), [](CoreConfig& config) { config.prefix_cache.enable_prefix_caching = false; }).value();
  EXPECT_EQ(text_of_run(answer.before), "4 steps, 0 preempted, 0 refused, 8 of 18 tokens hit, TTFT 1 steps 2.5 1 1 s, end 55 s");
  EXPECT_EQ(text_of_run(answer.after), "4 steps, 0 preempted, 0 refused, 0 of 0 tokens hit, TTFT 1 steps 2.5 1 1 s, end 55 s");
  EXPECT_TRUE(answer.first_difference.has_value());
}

// A request ends where its client ended it: after as many tokens, or before its first token at that time.
TEST(WhatIfByHand, AbortedRequestsEndAsRecorded) {
  CoreConfig config = sync_config();
  config.scheduler.max_num_seqs = 1;
  SteppedRun run(config);
  run.add(1, 8, 50, 100.0);
  run.add(2, 8, 50, 100.0);
  run.step(100.0, 101.0);
  run.step(101.0, 103.0);
  run.core().finish(RequestId{2}, RequestStatus::finished_aborted, {.now = 103.0});
  run.step(103.0, 104.0);
  run.core().finish(RequestId{1}, RequestStatus::finished_aborted, {.now = 104.5});
  run.add(3, 8, 1, 110.0);
  run.step(110.0, 111.0);
  const std::string path = run.path();
  const WhatIf answer = what_if(path, [](CoreConfig& changed) { changed.scheduler.max_num_seqs = 2; }).value();
  EXPECT_EQ(text_of_run(answer.before), "4 steps, 0 preempted, 0 refused, 0 of 16 tokens hit, TTFT 1 steps 1 1 1 s, end 11 s");
  // The second request now runs, too, and ends with its first token.
  EXPECT_EQ(text_of_run(answer.after), "4 steps, 0 preempted, 0 refused, 0 of 24 tokens hit, TTFT 1 steps 1 1 1 s, end 11 s");
  EXPECT_EQ(answer.first_difference, StepId{0});
}

// The first request never fits the cache. Its client ends it before the second one arrives.
TEST(WhatIfByHand, TimePassesWhileNoRequestCanRun) {
  CoreConfig config = sync_config(2);
  config.scheduler.admit_oversized = true;
  SteppedRun run(config);
  run.add(1, 8, 3, 100.0);
  run.step(100.0, 100.0);
  run.core().finish(RequestId{1}, RequestStatus::finished_aborted, {.now = 105.0});
  run.add(2, 3, 1, 110.0);
  run.step(110.0, 111.0);
  const WhatIf answer = what_if(run.path(), [](CoreConfig& changed) { changed.kv.num_blocks = 32; }).value();
  // Four plans look up its 8 tokens and are empty.
  EXPECT_EQ(text_of_run(answer.before), "5 steps, 0 preempted, 0 refused, 0 of 35 tokens hit, TTFT 1 steps 1 1 1 s, end 11 s");
  EXPECT_EQ(answer.after.num_steps, 2U);
}

TEST(WhatIfByHand, RefusesConfigurationsThatLeaveRequestsWaiting) {
  CoreConfig config = sync_config();
  config.scheduler.admit_oversized = true;
  SteppedRun run(config);
  run.add(1, 8, 1, 100.0);
  run.step(100.0, 101.0);
  run.add(2, 3, 1, 110.0);
  run.step(110.0, 111.0);
  EXPECT_EQ(what_if(run.path(), [](CoreConfig& changed) { changed.kv.num_blocks = 2; }).error().to_string(),
            "configuration: leaves requests waiting forever; use more blocks or more tokens per step");
}

TEST(WhatIfByHand, RefusesConfigurationsThatAskOtherQuestions) {
  SteppedRun run;
  play_three(run, true);
  const std::string path = run.path();
  const auto error_of = [&](const std::function<void(CoreConfig&)>& change) {
    const auto answer = what_if(path, change);
    return answer ? std::string() : answer.error().message;
  };
  EXPECT_EQ(error_of([](CoreConfig&) {}), "");
  EXPECT_EQ(error_of([](CoreConfig& config) { config.speculation.num_spec_tokens = 1; }),
            "has draft tokens, so the results of another configuration are unknown");
  EXPECT_EQ(error_of([](CoreConfig& config) { config.swap.swap_choice = SwapChoice::measured; }),
            "has swapped requests, so the results of another configuration are unknown");
  EXPECT_EQ(error_of([](CoreConfig& config) { config.scheduler.policy = SchedulingPolicy::continuum; }), "") << "no request has a job";
  const Planted planted = plant(path, run.new_path("planted"), 1, false);
  EXPECT_EQ(what_if(planted.path, [](CoreConfig&) {}).error().message,
            "has decisions that this quire would make differently, so the results of another configuration are unknown");
}

}  // namespace
}  // namespace quire::test
