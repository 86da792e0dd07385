// Measures the cost of the trace on the engine thread. Two cores, one with a tracer, get the same requests and take turns. Prints
// microseconds of schedule() per decode step, including the copy of the step's facts. Another thread turns the facts into text; the
// benchmark waits for this thread between two steps.
//
//   trace_bench [RUNNING...]
#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

#include "engine/trace/tracer.h"
#include "quire/core.h"
#include "value.h"

namespace {

using namespace quire;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kPromptTokens = 128, kBlockSize = 16, kSteps = 400;
constexpr double kStep_us = 10'000.0;  // step of a model, for comparison with the cost

std::unique_ptr<Core> start(std::uint32_t num_requests, EventSink* events) {
  CoreConfig config;
  config.scheduler.max_num_seqs = config.scheduler.max_num_waiting = num_requests;
  config.scheduler.max_num_batched_tokens = std::max(8192U, num_requests);
  config.scheduler.max_model_len = 8192;
  config.scheduler.async_scheduling = config.report.log_stats = config.report.count_common_prefix = false;
  config.block_size = kBlockSize;
  config.kv.num_blocks = num_requests * (kPromptTokens + 2 * kSteps) / kBlockSize + 64;
  config.kv.groups.push_back({.layer_names = {}, .spec = FullAttentionSpec{}, .layer_specs = {}});
  auto core = value(Core::create(config, {.events = events}));
  std::vector<TokenId> prompt(kPromptTokens);
  for (std::uint32_t i = 0; i < num_requests; ++i) {
    for (std::uint32_t j = 0; j < kPromptTokens; ++j) prompt[j] = static_cast<TokenId>((i * 7 + j) % 30000);
    value(core->add({.id = RequestId{i}, .prompt = prompt, .max_tokens = 4 * kSteps}));
  }
  return core;
}

// Returns the microseconds of one schedule(); 0 for a step that still computes prompts.
double step(Core& core, Tracer* tracer, std::uint32_t num_requests, std::vector<SampledToken>& sampled) {
  const auto begin = Clock::now();
  const StepPlan& plan = core.schedule();
  if (tracer != nullptr) tracer->planned(plan);
  const double spent_us = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  sampled.clear();
  for (const ScheduledRequest& s : plan.scheduled)
    if (s.samples) sampled.push_back({s.id, TokenId{11}});
  const bool decodes = plan.num_scheduled_tokens == num_requests && sampled.size() == num_requests;
  StepResult result;
  result.step = plan.step;
  result.sampled = sampled;
  value(core.apply(result));
  return decodes ? spent_us : 0.0;
}

double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void run(std::uint32_t num_requests, const std::string& path) {
  TraceOptions options;
  options.path = path;
  options.max_files = 1;
  const auto tracer = value(Tracer::create(options, {SchedulingPolicy::fcfs, num_requests, 8192}));
  const auto plain = start(num_requests, nullptr), traced = start(num_requests, tracer.get());
  tracer->follow(*traced);
  std::vector<SampledToken> sampled;
  std::vector<double> off_us, on_us;
  for (std::uint64_t num_steps = 1; on_us.size() < kSteps; ++num_steps) {
    const double off = step(*plain, nullptr, num_requests, sampled), on = step(*traced, tracer.get(), num_requests, sampled);
    if (on > 0.0) off_us.push_back(off), on_us.push_back(on);
    while (tracer->num_written() + tracer->num_dropped() < num_steps) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  if (tracer->num_dropped() > 0) fmt::print(stderr, "{} steps are missing in the trace\n", tracer->num_dropped());
  const double off = median(off_us), on = median(on_us);
  fmt::print("{:7}  {:10.1f} {:10.1f} {:10.1f}  {:15.2f} %\n", num_requests, off, on, on - off, 100.0 * (on - off) / kStep_us);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::uint32_t> counts;
  for (int i = 1; i < argc; ++i) counts.push_back(static_cast<std::uint32_t>(std::strtoul(argv[i], nullptr, 10)));
  if (counts.empty()) counts = {64, 1024};
  std::string folder = (std::filesystem::temp_directory_path() / "quire_trace_bench_XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return 1;
  fmt::print("us per plan (median of {} decode steps)\n", kSteps);
  fmt::print("{:>7}  {:>10} {:>10} {:>10}  {:>17}\n", "running", "untraced", "traced", "more", "of a 10 ms step");
  for (const std::uint32_t count : counts) run(count, folder + "/run");
  std::filesystem::remove_all(folder);
}
