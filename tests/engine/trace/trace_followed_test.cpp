// The trace sends some data once and some per step. Put together, each record must equal a full copy. Also counts the trace's allocations.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/random.h"
#include "engine/trace/trace_folder.h"
#include "engine/trace/tracer.h"
#include "support/count_allocations.h"

namespace quire {
namespace {

CoreConfig config_of(std::uint32_t num_blocks) {
  CoreConfig config;
  config.scheduler.max_num_seqs = 64;
  config.scheduler.max_num_waiting = 256;
  config.scheduler.max_num_batched_tokens = 8192;
  config.scheduler.max_model_len = 2048;
  config.scheduler.async_scheduling = config.scheduler.reserve_full_isl = config.report.log_stats = false;
  config.limits.max_outstanding_plans = 1;
  config.kv.num_blocks = num_blocks;
  config.kv.groups.push_back({.layer_names = {}, .spec = FullAttentionSpec{}, .layer_specs = {}});
  return config;
}

std::unique_ptr<Core> make_core(std::uint32_t num_blocks, EventSink* events) {
  return Core::create(config_of(num_blocks), {.events = events}).value();
}

// Writes a full copy of a request in the record's format.
std::string copy_of(const Core& core, const RequestView& r) {
  const auto outputs = r.tokens.subspan(r.num_prompt_tokens);
  const auto prompt = r.tokens.first(r.num_prompt_tokens);
  return fmt::format(R"("req_id":"{}","job_id":{},.."arrival_time":{:.6f},.."num_prompt_tokens":{},"num_tokens":{},"num_output_tokens":{},)"
                     R"("num_computed_tokens":{},"num_cached_tokens":{},"num_preemptions":{},.."prompt_prefix":[{}],"prompt_suffix":[{}],)"
                     R"("output_tail":[{}],.."num_blocks":{},"name":"{}",)",
                     r.id.value, r.tags->job.empty() ? "null" : '"' + r.tags->job + '"', r.arrival_time, prompt.size(), r.tokens.size(),
                     outputs.size(), r.num_computed_tokens, r.num_cached_tokens, r.num_preemptions,
                     fmt::join(prompt.first(std::min<std::size_t>(16, prompt.size())), ","),
                     fmt::join(prompt.last(prompt.size() > 16 ? 16 : 0), ","),
                     fmt::join(outputs.last(std::min<std::size_t>(32, outputs.size())), ","), core.blocks(r.id, 0).size(), r.name);
}

// Returns whether the parts of `copy` (separated by "..") appear in `record` in this order.
bool contains(std::string_view record, std::string_view copy) {
  while (true) {
    const std::size_t end = copy.find("..");
    const std::size_t at = record.find(copy.substr(0, end));
    if (at == std::string_view::npos) return false;
    if (end == std::string_view::npos) return true;
    record.remove_prefix(at);
    copy.remove_prefix(end + 2);
  }
}

// Copies all requests when a recorded step begins; the trace receives the event too.
struct Copier : EventSink {
  void on_event(const Event& event) override {
    to->on_event(event);
    if (event.what != EventKind::step_begins || event.step.value % every != 0) return;
    core->visit([this](QueueKind queue, const RequestView& view) {
      if (queue == QueueKind::running || queue == QueueKind::waiting) copies.push_back(copy_of(*core, view));
    });
  }
  EventSink* to = nullptr;
  const Core* core = nullptr;
  std::uint64_t every = 1;
  std::vector<std::string> copies;
};

// Adds requests, preempts, aborts and ends them, and continues some with another input.
void play(Core& core, Tracer& tracer, Random& random) {
  std::uint64_t num_added = 0;
  for (std::uint64_t step = 1; step <= 400 || core.has_work(); ++step) {
    for (int i = 0; i < 3 && step <= 400 && random.below(4) == 0; ++i) {
      std::vector<TokenId> prompt(1 + random.below(60));
      for (TokenId& token : prompt) token = static_cast<TokenId>(random.below(1000));
      const std::string name = fmt::format("n{}", num_added);
      const RequestTags tags{.job = random.below(2) == 0 ? "" : fmt::format("job{}", num_added)};
      ASSERT_TRUE(core.add({.id = RequestId{num_added++},
                            .name = name,
                            .prompt = prompt,
                            .arrival_time = static_cast<double>(step),
                            .max_tokens = static_cast<std::uint32_t>(1 + random.below(90)),
                            .resumable = random.below(4) == 0,
                            .tags = &tags}));
    }
    if (num_added > 0 && random.below(20) == 0) core.finish(RequestId{random.below(num_added)}, RequestStatus::finished_aborted);
    const StepPlan& plan = core.schedule();
    tracer.planned(plan);
    while (tracer.num_written() + tracer.num_dropped() < step) usleep(20);
    std::vector<SampledToken> sampled;
    for (const ScheduledRequest& s : plan.scheduled)
      if (s.samples) sampled.push_back({s.id, static_cast<TokenId>(random.below(1000))});
    ASSERT_TRUE(core.apply({.step = plan.step, .sampled = sampled}));
    for (std::uint64_t id = 0; id < num_added; ++id) {
      const auto view = core.view(RequestId{id});
      if (!view || view->status != RequestStatus::waiting_for_input) continue;
      const std::vector<TokenId> more(1 + random.below(20), static_cast<TokenId>(id));
      const SessionInput input{.tokens = more, .arrival_time = static_cast<double>(step) + 0.5};
      ASSERT_TRUE(core.continue_session(RequestId{id}, random.below(3) == 0 || step > 400 ? nullptr : &input));
    }
  }
}

TEST(TraceFollowed, EachRecordEqualsAFullCopy) {
  for (const std::uint32_t every : {1U, 3U, 40U}) {
    TraceFolder folder;
    const std::string path = folder.file("run");
    Copier copier;
    Random random(every);
    {
      const auto tracer = Tracer::create({.path = path, .every = every}, {}).value();
      const auto core = make_core(40, &copier);
      copier.to = tracer.get();
      copier.core = core.get();
      copier.every = every;
      tracer->follow(*core);
      play(*core, *tracer, random);
      EXPECT_EQ(tracer->num_dropped(), 0U);
      EXPECT_GT(core->counters().num_preemptions, 10U);
    }
    std::ifstream in(path + ".requests.jsonl");
    std::size_t num_records = 0;
    for (std::string record; std::getline(in, record); ++num_records) {
      ASSERT_LT(num_records, copier.copies.size());
      ASSERT_TRUE(contains(record, copier.copies[num_records])) << record << "\n" << copier.copies[num_records];
    }
    EXPECT_EQ(num_records, copier.copies.size());
    EXPECT_GT(num_records, 100U);
  }
}

// Tests what quire/step_trace.h, the public facade, adds.
TEST(TraceFollowed, ACallerThatStepsACoreGetsItsRecordsAfterAFlush) {
  TraceFolder folder;
  const CoreConfig config = config_of(40);
  const auto trace = StepTrace::create({.path = folder.file("run")}, config, "MyConnector").value();
  const auto core = Core::create(config, {.events = trace.get()}).value();
  trace->follow(*core);
  const std::vector<TokenId> prompt(20, 7);
  ASSERT_TRUE(core->add({.id = RequestId{3}, .prompt = prompt, .max_tokens = 1}));
  trace->planned(core->schedule());
  trace->flush();
  EXPECT_EQ(trace->num_written(), 1U);
  std::ifstream in(folder.file("run") + ".steps.jsonl");
  std::string text(std::istreambuf_iterator<char>(in), {});
  EXPECT_NE(text.find(R"("scheduled_new_req_ids":["3"])"), std::string::npos) << text;
  EXPECT_NE(text.find(R"("connector":"MyConnector")"), std::string::npos) << text;
  EXPECT_NE(text.find(R"("max_num_running_reqs":64,"max_num_scheduled_tokens":8192)"), std::string::npos) << text;
}

// Makes a step and waits until the trace has it.
void run_step(Core& core, Tracer& tracer) {
  const StepPlan& plan = core.schedule();
  tracer.planned(plan);
  tracer.flush();
  std::vector<SampledToken> sampled;
  for (const ScheduledRequest& s : plan.scheduled)
    if (s.samples) sampled.push_back({s.id, TokenId{11}});
  ASSERT_TRUE(core.apply({.step = plan.step, .sampled = sampled}));
}

TEST(TraceFollowed, ARecordHasTheFactsOfItsRequest) {
  TraceFolder folder;
  const auto tracer = Tracer::create({.path = folder.file("run")}, {}).value();
  tracer->set_tier_source([] { return TracedTier{.num_free = 4, .num_places = 9, .num_held = 5}; });
  const auto core = make_core(40, tracer.get());
  tracer->follow(*core);
  const RequestTags tags{.job = "job", .is_last_step = true, .tenant = "tenant", .hints = {{"size", "big"}}};
  std::vector<TokenId> prompt;
  for (TokenId token = 1; token <= 17; ++token) prompt.push_back(token);
  ASSERT_TRUE(core->add({.id = RequestId{3},
                         .name = "name",
                         .prompt = prompt,
                         .client_index = 6,
                         .arrival_time = 2.5,
                         .max_tokens = 2,
                         .resumable = true,
                         .cache_salt = "salt",
                         .tags = &tags}));
  prompt.pop_back();
  ASSERT_TRUE(core->add({.id = RequestId{4}, .prompt = prompt, .max_tokens = 5}));
  run_step(*core, *tracer);
  run_step(*core, *tracer);
  const auto records = folder.lines("run.requests.jsonl");
  ASSERT_EQ(records.size(), 4U);
  const std::string& first = records[0];
  for (const char* part :
       {R"("queue":"waiting","req_id":"3","job_id":"job","is_last_step":true,"status":"WAITING","priority":0,"arrival_time":2.500000,)",
        R"("client_index":6,"max_tokens":2,"num_prompt_tokens":17,"num_tokens":17,"num_output_tokens":0,"num_computed_tokens":0,)",
        R"("resumable":true,"cache_salt":"salt","stop_reason":null,)", R"("prompt_prefix":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16],)",
        R"("prompt_suffix":[2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17],)", R"("name":"name","tenant":"tenant","hints":{"size":"big"}})"})
    EXPECT_TRUE(first.contains(part)) << part << "\n" << first;
  EXPECT_TRUE(records[1].contains(R"("prompt_suffix":[],)")) << "the prefix is the whole prompt";
  for (const char* part : {R"("queue":"running","req_id":"3")", R"("num_tokens":18,"num_output_tokens":1,"num_computed_tokens":17,)",
                           R"("output_tail":[11],)", R"("num_blocks":2,)"})
    EXPECT_TRUE(records[2].contains(part)) << part << "\n" << records[2];
  const auto steps = folder.lines("run.steps.jsonl");
  EXPECT_TRUE(steps.at(0).contains(R"("free_blocks":39,"total_blocks":40,)")) << "with the null block" << steps[0];
  EXPECT_TRUE(steps.at(0).contains(R"("cpu_free_blocks":4,"cpu_total_blocks":9,"cpu_cached_blocks":5,)")) << steps[0];
  std::string decisions;
  for (const std::string& line : steps)
    if (line.starts_with(R"({"event":"step_decision")")) decisions += line.substr(line.find(R"("scheduled_new)")) + "\n";
  EXPECT_EQ(decisions,
            R"("scheduled_new_req_ids":["3","4"],"scheduled_resumed_req_ids":[],"scheduled_running_req_ids":[],"preempted_req_ids":[],)"
            R"("num_scheduled_tokens":{"3":17,"4":16}})"
            "\n"
            R"("scheduled_new_req_ids":[],"scheduled_resumed_req_ids":[],"scheduled_running_req_ids":["3","4"],"preempted_req_ids":[],)"
            R"("num_scheduled_tokens":{"3":1,"4":1}})"
            "\n");
}

// Snapshots show arrivals, admissions and ends already. Look-ups have lines of another form.
TEST(TraceFollowed, EventsAreKeptForTheirStep) {
  TraceFolder folder;
  const auto tracer = Tracer::create({.path = folder.file("run"), .max_steps = 2}, {}).value();
  const auto core = make_core(40, tracer.get());
  tracer->follow(*core);
  const auto event = [&](EventKind what, std::uint64_t owner = 0) { tracer->on_event({.what = what, .owner = RequestId{owner}}); };
  ASSERT_TRUE(core->add({.id = RequestId{3}, .prompt = std::vector<TokenId>(5, 1), .max_tokens = 9}));
  for (const EventKind what : {EventKind::queued, EventKind::admitted, EventKind::ended, EventKind::pinned}) event(what, 3);
  run_step(*core, *tracer);
  event(EventKind::unpinned, 4);
  run_step(*core, *tracer);
  event(EventKind::forked, 5);
  run_step(*core, *tracer);
  EXPECT_EQ(tracer->num_written(), 2U) << "at most two steps";
  EXPECT_EQ(tracer->num_dropped(), 0U);
  std::string order;
  for (const std::string& line : folder.lines("run.steps.jsonl")) {
    const std::size_t what = line.find(R"("what":")");
    order +=
        what == std::string::npos ? line.substr(10, line.find('"', 10) - 10) : line.substr(what + 8, line.find('"', what + 8) - what - 8);
    order += ' ';
  }
  EXPECT_EQ(order, "pinned step_snapshot prefix_cache_lookup step_decision unpinned step_snapshot step_decision ");
}

TEST(TraceFollowed, CountsAStepThatFindsNoFreeMemory) {
  TraceFolder folder;
  const auto tracer = Tracer::create({.path = folder.file("run"), .every = 2}, {}).value();
  for (int i = 0; i < 16; ++i) tracer->on_event({.what = EventKind::step_begins, .step = StepId{1}});
  EXPECT_EQ(tracer->num_dropped(), 0U);
  for (int i = 0; i < 3; ++i) tracer->on_event({.what = EventKind::step_begins, .step = StepId{1}});
  EXPECT_EQ(tracer->num_dropped(), 3U);
  tracer->planned({});
  tracer->flush();
  EXPECT_EQ(tracer->num_written(), 0U);
}

TEST(TraceFollowed, ReportsTheFieldOfOutOfRangeValues) {
  TraceFolder folder;
  const TraceOptions good{.path = folder.file("run")};
  const auto field = [&](const TraceOptions& options) {
    const auto trace = StepTrace::create(options, config_of(40));
    return trace ? std::string() : trace.error().field;
  };
  TraceOptions every = good, bytes = good, files = good, path = good;
  every.every = 0;
  bytes.max_file_bytes = 1000;
  files.max_files = 0;
  path.path = folder.file("none") + "/run";
  EXPECT_EQ(field(good), "");
  EXPECT_EQ(field(every), "trace_every");
  EXPECT_EQ(field(bytes), "trace_file_bytes");
  EXPECT_EQ(field(files), "trace_files");
  EXPECT_EQ(field(path), "trace");
}

// Counts the allocations of decode steps in the core and in the trace's thread.
std::uint64_t count_allocations(bool traced) {
  TraceFolder folder;
  const auto tracer = traced ? Tracer::create({.path = folder.file("run")}, {}).value() : nullptr;
  const auto core = make_core(64 * 100, tracer.get());
  if (traced) tracer->follow(*core);
  const std::vector<TokenId> prompt(40, 7);
  for (std::uint64_t id = 0; id < 64; ++id) EXPECT_TRUE(core->add({.id = RequestId{id}, .prompt = prompt, .max_tokens = 1400}));
  std::vector<SampledToken> sampled;
  sampled.reserve(64);
  std::uint64_t before = 0;
  for (std::uint64_t step = 1; step <= 1000; ++step) {
    if (step == 300) before = test::num_allocations;
    const StepPlan& plan = core->schedule();
    if (traced) tracer->planned(plan);
    while (traced && tracer->num_written() < step) usleep(20);
    sampled.clear();
    for (const ScheduledRequest& s : plan.scheduled)
      if (s.samples) sampled.push_back({s.id, TokenId{11}});
    EXPECT_TRUE(core->apply({.step = plan.step, .sampled = sampled}));
  }
  EXPECT_EQ(core->counters().num_running, 64U);
  return test::num_allocations - before;
}

TEST(TraceFollowed, ADecodeStepNeverAllocatesWithOrWithoutTrace) {
  if (!QUIRE_COUNTS_ALLOCATIONS) GTEST_SKIP() << "ThreadSanitizer keeps its own operator new: nothing to count";
  EXPECT_EQ(count_allocations(false), 0U);
  EXPECT_EQ(count_allocations(true), 0U);
}

}  // namespace
}  // namespace quire
