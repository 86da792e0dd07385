// Tests the trace: every field of a recorded step, sums that equal the counters, limits, rotation, and a disk that fails.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "engine/loop/step_loop.h"
#include "engine/simulated_engine.h"
#include "engine/trace/trace_folder.h"
#include "engine/trace/trace_text.h"
#include "engine/trace/trace_writer.h"
#include "engine/trace/tracer.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

TEST(Trace, WritesEveryFieldOfAStep) {
  TraceStep step;
  step.step = StepId{3};
  step.time_s = 1700000000.25;
  step.has_queues = true;
  step.num_free_blocks = 5;
  step.num_blocks = 11;
  step.num_cached_blocks = 2;
  TracedFacts facts{.place = 1, .id = RequestId{7}, .is_last_step = true, .name = "name", .job = "job\"", .hints = {{"size", "a\"b"}}};
  facts.prompt_prefix = {1, 2};
  facts.priority = -1;
  facts.arrival_time = 12.5;
  facts.client_index = 1;
  facts.max_tokens = 20;
  facts.num_prompt_tokens = 2;
  facts.num_encoder_inputs = 1;
  step.facts = {facts, {.place = 0, .id = RequestId{5}, .job = "job"}, {.place = 2, .id = RequestId{8}}, {.place = 3, .id = RequestId{9}}};
  TracedRequest running{.place = 1, .is_prefill_chunk = true, .stop_token = 9};
  running.num_tokens = 4;
  running.num_computed_tokens = 3;
  running.num_preemptions = 1;
  running.num_drafts = 2;
  running.num_block_hashes = 1;
  running.num_blocks = 4;
  running.num_fresh_outputs = 2;
  running.num_cached_tokens = 2;
  running.num_external_computed_tokens = 1;
  step.outputs = {3, 4};
  step.requests = {running,
                   {.place = 2, .queue = QueueKind::waiting, .status = RequestStatus::preempted},
                   {.place = 3, .queue = QueueKind::skipped_waiting, .status = RequestStatus::waiting_for_remote_kv},
                   {.place = 0, .queue = QueueKind::pinned, .status = RequestStatus::finished_stopped, .num_blocks = 2}};
  step.lookups.push_back(
      {{.what = EventKind::admission_tried, .load_async = true, .owner = RequestId{8}, .amount = 16, .total = 20, .external = 4},
       "job",
       18});
  Event evicted{.what = EventKind::block_evicted, .step = StepId{3}, .beneficiary = RequestId{8}, .block = BlockId{2}};
  evicted.name[0] = 0xab;
  step.events = {evicted,
                 {.what = EventKind::preempted,
                  .cause = EventCause::lack_of_blocks,
                  .step = StepId{3},
                  .owner = RequestId{8},
                  .beneficiary = RequestId{7},
                  .amount = 1},
                 {.what = EventKind::unpinned, .cause = EventCause::lack_of_blocks, .step = StepId{3}, .owner = RequestId{4}, .amount = 2}};
  step.events_before = {{.what = EventKind::pinned, .step = StepId{2}, .owner = RequestId{5}, .amount = 2}};
  step.running = {{RequestId{7}, 1}};
  step.fresh = {{RequestId{10}, 5}};
  step.resumed = {{RequestId{11}, 6}};
  step.preempted = {RequestId{8}};
  std::string steps, requests;
  TraceText({SchedulingPolicy::continuum, 128, 2048, {}}).append(step, steps, requests);
  const std::string zeros(62, '0');
  EXPECT_EQ(steps, R"({"event":"quire","step":2,"what":"pinned","cause":"none","owner":"5","blocks":2})"
                   "\n"
                   R"({"event":"step_snapshot","step":3,"ts":1700000000.250000,"policy":"continuum","free_blocks":5,"total_blocks":11,)"
                   R"("num_running":1,"num_waiting":1,"num_pinned":1,"running_req_ids":["7"],"waiting_req_ids":["8"],)"
                   R"("running_job_ids":["job\""],"waiting_job_ids":[null],"gpu_cached_blocks":2,"cpu_free_blocks":null,)"
                   R"("cpu_total_blocks":null,"cpu_cached_blocks":null,"pinned_blocks":2,"pinned_job_ids":["job"],)"
                   R"("max_num_running_reqs":128,"max_num_scheduled_tokens":2048,)"
                   R"("quire":{"skipped_waiting_req_ids":["9"],"pinned_req_ids":["5"]}})"
                   "\n"
                   R"({"event":"prefix_cache_lookup","step":3,"ts":1700000000.250000,"policy":"continuum","req_id":"8","job_id":"job",)"
                   R"("local_hit_tokens":16,"external_hit_tokens":4,"total_hit_tokens":20,"total_prompt_tokens":18,"num_tokens":20,)"
                   R"("connector":null,"load_kv_async":true})"
                   "\n"
                   R"({"event":"quire","step":3,"what":"block_evicted","cause":"none","beneficiary":"8","block":2,"name":"ab)" +
                       zeros +
                       R"("})"
                       "\n"
                       R"({"event":"quire","step":3,"what":"preempted","cause":"lack_of_blocks","owner":"8","beneficiary":"7","blocks":1})"
                       "\n"
                       R"({"event":"quire","step":3,"what":"unpinned","cause":"lack_of_blocks","owner":"4","blocks":2})"
                       "\n"
                       R"({"event":"step_decision","step":3,"ts":1700000000.250000,"policy":"continuum","scheduled_new_req_ids":["10"],)"
                       R"("scheduled_resumed_req_ids":["11"],"scheduled_running_req_ids":["7"],"preempted_req_ids":["8"],)"
                       R"("num_scheduled_tokens":{"7":1,"10":5,"11":6}})"
                       "\n");
  EXPECT_EQ(requests.substr(0, requests.find('\n') + 1),
            R"({"step":3,"ts":1700000000.250000,"queue":"running","req_id":"7","job_id":"job\"","is_last_step":true,"status":"RUNNING",)"
            R"("priority":-1,"arrival_time":12.500000,"client_index":1,"max_tokens":20,"num_prompt_tokens":2,"num_tokens":4,)"
            R"("num_output_tokens":2,"num_computed_tokens":3,"num_cached_tokens":2,"num_preemptions":1,)"
            R"("num_external_computed_tokens":1,"num_nans_in_logits":0,"num_encoder_inputs":1,"is_prefill_chunk":true,)"
            R"("resumable":false,"cache_salt":null,"stop_reason":9,"kv_transfer_params":null,"prompt_prefix":[1,2],)"
            R"("prompt_suffix":[],"output_tail":[3,4],"prompt_prefix_text":null,"prompt_suffix_text":null,"output_tail_text":null,)"
            R"("spec_tokens_count":2,"block_hashes_count":1,"quire":{"num_blocks":4,"name":"name","tenant":null,"hints":{"size":"a\"b"}}})"
            "\n");
  EXPECT_EQ(std::ranges::count(requests, '\n'), 2) << "one running and one waiting request";
  step.num_common_prefix_blocks = {2, 0};
  step.tier = TracedTier{.num_free = 4, .num_places = 9, .num_held = 5};
  steps.clear();
  TraceText({SchedulingPolicy::continuum, 128, 2048, "dram+disk", true}).append(step, steps, requests);
  EXPECT_NE(steps.find(R"(,"cpu_free_blocks":4,"cpu_total_blocks":9,"cpu_cached_blocks":5,"pinned_blocks":2,)"), std::string::npos)
      << steps;
  EXPECT_NE(steps.find(R"(,"connector":"dram+disk","load_kv_async":true})"), std::string::npos) << steps;
  EXPECT_TRUE(steps.ends_with(R"("num_scheduled_tokens":{"7":1,"10":5,"11":6},"quire":{"num_common_prefix_blocks":[2,0]}})"
                              "\n"))
      << steps;
}

// Returns the sum of the numbers in the object that follows `name` in each line.
std::uint64_t sum_of(const std::vector<std::string>& lines, const std::string& name) {
  std::uint64_t sum = 0;
  for (const std::string& line : lines) {
    std::size_t at = line.find("\"" + name + "\":{");
    if (at == std::string::npos) continue;
    const std::size_t end = line.find('}', at);
    at += name.size() + 3;
    while ((at = line.find("\":", at)) < end) sum += std::stoull(line.substr(at += 2));
  }
  return sum;
}

// Returns the number of ids in the list that follows `name` in each line.
std::uint64_t num_ids(const std::vector<std::string>& lines, const std::string& name) {
  std::uint64_t num_quotes = 0;
  for (const std::string& line : lines) {
    const std::size_t at = line.find("\"" + name + "\":[");
    if (at == std::string::npos) continue;
    const std::string_view list = std::string_view(line).substr(at + name.size() + 4);
    num_quotes += static_cast<std::uint64_t>(std::ranges::count(list.substr(0, list.find(']')), '"'));
  }
  return num_quotes / 2;
}

TEST(Trace, SumsOfARunEqualTheCounters) {
  for (const SchedulingPolicy policy : {SchedulingPolicy::fcfs, SchedulingPolicy::priority, SchedulingPolicy::continuum}) {
    TraceFolder folder;
    EngineOptions options;
    options.scheduler.policy = policy;
    options.scheduler.reserve_full_isl = options.scheduler.async_scheduling = false;
    options.cache.num_blocks = 20;
    options.trace.path = folder.file("run");
    const ResolvedEngine resolved = resolve_options(options, simulated_model(), {1, 0}).value();
    const auto tracer = std::shared_ptr<Tracer>(Tracer::create(resolved.options.trace, {policy, resolved.options.scheduler.max_num_seqs,
                                                                                        resolved.options.scheduler.max_num_batched_tokens})
                                                    .value());
    auto core = Core::create(resolved.core, {.events = tracer.get()}).value();
    tracer->follow(*core);
    // Each step waits until the earlier steps are written, so none is dropped.
    const auto wait_for_writer = [&](const StepPlan& plan) {
      while (tracer->num_written() < plan.step.value) usleep(100);
    };
    SimulatedWorkerOptions worker{
        .limits = resolved.limits, .block_size = 16, .num_blocks = 20, .vocab_size = kVocab, .poison = -1, .before_step = wait_for_writer};
    StepLoop loop(std::move(core), std::make_unique<SimulatedWorker>(std::move(worker)), {.eos_ids = {kEos}, .tracer = tracer});
    Collector sink;
    for (std::uint32_t i = 0; i < 30; ++i)
      loop.add({.id = RequestId{i},
                .request = make_request(40, 40, static_cast<TokenId>(i)),
                .block_keys = {},
                .sink = &sink,
                .arrival_s = 0.0});
    while (loop.has_work()) loop.step();
    const EngineStats stats = loop.stats();
    while (tracer->num_written() < stats.num_steps) usleep(100);
    EXPECT_GT(stats.num_preemptions, 0U);
    const auto steps = folder.lines("run.steps.jsonl");
    std::uint64_t num_decisions = 0, num_preempted = 0;
    for (const std::string& line : steps) {
      num_decisions += line.starts_with(R"({"event":"step_decision")") ? 1 : 0;
      num_preempted += line.find(R"("what":"preempted")") != std::string::npos ? 1 : 0;
    }
    EXPECT_EQ(stats.trace_steps_dropped, 0U);
    EXPECT_EQ(num_decisions, stats.num_steps);
    EXPECT_EQ(loop.stats().trace_steps, stats.num_steps);
    EXPECT_EQ(num_preempted, stats.num_preemptions);
    EXPECT_EQ(num_ids(steps, "preempted_req_ids"), stats.num_preemptions);
    EXPECT_EQ(num_ids(steps, "scheduled_new_req_ids"), 30U);
    EXPECT_EQ(num_ids(steps, "scheduled_resumed_req_ids"), stats.num_preemptions);
    EXPECT_GE(sum_of(steps, "num_scheduled_tokens"), 30U * 40U + 30U * 39U) << "preempted tokens are computed again";
  }
}

TEST(Trace, RecordsEveryNthStepUpToTheLimit) {
  TraceFolder folder;
  EngineOptions options;
  options.trace = {.path = folder.file("run"), .every = 3, .max_steps = 4};
  {
    Collector sink;
    const auto engine = start(kModes[0], {.options = options});
    sink.wait(engine->submit(make_request(5, 40), sink).value());
  }
  std::vector<std::string> snapshots;
  for (const std::string& line : folder.lines("run.steps.jsonl"))
    if (line.starts_with(R"({"event":"step_snapshot")")) snapshots.push_back(line.substr(0, line.find(",\"ts\"")));
  ASSERT_EQ(snapshots.size(), 4U);
  EXPECT_EQ(snapshots[1], R"({"event":"step_snapshot","step":3)");
  EXPECT_EQ(snapshots[3], R"({"event":"step_snapshot","step":9)");
}

TEST(Trace, RotatesFullFilesAndRemovesTheOldest) {
  TraceFolder folder;
  TraceFile file(folder.file("log"), 10, 3);
  ASSERT_TRUE(file.open().has_value());
  for (const char* text : {"one\n", "two\n", "three\n", "four\n", "five\n", "sixteen bytes..\n"}) EXPECT_TRUE(file.append(text));
  EXPECT_EQ(folder.text("log"), "sixteen bytes..\n") << "a text larger than the limit has a separate file";
  EXPECT_EQ(folder.text("log.1"), "four\nfive\n");
  EXPECT_EQ(folder.text("log.2"), "three\n");
  EXPECT_FALSE(fs::exists(folder.file("log.3")));
}

TEST(Trace, AFileIsFullToTheByte) {
  TraceFolder folder;
  TraceFile file(folder.file("log"), 10, 2);
  ASSERT_TRUE(file.open().has_value());
  for (const char* text : {"1234\n", "6789\n"}) EXPECT_TRUE(file.append(text));
  EXPECT_FALSE(fs::exists(folder.file("log.1"))) << "ten bytes fit";
  EXPECT_TRUE(file.append(""));
  EXPECT_FALSE(fs::exists(folder.file("log.1"))) << "an empty text needs no room";
  EXPECT_TRUE(file.append("x"));
  EXPECT_EQ(folder.text("log"), "x");
  EXPECT_EQ(folder.text("log.1"), "1234\n6789\n");
  EXPECT_EQ(fs::status(folder.file("log")).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST(Trace, KeepsAsManyFilesAsAllowed) {
  for (const std::uint32_t max_files : {1U, 2U, 4U}) {
    TraceFolder folder;
    std::ofstream(folder.file("log")) << "0";
    TraceFile file(folder.file("log"), 2, max_files);
    ASSERT_TRUE(file.open().has_value());
    for (const char* text : {"1", "22", "33", "44", "55"}) EXPECT_TRUE(file.append(text));
    const char* const newest_first[] = {"55", "44", "33", "22"};
    for (std::uint32_t i = 0; i < 5; ++i) {
      const std::string name = i == 0 ? "log" : fmt::format("log.{}", i);
      EXPECT_EQ(fs::exists(folder.file(name)), i < max_files) << max_files << " files, " << name;
      if (i < max_files) EXPECT_EQ(folder.text(name), newest_first[i]) << max_files;
    }
  }
}

TEST(Trace, AppendsToTheFileOfAnEarlierRun) {
  TraceFolder folder;
  std::ofstream(folder.file("log")) << "12345";
  for (const char* text : {"67", "890"}) {
    TraceFile file(folder.file("log"), 10, 2);
    ASSERT_TRUE(file.open().has_value());
    EXPECT_TRUE(file.append(text));
  }
  EXPECT_EQ(folder.text("log"), "1234567890");
  EXPECT_FALSE(fs::exists(folder.file("log.1")));
}

TEST(Trace, ContinuesWhenItsFolderIsThereAgain) {
  TraceFolder folder;
  fs::create_directory(folder.file("logs"));
  TraceFile file(folder.file("logs/log"), 2, 2);
  ASSERT_TRUE(file.open().has_value());
  EXPECT_TRUE(file.append("11"));
  fs::remove_all(folder.file("logs"));
  EXPECT_FALSE(file.append("22"));
  EXPECT_FALSE(file.append("33"));
  fs::create_directory(folder.file("logs"));
  EXPECT_TRUE(file.append("44"));
  EXPECT_EQ(folder.text("logs/log"), "44");
}

TEST(Trace, ReportsAMissingFolderAtTheStart) {
  TraceFolder folder;
  const Error error = TraceFiles::open({.path = folder.file("no/such/run")}).error();
  EXPECT_EQ(error.code, ErrorCode::invalid_argument);
  EXPECT_EQ(error.to_string(), fmt::format("trace: '{}' cannot be written: No such file or directory; "
                                           "use a path in an existing folder that you can write to",
                                           folder.file("no/such/run.steps.jsonl")));
  fs::create_directory(folder.file("run.requests.jsonl"));
  const Error requests = TraceFiles::open({.path = folder.file("run")}).error();
  EXPECT_EQ(requests.message, fmt::format("'{}' cannot be written: Is a directory", folder.file("run.requests.jsonl")));
}

TEST(Trace, CountsDroppedStepsWhenTheDiskIsFull) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "this machine has no /dev/full";
  TraceFolder folder;
  for (const char* name : {"run.steps.jsonl", "run.requests.jsonl"}) fs::create_symlink("/dev/full", folder.file(name));
  EngineOptions options;
  options.trace.path = folder.file("run");
  Collector sink;
  const auto engine = start(kModes[0], {.options = options});
  const EngineRequest request = make_request(5, 30);
  expect_equal(sink.wait(engine->submit(request, sink).value()), expected(request));
  engine->stop(0.0);
  EXPECT_GT(engine->stats().trace_steps_dropped, 0U);
}

TEST(Trace, ASlowWriterRunsOutOfBlankSteps) {
  TraceFolder folder;
  TraceWriter writer(TraceFiles::open({.path = folder.file("run")}).value(), {});
  std::vector<std::unique_ptr<TraceStep>> taken;
  while (std::unique_ptr<TraceStep> step = writer.take_blank()) taken.push_back(std::move(step));
  EXPECT_EQ(taken.size(), 16U);
  writer.put(std::move(taken.back()));
  for (int i = 0; i < 10000 && writer.num_written() == 0; ++i) usleep(1000);
  EXPECT_EQ(writer.num_written(), 1U);
}

}  // namespace
}  // namespace quire
